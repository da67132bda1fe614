"""`hicheck diff-targets`: two designs told apart on threads, what a user reads of it, and what is no difference."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from rich.console import Console

from hicache_checks import diff_targets_command
from hicache_checks.conformance import differ
from hicache_checks.conformance.differ import Call, DiffOptions, Pair, Program, Recorder, Run, Side, Teller, open_side
from hicache_checks.conformance.program import Setup, Step
from hicache_checks.conformance.workers import Crash
from hicache_checks.reporting import InputError, Outcome, Progress, Screen, Verdict
from hicache_checks.simulation.choices import Choices

OLDER, NEWER = "reference:revoke_queue", "reference"
RESIDENT, HITS, MISSES = (1,), (5, 6, 7), (1, 9, 3)
FOUNDING = Program(
    Setup(ranks=2, host_pages=3, threshold_pages=2, stored=(HITS,)),
    (
        Step("prefill", (RESIDENT,)),
        Step("tick"),
        Step("evict_device", (1,)),
        Step("submit", ("a", HITS)),
        Step("submit", ("b", MISSES)),
        Step("turn"),
        Step("turn"),
    ),
)
"""Memory for 3 pages, one of them resident. `a` hits 3; `b` misses, and protects the resident one until it is
revoked."""


@pytest.fixture(scope="module")
def sides() -> Iterator[tuple[Side, Side]]:
    with open_side(OLDER) as older, open_side(NEWER) as newer:
        yield older, newer


def run(*arguments: Any, **options: Any) -> tuple[Outcome, list[str]]:
    printed = io.StringIO()
    screen = Screen(Console(file=printed, soft_wrap=True, highlight=False), Progress(io.StringIO()))
    outcome = diff_targets_command.run(DiffOptions(*arguments, **options), screen)
    return outcome, [" ".join(line.split()) for line in printed.getvalue().splitlines()]


# ---- one program


def test_the_founding_counterexample(sides: tuple[Side, Side]) -> None:
    older, newer = (side.run(FOUNDING) for side in sides)
    assert older.ends == {"a#1": "fetched 3", "b#1": "revoked"}
    assert newer.ends == {"a#1": "fetched 2", "b#1": "revoked"}
    assert older.outcome != newer.outcome


def test_the_same_program_ends_the_same_way_again(sides: tuple[Side, Side]) -> None:
    for side in sides:
        assert side.run(FOUNDING).outcome == side.run(FOUNDING).outcome


def test_to_tell_it_changes_nothing(sides: tuple[Side, Side]) -> None:
    for side in sides:
        told = side.run(FOUNDING, Teller)
        assert told.outcome == side.run(FOUNDING).outcome
        tick = next(n for n, call in enumerate(told.calls) if any("allocated" in line for line in call.below))
        assert told.calls[tick].text == "tick()"
        assert told.calls[tick - 1].text == f"submit('b', {MISSES})"
        assert told.calls[tick - 1].answer == "accepted"


def test_two_variants_are_loaded_side_by_side(sides: tuple[Side, Side]) -> None:
    older, newer = sides
    name = "hicache_impl.operation"
    assert older.modules[name] is not newer.modules[name]


def test_what_is_broken_on_one_side_is_a_difference() -> None:
    with open_side("reference+io_dies_of_a_raising_store") as faulty, open_side(NEWER) as sound:
        broken = Step("break_storage", (0, "get", "raise"))
        program = Program(Setup(stored=(HITS,)), (broken, Step("fetch", (HITS,))))
        assert sound.run(program).broken is None
        assert faulty.run(program).broken == "raises"
        assert "died" in faulty.run(program).why


def test_an_operation_of_which_no_poll_tells_was_revoked(sides: tuple[Side, Side]) -> None:
    program = Program(
        Setup(stored=(HITS,)),
        (Step("submit", ("a", HITS)), Step("abort", ("a",)), Step("submit", ("a", HITS)), Step("turn"), Step("turn")),
    )
    for side in sides:
        assert side.run(program).ends == {"a#1": "revoked", "a#2": "fetched 3"}


# ---- many programs


@pytest.mark.heavy
def test_the_designs_are_told_apart_in_a_few_calls() -> None:
    outcome, printed = run(OLDER, NEWER)
    assert outcome.verdict is Verdict.FAIL
    difference: Any = outcome.keys["difference"]
    left, right = difference["left"], difference["right"]
    assert left["ends"] != right["ends"]
    assert len(difference["program"]) <= 3
    assert max(len(left["calls"]), len(right["calls"])) <= 16
    asked = [call["text"] for call in left["calls"] if call["text"].startswith("submit(")]
    assert len(asked) <= 3, "one that fills the host, and two that are answered in one tick"
    assert printed[1] == f"call LEFT: {OLDER} RIGHT: {NEWER}"
    assert any(line.endswith("<-") for line in printed)
    assert re.fullmatch(rf"{OLDER} and {NEWER}: they end differently in [2-9] of [\d,]+ programs; fail", printed[-1])


@pytest.mark.heavy
def test_with_ample_memory_they_are_alike() -> None:
    outcome, printed = run(OLDER, NEWER, assume=("no_host_pressure", "whole_ticks"), programs=300)
    assert outcome.verdict is Verdict.PASS
    assert outcome.keys["difference"] is None
    assumed = "assuming no_host_pressure, whole_ticks"
    assert printed == [f"{OLDER} and {NEWER}, {assumed}: no difference in 300 programs; pass"]


def test_no_time_for_all_programs_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diff_targets_command, "work", in_this_process)
    outcome, printed = run(NEWER, NEWER, seconds_max=0.0)
    assert outcome.verdict is Verdict.UNKNOWN
    assert printed[-1].endswith("programs of 1,000: the time is up; unknown")


def test_of_several_differences_the_shortest_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two that are as short the first; no more than eight are made small."""
    made_small: list[Choices] = []

    def minimise(fails: Any, choices: Choices, seconds_max: float) -> Choices:
        made_small.append(choices)
        return choices

    def calls_of(self: Pair, choices: Choices, judge: Any = Recorder) -> tuple[Program, Run, Run]:
        left = (5, 1, 2, 2, 5, 5, 5, 5, 1)[len(made_small) - 1]
        return FOUNDING, Run(calls=[Call("tick()")] * left), Run(calls=[Call("tick()")] * (2 if left == 2 else 4))

    monkeypatch.setattr(differ, "minimise", minimise)
    monkeypatch.setattr(Pair, "differs", lambda self, choices: True)
    monkeypatch.setattr(Pair, "run", calls_of)
    compared = differ.compare(DiffOptions(NEWER, NEWER), lambda text: None)
    assert (compared.programs, compared.differing, compared.out_of_time) == (8, 8, False)
    assert compared.difference is not None
    assert compared.difference.number == 2


