"""Exploration by array kernels: the whole frontier at a time, in chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy as np

from hicache_checks.engine.array.columns import columns_for
from hicache_checks.engine.array.emit_python import Either, Tables, kernels_text, padded, signed, values_text
from hicache_checks.engine.array.state_table import StateTable
from hicache_checks.engine.compile.expressions import Node
from hicache_checks.engine.compile.kernels import Compiled
from hicache_checks.engine.compile.layout import WORD_BITS, Words
from hicache_checks.engine.compile.symmetry import Image
from hicache_checks.engine.kernel_steps import Checks, Steps, Tally

CHUNK = 1 << 17
PART_MIN = 1 << 12


@dataclass
class ArrayKernels:
    """The kernels of one specification as functions of columns."""

    compiled: Compiled
    columns: Any
    functions: dict[str, Any]
    steps: dict[int, Either | str]
    images: Sequence[Image]

    _renamed: dict[tuple[int, ...], Any] = field(default_factory=dict)
    _computed: dict[tuple[int, ...], Callable[..., list[Any]]] = field(default_factory=dict)

    name = "array"

    @classmethod
    def build(cls, compiled: Compiled, device: str, images: Sequence[Image] = ()) -> ArrayKernels:
        """Generate the functions. Raises ValueError for a device that is not there."""
        columns, made = columns_for(device), kernels_text(compiled)
        return cls(compiled, columns, _made(columns, made.text, made.tables), made.steps, images)

    def values(self, roots: Sequence[Node], words: list[Any]) -> list[Any]:
        """The values of some expressions in many states: a column each, or a number that is the same for all."""
        key = tuple(node.number for node in roots)
        if key not in self._computed:
            self._computed[key] = _made(self.columns, *values_text(self.compiled, roots))["values"]
        found: list[Any] = self._computed[key](*words)
        return found

    # -- batches of states, as everybody has them

    def successors(self, states: Words) -> Steps:
        """Every step from these states, in the order of the states and of the text."""
        words = self.from_words(states)
        guards, goes_on = self.functions["guards"](*words)
        taken = list(self.expand(words, guards, all_outcomes=True))
        rows = [self.columns.to_numpy(t.rows) for t in taken]
        total = sum(map(len, rows))
        found = Steps.empty(total, len(states), states.shape[1])
        found.broken[:], found.reached[:], at = 0, 0, 0
        for t, sources in zip(taken, rows, strict=True):
            here = slice(at, at + len(sources))
            found.sources[here], found.steps[here] = sources, t.step
            for word, column in enumerate(t.words):
                found.targets[here, word] = self.columns.to_numpy(column).view(np.uint64)
            found.leaves[here] = self._mask(t.leaves)
            found.targets[here][found.leaves[here] != 0] = 0
            for i, condition in t.broken:
                found.broken[here] |= self._bit(condition, i)
            for i, condition in t.reached:
                found.reached[here] |= self._bit(condition, i)
            at += len(sources)
        order = np.lexsort((found.steps, found.sources))
        found.stuck[:] = self._mask(self.is_stuck(words, goes_on))
        return found.take(order)

    def broken_invariants(self, states: Words) -> Words:
        """For each state the invariants that do not hold, as bits, shape (n,)."""
        broken = np.zeros(len(states), np.uint64)
        for i, condition in enumerate(self.functions["broken_invariants"](*self.from_words(states))):
            broken |= self._bit(condition, i)
        return broken

    def canonical(self, states: Words) -> Words:
        """For each state the one that stands for it under the declared symmetries."""
        return self.to_words(self.representatives(self.from_words(states)))

    def from_words(self, states: Words) -> list[Any]:
        """The columns of an array of states, shape (n, words)."""
        return [self.columns.column(np.ascontiguousarray(w).view(np.int64), "i8") for w in states.T]

    def to_words(self, words: list[Any]) -> Words:
        """An array of states from columns."""
        return np.stack([self.columns.to_numpy(w).view(np.uint64) for w in words], axis=1)

    def _mask(self, condition: Any) -> Any:
        return condition if isinstance(condition, int) else self.columns.to_numpy(condition)

    def _bit(self, condition: Any, i: int) -> Any:
        return np.asarray(self._mask(condition)).astype(np.uint64) << np.uint64(i)

    # -- columns

    def expand(
        self, words: list[Any], guards: list[Any], all_outcomes: bool = False, reached: int = 0
    ) -> Iterator[Taken]:
        """Each action instance that is enabled somewhere, with what it does there, a case at a time.

        Outcomes are decided for all steps, or only those that are not yet in `reached`.
        """
        for kernel, mask in zip(self.compiled.kernels, guards, strict=True):
            if isinstance(mask, int):
                if not mask:
                    continue
                mask = self.columns.full(len(words[0]), 1, "truth")
            rows = self.columns.where_true(mask)
            if not len(rows):
                continue
            wanted = all_outcomes or any(not reached >> i & 1 for i, _ in kernel.reached)
            for title, chosen, here in self._cases(self.steps[kernel.number], rows, [w[rows] for w in words]):
                after, leaves, broken = self.functions[title](*here)
                outcomes = self.functions[f"reached_{kernel.number}"](*here) if wanted else []
                yield Taken(kernel.number, chosen, after, leaves, broken, outcomes)

    def _cases(self, steps: Either | str, rows: Any, words: list[Any]) -> Iterator[tuple[str, Any, list[Any]]]:
        """The function of each case that occurs, with the rows and words of the states in which it does."""
        if isinstance(steps, str):
            yield steps, rows, words
            return
        mask = self.functions[steps.condition](*words)
        for side, chosen in ((steps.yes, mask), (steps.no, _not(mask))):
            at = self.columns.where_true(chosen)
            if len(at) == len(rows):
                yield from self._cases(side, rows, words)
            elif len(at):
                yield from self._cases(side, rows[at], [w[at] for w in words])

    def representatives(self, words: list[Any]) -> list[Any]:
        """The least of each state's images, words compared in order; without images the states themselves."""
        least = words
        for image in self.images:
            mine = self._image(image, words)
            smaller: Any = None
            for a, b in reversed(list(zip(mine, least, strict=True))):
                smaller = a < b if smaller is None else (a < b) | ((a == b) & smaller)
            rows = self.columns.where_true(smaller)
            least = [w.copy() if hasattr(w, "copy") else w.clone() for w in least] if least is words else least
            for a, b in zip(mine, least, strict=True):
                b[rows] = a[rows]
        return least

    def _image(self, image: Image, words: list[Any]) -> list[Any]:
        parts: list[Any] = [0] * len(words)
        for m in image.moves:
            bits = words[m.source] & signed(m.mask)
            if m.left < 0:  # the sign must not come along
                bits = (bits >> -m.left) & ((1 << (WORD_BITS + m.left)) - 1)
            parts[m.target] = parts[m.target] | (bits << m.left if m.left > 0 else bits)
        for r in image.renamings:
            table = self._renamed.setdefault(r.table, self.columns.column(r.table, "i8"))
            old = (words[r.source] >> r.shift) & r.mask
            parts[r.target] = parts[r.target] | (table[old] << r.left)
        return parts

    def is_stuck(self, words: list[Any], goes_on: Any) -> Any:
        """Where no fair action is enabled although the system is not at rest; an array, or a number for all."""
        return _not(goes_on) & _not(self.functions["at_rest"](*words))

    def search(
        self,
        checks: Checks,
        threads: int,
        max_states: int | None,
        max_bytes: int | None,
        progress: Callable[[Tally], None] | None,
    ) -> ArraySearch:
        """Explore breadth-first. A budget is noticed at the end of a chunk."""
        search = ArraySearch(self, checks, threads)
        search.run(max_states, max_bytes, progress)
        return search


