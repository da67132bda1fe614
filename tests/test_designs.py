"""The other designs: what each violates and in how many steps, what it cannot reach, how large it is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

from hicache_checks.engine.counterexample import ToldStep, tell
from hicache_checks.engine.engines import EngineOptions
from hicache_checks.engine.engines import explore as compiled
from hicache_checks.engine.explore import DEADLOCK, STATE_IN_BOUNDS, explore
from hicache_checks.engine.graph import graph_by_objects
from hicache_checks.engine.liveness import check_liveness
from hicache_spec import DESIGNS, Bounds, BoundSpec, Design, Refused, pipeline, properties
from hicache_spec.bounds import AGAIN, BEST_EFFORT, PRESSURE_CHURN, SOLO_CHURN, TIMEOUT, TINY
from hicache_spec.designs import (
    ATTEMPTS,
    DECIDE_AT_DRAIN,
    DECIDE_AT_DRAIN_BY_RID,
    PROGRESS_ACK,
    REVOKE_QUEUE,
    REVOKE_QUEUE_SAMPLED,
)
from hicache_spec.designs.findings import (
    AGAIN_WITH_ROOM,
    FINDINGS,
    LIMITED_AGAIN,
    NEVER_HAPPENS,
    UNREACHED,
    Finding,
    findings_of,
)
from hicache_spec.designs.retrying import WithRetries
from hicache_spec.language import NONE, SpecError, State, require
from hicache_spec.state import AGREED, ALLOCATED, FETCHED, IDLE, ILLEGAL, LIMITED, RANKS, REVOKED, THRESHOLD
from hicache_spec.watched import watched
from spec_tables import P_NUMBERS, p_numbers

CANONICAL = DECIDE_AT_DRAIN
OTHERS = [name for name in DESIGNS if not name.startswith(DECIDE_AT_DRAIN.name)]
BY_ATTEMPT = {
    "decide_at_drain": "decide_at_drain_by_rid",
    "revoke_queue": "revoke_queue_by_rid",
    "alloc_first": "alloc_first_by_rid",
    "progress_ack": "progress_ack_by_rid",
    "attempts": "attempts_by_handle",
}
"""What tells attempts apart, and the same as shipped."""


def explored(name: str) -> Sequence[Bounds]:
    """The configurations in which a design is explored."""
    retries = issubclass(DESIGNS[name].shape, WithRetries)
    return (*TINY, AGAIN_WITH_ROOM, *((LIMITED_AGAIN,) if retries else ()))


# design: distinct states, transitions and depth in each configuration of `explored`, violations notwithstanding
SIZES = {
    "revoke_queue": {
        "solo_churn": (794, 2_562, 19),
        "solo_best_effort": (398, 763, 19),
        "solo_timeout": (1_160, 3_095, 21),
        "again": (1_528, 4_279, 23),
        "pressure": (3_250, 8_336, 23),
        "pressure_churn": (8_941, 29_287, 23),
        "limiter": (336, 746, 17),
        "again_with_room": (3_465, 11_961, 30),
    },
    "revoke_queue_by_rid": {
        "solo_churn": (794, 2_562, 19),
        "solo_best_effort": (398, 763, 19),
        "solo_timeout": (1_160, 3_095, 21),
        "again": (1_555, 4_314, 24),
        "pressure": (3_250, 8_336, 23),
        "pressure_churn": (8_941, 29_287, 23),
        "limiter": (336, 746, 17),
        "again_with_room": (3_544, 12_080, 30),
    },
    "revoke_queue_sampled": {
        "solo_churn": (797, 2_567, 19),
        "solo_best_effort": (399, 762, 19),
        "solo_timeout": (1_164, 3_099, 21),
        "again": (1_594, 4_432, 24),
        "pressure": (3_532, 8_577, 23),
        "pressure_churn": (9_861, 30_461, 23),
        "limiter": (372, 799, 17),
        "again_with_room": (3_600, 12_345, 30),
    },
    "alloc_first": {
        "solo_churn": (1_231, 4_201, 18),
        "solo_best_effort": (432, 848, 18),
        "solo_timeout": (1_740, 5_026, 20),
        "again": (139, 320, 25),
        "pressure": (744, 1_544, 21),
        "pressure_churn": (6_074, 21_070, 21),
        "limiter": (206, 438, 16),
        "again_with_room": (4_167, 15_530, 28),
    },
    "alloc_first_by_rid": {
        "solo_churn": (1_231, 4_201, 18),
        "solo_best_effort": (432, 848, 18),
        "solo_timeout": (1_740, 5_026, 20),
        "again": (139, 320, 25),
        "pressure": (744, 1_544, 21),
        "pressure_churn": (6_074, 21_070, 21),
        "limiter": (206, 438, 16),
        "again_with_room": (4_387, 16_027, 28),
    },
    "progress_ack": {
        "solo_churn": (811, 2_513, 24),
        "solo_best_effort": (409, 780, 24),
        "solo_timeout": (1_049, 2_752, 25),
        "again": (1_823, 4_978, 34),
        "pressure": (10_438, 29_230, 33),
        "pressure_churn": (20_770, 67_033, 32),
        "limiter": (1_018, 2_472, 25),
        "again_with_room": (3_111, 10_210, 35),
    },
    "progress_ack_by_rid": {
        "solo_churn": (811, 2_513, 24),
        "solo_best_effort": (409, 780, 24),
        "solo_timeout": (1_049, 2_752, 25),
        "again": (2_024, 5_385, 37),
        "pressure": (10_438, 29_230, 33),
        "pressure_churn": (20_770, 67_033, 32),
        "limiter": (1_018, 2_472, 25),
        "again_with_room": (3_590, 11_326, 36),
    },
    "attempts": {
        "solo_churn": (811, 2_513, 24),
        "solo_best_effort": (409, 780, 24),
        "solo_timeout": (1_049, 2_752, 25),
        "again": (1_823, 4_978, 34),
        "pressure": (10_438, 29_230, 33),
        "pressure_churn": (20_770, 67_033, 32),
        "limiter": (1_018, 2_472, 25),
        "again_with_room": (3_232, 10_451, 35),
        "limited_again": (4_874, 11_135, 54),
    },
    "attempts_by_handle": {
        "solo_churn": (811, 2_513, 24),
        "solo_best_effort": (409, 780, 24),
        "solo_timeout": (1_049, 2_752, 25),
        "again": (1_841, 5_001, 34),
        "pressure": (10_438, 29_230, 33),
        "pressure_churn": (20_770, 67_033, 32),
        "limiter": (1_018, 2_472, 25),
        "again_with_room": (3_273, 10_511, 35),
        "limited_again": (5_290, 13_104, 54),
    },
}


def judged(design: Design) -> set[str]:
    """The names of all that an exploration checks."""
    return {r.name for r in design.rules() if r.kind in ("invariant", "step")} | {DEADLOCK, STATE_IN_BOUNDS}


def told(finding: Finding) -> list[ToldStep]:
    """A shortest run that shows the finding."""
    spec = BoundSpec(DESIGNS[finding.design], finding.bounds)
    violation = explore(spec, only={finding.property}).violation
    assert violation is not None, "nothing is violated"
    assert violation.property == finding.property
    return tell(spec, violation.run)


def finding(design: str, name: str) -> Finding:
    (found,) = [f for f in findings_of(design) if f.property == name]
    return found


def after(design: str, bounds: Bounds, *labels: str) -> tuple[BoundSpec, State]:
    """The state after these steps of a design, in order."""
    spec = BoundSpec(DESIGNS[design], bounds)
    s = spec.initial()
    steps = {step.label: step for step in spec.steps}
    for label in labels:
        s.events.clear()
        steps[label].run(s)
    return spec, s


def enabled(spec: BoundSpec, s: State) -> set[str]:
    """The labels of the steps that are possible in a state."""
    possible = set()
    for step in spec.steps:
        try:
            step.run(spec.decode(spec.encode(s)))
        except Refused:
            continue
        possible.add(step.label)
    return possible


# ---- the registry


def test_the_designs_are_in_the_order_of_the_page() -> None:
    assert list(DESIGNS) == [
        "decide_at_drain",
        "decide_at_drain_by_rid",
        "revoke_queue",
        "revoke_queue_by_rid",
        "revoke_queue_sampled",
        "alloc_first",
        "alloc_first_by_rid",
        "progress_ack",
        "progress_ack_by_rid",
        "attempts",
        "attempts_by_handle",
    ]


def test_a_finding_is_pinned_or_follows_from_one_that_is() -> None:
    for name, design in DESIGNS.items():
        causes = {f.property for f in findings_of(name) if not f.because_of}
        assert causes == set(design.violates), name
        assert {f.because_of for f in findings_of(name) if f.because_of} <= causes, name
        found = [f.property for f in findings_of(name)]
        assert len(set(found)) == len(found)
        assert set(found) <= judged(design)
    assert {f.design for f in FINDINGS} <= DESIGNS.keys()


def test_what_knows_attempts_apart_has_no_finding_that_follows_from_a_mix_up() -> None:
    """The design by attempt is the one that was shipped without the cause: what is left follows from something else."""
    mixed_up = {"step_drain_decides_its_own_attempt", "step_ack_moves_its_own_operation"}
    for name, shipped in BY_ATTEMPT.items():
        left = {(f.property, f.because_of) for f in findings_of(name)}
        as_shipped = {(f.property, f.because_of) for f in findings_of(shipped)}
        otherwise = {found for found in as_shipped if not mixed_up & set(found)}
        assert otherwise - {("step_budget_pays_for_a_look_up", "")} == left


def test_rules_of_the_designs_have_a_section_and_judge_by_listed_properties() -> None:
    for design in DESIGNS.values():
        own = [r for r in design.rules() if r.function not in {c.function for c in CANONICAL.rules()}]
        assert all(r.section for r in own), design.name
        for rule in (r for r in own if r.kind in ("invariant", "step", "live")):
            assert p_numbers(rule), rule.name
            assert set(p_numbers(rule)) <= set(P_NUMBERS)


def test_what_a_release_does_names_the_release_and_the_function() -> None:
    """Each action that differs is a fact about a release: its text says about which, and where to look."""
    own = {r.function for name in OTHERS for r in DESIGNS[name].rules() if r.kind == "action"}
    own -= {r.function for r in CANONICAL.rules()}
    assert len(own) >= 7
    for function in own:
        assert re.search(r"Ref: sglang 0\.5\.\d+ \w+\.py::\w+", function.__doc__ or ""), function.__name__
        assert not re.search(r"\bline \d|\w:\d+\b", function.__doc__ or ""), function.__name__


# ---- findings


@pytest.mark.heavy
@pytest.mark.parametrize("found", FINDINGS, ids=lambda f: f"{f.design}-{f.property}")
def test_a_finding_is_found_in_so_many_steps(found: Finding) -> None:
    assert len(told(found)) == found.steps


@pytest.mark.heavy
@pytest.mark.parametrize("name", OTHERS)
def test_a_design_violates_nothing_else_and_reaches_the_rest(name: str) -> None:
    design = DESIGNS[name]
    others = judged(design) - {f.property for f in findings_of(name)}
    declared = {r.name for r in design.rules() if r.kind == "sometimes"}
    reached: set[str] = set()
    for bounds in explored(name):
        result = compiled(BoundSpec(design, bounds), EngineOptions("array"), only=others | declared)
        assert result.violation is None, bounds.name
        assert result.complete
        assert (result.states, result.transitions, result.depth) == SIZES[name][bounds.name], bounds.name
        reached |= result.reached
    assert declared - reached == set(UNREACHED.get(name, {}))


@pytest.mark.heavy
@pytest.mark.parametrize("engine", ["array", "native"])
@pytest.mark.parametrize("name", ["progress_ack", "progress_ack_by_rid", "attempts", "attempts_by_handle"])
def test_compiled_engines_find_the_same_of_acks_and_retries(name: str, engine: str) -> None:
    """Queues of what is computed from an operation and a number are in no other design."""
    for bounds in explored(name)[-2:]:
        spec = BoundSpec(DESIGNS[name], bounds)
        found = compiled(spec, EngineOptions(engine, stop=False))
        assert (found.states, found.transitions, found.depth) == SIZES[name][bounds.name]
        assert found.first == explore(spec, stop=False).first


@pytest.mark.heavy
def test_the_canonical_design_and_0_5_18_have_no_more_findings_with_room() -> None:
    """TINY is explored in test_explore.py; this configuration was made for the older designs."""
    for design in (DECIDE_AT_DRAIN, DECIDE_AT_DRAIN_BY_RID):
        others = judged(design) - {f.property for f in findings_of(design.name)}
        assert explore(BoundSpec(design, AGAIN_WITH_ROOM), only=others).violation is None


@pytest.mark.heavy
@pytest.mark.parametrize("name", list(DESIGNS))
def test_what_never_happens_in_the_end(name: str) -> None:
    """An attempt that another one's answer ended is neither revoked nor fetched, and its pages wait on one rank."""
    results = check_liveness(graph_by_objects(BoundSpec(DESIGNS[name], AGAIN_WITH_ROOM)))
    assert {r.name for r in results} == {r.name for r in DESIGNS[name].rules() if r.kind == "live"}
    assert {r.name for r in results if r.lasso is not None} == set(NEVER_HAPPENS.get(name, ()))


