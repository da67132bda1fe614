"""The reachable graph of a specification by array kernels: the same graph as by objects, much faster where it is large."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hicache_checks.engine.array.columns import NUMPY
from hicache_checks.engine.array.search import ArrayKernels
from hicache_checks.engine.array.state_table import StateTable
from hicache_checks.engine.compile.expressions import Node
from hicache_checks.engine.compile.kernels import Compiled, Kernel
from hicache_checks.engine.compile.layout import Words
from hicache_checks.engine.compile.tracer import Emitted, Tracer
from hicache_checks.engine.graph import Graph, Mask, Predicate, StepPredicate, shortest_paths
from hicache_spec import BoundSpec
from hicache_spec.language import State
from hicache_spec.observations import Observation, Word

CHUNK = 1 << 15


class PackedStates:
    """States as rows of words, shape (n, words), unpacked on demand."""

    def __init__(self, kernels: ArrayKernels, rows: Words) -> None:
        self._kernels, self._rows = kernels, rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, number: int) -> State:
        return self._kernels.compiled.layout.unpack(self._rows[number].tolist())

    def where(self, predicates: Sequence[Predicate]) -> Mask:
        """Compiles the predicates; shape (predicates, states)."""
        compiled, found = self._kernels.compiled, np.zeros((len(predicates), len(self._rows)), bool)
        roots = [compiled.predicate(p.function, *p.values) for p in predicates]
        for row, values in enumerate(self._kernels.values(roots, self._kernels.from_words(self._rows))):
            found[row] = values
        return found


@dataclass(frozen=True)
class _Watched:
    """One action instance as an observer sees it: is its step allowed, and which events may it show?"""

    kernel: Kernel
    allowed: Node
    events: tuple[Emitted, ...]

    @property
    def roots(self) -> list[Node]:
        """The expressions to be computed for each step."""
        return [self.allowed, *(n for e in self.events for n in (e.condition, *e.values))]


def graph_by_kernels(
    spec: BoundSpec,
    observation: Observation | None = None,
    max_states: int | None = None,
    allowed: Sequence[StepPredicate] = (),
    progress: Callable[[int], None] | None = None,
) -> Graph:
    """Explore breadth-first without judging anything; parameters and result as of `graph_by_objects`.

    Raises DoesNotFit for a specification that cannot be compiled.
    """
    kernels = ArrayKernels.build(Compiled(spec, judged=False), NUMPY)
    watched = [_watched(kernels.compiled, k, observation, allowed) for k in kernels.compiled.kernels]
    table = StateTable(kernels.columns, kernels.compiled.layout.words)
    table.add(kernels.from_words(np.array([kernels.compiled.initial], np.uint64)))
    words: dict[Word, int] = {(): 0}
    watch = None if observation is None else observation.bind(spec)
    edges: list[np.ndarray[Any, Any]] = []
    done = 0
    while done < table.count and (max_states is None or table.count <= max_states):
        end = min(done + CHUNK, table.count)
        states = [w[done:end] for w in table.words]
        for taken in kernels.expand(states):
            found = _edges(kernels, watched[taken.step], states, taken.rows)
            targets = table.add([w[found.rows] for w in taken.words])
            labels = found.codes
            if watch is not None:
                names = found.spell(spec, watch)
                labels = np.array([words.setdefault(w, len(words)) for w in names], np.int32)[found.codes]
            steps = np.full(len(targets), taken.step)
            edges.append(np.stack([taken.rows[found.rows] + done, targets, steps, labels]).astype(np.int32))
        done = end
        if progress is not None:
            progress(table.count)
    complete = done == table.count
    columns = np.concatenate(edges, axis=1) if edges else np.empty((4, 0), np.int32)
    rows = kernels.to_words([w[: table.count] for w in table.words])
    return _in_order(spec, kernels, rows, columns, words, complete)


def _in_order(
    spec: BoundSpec, kernels: ArrayKernels, rows: Words, columns: Any, words: dict[Word, int], complete: bool
) -> Graph:
    """The graph with states numbered, and words listed, as the reference engine comes to them."""
    columns = columns[:, np.lexsort((columns[2], columns[0]))]
    order = shortest_paths(len(rows), columns[0], columns[1], [0]).order
    number = np.empty(len(rows), np.int32)
    number[order] = np.arange(len(rows))
    columns[0], columns[1] = number[columns[0]], number[columns[1]]
    columns = columns[:, np.lexsort((columns[2], columns[0]))]
    used, first = np.unique(columns[3], return_index=True)
    seen = [int(w) for w in used[np.argsort(first)]]
    vocabulary = [(), *(w for w in words if words[w] in set(seen) and w)]
    vocabulary.sort(key=lambda w: -1 if not w else seen.index(words[w]))
    renamed = np.zeros(len(words), np.int32)
    for label, word in enumerate(vocabulary):
        renamed[words[word]] = label
    labels = renamed[columns[3]]
    states = PackedStates(kernels, rows[order])
    return Graph(spec, states, columns[0], columns[1], columns[2], labels, tuple(vocabulary), complete)


def _watched(
    compiled: Compiled, kernel: Kernel, observation: Observation | None, allowed: Sequence[StepPredicate]
) -> _Watched:
    after = {**compiled.before, **kernel.changes}
    permitted = compiled.builder.true
    for holds in allowed:
        judge = Tracer(compiled.builder, compiled.layout, [dict(compiled.before), dict(after)], kernel.events)
        permitted = compiled.builder.both(permitted, judge.decide(holds))
    shows = observation is not None and observation.may_show(compiled.spec)[kernel.number]
    kinds = {k.name for k in observation.events} if observation is not None else set()
    return _Watched(kernel, permitted, tuple(e for e in kernel.events if shows and e.kind.name in kinds))


@dataclass(frozen=True)
class _Edges:
    """Steps of one action instance: which rows they start from, and each one's index into `events`."""

    step: int
    rows: Any
    codes: Any
    events: list[list[tuple[Any, ...]]]

    def spell(self, spec: BoundSpec, watch: Callable[[int, Sequence[tuple[Any, ...]]], Word]) -> list[Word]:
        """The word of each kind of step."""
        return [watch(self.step, events) for events in self.events]


