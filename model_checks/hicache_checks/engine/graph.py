"""The reachable graph of a bound specification, in NumPy arrays: what liveness and refinement are decided on.

How states are stored is the business of whoever built the graph: it hands over its states as `States`. Everything else
is arrays, one element an edge, so that a million edges are a second's work.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hicache_spec import BoundSpec, Refused
from hicache_spec.language import State

Ids = NDArray[np.int32]
Mask = NDArray[np.bool_]
StepPredicate = Callable[[State, State], bool]
Happening = tuple[int, tuple[tuple[Any, ...], ...]]
"""A step (an index into `spec.steps`) and the events that it emitted, as far as they are recorded."""
PROGRESS_EVERY_STATES = 1_000


@dataclass(frozen=True)
class Predicate:
    """A bound predicate of states with values for its other parameters."""

    function: Callable[..., bool]
    values: tuple[int, ...] = ()

    def __call__(self, s: State) -> bool:
        return self.function(s, *self.values)


class States(Protocol):
    """The states of a graph, by number; number 0 is the initial one."""

    def __len__(self) -> int: ...

    def __getitem__(self, number: int) -> State:
        """A fresh state object."""
        ...

    def where(self, predicates: Sequence[Predicate]) -> Mask:
        """Shape (predicates, states): which predicate holds in which state."""
        ...


@dataclass(frozen=True)
class Graph:
    """The reachable states and steps of a specification.

    `sources`, `targets` and `labels` have one element an edge and are sorted by source, then by step. A label is an
    index into `vocabulary`, the distinct happenings. `complete` is False if a budget cut the graph; nothing may be
    concluded then but that.
    """

    spec: BoundSpec
    states: States
    sources: Ids
    targets: Ids
    labels: Ids
    vocabulary: tuple[Happening, ...]
    complete: bool

    @property
    def size(self) -> int:
        """The number of states."""
        return len(self.states)

    @cached_property
    def steps(self) -> Ids:
        """The step of each edge, an index into `spec.steps`."""
        return np.array([step for step, _ in self.vocabulary], np.int32)[self.labels]

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """Where the edges of each state begin; its edges are `offsets[i] .. offsets[i + 1] - 1`."""
        return offsets_of(self.sources, self.size)

    @cached_property
    def at_rest(self) -> Mask:
        """The quiescent states."""
        found: Mask = np.asarray(self.states.where([Predicate(rule) for rule in self.spec.quiescence]).all(axis=0))
        return found


class ObjectStates:
    """States as the object engine keeps them: bytes."""

    def __init__(self, spec: BoundSpec, keys: Sequence[bytes]) -> None:
        self._spec, self._keys = spec, keys

    def __len__(self) -> int:
        return len(self._keys)

    def __getitem__(self, number: int) -> State:
        return self._spec.decode(self._keys[number])

    def where(self, predicates: Sequence[Predicate]) -> Mask:
        """Decodes every state once."""
        found = np.zeros((len(predicates), len(self._keys)), bool)
        for number, key in enumerate(self._keys):
            s = self._spec.decode(key)
            for row, holds in enumerate(predicates):
                found[row, number] = holds(s)
        return found


def graph_by_objects(
    spec: BoundSpec,
    kinds: Collection[str] = (),
    max_states: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Graph:
    """Explore breadth-first with plain Python objects, without judging anything.

    `kinds`: the names of the kinds of events to record. `progress` is told the number of states.
    """
    gc_was_enabled = gc.isenabled()
    gc.disable()  # nothing here is cyclic, and the collector would walk millions of live keys again and again
    try:
        return _build(spec, frozenset(kinds), max_states, progress)
    finally:
        if gc_was_enabled:
            gc.enable()


def _build(
    spec: BoundSpec,
    kinds: frozenset[str],
    max_states: int | None,
    progress: Callable[[int], None] | None,
) -> Graph:
    first = spec.encode(spec.initial())
    ids, keys = {first: 0}, [first]
    edges: list[tuple[int, int, int]] = []
    vocabulary: dict[Happening, int] = {}
    complete = True
    source = 0
    while source < len(keys) and complete:
        key = keys[source]
        after = spec.decode(key)
        for number, step in enumerate(spec.steps):
            try:
                step.run(after)
            except Refused:
                continue  # guards come first: the state is as it was
            encoded = spec.encode(after)
            target = ids.setdefault(encoded, len(keys))
            if target == len(keys):
                if len(keys) == max_states:
                    complete = False
                    break
                keys.append(encoded)
            happening = (number, tuple(e for e in after.events if e[0] in kinds))
            edges.append((source, target, vocabulary.setdefault(happening, len(vocabulary))))
            after = spec.decode(key)
        source += 1
        if progress is not None and source % PROGRESS_EVERY_STATES == 0:
            progress(len(keys))
    columns = np.array(edges, np.int32).reshape(-1, 3).T.copy()
    return Graph(spec, ObjectStates(spec, keys), columns[0], columns[1], columns[2], tuple(vocabulary), complete)


@dataclass(frozen=True)
class SomeStates:
    """Some states of another graph: `kept` are their numbers there."""

    whole: States
    kept: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.kept)

    def __getitem__(self, number: int) -> State:
        return self.whole[int(self.kept[number])]

    def where(self, predicates: Sequence[Predicate]) -> Mask:
        """Asks in the whole graph."""
        found: Mask = self.whole.where(predicates)[:, self.kept]
        return found


def restrict(graph: Graph, allowed: StepPredicate, actions: Collection[str]) -> Graph:
    """The part of a graph that is reached without the steps of these actions of which `allowed` does not hold.

    Each such step is replayed, its state before, its state after and its events shown to the predicate.
    """
    spec = graph.spec
    concerned = np.array([step.rule.name in actions for step in spec.steps], bool)[graph.steps]
    kept = np.ones(len(graph.sources), bool)
    for edge in np.flatnonzero(concerned).tolist():
        source = int(graph.sources[edge])
        before, after = graph.states[source], graph.states[source]
        spec.steps[graph.steps[edge]].run(after)
        kept[edge] = allowed(before, after)
    edges = np.flatnonzero(kept)
    sources, targets = graph.sources[edges], graph.targets[edges]
    states = closure(offsets_of(sources, graph.size), targets, np.zeros(1, np.int64), graph.size)
    numbers = np.full(graph.size, -1, np.int32)
    numbers[states] = np.arange(len(states), dtype=np.int32)
    inside = numbers[sources] >= 0
    return Graph(
        spec,
        SomeStates(graph.states, states),
        numbers[sources[inside]],
        numbers[targets[inside]],
        graph.labels[edges[inside]],
        graph.vocabulary,
        graph.complete,
    )


# ---- algorithms on edges sorted by source


def offsets_of(sources: NDArray[Any], size: int) -> NDArray[np.int64]:
    """Where the edges of each source begin, and at the end how many there are; `sources` is sorted."""
    return np.searchsorted(sources, np.arange(size + 1)).astype(np.int64)


def edges_from(offsets: NDArray[np.int64], states: NDArray[Any]) -> NDArray[np.int64]:
    """The edges of these states, state by state in the order given."""
    starts = offsets[states]
    counts = offsets[states + 1] - starts
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) + np.repeat(starts - (ends - counts), counts)


def first_occurrences(values: NDArray[Any]) -> NDArray[np.int64]:
    """The places of the first occurrence of each value, in order of place."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    is_first = np.ones(len(values), bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    found: NDArray[np.int64] = np.sort(order[is_first])
    return found


