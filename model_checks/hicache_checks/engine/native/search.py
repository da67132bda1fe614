"""Exploration by compiled kernels in C: the library behind an interface of NumPy arrays."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hicache_checks.engine.compile.kernels import Compiled
from hicache_checks.engine.compile.layout import Words
from hicache_checks.engine.compile.symmetry import Image
from hicache_checks.engine.kernel_steps import Checks, Steps, Tally
from hicache_checks.engine.native.build import load
from hicache_checks.engine.native.emit_c import kernels_header

POLL_SECONDS = 0.1
STATES_A_PART = 1 << 30
BATCH_FACTOR = 8
NO_LIMIT = (1 << 63) - 1
THREADS_MAX = 16


class _Report(ctypes.Structure):
    """What explorer.c reports; the fields of its `Report`, in order."""

    _fields_ = [
        *((n, ctypes.c_uint64) for n in ("words", "states", "frontier", "transitions", "depth", "bytes", "bytes_peak")),
        *((n, ctypes.c_uint64) for n in ("reached", "stop", "cut", "no_memory")),
        ("step_depth", ctypes.c_int64 * 64),
        ("invariant_depth", ctypes.c_int64 * 64),
        ("leaves_depth", ctypes.c_int64),
        ("deadlock_depth", ctypes.c_int64),
    ]


@dataclass
class NativeKernels:
    """The kernels of one specification as a library. Arrays of states have shape (n, words), dtype uint64."""

    compiled: Compiled
    library: ctypes.CDLL
    build_seconds: float

    name = "native"

    @classmethod
    def build(cls, compiled: Compiled, images: Sequence[Image] = ()) -> NativeKernels:
        """Compile, or take from the cache. Raises NoCompiler."""
        library, seconds = load(kernels_header(compiled, images))
        library.open_search.restype = ctypes.c_void_p
        library.successors.restype = library.level_states.restype = ctypes.c_uint64
        return cls(compiled, library, seconds)

    def successors(self, states: Words) -> Steps:
        """Every step from these states, in the order of the states and of the text."""
        states = np.ascontiguousarray(states)
        capacity = max(64, BATCH_FACTOR * len(states))
        while True:
            found = Steps.empty(capacity, len(states), self.compiled.layout.words)
            count = self.library.successors(
                _at(states), ctypes.c_uint64(len(states)), ctypes.c_uint64(capacity), *map(_at, found.arrays())
            )
            if count <= capacity:
                return found.first(count)
            capacity = count

    def broken_invariants(self, states: Words) -> Words:
        """For each state the invariants that do not hold, as bits, shape (n,)."""
        states = np.ascontiguousarray(states)
        broken = np.empty(len(states), np.uint64)
        self.library.broken_invariants(_at(states), ctypes.c_uint64(len(states)), _at(broken))
        return broken

    def canonical(self, states: Words) -> Words:
        """For each state the one that stands for it under the declared symmetries."""
        states = np.ascontiguousarray(states)
        found = np.empty_like(states)
        self.library.canonical_states(_at(states), ctypes.c_uint64(len(states)), _at(found))
        return found

    def search(
        self,
        checks: Checks,
        threads: int,
        max_states: int | None,
        max_bytes: int | None,
        progress: Callable[[Tally], None] | None,
    ) -> NativeSearch:
        """Explore breadth-first. A budget is noticed at the end of a round, so a few thousand states late.

        Raises MemoryError.
        """
        report = _Report()
        capacity = STATES_A_PART
        while not (
            handle := self.library.open_search(
                ctypes.byref(report),
                min(threads, THREADS_MAX),
                ctypes.c_uint64(capacity),
                ctypes.c_uint64(max_states or NO_LIMIT),
                ctypes.c_uint64(max_bytes or NO_LIMIT),
            )
        ):
            capacity //= 2
            if capacity < 1 << 12:
                raise MemoryError("no memory for the states")
        self.library.set_checks(
            ctypes.c_void_p(handle),
            ctypes.c_uint64(checks.steps),
            ctypes.c_uint64(checks.invariants),
            checks.bounds,
            checks.deadlock,
            checks.stop,
        )
        search = NativeSearch(self, ctypes.c_void_p(handle), report)
        search.run(progress)
        return search


class NativeSearch:
    """A finished search: its tally, and its states level by level."""

    def __init__(self, kernels: NativeKernels, handle: ctypes.c_void_p, report: Any) -> None:
        self._kernels, self._handle, self._report = kernels, handle, report

    def run(self, progress: Callable[[Tally], None] | None) -> None:
        """Explore in a thread of its own, so that progress can be shown and an interrupt noticed."""
        initial = np.array(self._kernels.compiled.initial, np.uint64)
        worker = threading.Thread(target=self._kernels.library.explore, args=(self._handle, _at(initial)))
        worker.start()
        try:
            while worker.is_alive():
                worker.join(POLL_SECONDS)
                if progress is not None and worker.is_alive():
                    progress(self.tally())
        except BaseException:
            self._report.stop = 1
            worker.join()
            self.close()
            raise

    def tally(self) -> Tally:
        """How far the search has come."""
        r = self._report
        return Tally(
            states=r.states,
            transitions=r.transitions,
            depth=r.depth,
            frontier=r.frontier,
            bytes_peak=r.bytes_peak,
            reached=r.reached,
            cut=bool(r.cut),
            step_depth={i: d for i, d in enumerate(r.step_depth) if d >= 0},
            invariant_depth={i: d for i, d in enumerate(r.invariant_depth) if d >= 0},
            leaves_depth=None if r.leaves_depth < 0 else r.leaves_depth,
            deadlock_depth=None if r.deadlock_depth < 0 else r.deadlock_depth,
        )

    def level(self, depth: int) -> Words:
        """The states that are first reached in so many steps, shape (n, words)."""
        library, words = self._kernels.library, self._kernels.compiled.layout.words
        count = library.level_states(self._handle, ctypes.c_uint64(depth), None)
        states = np.empty((count, words), np.uint64)
        library.level_states(self._handle, ctypes.c_uint64(depth), _at(states))
        return states

    def close(self) -> None:
        """Give the memory back."""
        self._kernels.library.close_search(self._handle)


def _at(array: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
