"""The black-box monitor: never a false alarm, and what it sees of faulty implementations.

That it is never wrong is shown three ways: for every run of the specification within small bounds; for random longer
runs of it, with much left out of what is seen; and for the reference with threads that run as they like.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hicache_checks.conformance.black_box import BlackBox
from hicache_checks.conformance.black_box_judge import BlackBoxJudge
from hicache_checks.conformance.explainer import MonitorConfig
from hicache_checks.conformance.findings import UNKNOWN, Broken, Finding
from hicache_checks.conformance.observation import UNOBSERVED
from hicache_checks.conformance.program import Setup, Step, draw_setup, draw_step, menu_for
from hicache_checks.conformance.session import Session
from hicache_checks.conformance.telling_calls import CallTeller
from hicache_checks.simulation.choices import Choices, Drawn, Seeded
from hicache_impl.adapter import Reference
from hicache_impl.mutants import MUTANTS
from hicache_impl.runtime import ThreadRuntime
from hicache_spec import Bounds
from hicache_spec.bounds import AGAIN, POLICY, PRESSURE_CHURN, SMALL, SOLO_BEST_EFFORT, SOLO_CHURN, SOLO_TIMEOUT
from spec_product import Product
from spec_walk import SpecWalk

CONFIG = MonitorConfig(ranks=2, host_pages=4, threshold_pages=1, limit_pages=8, policy="wait_complete")
A = ("a", 1)
STEPS_MAX = 24


def sight(free: int, resident: int = 0, occupied: int = 0, **operations: int) -> dict[str, Any]:
    """What is observed; operations are the first attempts of their requests."""
    pending = {(rid, 1): pages for rid, pages in operations.items()}
    return {"free_pages": free, "resident_pages": resident, "occupied_pages": occupied, "operations": pending}


def granted(pages: int = 3) -> BlackBox:
    """Three pages were asked for, and so many granted."""
    box = BlackBox(CONFIG)
    box.submitted("a", 3, {"accepted": True}, sight(4, 0, 3, a=0))
    box.ticked(sight(4 - pages, 0, 3, a=pages))
    assert box.alarm is None
    return box


def alarm_of(box: BlackBox) -> str:
    assert box.alarm is not None
    return f"{box.alarm.property}: {box.alarm.message}"


# ---- never a false alarm


def from_nothing(bounds: Bounds, **more: Any) -> Bounds:
    """The bounds with an empty tree at the start, and with a storage that may hold anything."""
    return replace(bounds, churn=True, resident_pages=(0,) * len(bounds.resident_pages), **more)


EVERY_RUN = (
    from_nothing(SOLO_CHURN, writes=True),
    from_nothing(SOLO_TIMEOUT, stops=True),
    from_nothing(SOLO_BEST_EFFORT, stops=True),
    from_nothing(AGAIN, stops=True),
    from_nothing(PRESSURE_CHURN),
    from_nothing(next(b for b in SMALL if b.name == "pair_churn")),
)


@pytest.mark.heavy
@pytest.mark.parametrize("bounds", EVERY_RUN, ids=lambda b: b.name)
def test_no_run_of_the_specification_raises_an_alarm(bounds: Bounds) -> None:
    pairs, worlds = Product(bounds).explore()
    assert pairs > 500
    assert worlds <= 8


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 2), st.sampled_from(POLICY.members), st.sampled_from((0.0, 0.0, 0.3, 0.6)))
def test_no_long_run_of_the_specification_raises_an_alarm(seed: int, ranks: int, policy: str, hidden: float) -> None:
    walk = SpecWalk(seed, ranks, policy, hidden)
    walk.run(calls=20)
    assert walk.box.alarm is None, str(walk.box.alarm)
    if not hidden:
        assert walk.box.unknown is None


class Clocked(ThreadRuntime):
    """Plain threads, and a clock that can be put forward."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def now(self) -> float:
        return super().now() + self.ahead_s


