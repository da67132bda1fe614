"""What the stores of the ranks hold, and what is wrong with them. The backends that a release makes come and go."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import MutableMapping, Sequence

import torch

from hicache_checks.simulation.standins.locks import pause

STALL_S = 1.0
"""What a call that stalls takes, unless the store is healed before."""
FAULTS = {
    "exists": ("raise", "miss", "short", "stall"),
    "get": ("raise", "miss", "short", "stall", "wrong_bytes", "late_write", "nothing"),
    "put": ("raise", "miss", "short", "stall"),
}


class StorageFault(Exception):
    """The scripted failure of a call."""


class Shelf:
    """The pages of one rank, and what is wrong with reading and writing them.

    `lost`: pages that are said to exist and cannot be read; `damaged`: pages that somebody has cut off;
    `written_again`: pages that were there, and that the release wrote once more, as far as anybody looked, see `look`;
    `asked`: how often it was asked whether a page exists; `vain_reads`: how often pages were read that could not be;
    `told_before`: pages that were asked for, each with those that were said to come before it; `told_beside`: the same
    of pages beside which something was read or written;
    `stalled`: calls that take their time; `latency_s`: what any call takes, at most.
    """

    def __init__(self) -> None:
        self.pages: MutableMapping[str, torch.Tensor] = {}
        self.lost: set[str] = set()
        self.damaged: set[str] = set()
        self.has_failed_to_put = False
        self.written_again: set[str] = set()
        self.asked: Counter[str] = Counter()
        self.vain_reads: Counter[str] = Counter()
        self.told_before: list[tuple[str, tuple[str, ...]]] = []
        self.told_beside: list[tuple[str, tuple[str, ...]]] = []
        self.stalled = 0
        self.latency_s = 0.0
        self._faults: dict[str, str] = {}
        self._works = threading.Event()

    def break_(self, call: str, how: str) -> None:
        """From now on a call fails. ValueError: it cannot.

        Nobody hands it a place to write to later: whoever asks for a page copies it. So `late_write` is a refusal.
        """
        if how not in FAULTS.get(call, ()):
            raise ValueError(f"a store cannot {how} in {call}")
        self._faults[call] = "miss" if how == "late_write" else how
        if how == "stall":
            self._works.clear()

    def heal(self) -> None:
        """Nothing is wrong any more."""
        self._faults.clear()
        self.lost.clear()
        self._works.set()

    def forget(self) -> None:
        """As new."""
        self.heal()
        self.pages.clear()
        self.damaged.clear()
        self.has_failed_to_put = False
        self.written_again.clear()
        self.asked.clear()
        self.vain_reads.clear()
        self.told_before.clear()
        self.told_beside.clear()

    def look(self) -> None:
        """See what the release has written, where that can be seen."""

    def begins(self, call: str, keys: Sequence[str]) -> str | None:
        """What is to go wrong in this call."""
        pause(f"{call} of the store", "store")
        if self.latency_s:
            time.sleep(random.uniform(0, self.latency_s))
        fault = self._faults.get(call)
        self.has_failed_to_put |= call == "put" and fault in ("raise", "miss", "short")
        if fault == "raise":
            raise StorageFault(f"{call} of {len(keys)} pages fails, as told")
        if fault == "stall":
            self.stalled += 1
            self._works.wait(STALL_S)
            self.stalled -= 1
        return fault

    def exists(self, keys: Sequence[str]) -> int:
        """How many of them, from the first on, are said to be there."""
        fault = self.begins("exists", keys)
        self.asked.update(keys)
        count = 0
        while count < len(keys) and keys[count] in self.pages and fault != "miss":
            count += 1
        return max(0, count - (fault == "short"))

    def get(self, keys: Sequence[str]) -> list[torch.Tensor | None] | None:
        """Each page; None: it cannot be read; None in place of the list: nothing of it can be."""
        fault = self.begins("get", keys)
        if fault == "nothing":
            return None
        found = [None if fault == "miss" or key in self.lost else self.pages.get(key) for key in keys]
        if fault == "short" and found:
            found[-1] = None
        self.vain_reads.update(key for key, page in zip(keys, found, strict=True) if page is None)
        if fault == "wrong_bytes":
            found = [None if page is None else page + 1 for page in found]
        return found

    def put(self, keys: Sequence[str], values: Sequence[torch.Tensor]) -> list[bool]:
        """Whether each page was taken."""
        fault = self.begins("put", keys)
        taken = [fault != "miss" and not (fault == "short" and place == len(keys) - 1) for place in range(len(keys))]
        for key, value, is_taken in zip(keys, values, taken, strict=True):
            if is_taken:
                self.pages[key] = value.clone()
        return taken


SHELVES: dict[int, Shelf] = {}
