"""`hicheck bench finders`: what is measured and printed; each finder finds something, or says why it cannot."""

from __future__ import annotations

import io
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from hicache_checks import bench_finders
from hicache_checks.bench_finders import COMPARED, FindersOptions
from hicache_checks.conformance import frontrun_peer, time_to_find
from hicache_checks.conformance.findings import Finding
from hicache_checks.conformance.mutant_stages import CAUGHT, SURVIVED, Cell, Hunting, Mutant
from hicache_checks.conformance.program import Setup
from hicache_checks.conformance.schedule import Result
from hicache_checks.conformance.time_to_find import FINDERS, Found, Hunt, find
from hicache_checks.reporting import InputError, Outcome, Progress, Screen

EASY = "reference+sched_allocates_at_submit"


def run(**options: Any) -> tuple[Outcome, list[str]]:
    printed = io.StringIO()
    screen = Screen(Console(file=printed, soft_wrap=True, highlight=False), Progress(io.StringIO()))
    outcome = bench_finders.run(FindersOptions(**options), screen)
    return outcome, [" ".join(line.split()) for line in printed.getvalue().splitlines()]


@pytest.mark.parametrize("finder", ["walk", "pct", "exhaustive", "mixed", "threads", "hypothesis"])
def test_every_finder_finds_what_is_easy(finder: str) -> None:
    found = find(finder, EASY, Hunt((1,), 60.0), lambda so_far: None)
    assert found.finding is not None
    assert found.finding.kind == "protocol"
    assert found.schedules >= 1
    assert found.ranks == 1


@pytest.mark.parametrize("finder", ["exhaustive", "hypothesis", "frontrun"])
def test_a_target_is_judged_by_its_own_design(finder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By another one, a hunt soon finds what is not wrong. The other finders make the runs of a search."""
    judges: list[Any] = []

    def run(*arguments: Any, judge: Any = None, make_judge: Any = None) -> Result:
        judges.append(judge or make_judge)
        return Result(Setup(), finding=Finding("P1", ""))

    monkeypatch.setattr(time_to_find, "run_schedule", run)
    monkeypatch.setattr(time_to_find, "run_real", run)
    frontrun(False, monkeypatch)
    assert find(finder, "reference:revoke_queue", Hunt((1,), 60.0), lambda so_far: None).finding is not None
    (judge,) = judges
    assert judge.keywords == {"profile": "revoke_queue_sampled"}


def test_the_same_hunt_finds_the_same() -> None:
    first, second = (
        find("walk", "reference+sched_finds_records_by_request_id", Hunt((1, 2), 60.0), lambda so_far: None)
        for _ in "ab"
    )
    assert (first.finding, first.ranks, first.number) == (second.finding, second.ranks, second.number)
    assert first.schedules == second.schedules > 1


@pytest.mark.parametrize("finder", ["walk", "exhaustive", "hypothesis"])
def test_a_hunt_ends_when_the_time_is_up(finder: str) -> None:
    found = find(finder, "reference", Hunt((1,), 0.0), lambda so_far: None)
    assert (found.finding, found.schedules) == (None, 1)


def test_a_hunt_takes_turns_on_numbers_of_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    def run_numbered(target: Any, options: Any, number: int) -> tuple[Any, None]:
        asked.append((number, options.ranks))
        return SimpleNamespace(finding=Finding("P1", "") if len(asked) == 4 else None), None

    monkeypatch.setattr(time_to_find, "run_numbered", run_numbered)
    found = find("walk", "reference", Hunt((1, 2), 60.0), lambda so_far: None)
    assert asked == [(0, 1), (0, 2), (1, 1), (1, 2)]
    assert (found.schedules, found.ranks, found.number) == (4, 2, 1)


# ---- the table


def test_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_at(self: Hunting, mutants: Sequence[Mutant]) -> None:
        for mutant in mutants:
            caught = self._finder == "walk" or mutant.name == "io_starts_without_the_flag"
            self.cells[mutant] = Cell(CAUGHT if caught else SURVIVED, "P1" if caught else "", 1200, "schedule", 2.5)

    monkeypatch.setattr(Hunting, "look_at", look_at)
    mutants = ("io_counts_after_termination", "io_starts_without_the_flag")
    outcome, printed = run(mutants=mutants, finders=("walk", "pct"), seconds=2.0)
    assert printed == [
        "seconds (runs) to the first finding walk pct",
        "io_counts_after_termination 2.5 (1,200) not in 2 (1,200)",
        "io_starts_without_the_flag 2.5 (1,200) 2.5 (1,200)",
        "walk, random walk: 2 of 2 mutants found; median 2.5 s",
        "pct, PCT: 1 of 2 mutants found; median 2.5 s",
    ]
    rows: Any = outcome.keys["rows"]
    assert [row["name"] for row in rows] == list(mutants)
    assert rows[0]["finders"]["pct"]["outcome"] == "survived"
    assert rows[0]["race"].startswith("hold io.copied")
    summary: Any = outcome.keys["summary"]
    assert summary["pct"] == {"what": COMPARED["pct"], "found": 1, "of": 2, "seconds_median": 2.5}


def test_the_ten_by_default_are_races() -> None:
    chosen = bench_finders.chosen(FindersOptions())
    assert len(chosen) == 10
    assert all(mutant.race is not None for mutant in chosen)
    assert COMPARED.keys() <= FINDERS.keys()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"finders": ("luck",)}, "no finder 'luck'; there are "),
        ({"mutants": ("sched_polls_in_vain",)}, "no mutant 'sched_polls_in_vain' of an implementation"),
    ],
)
def test_names_that_are_none(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as refused:
        run(**options)
    assert str(refused.value).startswith(said)


# ---- frontrun, which is not installed here


def frontrun(holds: bool | None, monkeypatch: pytest.MonkeyPatch, reason: str | None = None) -> None:
    """A frontrun that runs its worker once, and answers so."""

    def explore(setup: Any, workers: Sequence[Any], invariant: Any, **limits: float) -> Any:
        workers[0](setup())
        return SimpleNamespace(property_holds=holds, num_explored=1, inconclusive_reason=reason)

    monkeypatch.setenv(frontrun_peer.ACTIVE, "0")
    monkeypatch.setattr(frontrun_peer, "import_module", lambda name: SimpleNamespace(explore=explore))


def test_frontrun_finds_something(monkeypatch: pytest.MonkeyPatch) -> None:
    frontrun(False, monkeypatch)
    found = find("frontrun", EASY, Hunt((1,), 10.0, seed=1), lambda so_far: None)
    assert found.finding is not None
    assert (found.schedules, found.note) == (1, "")


def test_frontrun_cannot_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was wrong in a run that it gave up is no finding of its."""
    frontrun(None, monkeypatch, "the first execution timed out")
    found = find("frontrun", EASY, Hunt((1,), 10.0), lambda so_far: None)
    assert (found.finding, found.note) == (None, "it does not apply: the first execution timed out")


def test_frontrun_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def import_module(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(frontrun_peer, "import_module", import_module)
    found = find("frontrun", EASY, Hunt((1,), 10.0), lambda so_far: None)
    assert found == Found(ranks=1, note=frontrun_peer.MISSING)
