"""What moved between the tiers of one rank, and how its operations ended: counts, pages, bytes and durations."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

Tier = Literal["device", "host", "storage"]
DEVICE: Tier = "device"
HOST: Tier = "host"
STORAGE: Tier = "storage"
# Where pages go that a tier forgets.
NOWHERE = "nowhere"

BUCKETS_S = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Upper bounds of durations, in seconds; what takes longer is in none."""


@dataclass
class Durations:
    """`buckets[i]` durations are at most BUCKETS_S[i] and more than the bound before; `longer` more than all."""

    buckets: list[int] = field(default_factory=lambda: [0] * len(BUCKETS_S))
    longer: int = 0
    seconds: float = 0.0

    @property
    def count(self) -> int:
        """How many."""
        return sum(self.buckets) + self.longer

    def add(self, seconds: float) -> None:
        """One more."""
        self.seconds += seconds
        place = bisect_left(BUCKETS_S, seconds)
        if place < len(BUCKETS_S):
            self.buckets[place] += 1
        else:
            self.longer += 1

    def copy(self) -> Durations:
        """As it is now."""
        return replace(self, buckets=list(self.buckets))


@dataclass
class Moved:
    """How often, and how many pages and bytes in all. `durations` has those of which the beginning was seen."""

    count: int = 0
    pages: int = 0
    bytes: int = 0
    durations: Durations = field(default_factory=Durations)

    def copy(self) -> Moved:
        """As it is now."""
        return replace(self, durations=self.durations.copy())


@dataclass
class MovedSlots:
    """The same of what is beside the pages in an extra pool."""

    count: int = 0
    slots: int = 0
    bytes: int = 0


@dataclass
class Ended:
    """How many operations, and how long each took from its submission."""

    count: int = 0
    durations: Durations = field(default_factory=Durations)

    def copy(self) -> Ended:
        """As it is now."""
        return replace(self, durations=self.durations.copy())


class Metrics:
    """Of one rank. Any thread may count and read. `page_bytes` is the size of a page on this rank, `slot_bytes` that of
    a slot of each extra pool."""

    def __init__(
        self,
        rank: int,
        page_bytes: int,
        lock: Callable[[], AbstractContextManager[Any]],
        slot_bytes: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self.rank = rank
        self._page_bytes = page_bytes
        self._slot_bytes = slot_bytes
        self._lock = lock()
        self._moved: dict[tuple[str, str, str], Moved] = {}
        self._moved_slots: dict[tuple[str, str, str, str], MovedSlots] = {}
        self._ended: dict[tuple[str, str], Ended] = {}

    def count_move(self, source: str, target: str, reason: str, pages: int, seconds: float | None = None) -> None:
        """`pages` pages went from tier `source` to tier `target` (or NOWHERE), and took `seconds`, if known."""
        with self._lock:
            moved = self._moved.setdefault((source, target, reason), Moved())
            moved.count += 1
            moved.pages += pages
            moved.bytes += pages * self._page_bytes
            if seconds is not None:
                moved.durations.add(seconds)

    def count_slots(self, pool: str, source: str, target: str, reason: str, slots: int) -> None:
        """`slots` slots of an extra pool went from tier `source` to tier `target` (or NOWHERE)."""
        with self._lock:
            moved = self._moved_slots.setdefault((pool, source, target, reason), MovedSlots())
            moved.count += 1
            moved.slots += slots
            moved.bytes += slots * self._slot_bytes[pool]

    def count_end(self, state: str, reason: str, seconds: float | None) -> None:
        """An operation ended, or was declined."""
        with self._lock:
            ended = self._ended.setdefault((state, reason), Ended())
            ended.count += 1
            if seconds is not None:
                ended.durations.add(seconds)

    def moved(self) -> dict[tuple[str, str, str], Moved]:
        """By source, target and reason, as it is now."""
        with self._lock:
            return {key: moved.copy() for key, moved in self._moved.items()}

    def moved_slots(self) -> dict[tuple[str, str, str, str], MovedSlots]:
        """By pool, source, target and reason, as it is now."""
        with self._lock:
            return {key: replace(moved) for key, moved in self._moved_slots.items()}

    def ended(self) -> dict[tuple[str, str], Ended]:
        """By final state (or `declined`) and reason, as it is now."""
        with self._lock:
            return {key: ended.copy() for key, ended in self._ended.items()}
