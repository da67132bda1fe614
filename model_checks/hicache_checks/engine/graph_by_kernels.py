"""The reachable graph of a specification by array kernels: the same as by objects, much faster where it is large."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from hicache_checks.engine.array.columns import NUMPY
from hicache_checks.engine.array.search import ArrayKernels
from hicache_checks.engine.array.state_table import StateTable
from hicache_checks.engine.compile.kernels import Compiled
from hicache_checks.engine.compile.layout import DoesNotFit, Words
from hicache_checks.engine.compile.tracer import Emitted
from hicache_checks.engine.graph import Graph, Happening, Mask, Predicate, graph_by_objects, shortest_paths
from hicache_spec import BoundSpec
from hicache_spec.language import State

Shown = tuple[tuple[Any, ...], ...]
"""Events, each its kind and its values."""
CHUNK = 1 << 15
OBJECTS_MAX = 20_000


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


def graph_by_kernels(
    spec: BoundSpec,
    kinds: Collection[str] = (),
    max_states: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Graph:
    """Explore breadth-first without judging anything; parameters and result as of `graph_by_objects`.

    The budget is noticed at the end of a chunk. Raises DoesNotFit for a specification that cannot be compiled, or in
    which a value leaves its type.
    """
    kernels = ArrayKernels.build(Compiled(spec, only=()), NUMPY)
    recorded = [[e for e in k.events if e.kind.name in kinds] for k in kernels.compiled.kernels]
    table = StateTable(kernels.columns, kernels.compiled.layout.words)
    table.add(kernels.from_words(np.array([kernels.compiled.initial], np.uint64)))
    happenings: dict[Happening, int] = {}
    edges: list[Any] = []
    done = 0
    while done < table.count and (max_states is None or table.count <= max_states):
        end = min(done + CHUNK, table.count)
        states = [w[done:end] for w in table.words]
        for taken in kernels.expand(states, kernels.functions["guards"](*states)[0]):
            if np.any(taken.leaves):
                rule = spec.steps[taken.step].rule.name
                raise DoesNotFit(f"{rule}: a value leaves its type, and there is no packed state to go on from")
            codes, shown = _recorded(kernels, recorded[taken.step], states, taken.rows)
            names = [happenings.setdefault((taken.step, events), len(happenings)) for events in shown]
            labels = np.array(names, np.int64)[codes]
            edges.append(np.stack([taken.rows + done, table.add(taken.words), labels]).astype(np.int32))
        done = end
        if progress is not None:
            progress(table.count)
    columns = np.concatenate(edges, axis=1) if edges else np.empty((3, 0), np.int32)
    rows = kernels.to_words([w[: table.count] for w in table.words])
    return _in_order(spec, kernels, rows, columns, list(happenings), done == table.count)


def reachable_graph(
    spec: BoundSpec,
    kinds: Collection[str] = (),
    max_states: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Graph:
    """The graph by objects if it is small, since compiling takes longer than that; else by kernels."""
    limit = OBJECTS_MAX if max_states is None else min(OBJECTS_MAX, max_states)
    graph = graph_by_objects(spec, kinds, limit, progress)
    return graph if graph.complete or limit == max_states else graph_by_kernels(spec, kinds, max_states, progress)


def _in_order(
    spec: BoundSpec, kernels: ArrayKernels, rows: Words, columns: Any, happenings: list[Happening], complete: bool
) -> Graph:
    """The graph with states and happenings numbered as the reference engine comes to them."""
    steps = np.array([step for step, _ in happenings], np.int32)
    columns = columns[:, np.lexsort((steps[columns[2]], columns[0]))]
    order = shortest_paths(len(rows), columns[0], columns[1], [0]).order
    number = np.empty(len(rows), np.int32)
    number[order] = np.arange(len(rows))
    columns[:2] = number[columns[:2]]
    columns = columns[:, np.lexsort((steps[columns[2]], columns[0]))]
    used, first = np.unique(columns[2], return_index=True)
    used = used[np.argsort(first)]
    label = np.empty(len(happenings), np.int32)
    label[used] = np.arange(len(used))
    vocabulary = tuple(happenings[i] for i in used)
    return Graph(
        spec, PackedStates(kernels, rows[order]), columns[0], columns[1], label[columns[2]], vocabulary, complete
    )


def _recorded(
    kernels: ArrayKernels, events: Sequence[Emitted], states: list[Any], rows: Any
) -> tuple[Any, list[Shown]]:
    """For each row an index, and the events that the index stands for."""
    values = iter(kernels.values([n for e in events for n in (e.condition, *e.values)], [w[rows] for w in states]))

    def column() -> Any:
        return np.broadcast_to(np.asarray(next(values), np.int64), len(rows))

    codes = np.zeros(len(rows), np.int64)
    shown: list[Shown] = [()]
    for event in events:
        is_shown = column()
        codes, distinct = _numbered([codes, is_shown, *(column() * is_shown for _ in event.values)])
        kind = event.kind.name
        shown = [
            (*shown[so_far], (kind, *own)) if is_one_more else shown[so_far] for so_far, is_one_more, *own in distinct
        ]
    return codes, shown


def _numbered(columns: list[Any]) -> tuple[Any, list[list[int]]]:
    """The distinct rows of some columns, and for each row which one it is."""
    order = np.lexsort(columns)
    ordered = np.stack(columns)[:, order]
    is_new = np.ones(len(order), bool)
    is_new[1:] = np.any(ordered[:, 1:] != ordered[:, :-1], axis=0)
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.cumsum(is_new) - 1
    return numbers, ordered[:, is_new].T.tolist()
