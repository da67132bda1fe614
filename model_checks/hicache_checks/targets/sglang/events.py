"""What a router hears of a cache, and whether it is so: the events of a release, one after the other, make a picture of
which page is in which tier; at rest it is held against the tree.

Later releases name the tier in each event. Older ones know one tier only: there a page is told of as long as it is
anywhere. A tier that no event has named is not told of, and is not judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from hicache_checks.targets.sglang.tree import NodeSeen

EVENTS = "events"
"""An audit that is made when it is asked for."""
DEVICE, HOST, ANYWHERE = "GPU", "CPU_PINNED", "anywhere"
"""Tiers that can be judged: as the releases name them, and the one that the older ones know."""
Prefix = tuple[int, ...]


class Router:
    """Who hears the events of one rank. `has_tiers`: do they name tiers? `tiers`: of each, the pages by their names."""

    def __init__(self, has_tiers: bool) -> None:
        self._has_tiers = has_tiers
        self._prefixes: dict[int, Prefix] = {}
        self.tiers: dict[str, dict[int, Prefix]] = {}
        self.wrong: list[str] = []

    def hear(self, events: Iterable[Any]) -> None:
        """In the order in which they were told."""
        for event in events:
            kind = type(event).__name__
            if kind.startswith("BlockStored"):
                self._stored(event)
            elif kind == "BlockRemoved":
                for block in event.block_hashes:
                    self._tier(event).pop(block, None)
            else:
                self.tiers = {tier: {} for tier in self.tiers}

    def problems(self, nodes: Sequence[NodeSeen], page: int) -> Iterator[str]:
        """Where it differs from the tree."""
        yield from self.wrong
        for tier, pages in self._judged():
            told, there = set(pages.values()), set(_pages_in(nodes, tier, page))
            for what, differing in (("has no page", told - there), ("has a page", there - told)):
                if differing:
                    name = [token // page for token in min(differing)[::page]]
                    yield f"P29 the tier {tier} {what} of {name}, and the events say otherwise"

    def miscounted(self, nodes: Sequence[NodeSeen], page: int) -> Iterator[str]:
        """Where a tier has another number of pages than it was told of: pages of several tenants share a name."""
        for tier, pages in self._judged():
            there = sum(1 for _ in _pages_in(nodes, tier, page))
            if len(pages) != there:
                yield f"P29 the tier {tier} has {there} pages, and the events name {len(pages)}"

    def _judged(self) -> Iterator[tuple[str, dict[int, Prefix]]]:
        return ((tier, pages) for tier, pages in self.tiers.items() if tier in (DEVICE, HOST, ANYWHERE))

    def _stored(self, event: Any) -> None:
        before: Prefix = ()
        if event.parent_block_hash is not None:
            if event.parent_block_hash not in self._prefixes:
                self.wrong.append(f"P29 a page of {list(event.token_ids)} is said to follow one that nobody heard of")
                return
            before = self._prefixes[event.parent_block_hash]
        for start in range(0, len(event.token_ids), event.block_size):
            before = (*before, *event.token_ids[start : start + event.block_size])
            block = event.block_hashes[start // event.block_size]
            self._prefixes[block] = self._tier(event)[block] = before

    def _tier(self, event: Any) -> dict[int, Prefix]:
        tier = str(getattr(event.medium, "value", event.medium)) if self._has_tiers else ANYWHERE
        return self.tiers.setdefault(tier, {})


def _pages_in(nodes: Iterable[NodeSeen], tier: str, page: int) -> Iterator[Prefix]:
    """The prefixes whose last page is in a tier."""
    for node in nodes:
        on_device, on_host = node.device is not None, bool(node.host)
        if {DEVICE: on_device, HOST: on_host, ANYWHERE: on_device or on_host}[tier]:
            for end in range(node.start + page, len(node.prefix) + 1, page):
                yield node.prefix[:end]
