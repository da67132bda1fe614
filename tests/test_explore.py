"""Exploration of the designs: pinned counts, reached outcomes, refutations, budgets."""

from __future__ import annotations

import pytest

from hicache_checks.engine.counterexample import tell
from hicache_checks.engine.explore import explore
from hicache_spec import BOUNDS, DESIGNS, Bounds, BoundSpec, Refused
from hicache_spec.bounds import AGAIN, SMALL, SOLO_CHURN, TINY

CANONICAL = DESIGNS["decide_at_drain"]

# configuration: distinct states, transitions, depth
COUNTS = {
    "solo_timeout": (1_160, 3_095, 21),
    "solo_best_effort": (398, 763, 19),
    "solo_churn": (794, 2_562, 19),
    "again": (1_494, 4_188, 23),
    "pressure": (3_266, 8_360, 23),
    "pressure_churn": (8_989, 29_383, 23),
    "limiter": (330, 726, 17),
    "pair_pressure": (69_770, 235_040, 37),
    "pair_churn": (10_014, 41_453, 32),
    "pair_limiter": (10_978, 43_855, 29),
    "pair_again": (16_410, 61_675, 36),
    "best_effort": (3_809, 18_076, 22),
    "timeout": (3_780, 11_659, 23),
    "timeout_churn": (1_032, 2_749, 21),
    "writes": (2_165, 6_797, 24),
    "trio_pressure": (4_191_833, 17_828_362, 51),
}


def all_configurations() -> list[Bounds]:
    return list({b.name: b for b in (*TINY, *SMALL)}.values())


@pytest.mark.heavy
@pytest.mark.parametrize("bounds", all_configurations(), ids=lambda b: b.name)
def test_the_canonical_design_holds_and_its_size_is_pinned(bounds: Bounds) -> None:
    result = explore(BoundSpec(CANONICAL, bounds))
    assert result.violation is None
    assert result.complete
    assert (result.states, result.transitions, result.depth) == COUNTS[bounds.name]


@pytest.mark.heavy
def test_tiny_reaches_every_outcome() -> None:
    reached = {name for b in TINY for name in explore(BoundSpec(CANONICAL, b)).reached}
    assert reached == {r.name for r in CANONICAL.rules() if r.kind == "sometimes"}


def test_small_has_two_requests_on_two_ranks() -> None:
    assert any(b.requests == 2 and b.ranks == 2 and COUNTS[b.name][0] >= 10_000 for b in BOUNDS["small"])


def test_the_released_design_mixes_up_attempts() -> None:
    design = DESIGNS["decide_at_drain_by_rid"]
    spec = BoundSpec(design, AGAIN)
    violation = explore(spec).violation
    assert violation is not None
    assert (violation.property,) == design.violates
    told = tell(spec, violation.run)
    assert [s.action.split("(")[0] for s in told] == [
        "sched_submit",
        "query_take",
        "query_take",
        "query_ask_storage",
        "query_ask_storage",
        "query_agree",
        "query_put",
        "query_put",
        "sched_abort",
        "sched_submit",
        "sched_drain",
    ]
    assert "phase[1]: queued -> illegal" in told[-1].changes, "the second attempt is revoked by the first one's answer"


@pytest.mark.heavy
def test_the_released_design_violates_nothing_else() -> None:
    design = DESIGNS["decide_at_drain_by_rid"]
    names = {r.name for r in design.rules() if r.kind in ("invariant", "step")}
    spec = BoundSpec(design, AGAIN)
    follow_up = {
        # once the wrong attempt is revoked from `queued`, the life cycle is left, and the rest follows from that
        *("inv_life_cycle_is_legal", "inv_occupied_is_sum_of_spans", "inv_anchors_protected_exactly"),
        *("inv_records_name_their_attempt", "step_waits_for_the_verdict", "step_refusal_is_needed"),
    }
    broken = {name for name in names if explore(spec, only={name}).violation is not None}
    assert broken - follow_up == set(design.violates)


def test_a_refused_action_leaves_the_state_untouched() -> None:
    spec = BoundSpec(CANONICAL, SOLO_CHURN)
    reasons: set[str] = set()
    seen, waiting, refused = set(), [spec.encode(spec.initial())], 0
    while waiting:
        key = waiting.pop()
        for step in spec.steps:
            s = spec.decode(key)
            try:
                step.run(s)
            except Refused as refusal:
                reasons.add(str(refusal))
                assert spec.encode(s) == key
                assert s.events == []
                refused += 1
                continue
            if spec.encode(s) not in seen:
                seen.add(spec.encode(s))
                waiting.append(spec.encode(s))
    assert len(seen) + 1 >= COUNTS["solo_churn"][0]
    assert refused > 10_000
    assert "" not in reasons
    assert len(reasons) > 10


def test_a_told_run_is_the_run() -> None:
    spec = BoundSpec(CANONICAL, SOLO_CHURN)
    first = next(i for i, step in enumerate(spec.steps) if step.rule.name == "sched_submit")
    (told,) = tell(spec, (first,))
    assert (told.number, told.actor, told.action) == (1, "sched", "sched_submit(request=0, chain=0)")
    assert told.changes[:3] == ("attempts[0]: 0 -> 1", "record[0]: none -> 0", "phase[0]: absent -> queued")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"requests": 0}, "requests must be at least 1, not 0"),
        ({"resident_pages": (0,)}, "must name the same chains"),
        ({"resident_pages": (3, 0)}, r"lie in 0\.\.2"),
        ({"resident_pages": (2, 2)}, "4 resident pages do not fit 3 host pages"),
        ({"policy": 3}, "policy must be one of best_effort, wait_complete, timeout"),
    ],
)
def test_impossible_bounds_are_refused_in_one_line(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as refusal:
        Bounds(**changes)  # type: ignore[arg-type]
    assert "\n" not in str(refusal.value)
