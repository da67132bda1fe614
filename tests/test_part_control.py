"""§13 Control: storage is detached, attached and reset while operations are on their way, and ranks are apart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from faulty_parts import shortest
from hicache_checks.engine.engines import EngineOptions
from hicache_checks.engine.engines import explore as compiled
from hicache_checks.engine.explore import DEADLOCK, explore
from hicache_spec import Bounds, BoundSpec, Refused, properties
from hicache_spec.designs import PROGRESS_ACK
from hicache_spec.language import State
from hicache_spec.parts import PART_BOUNDS, design_named, must_reach
from hicache_spec.parts.control import (
    BOUNDS,
    CONTROL,
    CONTROL_AGAIN,
    CONTROL_PAGES,
    CONTROL_SOLO,
    CONTROL_TREE,
)
from hicache_spec.parts.control_rules import ATTACHED, DETACHED
from hicache_spec.state import FETCHED
from test_explore import CANONICAL

DESIGN = CANONICAL.joined(CONTROL)

STOPPED = [
    f"{step}(rank={rank})"
    for step in ("sched_tell_threads_to_stop", "query_end", "io_end", "sched_let_go")
    for rank in range(2)
]
STARTED = [f"sched_start_{thread}_thread(rank={rank})" for thread in ("query", "io") for rank in range(2)]


def states(spec: BoundSpec) -> list[bytes]:
    """Every reachable state."""
    seen = {spec.encode(spec.initial()): None}
    waiting = list(seen)
    while waiting:
        key = waiting.pop()
        for step in spec.steps:
            s = spec.decode(key)
            try:
                step.run(s)
            except Refused:
                continue
            if (found := spec.encode(s)) not in seen:
                seen[found] = None
                waiting.append(found)
    return list(seen)


def run_to(spec: BoundSpec, s: State, *labels: str) -> State:
    steps = {step.label: step for step in spec.steps}
    for label in labels:
        s.events.clear()
        steps[label].run(s)
    return s


# ---- it holds


@pytest.mark.heavy
def test_an_id_comes_back_while_what_a_detach_withdrew_is_on_its_way() -> None:
    """Nobody aborts there: the detach does, and is given up. It is an outcome of the canonical text (§6)."""
    assert not CONTROL_AGAIN.aborts
    result = compiled(BoundSpec(replace(DESIGN, shows=()), CONTROL_AGAIN), EngineOptions("array"))
    assert "sometimes_request_id_is_submitted_again" in result.reached


@pytest.mark.parametrize("bounds", [CONTROL_SOLO, CONTROL_PAGES], ids=lambda b: b.name)
def test_a_reset_comes_back_to_the_initial_state(bounds: Bounds) -> None:
    """Value by value, whatever was on its way: not only what the properties name."""
    spec = BoundSpec(DESIGN, bounds)
    attached = (*STARTED, "sched_agree_to_attach()")
    resets = 0
    for key in states(spec):
        s = spec.decode(key)
        if s.resetting and s.place == [DETACHED] * bounds.ranks:
            run_to(spec, s, *(f"sched_begin_again(rank={r})" for r in range(bounds.ranks)), *attached)
            assert spec.encode(s) == spec.encode(spec.initial())
            resets += 1
    assert resets > 1


def test_a_detach_and_an_attach_leave_tree_pool_and_ids() -> None:
    """What was published before is still there, and the next attempt of the id is another one."""
    spec = BoundSpec(DESIGN, CONTROL_TREE)
    for key in states(spec):
        s = spec.decode(key)
        if s.place == [ATTACHED] * 2 and s.phase == [FETCHED]:
            break
    else:
        pytest.fail("nothing is ever published")
    before = (list(s.attempts), list(s.resident), list(s.free))
    run_to(spec, s, "sched_detach()", *STOPPED, "sched_attach()", *STARTED, "sched_agree_to_attach()")
    assert (s.attempts, s.resident, s.free) == before
    assert before[0] == [1]


# ---- it can fail


@pytest.mark.parametrize(
    ("name", "last"),
    [
        ("inv_pages_conserved", "sched_begin_again"),
        ("inv_rest_restores_the_pool", "sched_begin_again"),
        ("inv_ranks_decide_alike", "sched_let_go"),
        ("step_ended_stays_ended", "sched_begin_again"),
    ],
)
def test_the_canonical_words_would_accuse_the_innocent(name: str, last: str) -> None:
    """In them all ranks are always at the same point, and nothing is ever forgotten."""
    spec = BoundSpec(DESIGN.variant("original_words", "", {name: getattr(properties, name)}), CONTROL_SOLO)
    violation = explore(spec, only={name}).violation
    assert violation is not None
    assert spec.steps[violation.run[-1]].rule.name == last


# ---- what would follow, if the first property to break did not stand in the way


def test_an_answer_of_before_a_reset_ends_the_operation_that_has_its_name_now() -> None:
    """The stale answer meets the first attempt of the same request id, which a reset numbers anew."""
    run = shortest("sched_keeps_the_answers_of_before", "inv_life_cycle_is_legal")
    assert len(run) == 26
    assert run.count("sched_submit(request=0, chain=0)") == 2
    assert [run[8], *run[-2:]] == ["sched_reset()", "sched_submit(request=0, chain=0)", "sched_drain(hits=1, pages=0)"]


def test_a_stop_flag_leaves_a_rank_in_the_all_reduce_for_ever() -> None:
    """As a flush after an abort may in sglang 0.5.21 to 0.5.23, there for the thread that agrees on acks."""
    run = shortest("query_ends_between_two_operations", DEADLOCK)
    assert len(run) == 10
    assert "query_ask_storage(rank=0, hit=0)" in run
    assert "query_end(rank=1)" in run
    assert not [label for label in run if label.startswith(("query_take(rank=1)", "query_agree"))]


def test_a_reset_that_does_not_wait_for_its_threads_has_two_at_one_queue() -> None:
    """As a flush may have in sglang up to 0.5.18, which does not wait for its IO thread."""
    run = shortest("sched_begins_again_beside_living_threads", "inv_one_consumer_per_queue")
    assert run[-2:] == ["sched_begin_again(rank=0)", "sched_start_query_thread(rank=0)"]
    assert len(run) == 4


def test_where_acks_are_on_their_way_a_detach_forgets_the_pages_of_an_aborted_operation() -> None:
    """As sglang 0.5.19 to 0.5.23 do: the IO thread has ended, and the last ack that would release them is not taken."""
    spec = BoundSpec(PROGRESS_ACK.joined(CONTROL), CONTROL_SOLO)
    violation = explore(spec, only={"inv_detached_is_at_rest"}).violation
    assert violation is not None
    run = [spec.steps[number].label for number in violation.run]
    assert run[9:] == [
        *("sched_detach()", "io_release_page(rank=0)", "sched_tell_threads_to_stop(rank=0)"),
        *("query_end(rank=0)", "io_end(rank=0)", "sched_let_go(rank=0)"),
    ]


# ---- names and tables


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing+control", "no design 'nothing'; the designs are decide_at_drain, "),
        ("decide_at_drain+nothing", "no part 'nothing'; the parts are "),
    ],
)
def test_a_name_that_is_not_known_is_refused(name: str, message: str) -> None:
    with pytest.raises(Exception, match=message):
        design_named(name)


def test_a_name_says_what_is_joined() -> None:
    assert design_named("decide_at_drain") is CANONICAL
    joined = design_named("decide_at_drain+control")
    assert (joined.name, set(joined.fields()) - set(CANONICAL.fields())) == (
        "decide_at_drain+control",
        {"resetting", "place", "living"},
    )
    assert PART_BOUNDS[CONTROL.name] == BOUNDS
    assert must_reach(joined, "tiny") == [r.name for r in CANONICAL.rules() if r.kind == "sometimes"]
    assert must_reach(CANONICAL, CONTROL.name) == []