class Among:
    """The place of a session: plain threads that come to rest when they are asked to."""

    def __init__(self, target: Reference, runtime: Clocked) -> None:
        self._target = target
        self._runtime = runtime

    def now(self) -> float:
        return self._runtime.now()

    def wait(self, seconds: float) -> None:
        self._runtime.ahead_s += seconds

    def settle(self) -> None:
        self._target.settle()

    def set_clock(self, seconds: float) -> None:
        """The reference does not look at it. What else may be done to a place, is not done here."""

    def slow(self, threads: Sequence[str], seconds: float) -> None:
        raise NotImplementedError

    def kill(self, threads: Sequence[str]) -> None:
        raise NotImplementedError

    def left(self) -> Sequence[str]:
        raise NotImplementedError

    def died(self) -> None:
        """What dies, the reference says by itself."""


def run(
    choices: Choices, ranks: int, policy: str, can_settle: bool, steps: Sequence[Step] | None = None, **builds: Any
) -> tuple[BlackBoxJudge, Any]:
    """A program, drawn if it is not given, on the reference with plain threads, or on a faulty one; what was found."""
    runtime = Clocked()
    setup = draw_setup(choices, ranks, policy)
    target = Reference(setup.config(), runtime=runtime, **builds)
    judge = BlackBoxJudge(target, setup, can_settle)
    try:
        for prompt in setup.stored:
            target.store(prompt)
        # The audit looks inside. Of a faulty target nothing is called that a session judges by itself.
        judged = ("flush", "attach", "tiers") if builds else ()
        capabilities = sorted(set(target.capabilities()) - {"audit", "threads", "deaths", *judged})
        session = Session(target, setup, judge, Among(target, runtime), capabilities)
        for step in steps or program(choices, capabilities, ranks):
            session.do(step)
        session.run_out()
    except Broken as broken:
        return judge, broken
    finally:
        # A faulty target may not even close; what it did was found before.
        with suppress(Exception):
            target.close()
    return judge, None


def program(choices: Choices, capabilities: Sequence[str], ranks: int) -> Iterator[Step]:
    """At most so many steps. A store may raise, miss or answer short; one that stalls would only take time here, and
    wrong bytes are not seen from outside."""
    for _ in range(STEPS_MAX):
        step = draw_step(choices, menu_for(capabilities), ranks)
        if step is None:
            return
        if step.kind != "lie" and "stall" not in step.args:
            yield step


def hold_the_reference_to_it(data: st.DataObject, ranks: int, policy: str, can_settle: bool) -> None:
    choices = Drawn(lambda count: data.draw(st.integers(0, count - 1)))
    judge, broken = run(choices, ranks, policy, can_settle)
    assert broken is None, "\n".join([str(broken), *getattr(broken, "__notes__", ())])
    assert judge.box.unknown is None


HOW = (st.data(), st.integers(1, 2), st.sampled_from(POLICY.members), st.booleans())


@settings(max_examples=15)
@given(*HOW)
def test_a_few_programs_raise_no_alarm(data: st.DataObject, ranks: int, policy: str, can_settle: bool) -> None:
    hold_the_reference_to_it(data, ranks, policy, can_settle)


@pytest.mark.heavy
@settings(max_examples=400)
@given(*HOW)
def test_hundreds_of_programs_raise_no_alarm(data: st.DataObject, ranks: int, policy: str, can_settle: bool) -> None:
    hold_the_reference_to_it(data, ranks, policy, can_settle)


# ---- what faulty implementations show to their callers

