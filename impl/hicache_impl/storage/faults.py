"""A store that fails when it is told to: for tests, and to show what a failing store does to a run."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from hicache_impl.storage import Storage

Call = Literal["exists", "get", "put"]
Kind = Literal["raise", "miss", "short", "stall", "wrong_bytes", "late_write"]
Where = Callable[[str], bool]

STALL_S = 1.0


class StorageFault(Exception):
    """The scripted failure of a call."""


@dataclass
class _Fault:
    kind: Kind
    call: Call
    where: Where
    left: int | None


class FaultyStorage:
    """`inner`, with faults switched on by the methods below and off by `heal`.

    `where` picks the keys that are hit (all, if not given); `times` is how often the fault strikes before it is used
    up (None: until healed), counted in calls for `raise_on`, `short` and `stall`, in pages otherwise. Ranks that share
    the store race for a limited number of strikes: give `where` for one rank, so that nothing depends on timing.
    `taken_pages` counts the pages that a caller of `put_from` may believe to be stored.
    """

    def __init__(self, inner: Storage) -> None:
        self.inner = inner
        self.taken_pages = 0
        self._lock = threading.Lock()
        self._healed = threading.Event()
        self._late: set[int] = set()
        self._faults: list[_Fault] = []
        self._struck: Counter[str] = Counter()

    def raise_on(self, call: Call, where: Where | None = None, times: int | None = None) -> None:
        """The call raises StorageFault, and does nothing, when one of its keys is hit."""
        self._add("raise", call, where, times)

    def miss(self, call: Call = "get", where: Where | None = None, times: int | None = None) -> None:
        """The page counts as absent (exists, get) or is refused (put)."""
        self._add("miss", call, where, times)

    def short(self, call: Call = "get", where: Where | None = None, times: int | None = None) -> None:
        """The answer covers one page less than was asked for (for exists: one less than is there)."""
        self._add("short", call, where, times)

    def stall(self, call: Call = "get", where: Where | None = None, times: int | None = None) -> None:
        """The call begins only after `STALL_S` seconds, or when the store is healed."""
        self._healed.clear()
        self._add("stall", call, where, times)

    def wrong_bytes(self, where: Where | None = None, times: int | None = None) -> None:
        """get fills the destination with bytes that are not the page's, and says True: no checksum saw it."""
        self._add("wrong_bytes", "get", where, times)

    def late_write(self, where: Where | None = None, times: int | None = None) -> None:
        """get says False and writes all the same, not the page's bytes, after the next page was read into the same
        memory: as a transfer does that outlives its time-out."""
        self._add("late_write", "get", where, times)

    def heal(self) -> None:
        """Switch every fault off. What was to be written late, still is."""
        with self._lock:
            self._faults.clear()
        self._healed.set()

    def struck(self) -> dict[str, int]:
        """How often each kind of fault struck."""
        with self._lock:
            return dict(self._struck)

    def exists(self, keys: Sequence[str]) -> int:
        """The inner answer, cut at the first page that counts as absent."""
        self._begin("exists", keys)
        count = self.inner.exists(keys)
        for index, key in enumerate(keys[:count]):
            if self._strikes("miss", "exists", [key]):
                count = index
                break
        return max(0, count - self._strikes("short", "exists", keys))

    def get_into(self, keys: Sequence[str], into: Sequence[torch.Tensor]) -> list[bool]:
        """The inner answer, without the pages that count as absent."""
        self._begin("get", keys)
        answer = [self._get_one(key, page) for key, page in zip(keys, into, strict=True)]
        return self._cut(answer, "get", keys)

    def _get_one(self, key: str, page: torch.Tensor) -> bool:
        if self._strikes("late_write", "get", [key]):
            self._late.add(page.data_ptr())
            return False
        if self._strikes("miss", "get", [key]) or not self.inner.get_into([key], [page])[0]:
            return False
        if page.data_ptr() in self._late or self._strikes("wrong_bytes", "get", [key]):
            self._late.discard(page.data_ptr())
            page.bitwise_not_()
        return True

    def put_from(self, keys: Sequence[str], pages: Sequence[torch.Tensor]) -> list[bool]:
        """The inner answer, without the pages that are refused."""
        self._begin("put", keys)
        answer = [
            not self._strikes("miss", "put", [key]) and self.inner.put_from([key], [page])[0]
            for key, page in zip(keys, pages, strict=True)
        ]
        taken = self._cut(answer, "put", keys)
        with self._lock:
            self.taken_pages += sum(taken) if len(taken) == len(keys) else 0
        return taken

    def stats(self) -> dict[str, int]:
        """The inner counts, and `faults`: strikes of all kinds."""
        return {**self.inner.stats(), "faults": sum(self.struck().values())}

    def clear(self) -> None:
        """Remove every page of the inner store; faults stay."""
        self.inner.clear()

    def close(self) -> None:
        """Close the inner store."""
        self.inner.close()

    def _add(self, kind: Kind, call: Call, where: Where | None, times: int | None) -> None:
        with self._lock:
            self._faults.append(_Fault(kind, call, where or _anywhere, times))

    def _strikes(self, kind: Kind, call: Call, keys: Sequence[str]) -> bool:
        if not self._faults:
            # Not even the lock is taken, so that a store without faults is as quick as the inner one.
            return False
        with self._lock:
            for fault in self._faults:
                if fault.kind == kind and fault.call == call and fault.left != 0 and any(map(fault.where, keys)):
                    if fault.left is not None:
                        fault.left -= 1
                    self._struck[kind] += 1
                    return True
        return False

    def _begin(self, call: Call, keys: Sequence[str]) -> None:
        if self._strikes("stall", call, keys):
            self._healed.wait(STALL_S)
        if self._strikes("raise", call, keys):
            raise StorageFault(f"{call} of {len(keys)} pages fails, as told")

    def _cut(self, answer: list[bool], call: Call, keys: Sequence[str]) -> list[bool]:
        return answer[:-1] if self._strikes("short", call, keys) else answer


def _anywhere(key: str) -> bool:
    return True