def closure(offsets: NDArray[np.int64], targets: Ids, starts: NDArray[Any], size: int) -> NDArray[np.int64]:
    """All states that these reach by edges, themselves included, sorted."""
    seen = np.zeros(size, bool)
    seen[starts] = True
    frontier = np.flatnonzero(seen)
    while len(frontier):
        reached = targets[edges_from(offsets, frontier)]
        reached = reached[~seen[reached]]
        seen[reached] = True
        frontier = np.unique(reached)
    return np.flatnonzero(seen)


@dataclass(frozen=True)
class Paths:
    """A breadth-first forest: for each node the edge by which it was first reached; -1 for a start, -2 for none."""

    sources: Ids
    parents: NDArray[np.int64]
    order: NDArray[np.int64]
    """The reached nodes, nearest first; among equally near ones, in the order of the least path by edge numbers."""

    def to(self, node: int) -> list[int]:
        """The edges of the path to a node."""
        path: list[int] = []
        while self.parents[node] >= 0:
            path.append(int(self.parents[node]))
            node = int(self.sources[path[-1]])
        return path[::-1]


def shortest_paths(size: int, sources: Ids, targets: Ids, starts: Sequence[int]) -> Paths:
    """Breadth-first from the starts; `sources` is sorted. The same numbers give the same paths, always."""
    offsets = offsets_of(sources, size)
    parents = np.full(size, -2, np.int64)
    frontier = np.array(list(starts), np.int64)
    parents[frontier] = -1
    levels = [frontier]
    while len(frontier):
        edges = edges_from(offsets, frontier)
        edges = edges[parents[targets[edges]] == -2]
        edges = edges[first_occurrences(targets[edges])]
        frontier = targets[edges].astype(np.int64)
        parents[frontier] = edges
        levels.append(frontier)
    return Paths(sources, parents, np.concatenate(levels))
