"""§13 Control: storage is detached, attached and reset while operations are on their way, and ranks are apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import part_tables
from hicache_checks.engine.engines import EngineOptions
from hicache_checks.engine.engines import explore as compiled
from hicache_checks.engine.explore import DEADLOCK, explore
from hicache_checks.engine.graph import graph_by_objects
from hicache_checks.engine.graph_by_kernels import graph_by_kernels
from hicache_checks.engine.liveness import check_liveness
from hicache_checks.mutants.control_mutants import CONTROL_MUTANTS, STARVING_CONTROL
from hicache_checks.mutants.faulty_liveness import LivenessMutant
from hicache_checks.mutants.spec_mutants import SPEC_MUTANTS, SpecMutant
from hicache_spec import Bounds, BoundSpec, Refused, properties
from hicache_spec.bounds import AGAIN, LIMITER, SOLO_CHURN
from hicache_spec.designs import PROGRESS_ACK
from hicache_spec.language import State
from hicache_spec.parts import PART_BOUNDS, design_named, must_reach
from hicache_spec.parts.control import (
    BOUNDS,
    CONTROL,
    CONTROL_AGAIN,
    CONTROL_PAGES,
    CONTROL_PAIR,
    CONTROL_SOLO,
    CONTROL_TREE,
)
from hicache_spec.parts.control_rules import ATTACHED, DETACHED
from hicache_spec.state import FETCHED
from test_explore import CANONICAL, COUNTS
from test_spec_page import assert_stands

DESIGN = CANONICAL.joined(CONTROL)

# configuration: distinct states, transitions, depth
SIZES = {
    "control_solo": (3_339, 9_583, 28),
    "control_pages": (12_639, 38_630, 32),
    "control_tree": (15_869, 45_070, 44),
    "control_again": (21_575, 75_159, 38),
    "control_pair": (81_757, 313_646, 42),
    "control_trio": (39_290, 151_604, 39),
}
# Properties that are never the first to break: another one sees their mutants a step earlier.
CAUGHT_ALONE = {"inv_rest_restores_the_pool": "sched_drops_the_released_pages"}
SWITCHES = ("aborts", "stops", "churn", "writes", "detaches", "resets", "control_fails")
NAMES_FIRST = {m.caught_by: m.name for m in STARVING_CONTROL}
NAMES_FIRST |= {m.caught_by: m.name for m in reversed(CONTROL_MUTANTS)} | CAUGHT_ALONE
"""For each property, the first faulty rule that it catches."""


STOPPED = [
    f"{step}(rank={rank})"
    for step in ("sched_tell_threads_to_stop", "query_end", "io_end", "sched_let_go")
    for rank in range(2)
]
STARTED = [f"sched_start_{thread}_thread(rank={rank})" for thread in ("query", "io") for rank in range(2)]


def faulty(mutant: SpecMutant | LivenessMutant) -> BoundSpec:
    return BoundSpec(DESIGN.variant(mutant.name, "", mutant.replaces), mutant.bounds)


def mutant(name: str) -> SpecMutant:
    (found,) = [m for m in CONTROL_MUTANTS if m.name == name]
    return found


def shortest(name: str, only: str) -> list[str]:
    """The labels of a shortest run by which a mutant breaks one property, others left aside."""
    spec = faulty(mutant(name))
    violation = explore(spec, only={only}).violation
    assert violation is not None
    return [spec.steps[number].label for number in violation.run]


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
@pytest.mark.parametrize("bounds", BOUNDS, ids=lambda b: b.name)
def test_control_holds_and_its_size_is_pinned(bounds: Bounds) -> None:
    result = compiled(BoundSpec(DESIGN, bounds), EngineOptions("array"))
    assert result.violation is None
    assert result.complete
    assert (result.states, result.transitions, result.depth) == SIZES[bounds.name]


@pytest.mark.heavy
def test_its_bounds_reach_every_outcome_that_it_brings() -> None:
    reached = {name for b in BOUNDS for name in compiled(BoundSpec(DESIGN, b), EngineOptions("array")).reached}
    wanted = {r.name for r in part_tables.own_rules(CONTROL, "sometimes")}
    assert len(wanted) > 15
    assert wanted <= reached
    assert set(must_reach(DESIGN, CONTROL.name)) == wanted


@pytest.mark.heavy
def test_an_id_comes_back_while_what_a_detach_withdrew_is_on_its_way() -> None:
    """Nobody aborts there: the detach does, and is given up. It is an outcome of the canonical text (§6)."""
    assert not CONTROL_AGAIN.aborts
    result = compiled(BoundSpec(replace(DESIGN, shows=()), CONTROL_AGAIN), EngineOptions("array"))
    assert "sometimes_request_id_is_submitted_again" in result.reached


@pytest.mark.parametrize("engine", ["object", "array", "native"])
def test_the_engines_agree(engine: str) -> None:
    result = compiled(BoundSpec(DESIGN, CONTROL_SOLO), EngineOptions(engine))
    assert (result.states, result.transitions, result.depth) == SIZES["control_solo"]
    assert result.violation is None


@pytest.mark.heavy
def test_requests_and_ranks_stay_interchangeable() -> None:
    result = compiled(BoundSpec(DESIGN, CONTROL_PAIR), EngineOptions("array", symmetry=True))
    assert result.states == 21_454
    assert "checked on 21,454 of 21,454 states" in result.note


@pytest.mark.parametrize("bounds", [SOLO_CHURN, AGAIN, LIMITER], ids=lambda b: b.name)
def test_without_control_calls_the_canonical_design_is_the_same(bounds: Bounds) -> None:
    result = explore(BoundSpec(DESIGN, bounds))
    assert result.violation is None
    assert (result.states, result.transitions, result.depth) == COUNTS[bounds.name]


@pytest.mark.heavy
@pytest.mark.parametrize("bounds", BOUNDS, ids=lambda b: b.name)
def test_what_is_promised_happens_in_the_end(bounds: Bounds) -> None:
    results = check_liveness(graph_by_kernels(BoundSpec(DESIGN, bounds)))
    assert {r.name for r in results} == {r.name for r in DESIGN.rules() if r.kind == "live"}
    assert not [r.label for r in results if r.lasso is not None]


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


@pytest.mark.heavy
@pytest.mark.parametrize("mutant", CONTROL_MUTANTS, ids=lambda m: m.name)
def test_a_mutant_is_caught(mutant: SpecMutant) -> None:
    violation = explore(faulty(mutant)).violation
    assert violation is not None, "the mutant survived"
    assert (violation.property, len(violation.run)) == (mutant.caught_by, mutant.steps)


@pytest.mark.heavy
@pytest.mark.parametrize("mutant", STARVING_CONTROL, ids=lambda m: m.name)
def test_what_goes_on_for_ever_is_caught_by_liveness_alone(mutant: LivenessMutant) -> None:
    spec = faulty(mutant)
    assert explore(spec).violation is None
    lassos = {r.name: r.lasso for r in check_liveness(graph_by_objects(spec)) if r.lasso is not None}
    assert lassos.keys() == {mutant.caught_by}
    lasso = lassos[mutant.caught_by]
    assert (len(lasso.stem), len(lasso.loop)) == (mutant.stem, mutant.loop)


def test_every_property_that_it_brings_or_restates_catches_a_mutant() -> None:
    own = {r.name for r in part_tables.own_rules(CONTROL, "invariant", "step")}
    assert len(own) >= 12
    assert own - {m.caught_by for m in CONTROL_MUTANTS} == set(CAUGHT_ALONE)
    for name, fault in CAUGHT_ALONE.items():
        assert shortest(fault, name)
    assert {r.name for r in part_tables.own_rules(CONTROL, "live")} == {m.caught_by for m in STARVING_CONTROL}


def test_names_of_mutants_are_unique_and_name_the_actor() -> None:
    names = [m.name for m in (*SPEC_MUTANTS, *CONTROL_MUTANTS, *STARVING_CONTROL)]
    assert len(set(names)) == len(names)
    assert {name.split("_")[0] for name in names} == {"sched", "query", "io"}


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


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ("13", lambda: part_tables.configurations(BOUNDS, SWITCHES, SIZES)),
        ("13.1", lambda: part_tables.variables(CONTROL)),
        ("13.1", lambda: part_tables.replaced(CONTROL)),
        ("13.2", lambda: part_tables.actions(CONTROL)),
        ("13.2", lambda: part_tables.events(CONTROL)),
        ("13.3", lambda: part_tables.properties(CONTROL, "invariant", NAMES_FIRST)),
        ("13.4", lambda: part_tables.properties(CONTROL, "step", NAMES_FIRST)),
        ("13.5", lambda: part_tables.outcomes(CONTROL)),
        ("13.6", lambda: part_tables.properties(CONTROL, "live", NAMES_FIRST)),
    ],
    ids=lambda value: f"section {value}" if isinstance(value, str) else "",
)
def test_a_table_says_what_the_code_says(section: str, expected: Callable[[], Any]) -> None:
    table = expected()
    assert table.rows, "nothing was compared"
    assert_stands(section, table)
