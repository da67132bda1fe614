"""Refinement of random machines against a definition that is as plain as it is slow."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache_checks.engine.graph import Graph
from hicache_checks.engine.refine import BudgetSpent, Comparison
from toy_graph import Edge, Letters, graph_of

WORDS = ((), (), ("a",), ("b",), ("a", "b"))
"""What each step shows: two are hidden, one shows two letters."""
SIZE_MAX = 4


def outcome(state: Any) -> tuple[tuple[str, int], ...]:
    return (("ended", int(state) % 2),)


def compared(left: Graph, right: Graph) -> Comparison:
    observation: Any = Letters(WORDS)
    return Comparison(left, right, observation, outcome)


@st.composite
def machines(draw: st.DrawFn) -> Graph:
    size = draw(st.integers(1, SIZE_MAX))
    state = st.integers(0, size - 1)
    edges = st.tuples(state, state, st.integers(0, len(WORDS) - 1))
    found = draw(st.lists(edges, max_size=8, unique_by=lambda e: (e[0], e[2])))
    return graph_of(size, found, resting=draw(st.lists(state, unique=True)), steps=len(WORDS))


def edges_of(graph: Graph) -> list[Edge]:
    return list(zip(graph.sources.tolist(), graph.targets.tolist(), graph.steps.tolist(), strict=True))


def closed(states: frozenset[int], edges: list[Edge]) -> frozenset[int]:
    found = set(states)
    for _ in range(SIZE_MAX):
        found |= {t for s, t, step in edges if s in found and not WORDS[step]}
    return frozenset(found)


def after(states: frozenset[Any], word: tuple[str, ...], edges: list[Edge]) -> frozenset[Any]:
    """The states after a word; between the letters of a step a state is (target, letters to come)."""
    for letter in word:
        following = set()
        for s in states:
            if isinstance(s, tuple):
                target, rest = s
                if rest[0] == letter:
                    following.add((target, rest[1:]) if rest[1:] else target)
                continue
            for source, target, step in edges:
                if source == s and WORDS[step][:1] == (letter,):
                    rest = WORDS[step][1:]
                    following.add((target, rest) if rest else target)
        plain = closed(frozenset(s for s in following if not isinstance(s, tuple)), edges)
        states = plain | frozenset(s for s in following if isinstance(s, tuple))
    return states


def shortest_difference(left: Graph, right: Graph) -> int | None:
    """The fewest steps by which LEFT does what RIGHT cannot; None if there is nothing."""
    ours, theirs = edges_of(left), edges_of(right)
    start: tuple[int, frozenset[Any]] = (0, closed(frozenset({0}), theirs))
    level, seen, steps = [start], {start}, 0
    while level:
        for state, options in level:
            ends = {outcome(s) for s in options if not isinstance(s, tuple) and right.at_rest[s]}
            if not options or (left.at_rest[state] and outcome(state) not in ends):
                return steps
        following = [
            (target, after(options, WORDS[step], theirs))
            for state, options in level
            for source, target, step in ours
            if source == state
        ]
        level = list(dict.fromkeys(node for node in following if node not in seen))
        seen |= set(level)
        steps += 1
    return None


@given(machines(), machines())
def test_the_verdict_and_the_length_are_those_of_the_definition(left: Graph, right: Graph) -> None:
    found = compared(left, right).decide()
    expected = shortest_difference(left, right)
    assert found.holds == (expected is None)
    if found.difference is not None:
        assert len(found.difference.edges) == expected


@given(machines(), machines())
def test_a_difference_is_a_run_of_left_that_right_cannot_match(left: Graph, right: Graph) -> None:
    comparison = compared(left, right)
    difference = comparison.decide().difference
    if difference is None:
        return
    here = 0
    word: list[str] = []
    for edge in difference.edges:
        assert left.sources[edge] == here
        here = int(left.targets[edge])
        word += WORDS[left.steps[edge]]
    assert [letter for (letter,) in difference.word] == word
    options = after(closed(frozenset({0}), edges_of(right)), tuple(word), edges_of(right))
    if difference.outcome is None:
        assert not options
    else:
        assert left.at_rest[here]
        assert difference.outcome == outcome(here)
        assert difference.outcome not in {outcome(s) for s in options if not isinstance(s, tuple) and right.at_rest[s]}


@given(machines())
def test_a_machine_is_included_in_itself(machine: Graph) -> None:
    assert compared(machine, machine).decide().holds


def test_a_hidden_choice_is_no_difference() -> None:
    """RIGHT decides by a hidden step what LEFT decides later: every word of LEFT is RIGHT's all the same."""
    left = graph_of(4, [(0, 1, 2), (1, 2, 2), (1, 3, 3)])
    right = graph_of(6, [(0, 1, 0), (0, 2, 1), (1, 3, 2), (2, 4, 2), (3, 5, 2), (4, 5, 3)])
    assert compared(left, right).decide().holds
    assert compared(right, left).decide().holds


def test_an_outcome_after_the_same_word_is_a_difference() -> None:
    left = graph_of(3, [(0, 1, 2), (0, 2, 0)], resting=[1])
    right = graph_of(3, [(0, 2, 2), (0, 1, 0)], resting=[2])
    difference = compared(left, right).decide().difference
    assert difference is not None
    assert (difference.word, difference.outcome) == ((("a",),), (("ended", 1),))


def test_one_state_of_left_is_met_once_for_each_set_of_right() -> None:
    """After `b` RIGHT can do less than after `a`, though LEFT is in the same state after both."""
    left = graph_of(3, [(0, 1, 2), (0, 1, 3), (1, 2, 2)])
    right = graph_of(4, [(0, 1, 2), (0, 2, 3), (1, 3, 2)])
    difference = compared(left, right).decide().difference
    assert difference is not None
    assert difference.word == (("b",), ("a",))


def test_letters_of_one_step_may_be_shown_by_several() -> None:
    together = graph_of(3, [(0, 1, 4)])
    apart = graph_of(3, [(0, 1, 2), (1, 2, 3), (2, 2, 4)])
    assert compared(together, apart).decide().holds
    difference = compared(graph_of(3, [(0, 1, 2), (1, 2, 2), (2, 2, 4)]), together).decide().difference
    assert difference is not None
    assert difference.word == (("a",), ("a",))


def test_a_budget_of_pairs_is_kept() -> None:
    machine = graph_of(4, [(0, 1, 2), (1, 2, 2), (2, 3, 2)])
    assert compared(machine, machine).decide(max_pairs=4).pairs == 4
    with pytest.raises(BudgetSpent):
        compared(machine, machine).decide(max_pairs=3)


def test_a_cut_graph_is_not_compared() -> None:
    machine = graph_of(2, [(0, 1, 2)])
    cut = Graph(
        machine.spec, machine.states, machine.sources, machine.targets, machine.labels, machine.vocabulary, False
    )
    with pytest.raises(ValueError, match="complete graphs"):
        compared(machine, cut)
