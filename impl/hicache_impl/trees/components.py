"""What a model needs of a prefix beside its pages, and at which ends of a prefix that is there.

A component owns slots of a pool of its own on each tier, at most one for each page position of a node. It is never
anywhere where the page itself is not. Three kinds:

    sidecar  beside every page (a draft model's or an index's part of it): a prefix serves as far as it goes
    window   sliding-window attention: the last `pages` positions of a prefix must be there
    state    mamba: one slot, for the end of a prefix
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

DEVICE = "device"
HOST = "host"
TIERS = (DEVICE, HOST)


class Component(Protocol):
    """One of the things that a model needs of a prefix. `name` is that of its pool."""

    @property
    def name(self) -> str:
        """The same on every rank; no two components of a tree share it."""
        ...

    @property
    def beside_pages(self) -> bool:
        """Whether it comes and goes with the page, so that it is never evicted by itself."""
        ...

    def serves(self, present: Sequence[bool]) -> list[bool]:
        """For each number of pages 0 .. n: does a prefix that ends there have all that it needs?

        `present[i]`: the slot of position i is there. No page needs nothing.
        """
        ...

    def needed(self, start: int, end: int) -> range:
        """The positions whose slots a prefix of `end` pages needs, of those that its pages from `start` on bring in."""
        ...


@dataclass(frozen=True)
class Sidecar:
    """A slot beside every page."""

    name: str
    beside_pages = True

    def serves(self, present: Sequence[bool]) -> list[bool]:
        """As far as every page has one."""
        first_gap = next((i for i, is_there in enumerate(present) if not is_there), len(present))
        return [end <= first_gap for end in range(len(present) + 1)]

    def needed(self, start: int, end: int) -> range:
        """One for every page that is brought in."""
        return range(start, end)


@dataclass(frozen=True)
class Window:
    """A slot for each of the last `pages` positions of a prefix."""

    name: str
    pages: int
    beside_pages = False

    def serves(self, present: Sequence[bool]) -> list[bool]:
        """Where the last `pages` positions, or all of a shorter prefix, are there without a gap."""
        ends, run = [True], 0
        for end, is_there in enumerate(present, 1):
            run = run + 1 if is_there else 0
            ends.append(run >= min(self.pages, end))
        return ends

    def needed(self, start: int, end: int) -> range:
        """The whole window, also where it begins before `start`: what is there of it may go meanwhile."""
        return range(max(0, end - self.pages), end)


@dataclass(frozen=True)
class State:
    """A slot for the last position of a prefix, which stands for all that comes before it."""

    name: str
    beside_pages = False

    def serves(self, present: Sequence[bool]) -> list[bool]:
        """Only where there is one."""
        return [True, *present]

    def needed(self, start: int, end: int) -> range:
        """The one at the end."""
        return range(end - 1, end) if end else range(0)