# ---- their stories, as SPEC.md tells them


def actions(steps: list[ToldStep]) -> list[str]:
    return [step.action.split("(")[0] for step in steps]


def test_a_late_revoke_ends_the_next_attempt() -> None:
    """The revoke queue, too, mixes up attempts: the abort comes first, then the revoke of what was aborted."""
    steps = (
        *("sched_submit(request=0, chain=0)", "query_take(rank=0)", "query_take(rank=1)"),
        *("query_ask_storage(rank=0, hit=0)", "query_ask_storage(rank=1, hit=0)", "query_agree()"),
        *("query_put(rank=0)", "query_put(rank=1)", "sched_abort(request=0)", "sched_submit(request=0, chain=0)"),
        "sched_drain(revokes=1, hits=0, pages=0)",
    )
    for name, phase in (("revoke_queue", "queued"), ("revoke_queue_by_rid", "illegal")):
        spec, s = after(name, AGAIN_WITH_ROOM, *steps)
        assert spec.variables[2].type.show(s.phase[1]) == phase


def test_0_5_17_loses_pages_when_an_attempt_is_granted_before_the_older_one_is_revoked() -> None:
    steps = told(finding("revoke_queue_by_rid", "inv_rest_restores_the_pool"))
    assert actions(steps)[-6:] == ["sched_drain", "sched_drain", *["io_start_page"] * 2, *["io_land_page"] * 2]
    assert steps[-6].action == "sched_drain(revokes=0, hits=1, pages=0)"
    assert "phase[1]: queried -> allocated" in steps[-6].changes
    assert steps[-5].action == "sched_drain(revokes=1, hits=0, pages=0)"
    assert "phase[1]: allocated -> illegal" in steps[-5].changes
    assert "record[0]: 1 -> none" in steps[-5].changes


