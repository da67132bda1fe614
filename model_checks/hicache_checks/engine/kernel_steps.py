"""What compiled kernels give: steps from a batch of states, and the tally of a search."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hicache_checks.engine.compile.kernels import Compiled
from hicache_checks.engine.compile.layout import Words

ALL = (1 << 64) - 1
BATCH = 1 << 17


@dataclass
class Steps:
    """Steps from a batch of n states, m rows ordered by source and then step.

    `sources` (m,) index into the batch, `steps` (m,) into the specification's steps, `targets` (m, words); `broken` and
    `reached` (m,) have a bit for each step property that does not hold and each outcome that is reached; `leaves` (m,)
    says that a value left its type, and then the target means nothing. `stuck` (n,) marks states in which no fair
    action is enabled although the system is not at rest.
    """

    sources: NDArray[np.int32]
    steps: NDArray[np.int32]
    targets: Words
    broken: Words
    reached: Words
    leaves: NDArray[np.uint8]
    stuck: NDArray[np.uint8]

    @classmethod
    def empty(cls, rows: int, states: int, words: int) -> Steps:
        """Room for so many steps of so many states."""
        return cls(
            np.empty(rows, np.int32),
            np.empty(rows, np.int32),
            np.empty((rows, words), np.uint64),
            np.empty(rows, np.uint64),
            np.empty(rows, np.uint64),
            np.empty(rows, np.uint8),
            np.empty(states, np.uint8),
        )

    def arrays(self) -> tuple[NDArray[Any], ...]:
        """The arrays, in the order of the fields."""
        return self.sources, self.steps, self.targets, self.broken, self.reached, self.leaves, self.stuck

    def first(self, rows: int) -> Steps:
        """The first rows only."""
        return self.take(slice(rows))

    def take(self, rows: Any) -> Steps:
        """Some of the rows, or all in another order."""
        return replace(
            self,
            sources=self.sources[rows],
            steps=self.steps[rows],
            targets=self.targets[rows],
            broken=self.broken[rows],
            reached=self.reached[rows],
            leaves=self.leaves[rows],
        )


@dataclass(frozen=True)
class Checks:
    """What a search checks: step properties and invariants as bits; whether it stops after the level of the first
    violation."""

    steps: int = ALL
    invariants: int = ALL
    bounds: bool = True
    deadlock: bool = True
    stop: bool = True


@dataclass
class Tally:
    """Where a search stands, or ended. Depths are the lengths of shortest runs to each kind of violation."""

    states: int = 0
    transitions: int = 0
    depth: int = 0
    frontier: int = 0
    bytes_peak: int = 0
    reached: int = 0
    cut: bool = False
    step_depth: dict[int, int] = field(default_factory=dict)
    invariant_depth: dict[int, int] = field(default_factory=dict)
    leaves_depth: int | None = None
    deadlock_depth: int | None = None

    def shortest(self, checks: Checks) -> int | None:
        """The length of the shortest run to a violation of what is checked; None if there is none."""
        depths = [d for i, d in self.step_depth.items() if checks.steps >> i & 1]
        depths += [d for i, d in self.invariant_depth.items() if checks.invariants >> i & 1]
        depths += [self.leaves_depth] if checks.bounds and self.leaves_depth is not None else []
        depths += [self.deadlock_depth] if checks.deadlock and self.deadlock_depth is not None else []
        return min(depths, default=None)


class Search(Protocol):
    """A finished search."""

    def tally(self) -> Tally:
        """How it ended."""

    def level(self, depth: int) -> Words:
        """The states that are first reached in so many steps."""

    def close(self) -> None:
        """Give the memory back."""


class Kernels(Protocol):
    """Compiled kernels of one specification, whichever back end made them."""

    @property
    def name(self) -> str:
        """The back end."""

    @property
    def compiled(self) -> Compiled:
        """What was compiled."""

    def successors(self, states: Words) -> Steps:
        """Every step from these states."""

    def broken_invariants(self, states: Words) -> Words:
        """The invariants that do not hold, as bits."""

    def canonical(self, states: Words) -> Words:
        """The states that stand for these."""

    def search(
        self,
        checks: Checks,
        threads: int,
        max_states: int | None,
        max_bytes: int | None,
        progress: Callable[[Tally], None] | None,
    ) -> Search:
        """Explore breadth-first."""


def batches(kernels: Kernels, states: Words) -> Iterator[tuple[Words, Steps]]:
    """So many states at a time that there is memory for all steps from them."""
    for first in range(0, len(states), BATCH):
        batch = states[first : first + BATCH]
        yield batch, kernels.successors(batch)
