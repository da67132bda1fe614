"""A store in memory for the releases' own `dynamic` backend: pages by key, a store of its own for each rank.

What it holds outlives the backends that a release makes of it. The faults are the harness's.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import torch
from sglang.srt.mem_cache.hicache_storage import HiCacheStorage

from hicache_checks.simulation.standins.locks import pause

STALL_S = 1.0
"""What a call that stalls takes, unless the store is healed before."""
FAULTS = {
    "exists": ("raise", "miss", "short", "stall"),
    "get": ("raise", "miss", "short", "stall", "wrong_bytes", "late_write"),
    "put": ("raise", "miss", "short", "stall"),
}


class StorageFault(Exception):
    """The scripted failure of a call."""


class Shelf:
    """The pages of one rank, and what is wrong with reading and writing them. `stalled`: calls that take their time."""

    def __init__(self) -> None:
        self.pages: dict[str, torch.Tensor] = {}
        self.lost: set[str] = set()
        self.has_failed_to_put = False
        self.stalled = 0
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
        self.has_failed_to_put = False

    def begins(self, call: str, keys: Sequence[str]) -> str | None:
        """What is to go wrong in this call."""
        pause(f"{call} of the store", "store")
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
        count = 0
        while count < len(keys) and keys[count] in self.pages and fault != "miss":
            count += 1
        return max(0, count - (fault == "short"))

    def get(self, keys: Sequence[str]) -> list[torch.Tensor | None]:
        """Each page; None: it cannot be read."""
        fault = self.begins("get", keys)
        found = [None if fault == "miss" or key in self.lost else self.pages.get(key) for key in keys]
        if fault == "short" and found:
            found[-1] = None
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


class PageStore(HiCacheStorage):
    """See HiCacheStorage of the release."""

    def __init__(self, storage_config: Any, kwargs: Any = None) -> None:
        self.shelf = SHELVES.setdefault(storage_config.tp_rank, Shelf())

    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        self.mem_pool_host = mem_pool_host

    def register_mem_host_pool_v2(self, pool: Any, name: Any) -> None:
        pass

    def on_host_pools_registered(self) -> None:
        pass

    def exists(self, key: str) -> bool:
        return self.batch_exists([key]) == 1

    def get(self, key: str, target_location: Any = None, target_sizes: Any = None) -> Any:
        return self.batch_get([key], [target_location])[0]

    def set(self, key: str, value: Any = None, target_location: Any = None, target_sizes: Any = None) -> bool:
        return self.batch_set([key], [value])

    def batch_exists(self, keys: Sequence[str], extra_info: Any = None) -> int:
        return self.shelf.exists(keys)

    def batch_get(self, keys: Sequence[str], target_locations: Any = None, target_sizes: Any = None) -> list[Any]:
        return self.shelf.get(keys)

    def batch_set(self, keys: Sequence[str], values: Any = None, *rest: Any, **named: Any) -> bool:
        return all(self.shelf.put(keys, values))

    def clear(self) -> None:
        self.shelf.pages.clear()

    def close(self) -> None:
        pass

    def get_stats(self) -> None:
        return None