@pytest.mark.heavy
def test_0_5_17_loses_pages_by_exact_sampling_too() -> None:
    """It is no artefact of drains that take whatever number they like (S7)."""
    by_rid = DECIDE_AT_DRAIN_BY_RID.replaces["find_record"]
    design = REVOKE_QUEUE_SAMPLED.variant("by_rid", "", {"find_record": by_rid})
    violation = explore(BoundSpec(design, AGAIN), only={"inv_rest_restores_the_pool"}).violation
    assert violation is not None
    assert len(violation.run) == finding("revoke_queue_by_rid", "inv_rest_restores_the_pool").steps


@pytest.mark.heavy
def test_0_5_15_loses_the_pages_of_an_attempt_that_an_older_revoke_ends() -> None:
    steps = told(finding("alloc_first_by_rid", "inv_rest_restores_the_pool"))
    assert actions(steps).count("sched_abort") == 1
    assert "granted[1]: 0 -> 1" in steps[9].changes
    assert "phase[1]: allocated -> illegal" in steps[17].changes
    assert actions(steps)[-2:] == ["io_land_page", "io_land_page"]


def test_alloc_first_holds_memory_before_it_knows_and_evicts_for_it() -> None:
    (early,) = told(finding("alloc_first", "inv_no_memory_before_verdict"))
    assert "granted[0]: 0 -> 2" in early.changes
    (evicting,) = told(finding("alloc_first", "step_eviction_is_needed"))
    assert "resident[1]: 1 -> 0" in evicting.changes
    submitted, aborted = told(finding("alloc_first", "inv_ended_operations_hold_nothing"))
    assert actions([submitted, aborted]) == ["sched_submit", "sched_abort"]
    assert not [c for c in aborted.changes if c.startswith(("given", "releasing", "free"))], "nothing is given back"


