"""`hicheck mutants`: what a user reads, the JSON document, the verdicts, and what becomes of a mutant that ends its
worker."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from rich.console import Console

from hicache_checks import mutants_command
from hicache_checks.conformance import mutant_stages
from hicache_checks.conformance.mutant_stages import APART, CAUGHT, STAGES, SURVIVED, Cell, Mutant, known_mutants
from hicache_checks.conformance.workers import Crash
from hicache_checks.mutants_command import MutantsOptions
from hicache_checks.reporting import InputError, Outcome, Progress, Screen, Verdict

SEEN = Cell(CAUGHT, "P1", 3, "schedule", 0.5)
UNSEEN = Cell(SURVIVED, "", 7, "schedule", 60.0)
OUTSIDE = Cell(APART, "it cannot be watched", 0, "step", 0.1)


def run(**options: Any) -> tuple[Outcome, list[str]]:
    """The outcome, and the lines that the command printed, blanks made one."""
    printed = io.StringIO()
    screen = Screen(Console(file=printed, soft_wrap=True, highlight=False), Progress(io.StringIO()))
    outcome = mutants_command.run(MutantsOptions(**{"jobs": 1, **options}), screen)
    return outcome, [" ".join(line.split()) for line in printed.getvalue().splitlines()]


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """From now on a stage finds what it is told here, by name of the mutant."""

    def replace(**found: Mapping[str, Cell]) -> None:
        for name, cells in found.items():

            def look(mutants: Sequence[Mutant], *_: Any, cells: Mapping[str, Cell] = cells) -> dict[Mutant, Cell]:
                return {mutant: cells[mutant.name] for mutant in mutants}

            monkeypatch.setitem(STAGES, name, mutant_stages.Stage(name, STAGES[name].applies_to, look))

    return replace


# ---- real ones


def test_rules_are_caught_by_the_property_that_they_break() -> None:
    only = ("sched_allocates_at_submit", "sched_polls_in_vain", "io_drops_the_tail")
    outcome, printed = run(only=only, stages=("exploration", "liveness"))
    assert outcome.verdict is Verdict.PASS
    assert [line.rpartition(" ")[0] for line in printed[:4]] == [
        "mutant of stage caught by after",
        "sched_allocates_at_submit specification exploration inv_no_memory_before_verdict 1 step",
        "io_drops_the_tail specification exploration inv_ended_operations_hold_nothing 11 steps",
        "sched_polls_in_vain liveness liveness live_submitted_operations_end 14 lasso steps",
    ]
    assert printed[4].startswith("exploration: 2 of 2 mutants caught; median 0.")
    assert printed[-1] == "3 of 3 mutants caught; pass"
    assert {name: outcome.keys[name] for name in ("total", "caught", "survivors")} == {
        "total": 3,
        "caught": 3,
        "survivors": [],
    }


@pytest.mark.heavy
def test_implementations_are_caught_in_one_worker() -> None:
    only = ("sched_allocates_at_submit", "sched_revokes_before_the_count_is_agreed", "sched_clears_all_queues_but_one")
    outcome, _ = run(only=only, stages=("simulation",))
    rows: Any = outcome.keys["rows"]
    assert [(row["of"], row["name"], row["stages"]["simulation"]["outcome"]) for row in rows] == [
        ("reference", "sched_allocates_at_submit", "caught"),
        ("reference", "sched_revokes_before_the_count_is_agreed", "caught"),
        ("control", "sched_clears_all_queues_but_one", "caught"),
    ]
    for row in rows:
        assert row["stages"]["simulation"]["by"]
        assert 0 < row["stages"]["simulation"]["amount"] < 100


def test_refinement_knows_whom_it_cannot_see() -> None:
    outcome, printed = run(
        only=("sched_declines_too_early", "io_drops_the_tail", "sched_keeps_known_pages"), stages=("refinement",)
    )
    assert outcome.verdict is Verdict.PASS
    assert printed[1].startswith("sched_declines_too_early specification refinement no refinement of decide_at_drain")
    assert "does not apply: sched_keeps_known_pages cannot be watched" in printed[2]
    assert printed[5] == f"survivor io_drops_the_tail, of specification: {mutant_stages.NO_EVENT}"
    assert printed[6] == "1 of 2 mutants caught; pass"


# ---- verdicts


def test_an_unlisted_survivor_fails(stages: Callable[..., None]) -> None:
    stages(simulation={"io_drops_the_tail": UNSEEN, "io_counts_a_failed_page": SEEN})
    outcome, printed = run(only=("io_drops_the_tail", "io_counts_a_failed_page"), stages=("simulation",))
    assert outcome.verdict is Verdict.FAIL
    assert outcome.keys["survivors"] == [{"of": "reference", "name": "io_drops_the_tail", "reasons": [None]}]
    assert "io_drops_the_tail reference simulation survived 7 schedules 60.0" in printed
    assert "survivor io_drops_the_tail, of reference: this is not listed" in printed


def test_one_stage_is_enough(stages: Callable[..., None]) -> None:
    stages(simulation={"io_drops_the_tail": UNSEEN}, threads={"io_drops_the_tail": SEEN})
    outcome, printed = run(only=("io_drops_the_tail",), stages=("simulation", "threads"))
    assert outcome.verdict is Verdict.PASS
    assert printed[-1] == "1 of 1 mutant caught; pass"


def test_a_race_may_survive_real_threads(stages: Callable[..., None]) -> None:
    stages(threads={"sched_submits_out_of_order": UNSEEN})
    outcome, printed = run(only=("sched_submits_out_of_order",), stages=("threads",))
    assert outcome.verdict is Verdict.PASS
    assert "threads that run as they like do not hold query.take" in printed[-2]


def test_nothing_looked_at_is_an_error(stages: Callable[..., None]) -> None:
    stages(refinement={"io_drops_the_tail": OUTSIDE})
    outcome, _ = run(only=("io_drops_the_tail",), stages=("refinement",))
    assert outcome.verdict is Verdict.ERROR
    assert outcome.keys["total"] == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"stages": ("prayer",)},
            "no stage 'prayer'; there are exploration, liveness, refinement, simulation, threads",
        ),
        ({"only": ("io_sings",)}, "no mutant 'io_sings'"),
        ({"only": ("sched_polls_in_vain",), "stages": ("simulation",)}, "no such mutant is looked at by simulation"),
    ],
)
def test_names_that_are_none(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as refused:
        run(**options)
    assert str(refused.value) == said


def test_every_reason_is_of_a_mutant() -> None:
    known = {mutant.name for mutant in known_mutants()}
    assert all(reasons.keys() <= known for reasons in mutant_stages.SURVIVORS.values())
    assert mutant_stages.SURVIVORS.keys() <= STAGES.keys()


# ---- workers that do not survive


def test_a_crash_is_its_mutants(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[list[str]] = []

    def work(job: Mapping[str, Any], hear: Callable[[Mapping[str, Any]], None]) -> Crash | None:
        """The second mutant of the first worker kills it."""
        names = [sought["target"].partition("+")[2] for sought in job["sought"]]
        jobs.append(names)
        for number in range(1 if len(jobs) == 1 else len(names)):
            hear({"number": number, "schedules": 1})
            finding = {"property": "P1", "message": "", "kind": "protocol", "place": ""}
            hear({"number": number, "found": {"finding": finding, "schedules": 5, "seconds": 0.5, "note": ""}})
        return Crash("was killed by SIGSEGV", 1) if len(jobs) == 1 else None

    monkeypatch.setattr(mutant_stages, "work", work)
    only = ("io_drops_the_tail", "io_counts_a_failed_page", "io_releases_the_tail_twice")
    outcome, printed = run(only=only, stages=("simulation",))
    assert outcome.verdict is Verdict.PASS
    assert jobs == [
        ["io_counts_a_failed_page", "io_drops_the_tail", "io_releases_the_tail_twice"],
        ["io_releases_the_tail_twice"],
    ]
    assert printed[2].startswith(
        "io_drops_the_tail reference simulation P31 the process survives: it was killed by SIGSEGV 0 schedules"
    )
    assert printed[3].startswith("io_releases_the_tail_twice reference simulation P1 5 schedules 0.5")