@dataclass(frozen=True)
class Taken:
    """One action instance taken from some rows of a batch."""

    step: int
    rows: Any
    words: tuple[Any, ...]
    leaves: Any
    broken: list[tuple[int, Any]]
    reached: list[tuple[int, Any]]


class ArraySearch:
    """A search: its tally, and its states level by level."""

    def __init__(self, kernels: ArrayKernels, checks: Checks, threads: int) -> None:
        self._kernels, self._checks, self._threads = kernels, checks, threads
        self._table = StateTable(kernels.columns, kernels.compiled.layout.words)
        self._tally = Tally()
        self._ends: list[int] = []
        self._lock = Lock()

    def tally(self) -> Tally:
        """How far the search has come."""
        return self._tally

    def level(self, depth: int) -> Words:
        """The states that are first reached in so many steps, shape (n, words)."""
        begin = self._ends[depth - 1] if depth else 0
        return self._kernels.to_words([w[begin : self._ends[depth]] for w in self._table.words])

    def close(self) -> None:
        """Give the memory back."""
        self._table.words = []

    def run(self, max_states: int | None, max_bytes: int | None, progress: Callable[[Tally], None] | None) -> None:
        """Explore level by level."""
        with ThreadPoolExecutor(self._threads) as pool:
            self._run(pool, max_states, max_bytes, progress)

    def _run(
        self,
        pool: ThreadPoolExecutor,
        max_states: int | None,
        max_bytes: int | None,
        progress: Callable[[Tally], None] | None,
    ) -> None:
        table, tally = self._table, self._tally
        initial = np.array([self._kernels.compiled.initial], np.uint64)
        table.add(self._kernels.from_words(self._kernels.canonical(initial)))
        self._check_states(0, 0)
        self._ends.append(table.count)
        begin = 0
        while begin < table.count and not (self._checks.stop and tally.shortest(self._checks) is not None):
            end = table.count
            for first in range(begin, end, CHUNK):
                self._expand(pool, first, min(first + CHUNK, end))
                tally.states, tally.frontier = table.count, table.count - first
                tally.bytes_peak = max(tally.bytes_peak, table.bytes)
                tally.cut = table.count > (max_states or table.count) or table.bytes > (max_bytes or table.bytes)
                if tally.cut:
                    break
                if progress is not None:
                    progress(tally)
            self._ends.append(table.count)
            if table.count > end:
                tally.depth += 1
            if tally.cut:
                break
            begin = end
        tally.states = table.count

    def _expand(self, pool: ThreadPoolExecutor, begin: int, end: int) -> None:
        """All steps from the states `begin .. end - 1`, computed in as many parts as there are threads."""
        size = max(PART_MIN, -(-(end - begin) // self._threads))
        parts = [[w[first : min(first + size, end)] for w in self._table.words] for first in range(begin, end, size)]
        before, depth = self._table.count, len(self._ends)
        for words, is_stuck in pool.map(self._taken, parts):
            if self._tally.deadlock_depth is None and is_stuck:
                self._tally.deadlock_depth = depth - 1
            if words:
                self._table.add(words)
        self._check_states(before, depth)

    def _taken(self, words: list[Any]) -> tuple[list[Any], bool]:
        """The states, by words, that some states have as successors, and whether one of them is stuck."""
        kernels, tally, columns, depth = self._kernels, self._tally, self._kernels.columns, len(self._ends)
        guards, goes_on = kernels.functions["guards"](*words)
        found: list[tuple[Any, ...]] = []
        transitions = 0
        for t in kernels.expand(words, guards, reached=tally.reached):
            transitions += len(t.rows)
            for i, condition in t.broken:
                if i not in tally.step_depth and bool(_any(condition)):
                    tally.step_depth[i] = depth
            reached = sum(1 << i for i, condition in t.reached if bool(_any(condition)))
            inside = t.words
            if bool(_any(t.leaves)):
                stays = columns.where_true(~t.leaves if _varies(t.leaves) else columns.full(len(t.rows), 0, "truth"))
                inside = tuple(w[stays] for w in t.words)
            with self._lock:
                tally.reached |= reached
                if tally.leaves_depth is None and inside is not t.words:
                    tally.leaves_depth = depth
            found.append(inside)
        with self._lock:
            tally.transitions += transitions
        is_stuck = bool(_any(kernels.is_stuck(words, goes_on)))
        return kernels.representatives([columns.join(p) for p in zip(*found, strict=True)]) if found else [], is_stuck

    def _check_states(self, begin: int, depth: int) -> None:
        new = [w[begin : self._table.count] for w in self._table.words]
        if len(new[0]):
            for i, condition in enumerate(self._kernels.functions["broken_invariants"](*new)):
                if i not in self._tally.invariant_depth and bool(_any(condition)):
                    self._tally.invariant_depth[i] = depth


def _made(columns: Any, text: str, tables: Tables) -> dict[str, Any]:
    """The functions of a generated text. The text is ours, made from checked rules; nothing of a user's is in it."""
    names = columns.names()
    for (t, table), known_as in tables.items():
        names[known_as] = columns.column([*table, *[0] * (padded(table) - len(table))], t)
    exec(compile(text, "<kernels>", "exec"), names)
    return dict(names)


def _varies(condition: Any) -> bool:
    return not isinstance(condition, int)


def _any(condition: Any) -> Any:
    return condition.any() if _varies(condition) else condition


def _not(condition: Any) -> Any:
    return ~condition if _varies(condition) else 1 - condition