def test_alloc_first_declines_while_an_aborted_attempt_still_holds_the_memory() -> None:
    _, s = after("alloc_first", AGAIN, "sched_submit(request=0, chain=0)", "sched_abort(request=0)")
    assert (s.phase[0], s.free) == (REVOKED, [0, 0])
    _, s = after(
        "alloc_first",
        AGAIN,
        *("sched_submit(request=0, chain=0)", "sched_abort(request=0)", "sched_submit(request=0, chain=0)"),
    )
    assert s.events == [("declined", 0, 4, 1)], "request 0, no_memory, span 1"
    assert s.attempts == [1]


def test_alloc_first_shortens_the_span_and_gives_back_what_the_hit_does_not_need() -> None:
    tight = Bounds("tight", requests=1, ranks=1, chain_pages=3, host_pages=2, resident_pages=(0,), stored_pages=(3,))
    _, s = after("alloc_first", tight, "sched_submit(request=0, chain=0)")
    assert (s.span, s.granted, s.occupied, s.free) == ([2], [2], 2, [0])
    asked = ("sched_submit(request=0, chain=0)", "query_take(rank=0)", "query_ask_storage(rank=0, hit=1)")
    churning = Bounds("tight", requests=1, ranks=1, host_pages=2, resident_pages=(0,), stored_pages=(2,), churn=True)
    _, s = after("alloc_first", churning, *asked, "query_agree()")
    assert (s.granted, s.releasing, s.given) == ([1], [1], [[0]])
    _, s = after("alloc_first", churning, *asked, "query_agree()", "query_put(rank=0)")
    assert (s.buffer, s.revoke_queue, s.hit_queue) == ([[0]], [[]], [[]])
    assert s.events[-1] == ("allocated", 0, 1, 1, 0), "one page of one, and none left but the one on its way back"