def test_a_target_is_like_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diff_targets_command, "work", in_this_process)
    outcome, _ = run(NEWER, NEWER, programs=20)
    assert outcome.verdict is Verdict.PASS


def in_this_process(job: Any, hear: Callable[[Any], None]) -> None:
    differ.compare_job(job, hear)


# ---- what cannot be compared


@pytest.mark.parametrize(
    ("left", "assume", "said"),
    [
        ("nothing", (), "no target 'nothing'"),
        (OLDER, ("good_luck",), "good_luck is no assumption; of programs there are no_host_pressure, whole_ticks"),
        (OLDER, ("nothing_from_behind",), "nothing_from_behind is an assumption about runs of the specification;"),
    ],
)
def test_names_that_are_none(left: str, assume: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diff_targets_command, "work", in_this_process)
    with pytest.raises(InputError) as refused:
        run(left, NEWER, assume=assume)
    assert str(refused.value).startswith(said)


def test_a_process_that_ends_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diff_targets_command, "work", lambda job, hear: Crash("was killed by SIGKILL", None, "adieu"))
    with pytest.raises(InputError) as refused:
        run(OLDER, NEWER)
    assert str(refused.value) == f"{OLDER} and {NEWER} cannot be compared: the process was killed by SIGKILL: adieu"


def test_the_outcome_is_what_is_compared() -> None:
    run_ = Run(ends={"a#1": "fetched 1"}, rest={"free_pages": 2})
    assert run_.outcome != Run(ends={"a#1": "fetched 2"}, rest={"free_pages": 2}).outcome
    assert run_.outcome != Run(ends={"a#1": "fetched 1"}, rest={"free_pages": 1}).outcome
    assert run_.outcome != Run(ends={"a#1": "fetched 1"}, rest={"free_pages": 2}, broken="deadlock").outcome
    assert run_.outcome == Run(calls=[Call("tick()")], ends=run_.ends, rest=run_.rest).outcome