# mutant: ranks, policy, and the alarm that it raises. Where threads race, either of several may be first.
CAUGHT_BY: dict[str, tuple[int, str, tuple[str, ...]]] = {
    "io_waits_on_after_a_failed_page": (1, "wait_complete", ("P5 may_end (§3.8)",)),
    "io_drops_the_tail": (1, "wait_complete", ("P4 inv_pages_conserved", "P4 inv_rest_restores_the_pool")),
    "io_counts_after_termination": (1, "best_effort", ("P4 inv_pages_conserved", "P4 inv_rest_restores_the_pool")),
    "sched_grants_below_the_threshold": (
        1,
        "wait_complete",
        ("P17 inv_grant_is_worth_it", "P11 inv_records_name_their_attempt"),
    ),
    "sched_evicts_for_every_grant": (1, "wait_complete", ("P9 step_eviction_is_needed",)),
    "sched_allocates_at_submit": (1, "wait_complete", ("P4 inv_pages_conserved",)),
    "sched_revokes_without_accounting": (1, "wait_complete", ("P8 inv_occupied_is_sum_of_spans",)),
    "sched_publishes_without_accounting": (1, "wait_complete", ("P8 inv_occupied_is_sum_of_spans",)),
    "sched_accounts_what_it_declines": (1, "wait_complete", ("P8 inv_occupied_is_sum_of_spans",)),
    "sched_keeps_an_ended_record": (
        1,
        "wait_complete",
        ("P11 inv_records_name_their_attempt", "sched_drain (§3.6)"),
    ),
    "sched_reuses_attempts": (1, "wait_complete", ("P11 inv_records_name_their_attempt",)),
    "sched_completes_without_a_plan": (1, "wait_complete", ("step_waits_for_the_verdict",)),
    "sched_needs_termination_everywhere": (2, "wait_complete", ("P5 may_end (§3.8)",)),
    "sched_keeps_unagreed_pages": (2, "wait_complete", ("P4 inv_pages_conserved", "P4 inv_rest_restores_the_pool")),
    "sched_keeps_known_pages": (1, "wait_complete", ("P4 inv_pages_conserved",)),
    "sched_sets_the_flag_only": (1, "wait_complete", ("P11 inv_records_name_their_attempt",)),
}
PROGRAMS = 3000


@pytest.mark.heavy
@pytest.mark.parametrize("name", CAUGHT_BY)
def test_a_mutant_shows_to_its_callers(name: str) -> None:
    ranks, policy, properties = CAUGHT_BY[name]
    mutant = next(m for m in MUTANTS if m.name == name)
    for seed in range(PROGRAMS):
        _, broken = run(Seeded(seed), ranks, policy, True, **mutant.builds)
        if broken is not None:
            assert broken.finding.property in properties, "\n".join(
                [str(broken.finding), *getattr(broken, "__notes__", ())]
            )
            return
    raise AssertionError("the mutant survived")


PROMPT = (1, 2, 3)
SUBMIT = Step("submit", ("a", PROMPT))
REST = Step("settle")
ABORT_WHAT_LANDED = [Step("store", (PROMPT,)), SUBMIT, REST, Step("tick"), REST, Step("abort", ("a",)), REST]
# What drawn programs would find by chance only: mutant, policy, program, alarm.
SHOWN_BY = {
    "sched_ignores_the_clock": (
        "timeout",
        [SUBMIT, Step("wait", (1.5,)), Step("poll", (("a",),))],
        "P5 may_end (§3.8): a is not ready at poll(a)",
    ),
    "sched_aborts_and_keeps_what_landed": (
        "wait_complete",
        ABORT_WHAT_LANDED,
        "P4 inv_pages_conserved: free_pages is 2, explained is 5 at tick()",
    ),
    "sched_aborts_and_publishes": (
        "wait_complete",
        ABORT_WHAT_LANDED,
        "P4 inv_pages_conserved: resident_pages is 3, explained is 0 at abort(a)",
    ),
}


@pytest.mark.parametrize("name", SHOWN_BY)
def test_a_mutant_shows_in_a_program_that_is_made_for_it(name: str) -> None:
    policy, steps, finding = SHOWN_BY[name]
    mutant = next(m for m in MUTANTS if m.name == name)
    assert run(Seeded(0), 1, policy, True, steps)[1] is None
    _, broken = run(Seeded(0), 1, policy, True, steps, **mutant.builds)
    assert str(broken.finding) == finding


# ---- what it says


def test_a_page_that_is_gone_is_told_with_what_could_have_been() -> None:
    box = granted(3)
    box.polled({"a": {"ready": True, "state": "fetched", "pages": 2}}, sight(1, 2))
    box.settled()
    box.ticked(sight(1, 2))
    assert box.alarm is not None
    assert str(box.alarm) == "\n".join(
        [
            "P4 inv_pages_conserved: free_pages is 1, explained is 2 at call 4, tick()",
            "  explained up to call 3, poll(a): free_pages 1, resident_pages 2, occupied_pages 0, operations none",
            "  possible: free_pages 2, resident_pages 2, occupied_pages 0, operations none",
        ]
    )