def test_alloc_first_looks_up_what_is_terminated_already() -> None:
    steps = ("sched_submit(request=0, chain=0)", "sched_abort(request=0)", "query_take(rank=0)")
    spec, s = after("alloc_first", SOLO_CHURN, *steps)
    assert "query_ask_storage(rank=0, hit=2)" in enabled(spec, s)
    spec, s = after("revoke_queue", SOLO_CHURN, *steps)
    assert "query_ask_storage(rank=0, hit=2)" not in enabled(spec, s)


def test_alloc_first_publishes_nothing_if_the_policy_stops_before_the_verdict() -> None:
    best_effort = next(b for b in TINY if b.name == "solo_best_effort")
    _, s = after("alloc_first", best_effort, "sched_submit(request=0, chain=0)", "sched_poll(request=0)")
    assert (s.phase[0], s.events[-1]) == (FETCHED, ("fetched", 0, 0, 0))
    assert s.free == [0, 0], "the memory comes back when the look-up is over"


# ---- the order of revokes and hits


BOTH_ANSWERED = (
    *("sched_submit(request=0, chain=0)", "sched_submit(request=1, chain=1)"),
    *("query_take(rank=0)", "query_ask_storage(rank=0, hit=2)", "query_agree()", "query_put(rank=0)"),
    *("query_take(rank=0)", "query_ask_storage(rank=0, hit=0)", "query_agree()", "query_put(rank=0)"),
)
"""Request 0 has a hit of two pages, one page is free; request 1, answered later, protects the only page to evict."""


def test_a_revoke_overtakes_a_hit() -> None:
    _, s = after("revoke_queue", PRESSURE_CHURN, *BOTH_ANSWERED, "sched_drain(revokes=1, hits=1, pages=0)")
    assert (s.granted[0], s.resident) == (2, [0, 0])
    assert [e[0] for e in s.events] == ["revoked", "evicted", "allocated"]
    _, s = after("decide_at_drain", PRESSURE_CHURN, *BOTH_ANSWERED, "sched_drain(hits=2, pages=0)")
    assert (s.granted[0], s.resident) == (1, [0, 1])
    assert [e[0] for e in s.events] == ["allocated", "revoked"]


def test_a_tick_takes_the_revokes_that_it_has_seen_and_all_hits() -> None:
    spec, s = after("revoke_queue_sampled", PRESSURE_CHURN, *BOTH_ANSWERED)
    assert s.seen_revokes == 0
    assert {"sched_look()", "sched_drain()"} <= enabled(spec, s)
    _, s = after("revoke_queue_sampled", PRESSURE_CHURN, *BOTH_ANSWERED, "sched_drain()")
    assert (s.granted[0], s.revoke_queue, s.seen_revokes) == (1, [[1]], 1), "read before the revoke came"
    _, s = after("revoke_queue_sampled", PRESSURE_CHURN, *BOTH_ANSWERED, "sched_look()", "sched_drain()")
    assert (s.granted[0], s.revoke_queue, s.seen_revokes) == (2, [[]], 0), "read after it"


@pytest.mark.parametrize("action", ["sched_submit(request=2, chain=0)", "sched_abort(request=0)"])
def test_a_reading_does_not_outlive_an_action_of_the_scheduler(action: str) -> None:
    three = Bounds("three", requests=3, ranks=1, host_pages=2, churn=True)
    _, s = after("revoke_queue_sampled", three, *BOTH_ANSWERED)
    assert s.seen_revokes == 0
    _, s = after("revoke_queue_sampled", three, *BOTH_ANSWERED, action)
    assert s.seen_revokes == 1


