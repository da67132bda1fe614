"""Where everything that is not determined comes from: one sequence of choices for a whole run.

A choice is a number below its count, and 0 is always the plainest: stop, no fault, no switch. So a shorter sequence
with smaller numbers is a simpler run, which is what a shrinker looks for.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass
class Choices:
    """A source of choices that keeps what it gave. `taken[i]` was below `counts[i]`; `switches` are the places of those
    that said who runs next."""

    taken: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    switches: list[int] = field(default_factory=list)

    def choose(self, count: int) -> int:
        """A number from 0 to `count` - 1. ValueError: there is nothing to choose from."""
        if count <= 1:
            if count < 1:
                raise ValueError("nothing to choose from")
            return 0
        return self.keep(self._next(count), count)

    def switch(self, count: int) -> int:
        """Who of `count` runs next; 0: the running task goes on."""
        return self.keep_switch(self._next_switch(count), count)

    def keep(self, choice: int, count: int) -> int:
        """Write down a choice that somebody else made; returns it."""
        self.taken.append(choice)
        self.counts.append(count)
        return choice

    def keep_switch(self, choice: int, count: int) -> int:
        """Write down who runs next; returns it."""
        self.switches.append(len(self.taken))
        self.taken.append(choice)
        self.counts.append(count)
        return choice

    def _next(self, count: int) -> int:
        raise NotImplementedError

    def _next_switch(self, count: int) -> int:
        return self._next(count)


class Plainest(Choices):
    """Always 0."""

    def _next(self, count: int) -> int:
        return 0


class Seeded(Choices):
    """Uniform, from a seed."""

    def __init__(self, seed: int | str) -> None:
        super().__init__()
        self.random = random.Random(seed)

    def _next(self, count: int) -> int:
        return int(self.random.random() * count)


class Replayed(Choices):
    """What was recorded, then 0. `diverged`: the first place where the run asked for something else than then."""

    def __init__(self, recorded: Sequence[int], counts: Sequence[int] | None = None) -> None:
        super().__init__()
        self.recorded = list(recorded)
        self.recorded_counts = None if counts is None else list(counts)
        self.diverged: int | None = None

    def _next(self, count: int) -> int:
        place = len(self.taken)
        expected = count if self.recorded_counts is None else self._recorded_count(place)
        if count != expected and self.diverged is None:
            self.diverged = place
        return min(self.recorded[place], count - 1) if place < len(self.recorded) else 0

    def differs_at(self) -> int | None:
        """The first choice that was another when it was recorded, or is not asked for any more; None: there is none."""
        if self.diverged is None and len(self.taken) < len(self.recorded):
            return len(self.taken)
        return self.diverged

    def divergence(self) -> str | None:
        """Where the run that was replayed went another way, in words; None: it did not."""
        place = self.diverged
        if place is not None:
            then = self._recorded_count(place) or "none"
            return f"choice {place} is one of {self.counts[place]}, it was one of {then} when it was recorded"
        if len(self.taken) < len(self.recorded):
            return f"the run ended after {len(self.taken)} choices, {len(self.recorded)} were recorded"
        return None

    def _recorded_count(self, place: int) -> int | None:
        assert self.recorded_counts is not None
        return self.recorded_counts[place] if place < len(self.recorded_counts) else None


class Drawn(Choices):
    """What a function draws, such as Hypothesis: `draw(count)` gives a number below it."""

    def __init__(self, draw: Callable[[int], int]) -> None:
        super().__init__()
        self._draw = draw

    def _next(self, count: int) -> int:
        return self._draw(count)


class Chooser(Protocol):
    """The part of Choices that a program needs."""

    def choose(self, count: int) -> int:
        """A number from 0 to `count` - 1."""