def test_a_poll_that_ends_too_early_or_too_late_is_told() -> None:
    box = BlackBox(CONFIG)
    box.submitted("a", 3, {"accepted": True}, sight(4, 0, 3, a=0))
    box.polled({"a": {"ready": True, "state": "revoked"}}, sight(4))
    assert alarm_of(box) == "step_waits_for_the_verdict: a is ready: revoked"
    assert box.alarm is not None
    assert box.alarm.possible == ("a is not ready",)

    box = granted(2)
    box.settled()
    box.polled({"a": {"ready": False}})
    assert alarm_of(box) == "P5 may_end (§3.8): a is not ready"
    assert box.alarm is not None
    assert box.alarm.possible == tuple(f"a is ready: fetched, {n} pages" for n in range(3))


Calls = Sequence[tuple[Any, ...]]
NONSENSE: dict[str, tuple[Calls, str]] = {
    "a grant above the span": ([("ticked", sight(0, 0, 3, a=4))], "P17 inv_grant_is_worth_it"),
    "a grant from nowhere": ([("ticked", sight(4, 0, 3, a=3))], "P4 inv_pages_conserved"),
    "an account that is wrong": ([("ticked", sight(4, 0, 2, a=0))], "P8 inv_occupied_is_sum_of_spans"),
    "an operation of nobody": ([("ticked", sight(4, 0, 3, b=0))], "P11 inv_records_name_their_attempt"),
    "a tick for nothing": ([("settled",), ("ticked", sight(4, 0, 3, a=0))], "sched_drain (§3.6)"),
    "a second submission": ([("submitted", "a", 3, {"accepted": True})], "step_admitted_for_cause"),
    "a decline without a cause": (
        [("submitted", "b", 3, {"accepted": False, "reason": "limited"})],
        "step_declined_for_cause",
    ),
    "nothing to abort": ([("aborted", "a", False)], "inv_records_name_their_attempt"),
    "something to abort": ([("aborted", "b", True)], "inv_records_name_their_attempt"),
    "nothing to stop": ([("stopped", "a", False)], "inv_records_name_their_attempt"),
    "an aborted one with pages": (
        [("aborted", "a"), ("ticked", sight(1, 0, 0, a=3))],
        "P11 inv_records_name_their_attempt",
    ),
    "a stopped one that waits": ([("stopped", "a"), ("polled", {"a": {"ready": False}})], "P5 may_end (§3.8)"),
    "a wait for nothing": ([("polled", {"b": {"ready": False}})], "P5 may_end (§3.8)"),
    "an attempt that was": (
        [("aborted", "a"), ("submitted", "a", 3, {"accepted": True, "attempt": 1})],
        "P11 inv_records_name_their_attempt",
    ),
    "an end that is none": ([("rested", {"operations": {A: 0}})], "P2 live_submitted_operations_end"),
    "an end that cannot be": ([("rested", {})], "P2 live_submitted_operations_end"),
    "an account at rest": ([("rested", {"occupied_pages": 3})], "P8 inv_occupied_is_sum_of_spans"),
    "a page less at rest": ([("rested", {"free_pages": 3, "resident_pages": 0})], "P4 inv_rest_restores_the_pool"),
    "ranks that differ": ([("observed", {"ranks": [{"free_pages": 4}, {"free_pages": 3}]})], "P7 lockstep"),
}


@pytest.mark.parametrize("name", NONSENSE)
def test_what_cannot_be_is_an_alarm(name: str) -> None:
    box = BlackBox(CONFIG)
    box.submitted("a", 3, {"accepted": True, "span_pages": 3}, sight(4, 0, 3, a=0))
    calls, property_ = NONSENSE[name]
    for method, *arguments in calls:
        assert box.alarm is None
        getattr(box, method)(*arguments)
    assert alarm_of(box).startswith(f"{property_}: ")


def test_the_first_alarm_is_the_one() -> None:
    box = granted(3)
    box.observed(sight(0, 0, 3, a=3))
    first = box.alarm
    box.observed(sight(9))
    box.rested(sight(9))
    assert first is not None
    assert box.alarm is first