def test_a_reading_does_not_outlive_a_poll_or_a_stop() -> None:
    for bounds, step in (
        (Bounds("polled", ranks=1, host_pages=2, churn=True, policy=0), "sched_poll(request=0)"),
        (Bounds("stopped", ranks=1, host_pages=2, churn=True, stops=True), "sched_stop(request=0)"),
    ):
        _, s = after("revoke_queue_sampled", bounds, *BOTH_ANSWERED, step)
        assert s.seen_revokes == 1, step


@pytest.mark.heavy
def test_the_canonical_words_would_do_for_a_hit() -> None:
    """§8.3 keeps the releases' own: they do not compare the hit again, and the canonical ones do so in vain."""
    design = REVOKE_QUEUE.variant("compares_again", "", {"decide": pipeline.decide})
    result = explore(BoundSpec(design, PRESSURE_CHURN), only=())
    assert (result.states, result.transitions, result.depth) == SIZES[REVOKE_QUEUE.name][PRESSURE_CHURN.name]


# ---- acks


ALLOCATED_AGAIN = (
    *("sched_submit(request=0, chain=0)", "query_take(rank=0)", "query_take(rank=1)"),
    *("query_ask_storage(rank=0, hit=1)", "query_ask_storage(rank=1, hit=1)", "query_agree()"),
    *("query_put(rank=0)", "query_put(rank=1)", "sched_drain(hits=1, pages=0)"),
)
READ = ("io_start_page(rank=0)", "io_start_page(rank=1)", "io_land_page(rank=0)", "io_land_page(rank=1)")
"""One page is granted on two ranks, and read."""


def test_what_is_read_is_not_known_before_its_ack_is_taken() -> None:
    spec, s = after("progress_ack", AGAIN, *ALLOCATED_AGAIN, *READ)
    assert (s.counted, s.buffer, s.sync_queue) == ([[0, 0], [0, 0]], [[], []], [[1, 2], [1, 2]])
    assert "sched_poll(request=0)" not in enabled(spec, s)
    _, s = after("progress_ack", AGAIN, *ALLOCATED_AGAIN, *READ, "sync_agree()", "sched_take_ack()")
    assert s.counted == [[1, 0], [1, 0]]


def test_what_is_complete_ends_by_its_last_ack_and_by_no_poll() -> None:
    acked = ("sync_agree()", "sync_agree()", "sched_take_ack()")
    spec, s = after("progress_ack", AGAIN, *ALLOCATED_AGAIN, *READ, *acked)
    assert s.phase[0] == ALLOCATED
    assert "sched_poll(request=0)" not in enabled(spec, s)
    _, s = after("progress_ack", AGAIN, *ALLOCATED_AGAIN, *READ, *acked, "sched_take_ack()")
    assert (s.phase[0], s.resident, s.record) == (FETCHED, [1], [NONE])


def test_a_failed_page_sets_no_flag_and_only_its_acks_tell() -> None:
    one_page = replace(AGAIN_WITH_ROOM, attempts=1)
    failed = (*ALLOCATED_AGAIN, *READ[:2], "io_fail_page(rank=0)")
    spec, s = after("progress_ack", one_page, *failed)
    assert (s.stopped, s.phase[0], s.sync_queue) == ([[False], [False]], ALLOCATED, [[0, 2], []])
    assert "sched_poll(request=0)" not in enabled(spec, s)
    agreed = ("io_land_page(rank=1)", "sync_agree()", "sync_agree()", "sched_take_ack()", "sched_take_ack()")
    _, s = after("progress_ack", one_page, *failed, *agreed)
    assert (s.phase[0], s.resident, s.releasing) == (FETCHED, [0], [1, 1]), "the lowest of what the ranks have read"


def test_an_aborted_operation_keeps_its_tail_until_the_last_ack() -> None:
    aborted = (*ALLOCATED_AGAIN, "sched_abort(request=0)", "io_release_page(rank=0)", "io_release_page(rank=1)")
    _, s = after("progress_ack", AGAIN, *aborted, "sync_agree()", "sync_agree()", "sched_take_ack()")
    assert (s.phase[0], s.granted[0], s.releasing) == (REVOKED, 1, [0, 0])
    _, s = after(
        "progress_ack", AGAIN, *aborted, "sync_agree()", "sync_agree()", "sched_take_ack()", "sched_take_ack()"
    )
    assert (s.granted[0], s.releasing) == (0, [1, 1])


@pytest.mark.heavy
def test_0_5_19_publishes_what_nobody_has_read_by_the_last_ack_of_another() -> None:
    steps = told(finding("progress_ack_by_rid", "step_published_landed_everywhere"))
    assert actions(steps)[-1] == "sched_take_ack"
    assert "phase[1]: allocated -> fetched" in steps[-1].changes
    assert "resident[0]: 0 -> 1" in steps[-1].changes
    granted = next(n for n, step in enumerate(steps) if "phase[1]: queried -> allocated" in step.changes)
    assert "io_land_page" not in actions(steps[granted:])


