"""What the stores have in common: checks of what is given, runs of memory, counts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch

from hicache_impl.storage.checksum import HIT, Records
from hicache_impl.storage.counts import Counts
from hicache_impl.storage.keys import check_keys
from hicache_impl.storage.pages import Runs, all_runs, check_pages, whole_runs


class PageStore(ABC):
    """A `Storage` but for its medium. A scattered destination is filled by way of a copy; all others in place."""

    def __init__(self, checksums: bool, *counted: str) -> None:
        self.records = Records(checksums)
        self.counts = Counts(*counted)

    def exists(self, keys: Sequence[str]) -> int:
        """The leading run of present pages; whether they can be read is only known by reading."""
        check_keys(keys)
        return self._present(keys)

    def get_into(self, keys: Sequence[str], into: Sequence[torch.Tensor]) -> list[bool]:
        """Fill each destination whose page is whole; anything else is a miss and is counted."""
        check_pages(keys, into)
        destinations = all_runs(into)
        if destinations is not None:
            return self.counts.reads(self._get(keys, destinations))
        copies = [torch.empty(page.shape, dtype=torch.uint8) for page in into]
        outcomes = self._get(keys, [whole_runs(copy) for copy in copies])
        for page, copy, outcome in zip(into, copies, outcomes, strict=True):
            if outcome == HIT:
                page.copy_(copy)
        return self.counts.reads(outcomes)

    def put_from(self, keys: Sequence[str], pages: Sequence[torch.Tensor]) -> list[bool]:
        """Store each page, over whatever is there, so that a bad one is mended; False where the medium refuses."""
        check_pages(keys, pages)
        return self.counts.writes(self._put(keys, all_runs(pages) or [whole_runs(page) for page in pages]))

    def stats(self) -> dict[str, int]:
        """A copy of the counts; see `Counts`."""
        return self.counts.as_dict()

    @abstractmethod
    def clear(self) -> None:
        """Remove every page, and nothing else."""

    @abstractmethod
    def close(self) -> None:
        """Let go of resources; may be called twice."""

    @abstractmethod
    def _present(self, keys: Sequence[str]) -> int:
        """How many of the keys, from the first, without a gap."""

    @abstractmethod
    def _get(self, keys: Sequence[str], destinations: Sequence[Runs]) -> list[str]:
        """What became of each page: HIT, or why not."""

    @abstractmethod
    def _put(self, keys: Sequence[str], sources: Sequence[Runs]) -> list[bool]:
        """Which pages are stored."""
