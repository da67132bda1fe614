"""What a store counts, in pages: the same words for all of them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence

from hicache_impl.storage.checksum import ABSENT, CORRUPT, HIT, SHORT, UNCHECKED, UNREADABLE

ODDITIES = (SHORT, CORRUPT, UNCHECKED, UNREADABLE)


class Counts:
    """hits, misses (all of them), puts, put_failures; and of the misses, why: `short` had the wrong length, `corrupt`
    the wrong magic or digest, `unchecked` was written without a digest, `unreadable` met an error of the medium.

    `more`: what else a store counts. `lock`: held while it is counted.
    """

    def __init__(self, *more: str) -> None:
        self.lock = threading.Lock()
        names = ("hits", "misses", "puts", "put_failures", *ODDITIES, *more)
        self._counts: Counter[str] = Counter(dict.fromkeys(names, 0))

    def reads(self, outcomes: Sequence[str]) -> list[bool]:
        """Count what became of a batch of reads; which of them are hits."""
        hits = outcomes.count(HIT)
        with self.lock:
            self._counts["hits"] += hits
            if hits == len(outcomes):
                return [True] * hits
            self._counts["misses"] += len(outcomes) - hits
            self._counts.update(outcome for outcome in outcomes if outcome not in (HIT, ABSENT))
        return [outcome == HIT for outcome in outcomes]

    def writes(self, stored: list[bool]) -> list[bool]:
        """Count what became of a batch of writes, and hand it back."""
        puts = stored.count(True)
        with self.lock:
            self._counts["puts"] += puts
            self._counts["put_failures"] += len(stored) - puts
        return stored

    def note(self, name: str, times: int = 1) -> None:
        """Something else happened."""
        with self.lock:
            self._counts[name] += times

    def as_dict(self) -> dict[str, int]:
        """A copy."""
        with self.lock:
            return dict(self._counts)