@pytest.mark.heavy
def test_0_5_19_frees_twice_what_it_published_for_another() -> None:
    steps = told(finding("progress_ack_by_rid", "inv_no_page_freed_twice"))
    assert actions(steps)[-3:] == ["sched_take_ack"] * 3
    assert {"resident[0]: 0 -> 1", "given[0][1]: 0 -> 1"} <= set(steps[-3].changes), "published by the last of another"
    assert {"given[0][1]: 1 -> 2", "releasing[0]: 0 -> 1"} <= set(steps[-1].changes), "released by its own last"


@pytest.mark.heavy
def test_from_0_5_20_an_ack_ends_no_other_operation() -> None:
    """Whatever it is called: the ack knows the operation itself."""
    for name in ("step_ack_moves_its_own_operation", "step_tail_goes_with_the_last_ack"):
        assert explore(BoundSpec(DESIGNS["attempts_by_handle"], AGAIN_WITH_ROOM), only={name}).violation is None


# ---- retries


MISSED = ("sched_submit(request=0, chain=0)", "query_take(rank=0)", "query_ask_storage(rank=0, hit=0)")
DRAINED = ("query_agree()", "query_put(rank=0)", "sched_drain(hits=1, pages=0)")
ALONE = replace(LIMITED_AGAIN, requests=1)


def test_a_request_that_missed_asks_again_once() -> None:
    _, s = after("attempts", ALONE, *MISSED, *DRAINED)
    assert (s.phase[0], s.missed, s.retried) == (REVOKED, [0], [0])
    again = ("sched_retry(request=0)", *MISSED[1:], *DRAINED)
    _, s = after("attempts", replace(ALONE, attempts=3), *MISSED, *DRAINED, *again)
    assert (s.phase[1], s.missed, s.retried, s.attempts) == (REVOKED, [NONE], [1], [2])


def test_what_the_limiter_declines_asks_again_when_there_is_room() -> None:
    limited = ("sched_submit(request=0, chain=0)", "sched_submit(request=1, chain=0)")
    spec, s = after("attempts", LIMITED_AGAIN, *limited)
    assert s.events == [("declined", 1, LIMITED, 1)]
    assert s.missed == [NONE, 0]
    assert "sched_retry(request=1)" not in enabled(spec, s)
    spec, s = after("attempts", LIMITED_AGAIN, *limited, *MISSED[1:], *DRAINED)
    assert "sched_retry(request=1)" in enabled(spec, s)
    _, s = after("attempts_by_handle", LIMITED_AGAIN, *limited, "sched_retry(request=1)")
    assert (s.retried, s.attempts, s.missed) == ([0, 1], [1, 0], [NONE, NONE]), "paid, and nothing was looked up"


def test_a_new_submission_has_a_budget_of_its_own() -> None:
    thrice = replace(ALONE, attempts=3)
    retried = ("sched_retry(request=0)", *MISSED[1:], *DRAINED)
    _, s = after("attempts", thrice, *MISSED, *DRAINED, *retried, "sched_submit(request=0, chain=0)")
    assert (s.retried, s.attempts) == ([0], [3])


def test_who_is_aborted_or_too_late_does_not_ask_again() -> None:
    _, s = after("attempts", replace(ALONE, aborts=True), MISSED[0], "sched_abort(request=0)")
    assert s.missed == [NONE]
    late = (MISSED[0], "env_advance_clock()", "sched_poll(request=0)")
    _, s = after("attempts", replace(ALONE, policy=TIMEOUT), *late)
    assert (s.phase[0], s.missed) == (REVOKED, [NONE])
    _, s = after("attempts", replace(ALONE, policy=TIMEOUT), *MISSED, "env_advance_clock()", *DRAINED)
    assert s.missed == [0], "it was late, but that is not why it was revoked"
    _, s = after("attempts", replace(ALONE, policy=BEST_EFFORT), MISSED[0], "sched_poll(request=0)")
    assert s.missed == [0], "the policy did not wait, and its request may"


def test_who_is_let_go_asks_no_more() -> None:
    _, s = after("attempts", ALONE, *MISSED, *DRAINED, "sched_let_go(request=0)")
    assert s.missed == [NONE]


