"""Which pages each tier has, told to whoever routes requests by it: one event for each store and each removal.

A page is named by its chain hash, so a listener needs no tree. `stored` is told when the bytes are in place, not when
the pages are given; `removed` before the pages are given to others. Of the tiers device and host a page is told stored
and removed in turn (P29). Storage tells of what it took, one event for each acknowledged backup of which nothing
failed; it never says that it forgot. Slots of extra pools are told of in the same way, by the hashes of their pages.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

STORED = "stored"
REMOVED = "removed"
CLEARED = "cleared"


@dataclass(frozen=True)
class KvEvent:
    """`hashes` are consecutive pages of one chain, the first of which follows `parent`. `number` counts from 0.

    `pool`: not the pages are told of, but what is beside them in this pool; then they need not be consecutive.
    `cleared` has no hashes: the device and the host of this rank are empty.
    """

    rank: int
    number: int
    kind: Literal["stored", "removed", "cleared"]
    tier: str
    hashes: tuple[bytes, ...] = ()
    parent: bytes | None = None
    pool: str | None = None

    def as_json(self) -> str:
        """One line, hashes in hexadecimal."""
        document: dict[str, Any] = {
            "rank": self.rank,
            "number": self.number,
            "kind": self.kind,
            "tier": self.tier,
            "hashes": [page_hash.hex() for page_hash in self.hashes],
            "parent": None if self.parent is None else self.parent.hex(),
            "pool": self.pool,
        }
        return json.dumps(document, separators=(",", ":"))


class KvEvents:
    """Numbers the events of one rank and hands them to `take`. Only the scheduler tells."""

    def __init__(self, rank: int, take: Callable[[KvEvent], None]) -> None:
        self._rank = rank
        self._take = take
        self._number = 0

    def stored(self, tier: str, hashes: Sequence[bytes], parent: bytes | None, pool: str | None = None) -> None:
        """These pages, or what is beside them in the pool, can be read from the tier."""
        self._tell(STORED, tier, tuple(hashes), parent, pool)

    def removed(self, tier: str, hashes: Sequence[bytes], parent: bytes | None, pool: str | None = None) -> None:
        """They no longer can."""
        self._tell(REMOVED, tier, tuple(hashes), parent, pool)

    def cleared(self) -> None:
        """Nothing can, but from storage."""
        self._tell(CLEARED, "", (), None)

    def _tell(
        self, kind: Any, tier: str, hashes: tuple[bytes, ...], parent: bytes | None, pool: str | None = None
    ) -> None:
        event = KvEvent(self._rank, self._number, kind, tier, hashes, parent, pool)
        self._number += 1
        self._take(event)


class Listener:
    """What a listener of one rank knows: `known`, by tier; `beside`, by pool and tier. `take` is where events go."""

    def __init__(self) -> None:
        self.known: dict[str, set[bytes]] = {"device": set(), "host": set(), "storage": set()}
        self.beside: defaultdict[tuple[str, str], set[bytes]] = defaultdict(set)
        self._next = 0

    def take(self, event: KvEvent) -> None:
        """Learn from one event.

        ValueError: a page of the device or the host is told stored twice, or removed and was not stored (P29); a number
        is missing.
        """
        if event.number != self._next:
            raise ValueError(f"event {self._next} is missing, {event.number} came")
        self._next += 1
        if event.kind == CLEARED:
            self.known["device"].clear()
            self.known["host"].clear()
            for (_, tier), hashes in self.beside.items():
                if tier != "storage":
                    hashes.clear()
            return
        pages = set(event.hashes)
        there = self.known[event.tier] if event.pool is None else self.beside[event.pool, event.tier]
        if event.kind == STORED:
            if event.tier != "storage" and (again := pages & there):
                raise ValueError(f"P29 {len(again)} pages are told stored on the {event.tier} a second time: {event}")
            there |= pages
        else:
            if not pages <= there:
                raise ValueError(f"P29 pages are told removed that were not on the {event.tier}: {event}")
            there -= pages


def told_pages(told: Iterable[KvEvent]) -> dict[str, set[bytes]]:
    """What a listener knows after all events of one rank, by tier. ValueError: see Listener.take."""
    listener = Listener()
    for event in told:
        listener.take(event)
    return listener.known