def test_an_early_page_of_a_failed_read_is_explained_and_remembered() -> None:
    """A page returns before the operation ends: a read has failed, so it must end by the next poll, with the rest."""
    box = granted(3)
    box.ticked(sight(2, 0, 3, a=3))
    assert box.alarm is None
    assert {box._moves.open(world).counted[0][box._slots[A]] for world in box.worlds} == {0, 1, 2}
    box.polled({"a": {"ready": False}})
    assert alarm_of(box) == "P5 may_end (§3.8): a is not ready"


def test_a_detached_store_leaves_nothing_pending() -> None:
    box = granted(3)
    box.submitted("b", 2, {"accepted": True}, sight(1, 0, 5, a=3, b=0))
    box.detached(sight(4))
    assert box.alarm is None
    box.submitted("b", 2, {"accepted": False, "reason": "detached"}, sight(4))
    box.ticked(sight(4))
    assert box.alarm is None
    for left in (sight(4, 0, 3, a=3), sight(3)):
        box = granted(3)
        box.detached(left)
        assert box.alarm is not None


# ---- what is not seen


def test_what_is_not_observed_is_counted_and_anything_goes() -> None:
    box = BlackBox(CONFIG)
    box.submitted("a", 3, {"accepted": True}, {"free_pages": 4, "operations": {A: UNOBSERVED}})
    box.ticked({"free_pages": 2})
    box.polled({"a": {"ready": True}}, {"free_pages": 2, "resident_pages": UNOBSERVED})
    assert box.alarm is None
    assert box.unobserved == {
        **dict.fromkeys(("attempt", "span_pages", "granted pages", "state", "pages", "known"), 1),
        **dict.fromkeys(("occupied_pages", "resident_pages"), 3),
        "operations": 2,
    }
    box.rested(sight(2, 2))
    assert box.alarm is None
    assert not box._moves.open(next(iter(box.worlds))).query_queue[0]


def test_reasons_that_the_specification_does_not_have_are_counted() -> None:
    box = BlackBox(CONFIG)
    box.submitted("a", 3, {"accepted": False, "reason": "anchor", "span_pages": 3})
    assert box.alarm is None
    assert box.unobserved["reason to decline"] == 1


def test_too_many_worlds_are_unknown_and_never_an_alarm() -> None:
    box = BlackBox(CONFIG, worlds_max=3)
    box.submitted("a", 3, {"accepted": True})
    box.ticked()
    assert box.unknown == "more than 3 states of the specification explain what was seen, at call 2, tick()"
    box.ticked(sight(99))
    assert box.alarm is None
    box.rested(sight(3, 0))
    assert alarm_of(box).startswith("P4 inv_rest_restores_the_pool: 3 free and 0 resident pages")


def test_more_operations_than_are_followed_are_unknown() -> None:
    box = BlackBox(replace(CONFIG, limit_pages=99), operations_max=2)
    for rid in ("a", "b", "c"):
        box.submitted(rid, 3, {"accepted": True})
    assert box.unknown == "more than 2 operations at a time, at call 3, submit(c, 3 pages)"


def test_places_of_ended_operations_are_used_again() -> None:
    box = BlackBox(CONFIG, operations_max=2)
    for attempt in range(1, 6):
        box.submitted("a", 3, {"accepted": True, "attempt": attempt})
        box.aborted("a", True)
    box.observed(sight(4))
    assert (box.alarm, box.unknown) == (None, None)


# ---- the judge


class Scripted:
    """A target that says what it is told to."""

    def __init__(self, *seen: dict[str, Any]) -> None:
        self._seen = list(seen)
        self.polls = 0

    def observe(self) -> dict[str, Any]:
        return self._seen.pop(0) if len(self._seen) > 1 else self._seen[0]

    def tick(self) -> None:
        pass

    def poll(self, rids: tuple[str, ...]) -> dict[str, Any]:
        self.polls += 1
        return {rid: {"ready": True} for rid in rids}


def judge_of(target: Any, can_settle: bool = False, policy: str = "wait_complete") -> BlackBoxJudge:
    return BlackBoxJudge(target, judge_setup(policy), can_settle)


def judge_setup(policy: str = "wait_complete") -> Setup:
    return replace(draw_setup(Seeded(0), 1, policy), host_pages=4, threshold_pages=1, limit_pages=8)


