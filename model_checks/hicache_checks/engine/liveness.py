"""§7 Liveness under weak fairness: fair cycles in the reachable graph, told as a lasso.

`p` leads to `goal` unless some run reaches a state with `p` and without `goal`, and from there never sees `goal`: it
ends in a strongly connected component of the states without `goal` in which it can go round for ever. It may do so if
the cycle is *weakly fair*: for each promise (an action, with values of the parameters that are not chosen) some state
of the cycle does not enable it, or some step of the cycle takes it. A component allows a fair cycle if and only if the
walk through all of it is one, so whole components are enough. A state may also be stayed in for ever, if it enables no
promised action at all: what callers may do, they need not.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix  # type: ignore[import-untyped]
from scipy.sparse.csgraph import connected_components  # type: ignore[import-untyped]

from hicache_checks.engine.counterexample import ToldStep, tell
from hicache_checks.engine.graph import Graph, Ids, Mask, Predicate, edges_from, offsets_of, shortest_paths
from hicache_spec import BoundSpec
from hicache_spec.binding import Property
from hicache_spec.language import Symbol

Bits = NDArray[np.uint64]
PROMISES_MAX = 64


@dataclass(frozen=True)
class Lasso:
    """A run that never reaches the goal: the stem once, then the loop for ever. Indices into `spec.steps`.

    An empty loop stays in the last state of the stem: no promised action is enabled there.
    """

    stem: tuple[int, ...]
    loop: tuple[int, ...]


@dataclass(frozen=True)
class LivenessResult:
    """A property for one choice of its parameters; it holds if there is no lasso."""

    name: str
    section: str
    title: str
    arguments: Mapping[str, int]
    lasso: Lasso | None

    @property
    def label(self) -> str:
        """The property as text, such as `live_submitted_operations_end(op=1)`."""
        return f"{self.name}({', '.join(f'{k}={v}' for k, v in self.arguments.items())})"


@dataclass(frozen=True)
class ToldLasso:
    """A lasso as a reader wants it; the loop's steps are numbered on from the stem's."""

    stem: tuple[ToldStep, ...]
    loop: tuple[ToldStep, ...]


def tell_lasso(spec: BoundSpec, lasso: Lasso) -> ToldLasso:
    """Replay a lasso from the initial state."""
    told = tell(spec, (*lasso.stem, *lasso.loop))
    return ToldLasso(tuple(told[: len(lasso.stem)]), tuple(told[len(lasso.stem) :]))


def check_liveness(graph: Graph) -> list[LivenessResult]:
    """Decide every `@leads_to` property of the specification, for each value of its parameters, in the order of the
    text. Raises ValueError for a graph that a budget cut."""
    if not graph.complete:
        raise ValueError("liveness is decided on a complete graph only")
    cases = [(p, arguments) for p in graph.spec.live for arguments in _arguments(graph.spec, p)]
    predicates = []
    for p, arguments in cases:
        assert p.goal is not None
        values = tuple(arguments.values())
        predicates += [Predicate(p.holds, values), Predicate(p.goal, values)]
    truth = graph.states.where(predicates)
    fairness = Fairness(graph)
    results = []
    for number, (p, arguments) in enumerate(cases):
        lasso = find_lasso(graph, fairness, truth[2 * number], truth[2 * number + 1])
        results.append(LivenessResult(p.rule.name, p.rule.section, p.rule.title, arguments, lasso))
    return results


def _arguments(spec: BoundSpec, p: Property) -> Iterator[dict[str, int]]:
    domains = [d.resolve(spec.bounds) if isinstance(d, Symbol) else d for d in p.rule.params.values()]
    for values in itertools.product(*domains):
        yield dict(zip(p.rule.params, values, strict=True))


def promises(spec: BoundSpec) -> tuple[NDArray[np.int64], list[str]]:
    """For each step of the specification the number of the promise that it keeps (-1 for none), and their names.

    There is one for each weakly fair action and value of its parameters that are not chosen.
    """
    numbers: dict[str, int] = {}
    of_step = np.full(len(spec.steps), -1, np.int64)
    for index, step in enumerate(spec.steps):
        if step.rule.fairness:
            fixed = (f"{k}={v}" for k, v in step.arguments.items() if k not in step.rule.chosen)
            name = f"{step.rule.name}({', '.join(fixed)})"
            of_step[index] = numbers.setdefault(name, len(numbers))
    return of_step, list(numbers)


class Fairness:
    """Which promises each state enables and each edge keeps, as bits."""

    def __init__(self, graph: Graph) -> None:
        of_step, self.names = promises(graph.spec)
        if len(self.names) > PROMISES_MAX:
            raise ValueError(f"more than {PROMISES_MAX} weakly fair actions with their parameters")
        self.promised = np.uint64((1 << len(self.names)) - 1)
        bit_of_step = np.array([0 if n < 0 else 1 << int(n) for n in of_step], np.uint64)
        self.kept: Bits = bit_of_step[graph.steps] if len(graph.steps) else np.zeros(0, np.uint64)
        self.enabled = _or_by_group(self.kept, graph.offsets)


def find_lasso(graph: Graph, fairness: Fairness, pending: Mask, goal: Mask) -> Lasso | None:
    """The lasso with the shortest stem from which `goal` is never seen after `pending`; None if there is none."""
    open_ = ~goal
    if not np.any(pending & open_):
        return None
    inner = np.flatnonzero(open_[graph.sources] & open_[graph.targets])
    components = _components(graph.size, graph.sources[inner], graph.targets[inner])
    fair = _fair_states(graph, fairness, open_, inner, components)
    if not np.any(fair):
        return None
    # Two copies of every state: before some pending state was passed, and after it, never leaving the open ones.
    armed_at = pending & open_
    arms = np.flatnonzero(armed_at[graph.targets])
    n = graph.size
    sources = np.concatenate([graph.sources, graph.sources[arms], graph.sources[inner] + n]).astype(np.int32)
    targets = np.concatenate([graph.targets, graph.targets[arms] + n, graph.targets[inner] + n]).astype(np.int32)
    edges = np.concatenate([np.arange(len(graph.sources)), arms, inner])
    order = np.lexsort((edges, sources))
    paths = shortest_paths(2 * n, sources[order], targets[order], [0, n] if armed_at[0] else [0])
    ends = paths.order[(paths.order >= n)]
    ends = ends[fair[ends - n]]
    if not len(ends):
        return None
    end = int(ends[0])
    stem = [int(edges[order[e]]) for e in paths.to(end)]
    loop = _loop(graph, fairness, inner[components[graph.sources[inner]] == components[graph.targets[inner]]], end - n)
    return Lasso(tuple(int(graph.steps[e]) for e in stem), tuple(int(graph.steps[e]) for e in loop))


def _components(size: int, sources: Ids, targets: Ids) -> NDArray[np.int32]:
    matrix = csr_matrix((np.ones(len(sources), np.int8), (sources, targets)), shape=(size, size))
    found: NDArray[np.int32] = connected_components(matrix, directed=True, connection="strong")[1]
    return found


def _fair_states(
    graph: Graph, fairness: Fairness, open_: Mask, inner: NDArray[np.int64], components: NDArray[np.int32]
) -> Mask:
    """The open states that lie on a component that can be gone round fairly, or that can be stayed in."""
    count = int(components.max()) + 1
    by_component = np.argsort(components, kind="stable")
    bounds = np.searchsorted(components[by_component], np.arange(count + 1))
    always = _and_by_group(fairness.enabled[by_component], bounds)
    circling = inner[components[graph.sources[inner]] == components[graph.targets[inner]]]
    at = components[graph.sources[circling]]
    order = np.argsort(at, kind="stable")
    taken = _or_by_group(fairness.kept[circling][order], np.searchsorted(at[order], np.arange(count + 1)))
    has_cycle = np.zeros(count, bool)
    has_cycle[at] = True
    fair = has_cycle & ((always & ~taken & fairness.promised) == 0)
    found: Mask = open_ & (fair[components] | (fairness.enabled == 0))
    return found


def _loop(graph: Graph, fairness: Fairness, circling: NDArray[np.int64], home: int) -> list[int]:
    """A short closed walk from a state through its component that keeps, or does not enable, each promise somewhere.

    Always to the nearest state or edge that settles one more promise, then home. The last way home is a shortest one.
    """
    if fairness.enabled[home] == 0:
        return []
    sources, targets = graph.sources[circling], graph.targets[circling]
    walk: list[int] = []
    here = home
    owed = int(fairness.promised & fairness.enabled[home])
    while owed:
        paths = shortest_paths(graph.size, sources, targets, [here])
        edge = _nearest_settling(graph, fairness, circling, paths.order, owed)
        way = [int(circling[e]) for e in paths.to(int(graph.sources[edge]))] + [edge]
        for e in way:
            owed &= ~int(fairness.kept[e]) & int(fairness.enabled[graph.targets[e]])
        walk += way
        here = int(graph.targets[edge])
    paths = shortest_paths(graph.size, sources, targets, [here])
    return _without_detours(graph, fairness, walk + [int(circling[e]) for e in paths.to(home)])


def _without_detours(graph: Graph, fairness: Fairness, walk: list[int]) -> list[int]:
    """The closed walk without the parts that lead back to where they began and settle nothing by themselves."""

    def is_fair(edges: list[int]) -> bool:
        owed = int(fairness.promised)
        for e in edges:
            owed &= ~int(fairness.kept[e]) & int(fairness.enabled[graph.targets[e]])
        return not owed and bool(edges)

    for first in range(len(walk)):
        for last in range(len(walk) - 1, first - 1, -1):
            rest = walk[:first] + walk[last + 1 :]
            if graph.sources[walk[first]] == graph.targets[walk[last]] and is_fair(rest):
                return _without_detours(graph, fairness, rest)
    return walk


def _nearest_settling(
    graph: Graph, fairness: Fairness, circling: NDArray[np.int64], order: NDArray[np.int64], owed: int
) -> int:
    """The first edge, in the order in which the states were reached, that keeps an owed promise or leads to a state
    that does not enable one."""
    offsets = offsets_of(graph.sources[circling], graph.size)
    edges = circling[edges_from(offsets, order)]
    bits = np.uint64(owed)
    settles = ((fairness.kept[edges] & bits) != 0) | ((~fairness.enabled[graph.targets[edges]] & bits) != 0)
    return int(edges[np.flatnonzero(settles)[0]])


def _or_by_group(values: Bits, bounds: NDArray[np.int64]) -> Bits:
    return _by_group(np.bitwise_or, values, bounds, np.uint64(0))


def _and_by_group(values: Bits, bounds: NDArray[np.int64]) -> Bits:
    return _by_group(np.bitwise_and, values, bounds, ~np.uint64(0))


def _by_group(combine: Any, values: Bits, bounds: NDArray[np.int64], empty: np.uint64) -> Bits:
    """`combine` over the values of each group; `empty` for a group without values."""
    found = np.full(len(bounds) - 1, empty, np.uint64)
    filled = np.flatnonzero(bounds[1:] > bounds[:-1])
    if len(filled):
        found[filled] = combine.reduceat(values, bounds[:-1][filled])
    return found
