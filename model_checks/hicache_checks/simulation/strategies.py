"""Strategies of a search: who runs next. What they pick is written down, so that it can be replayed without them."""

from __future__ import annotations

import random
from collections.abc import Sequence

from hicache_checks.simulation.tasks import Task


class Walk:
    """At each point the running task goes on with probability `stay`; otherwise everybody is as likely as another."""

    def __init__(self, random_: random.Random, stay: float = 0.0) -> None:
        self._random = random_.random
        self._stay = stay

    def pick(self, ready: Sequence[Task], running: Task | None) -> Task:
        """See Strategy."""
        if running is not None and self._stay and self._random() < self._stay:
            return running
        return ready[int(self._random() * len(ready))]


FALL_AGAIN = 1000
"""After each so many switches who would run next falls, in runs that are far longer than expected."""


class Pct:
    """Probabilistic concurrency testing: random priorities, and `depth` - 1 switches at which who would run next falls.

    An order of d steps that a bug needs is found with probability at least 1 / (n k^(d-1)) for n tasks and k switches
    (Burckhardt, Kothari, Musuvathi and Nagarakatte, ASPLOS 2010). `steps`: how many switches a run is expected to have.
    """

    def __init__(self, random_: random.Random, depth: int = 3, steps: int = 400) -> None:
        self._random = random_
        self._priority: dict[int, float] = {}
        places = random_.sample(range(steps), min(depth - 1, steps))
        # Below all others, and in any order among themselves.
        self._fall_at = {place: -1.0 - order for order, place in enumerate(places)}
        self._taken = 0

    def pick(self, ready: Sequence[Task], running: Task | None) -> Task:
        """See Strategy."""
        first = max(ready, key=self._priority_of)
        fall = self._fall_at.get(self._taken)
        self._taken += 1
        if fall is None and self._taken % FALL_AGAIN == 0:
            # A run that is longer than expected: nobody may have to wait for ever.
            fall = -1.0 - self._taken
        if fall is None:
            return first
        self._priority[first.number] = fall
        return max(ready, key=self._priority_of)

    def _priority_of(self, task: Task) -> float:
        known = self._priority.get(task.number)
        if known is None:
            known = self._priority[task.number] = self._random.random()
        return known