def _edges(kernels: ArrayKernels, watched: _Watched, states: list[Any], rows: Any) -> _Edges:
    """The allowed steps, and the events that each shows."""
    values = iter(kernels.values(watched.roots, [w[rows] for w in states]))
    kept = np.flatnonzero(np.broadcast_to(np.asarray(next(values), bool), len(rows)))

    def column() -> Any:
        return np.broadcast_to(np.asarray(next(values), np.int64), len(rows))[kept]

    codes, shown = np.zeros(len(kept), np.int64), [[]]  # type: ignore[var-annotated]
    for event in watched.events:
        # One more event: what was shown so far, and 0, or one more than the number that stands for its values.
        own, is_shown = np.zeros(len(kept), np.int64), column()
        for node in event.values:
            own = own * (node.high - node.low + 1) + (column() - node.low)
        base = 1 + math.prod(node.high - node.low + 1 for node in event.values)
        distinct, codes = np.unique(codes * base + is_shown * (1 + own), return_inverse=True)
        shown = [shown[int(d) // base] + _decoded(event, int(d) % base) for d in distinct]
    return _Edges(watched.kernel.number, kept, codes, shown)


def _decoded(event: Emitted, code: int) -> list[tuple[Any, ...]]:
    """The event that a number stands for; none for 0."""
    if code == 0:
        return []
    code -= 1
    values: list[int] = []
    for node in reversed(event.values):
        code, value = divmod(code, node.high - node.low + 1)
        values.append(value + node.low)
    return [(event.kind.name, *reversed(values))]
