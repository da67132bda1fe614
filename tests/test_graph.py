"""The reachable graph: the exploration's states and steps, in arrays; and the algorithms on them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import toy_spec
from hicache_checks.engine.explore import explore
from hicache_checks.engine.graph import (
    Predicate,
    closure,
    edges_from,
    first_occurrences,
    graph_by_objects,
    offsets_of,
    restrict,
    shortest_paths,
)
from hicache_spec import DESIGNS, BoundSpec, Design
from hicache_spec.bounds import SOLO_CHURN
from hicache_spec.language import State
from toy_graph import Edge, graph_of
from toy_spec import Toy, ToyBounds

TOY = Design("toy", "", Toy, (toy_spec,), {})


def spec_of_toy() -> BoundSpec:
    return BoundSpec(TOY, ToyBounds())


def test_the_graph_is_what_is_explored() -> None:
    spec = BoundSpec(DESIGNS["decide_at_drain"], SOLO_CHURN)
    graph, result = graph_by_objects(spec), explore(spec)
    assert (graph.size, len(graph.sources), graph.complete) == (result.states, result.transitions, True)
    assert spec.encode(graph.states[0]) == spec.encode(spec.initial())


def test_an_edge_is_a_step() -> None:
    spec = spec_of_toy()
    graph = graph_by_objects(spec, {"taken"})
    for edge in range(len(graph.sources)):
        s = graph.states[int(graph.sources[edge])]
        spec.steps[graph.steps[edge]].run(s)
        assert spec.encode(s) == spec.encode(graph.states[int(graph.targets[edge])])
        step, events = graph.vocabulary[graph.labels[edge]]
        assert (step, events) == (graph.steps[edge], tuple(s.events))
    keys = graph.sources.astype(int) * len(spec.steps) + graph.steps
    assert (np.diff(keys) > 0).all(), "sorted by source, then by step, each step once"
    assert any(events for _, events in graph.vocabulary)


def test_only_the_asked_kinds_of_events_are_recorded() -> None:
    assert not [events for _, events in graph_by_objects(spec_of_toy()).vocabulary if events]


def test_predicates_are_asked_in_every_state() -> None:
    spec = spec_of_toy()
    graph = graph_by_objects(spec)

    def has_spent(s: State, amount: int) -> bool:
        return bool(s.spent == amount)

    truth = graph.states.where([Predicate(has_spent, (0,)), Predicate(has_spent, (3,))])
    assert truth.shape == (2, graph.size)
    assert [bool(x) for x in truth[1]] == [graph.states[n].spent == 3 for n in range(graph.size)]
    assert truth[0][0]
    assert not truth[1][0]
    assert [bool(x) for x in graph.at_rest] == [spec.is_quiescent(graph.states[n]) for n in range(graph.size)]
    assert graph.at_rest.any()
    assert not graph.at_rest.all()


def test_steps_that_are_not_allowed_are_left_out_with_what_only_they_reach() -> None:
    spec = spec_of_toy()

    def nothing_is_reopened(s: State, t: State) -> bool:
        return len(t.done) >= len(s.done)

    whole = graph_by_objects(spec)
    part = restrict(whole, nothing_is_reopened, ["env_reopen", "worker_finish"])
    assert part.size < whole.size
    assert spec.encode(part.states[0]) == spec.encode(spec.initial())
    for edge in range(len(part.sources)):
        s = part.states[int(part.sources[edge])]
        spec.steps[part.steps[edge]].run(s)
        assert spec.encode(s) == spec.encode(part.states[int(part.targets[edge])])
    assert part.at_rest.sum() == sum(spec.is_quiescent(part.states[n]) for n in range(part.size))
    untouched = restrict(whole, nothing_is_reopened, ["worker_finish"])
    assert (untouched.size, len(untouched.sources)) == (whole.size, len(whole.sources))
    assert "env_reopen" in {spec.steps[n].rule.name for n in whole.steps}
    assert "env_reopen" not in {spec.steps[n].rule.name for n in part.steps}


def test_a_budget_cuts_and_says_so() -> None:
    graph = graph_by_objects(spec_of_toy(), max_states=7)
    assert (graph.size, graph.complete) == (7, False)


def test_progress_is_told_in_states() -> None:
    told: list[int] = []
    graph_by_objects(BoundSpec(DESIGNS["decide_at_drain_by_rid"], SOLO_CHURN), progress=told.append)
    assert told == []
    from hicache_spec.bounds import PRESSURE

    graph_by_objects(BoundSpec(DESIGNS["decide_at_drain"], PRESSURE), progress=told.append)
    assert told == sorted(told)
    assert told


# ---- algorithms


def test_edges_of_states_come_in_the_order_asked() -> None:
    offsets = offsets_of(np.array([0, 0, 2, 2, 2]), 4)
    assert offsets.tolist() == [0, 2, 2, 5, 5]
    assert edges_from(offsets, np.array([2, 0])).tolist() == [2, 3, 4, 0, 1]
    assert edges_from(offsets, np.array([1, 3])).tolist() == []


@given(st.lists(st.integers(0, 5)))
def test_first_occurrences(values: list[int]) -> None:
    found = first_occurrences(np.array(values, int)).tolist()
    assert found == [i for i, v in enumerate(values) if v not in values[:i]]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, list[Edge]]:
    size = draw(st.integers(1, 7))
    state = st.integers(0, size - 1)
    return size, draw(st.lists(st.tuples(state, state, st.integers(0, 3)), max_size=20, unique=True))


@given(graphs())
def test_paths_are_shortest_and_closures_are_what_they_reach(case: tuple[int, list[Edge]]) -> None:
    size, edges = case
    graph = graph_of(size, edges)
    paths = shortest_paths(size, graph.sources, graph.targets, [0])
    distance = {0: 0}
    for level in range(size):
        for s, t, _ in edges:
            if distance.get(s) == level:
                distance.setdefault(t, level + 1)
    assert sorted(paths.order.tolist()) == sorted(distance)
    assert [distance[n] for n in paths.order.tolist()] == sorted(distance.values())
    for node, steps in distance.items():
        way = paths.to(node)
        assert len(way) == steps
        here = 0
        for edge in way:
            assert graph.sources[edge] == here
            here = int(graph.targets[edge])
        assert here == node
    assert closure(graph.offsets, graph.targets, np.array([0]), size).tolist() == sorted(distance)


@pytest.mark.parametrize("swap", [False, True])
def test_among_shortest_paths_the_least_is_taken(swap: bool) -> None:
    """By the numbers of the edges on the way, not of the states."""
    first, second = (2, 1) if swap else (1, 2)
    graph = graph_of(4, [(0, first, 0), (0, second, 1), (first, 3, 1), (second, 3, 0)])
    paths = shortest_paths(4, graph.sources, graph.targets, [0])
    assert [int(graph.steps[e]) for e in paths.to(3)] == [0, 1]
