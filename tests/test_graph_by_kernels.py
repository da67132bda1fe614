"""The reachable graph by kernels is the one by objects: states, edges, events and what is asked of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, note, settings

from hicache_checks.engine.compile.layout import DoesNotFit
from hicache_checks.engine.graph import Graph, Predicate, graph_by_objects, restrict
from hicache_checks.engine.graph_by_kernels import graph_by_kernels
from hicache_spec import DESIGNS, Bounds, BoundSpec
from hicache_spec.bounds import AGAIN, LIMITER, PRESSURE, SOLO_CHURN
from hicache_spec.language import State
from hicache_spec.observations import DRAINS, OBSERVATIONS
from quick import one_quick
from random_specs import load, random_specs
from test_does_not_fit import text

KINDS = {name: frozenset(kind.name for kind in o.events) for name, o in OBSERVATIONS.items()}
GRAPHS = [
    ("decide_at_drain", PRESSURE),
    ("decide_at_drain_by_rid", AGAIN),
    ("revoke_queue", LIMITER),
    ("alloc_first", PRESSURE),
]


def assert_equal(mine: Graph, other: Graph) -> None:
    spec = mine.spec
    assert (mine.size, mine.complete, mine.vocabulary) == (other.size, other.complete, other.vocabulary)
    for name in ("sources", "targets", "labels", "steps"):
        assert np.array_equal(getattr(mine, name), getattr(other, name)), name
    assert all(spec.encode(mine.states[n]) == spec.encode(other.states[n]) for n in range(mine.size))
    assert np.array_equal(mine.at_rest, other.at_rest)


@pytest.mark.parametrize("observation", one_quick(OBSERVATIONS))
@pytest.mark.parametrize("design", one_quick(["decide_at_drain", "revoke_queue_sampled"]))
def test_the_graph_is_the_same_for_every_observation(design: str, observation: str) -> None:
    spec, kinds = BoundSpec(DESIGNS[design], SOLO_CHURN), KINDS[observation]
    by_kernels = graph_by_kernels(spec, kinds)
    assert_equal(by_kernels, graph_by_objects(spec, kinds))
    shown = {event[0] for _, events in by_kernels.vocabulary for event in events}
    assert shown <= kinds
    assert bool(shown) == bool(kinds)


@pytest.mark.heavy
@pytest.mark.parametrize(("design", "bounds"), GRAPHS)
def test_the_graph_is_the_same_for_every_design(design: str, bounds: Bounds) -> None:
    spec = BoundSpec(DESIGNS[design], bounds)
    assert_equal(graph_by_kernels(spec, KINDS["events"]), graph_by_objects(spec, KINDS["events"]))


def test_predicates_are_asked_alike() -> None:
    spec = BoundSpec(DESIGNS["decide_at_drain"], SOLO_CHURN)
    by_kernels, by_objects = graph_by_kernels(spec), graph_by_objects(spec)
    asked = [Predicate(p.holds, values) for p in spec.live for values in ([(0,)] if p.rule.params else [()])] + [
        Predicate(p.holds) for p in spec.invariants
    ]
    found = by_kernels.states.where(asked)
    assert np.array_equal(found, by_objects.states.where(asked))
    assert found.any(axis=1).all()
    assert not found.all()


def test_the_same_part_is_left_of_both() -> None:
    spec = BoundSpec(DESIGNS["decide_at_drain"], SOLO_CHURN)
    by_kernels, by_objects = graph_by_kernels(spec, KINDS["ticks"]), graph_by_objects(spec, KINDS["ticks"])

    def allowed(s: State, t: State) -> bool:
        return sum(t.releasing) == 0

    part = restrict(by_kernels, allowed, DRAINS)
    assert_equal(part, restrict(by_objects, allowed, DRAINS))
    assert 0 < len(part.sources) < len(by_objects.sources)


def test_a_budget_cuts_and_says_so() -> None:
    graph = graph_by_kernels(BoundSpec(DESIGNS["decide_at_drain"], SOLO_CHURN), max_states=100)
    assert not graph.complete
    assert graph.size > 100


def test_progress_is_told_in_states() -> None:
    told: list[int] = []
    graph = graph_by_kernels(BoundSpec(DESIGNS["decide_at_drain"], SOLO_CHURN), progress=told.append)
    assert told == sorted(told)
    assert told[-1] == graph.size


def test_events_of_huge_numbers_are_told_apart(tmp_path: Path) -> None:
    """More values than 64 bits have: no single number could stand for an event and its values."""
    act = "emit(s, ON_X, s.x * s.x, s.x * s.x + p)\nemit(s, ON_Y, -s.x)\ns.x = s.x + 70000000 if s.x < 900000000 else 7"
    spec = load(text("x = field(upto(1 << 30))", act), tmp_path)
    by_kernels = graph_by_kernels(spec, {"x", "y"})
    assert_equal(by_kernels, graph_by_objects(spec, {"x", "y"}))
    shown = {events[0] for _, events in by_kernels.vocabulary}
    assert len(shown) == len(by_kernels.sources) == 2 * by_kernels.size
    assert max(values[1] for values in shown) > 1 << 59


@pytest.mark.heavy
def test_the_graphs_of_random_specifications_are_the_same(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder, seen = tmp_path_factory.mktemp("specs"), Counter[str]()

    @settings(max_examples=40)
    @given(random_specs())
    def check(text: str) -> None:
        note(text)
        spec = load(text, folder)
        by_objects = graph_by_objects(spec, {"x", "y"}, max_states=400)
        if not by_objects.complete:
            return
        if any(spec.out_of_bounds(by_objects.states[n]) for n in range(by_objects.size)):
            with pytest.raises(DoesNotFit, match=r"^act\d: a value leaves its type"):
                graph_by_kernels(spec, {"x", "y"})
            seen["refused"] += 1
        else:
            assert_equal(graph_by_kernels(spec, {"x", "y"}), by_objects)
            seen["with events"] += any(events for _, events in by_objects.vocabulary)

    check()
    assert min(seen["refused"], seen["with events"]) > 0
