"""Caches that a soak must not pass: each goes wrong in one of the ways that it looks for."""

from __future__ import annotations

import os
from collections.abc import Iterable

from hicache_impl.cache import HiCache, Poll
from hicache_impl.operation import Operation

LEAKED_BYTES = 2**18


class LosesADevicePage(HiCache):
    """A page is taken and forgotten now and then."""

    taken = 0

    def alloc_device(self, pages: int) -> tuple[int, ...] | None:
        self.taken += 1
        if self.taken % 50 == 0:
            super().alloc_device(1)
        return super().alloc_device(pages)


class GrowsAndGrows(HiCache):
    """Every turn keeps something."""

    kept: list[bytes]

    def tick(self) -> None:
        if not hasattr(self, "kept"):
            self.kept = _KEPT
        self.kept.append(b"x" * LEAKED_BYTES)
        super().tick()


# Beyond the life of a cache.
_KEPT: list[bytes] = []


class WaitsForNobody(HiCache):
    """Rank 1 does not come back from its third detach."""

    detached = 0

    def detach_storage(self, timeout_s: float = 60) -> None:
        self.detached += 1
        if self.rank == 1 and self.detached == 3:
            self.runtime.event().wait()
        super().detach_storage(timeout_s)


class DiesSuddenly(HiCache):
    """The process of rank 1 ends in the middle."""

    polls = 0

    def poll(self, rids: Iterable[str]) -> dict[str, Poll]:
        self.polls += 1
        if self.rank == 1 and self.polls == 20:
            os._exit(7)
        return super().poll(rids)


class LeavesAThread(HiCache):
    """Close starts a thread and ends none of that name."""

    def close(self, timeout_s: float = 10) -> None:
        never = self.runtime.event()

        def wait() -> None:
            never.wait()

        self.runtime.thread("left", wait).start()
        super().close(timeout_s)


class NeverRests(HiCache):
    """The third attempt of a request is never ready."""

    def _is_ready(self, op: Operation) -> bool:
        return op.attempt % 7 != 3 and super()._is_ready(op)