def told(judge: BlackBoxJudge, step: Step, answer: Any, began: float = 0.0, ended: float = 0.0) -> Finding | None:
    try:
        judge.before(step, began)
        judge.after(step, answer, ended)
    except Broken as broken:
        return broken.finding
    return None


def test_without_a_way_to_settle_rest_is_waited_for() -> None:
    pending = sight(4, 0, 3, a=0)
    target = Scripted(pending, pending, sight(4))
    judge = judge_of(target)
    assert told(judge, Step("submit", ("a", (1, 2, 3))), {"accepted": True}) is None
    judge.at_rest(pending)
    judge.finish()
    assert target.polls == 1


def test_what_never_comes_to_rest_is_found_when_the_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hicache_checks.conformance.black_box_judge.REST_S_MAX", 0.1)
    judge = judge_of(Scripted(sight(3)))
    start = time.monotonic()
    with pytest.raises(Broken, match="P4"):
        judge.finish()
    assert time.monotonic() - start < 5


def test_a_call_that_takes_time_leaves_lateness_open() -> None:
    pending, submit, poll = sight(4, 0, 1, a=0), Step("submit", ("a", (1,))), Step("poll", (("a",),))
    for began, ended, ready, finds in (
        *((1.4, 1.5, True, None), (0.9, 1.5, True, None), (0.9, 1.5, False, None), (0.5, 0.6, False, None)),
        *((1.4, 1.5, False, "P5 may_end (§3.8)"), (0.5, 0.6, True, "step_waits_for_the_verdict")),
    ):
        judge = judge_of(Scripted(pending, sight(4) if ready else pending), policy="timeout")
        assert told(judge, submit, {"accepted": True}, 0.0, 0.1) is None
        finding = told(judge, poll, {"a": {"ready": ready}}, began, ended)
        assert (finding and finding.property) == finds


def test_giving_up_is_unknown_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = judge_of(Scripted(sight(4)), can_settle=True)
    judge.box.unknown = "too much"
    with pytest.raises(Broken) as broken:
        judge.finish()
    assert broken.value.finding.kind == UNKNOWN


def test_what_was_unknown_before_another_start_stays_so() -> None:
    judge = judge_of(Scripted(sight(4)), can_settle=True)
    judge.box.unknown = "too much"
    judge.box.unobserved["state"] = 2
    judge.begin_again()
    judge.box.unobserved["state"] = 1
    assert judge.unobserved == {"state": 3}
    with pytest.raises(Broken, match="too much"):
        judge.finish()


def test_another_start_is_told() -> None:
    target = Scripted(sight(4, 0, 1, a=0))
    teller = CallTeller(target, judge_setup(), lambda seen: BlackBoxJudge(seen, judge_setup(), can_settle=True))
    teller.before(Step("submit", ("a", (1,))), 0.0)
    teller.after(Step("submit", ("a", (1,))), {"accepted": True}, 0.0)
    teller.before(Step("flush"), 0.0)
    teller.begin_again()
    assert [row.what for row in teller.story(None).rows] == [["submit('a', (1,)) -> accepted"], ["flush()"]]


def test_what_is_raised_while_rest_is_waited_for_is_a_finding() -> None:
    class Raising(Scripted):
        def tick(self) -> None:
            raise RuntimeError("it stops")

    with pytest.raises(Broken) as broken:
        judge_of(Raising(sight(3))).finish()
    assert str(broken.value.finding) == "raises: RuntimeError: it stops at tick"


def test_a_target_that_cannot_be_observed_is_a_finding() -> None:
    class Blind(Scripted):
        def observe(self) -> dict[str, Any]:
            raise RuntimeError("P7 ranks differ\nmore")

    finding = told(judge_of(Blind(sight(4))), Step("tick"), None)
    assert str(finding) == "raises: RuntimeError: P7 ranks differ at observe"


def test_another_start_forgets_everything() -> None:
    judge = judge_of(Scripted(sight(4, 0, 1, a=0), sight(4)), can_settle=True)
    assert told(judge, Step("submit", ("a", (1,))), {"accepted": True}) is None
    judge.begin_again()
    judge.at_rest(sight(4))
    judge.finish()
    assert len(judge.states) >= 1
    assert judge.outcomes == {"submitted": 1}