def test_the_answer_of_what_was_given_up_decides_for_its_retry() -> None:
    """Without an abort and without a second submission: best effort gives up, and the request asks again at once."""
    steps = (
        *("sched_submit(request=0, chain=0)", "query_take(rank=0)", "query_ask_storage(rank=0, hit=1)"),
        *("query_agree()", "query_put(rank=0)", "sched_poll(request=0)", "sched_retry(request=0)"),
        "sched_drain(hits=1, pages=0)",
    )
    impatient = replace(ALONE, policy=BEST_EFFORT)
    spec, s = after("attempts_by_handle", impatient, *steps)
    assert (s.phase[1], s.record) == (ILLEGAL, [NONE])
    _, s = after("attempts", impatient, *steps)
    assert spec.variables[2].type.show(s.phase[1]) == "queued"


def test_with_retries_only_single_attempts_can_be_watched() -> None:
    assert watched(ATTEMPTS, replace(ALONE, attempts=1), "hidden").name == "attempts"
    with pytest.raises(SpecError, match="its retries are attempts that nobody asked for"):
        watched(ATTEMPTS, ALONE, "hidden")


# ---- the properties that the revoke queue brings can fail, and the one that it restates has to be restated


def put_by_its_own_answer(s: State, rank: int) -> None:
    """§8.3 A rank compares its own answer with the threshold, not the agreed one."""
    require(s.stage[rank] == AGREED, "the hit count is agreed")
    op = s.query_queue[rank].pop(0)
    s.stage[rank] = IDLE
    if s.answer[rank] < THRESHOLD:
        s.revoke_queue[rank].append(op)
    else:
        s.hit_queue[rank].append(op)
    s.answer[rank] = 0


def carry_out_nothing(s: State, op: int) -> None:
    """A revoke is taken and forgotten."""
    for r in RANKS:
        s.hit[r][op] = 0


@pytest.mark.heavy
def test_ranks_that_revoke_by_their_own_answers_are_caught() -> None:
    pair = Bounds("pair", chain_pages=1, host_pages=1, resident_pages=(0,), stored_pages=(1,), churn=True, aborts=False)
    design = REVOKE_QUEUE.variant("own_answer", "", {"query_put": put_by_its_own_answer})
    violation = explore(BoundSpec(design, pair), only={"inv_ranks_revoke_alike"}).violation
    assert violation is not None
    assert explore(BoundSpec(REVOKE_QUEUE, pair)).violation is None


def test_a_revoke_that_is_forgotten_is_caught() -> None:
    design = REVOKE_QUEUE.variant("forgotten", "", {"carry_out_revoke": carry_out_nothing})
    violation = explore(BoundSpec(design, SOLO_CHURN)).violation
    assert violation is not None
    assert violation.property == DEADLOCK


def test_a_revoke_queue_that_nobody_empties_is_caught() -> None:
    """The canonical drain does not know it."""
    design = REVOKE_QUEUE.variant("left_over", "", {"sched_drain": pipeline.sched_drain})
    lost = {r.name for r in check_liveness(graph_by_objects(BoundSpec(design, SOLO_CHURN))) if r.lasso is not None}
    assert "live_revokes_are_carried_out" in lost


@pytest.mark.heavy
def test_5_1_knows_the_revoke_queue_because_its_canonical_words_would_accuse_the_innocent() -> None:
    """They take an operation that its own revoke has ended for one that another's answer has ended."""
    name = "step_drain_decides_its_own_attempt"
    design = REVOKE_QUEUE.variant("original_words", "", {name: getattr(properties, name)})
    violation = explore(BoundSpec(design, PRESSURE_CHURN), only={name}).violation
    assert violation is not None
    last = tell(BoundSpec(design, PRESSURE_CHURN), violation.run)[-1]
    assert last.action.startswith("sched_drain(revokes=1, hits=1")
    assert not [change for change in last.changes if "illegal" in change]


# ---- the properties that the acks restate have to be restated


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("name", "last"),
    [
        ("inv_ended_operations_hold_nothing", "io_release_page"),
        ("inv_rest_restores_the_pool", "io_release_page"),
        ("step_waits_for_the_verdict", "sched_take_ack"),
        ("step_no_page_read_after_termination", "sched_take_ack"),
    ],
)
def test_the_canonical_words_would_accuse_the_innocent(name: str, last: str) -> None:
    """In them an operation is over when no IO thread works on it, and a count is read from the IO thread itself."""
    design = PROGRESS_ACK.variant("original_words", "", {name: getattr(properties, name)})
    violation = explore(BoundSpec(design, SOLO_CHURN), only={name}).violation
    assert violation is not None
    assert tell(BoundSpec(design, SOLO_CHURN), violation.run)[-1].action.startswith(last)
