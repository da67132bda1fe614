"""A store in memory for the releases' own `dynamic` backend: pages by key, a shelf of its own for each rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sglang.srt.mem_cache.hicache_storage import HiCacheStorage

from hicache_checks.targets.sglang.grid import rank
from hicache_checks.targets.sglang.shelf import SHELVES, Shelf


class PageStore(HiCacheStorage):
    """See HiCacheStorage of the release."""

    def __init__(self, storage_config: Any = None, kwargs: Any = None, **_: Any) -> None:
        self.shelf = SHELVES.setdefault(rank(), Shelf())
        self._pools: dict[Any, Any] = {}

    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        self.mem_pool_host = mem_pool_host

    def register_mem_host_pool_v2(self, pool: Any, name: Any) -> None:
        self._pools[name] = pool

    def on_host_pools_registered(self) -> None:
        pass

    def exists(self, key: str) -> bool:
        return self.batch_exists([key]) == 1

    def get(self, key: str, target_location: Any = None, target_sizes: Any = None) -> Any:
        found = self.batch_get([key], [target_location])
        return None if found is None else found[0]

    def set(self, key: str, value: Any = None, target_location: Any = None, target_sizes: Any = None) -> bool:
        return self.batch_set([key], [value])

    def batch_exists(self, keys: Sequence[str], extra_info: Any = None) -> int:
        before = getattr(extra_info, "prefix_keys", None)
        if before is not None and keys:
            self.shelf.told_before.append((keys[0], tuple(before)))
        return self.shelf.exists(keys)

    def batch_get(
        self, keys: Sequence[str], target_locations: Any = None, target_sizes: Any = None
    ) -> list[Any] | None:
        return self.shelf.get(keys)

    def batch_set(self, keys: Sequence[str], values: Any = None, *rest: Any, **named: Any) -> bool:
        return all(self.shelf.put(keys, values))

    def batch_exists_v2(self, keys: Sequence[str], pool_transfers: Any = None, extra_info: Any = None) -> Any:
        """Of the pages that there are, as many as have all else that the pools of a request want: each, or the last."""
        # Older releases have no such answer, and do not ask.
        from sglang.srt.mem_cache.hicache_storage import PoolHitPolicy, PoolName, PoolTransferResult

        hits = self.batch_exists(keys, extra_info)
        found = {PoolName.KV: hits}
        for transfer in pool_transfers or ():
            has = [_named(key, transfer) in self.shelf.pages for key in keys[:hits]]
            if transfer.hit_policy == PoolHitPolicy.ALL_PAGES:
                hits = [*has, False].index(False)
            while hits and not has[hits - 1]:
                hits -= 1
            found[transfer.name] = hits
        return PoolTransferResult(hits, {name: count for name, count in found.items() if count})

    def batch_get_v2(self, transfers: Sequence[Any], extra_info: Any = None) -> dict[Any, list[bool]]:
        self._hear(transfers, extra_info)
        return {transfer.name: self._read(transfer) for transfer in transfers}

    def batch_set_v2(self, transfers: Sequence[Any], extra_info: Any = None) -> dict[Any, list[bool]]:
        self._hear(transfers, extra_info)
        return {transfer.name: self._write(transfer) for transfer in transfers}

    def _hear(self, transfers: Sequence[Any], extra_info: Any) -> None:
        """What comes before the first page that something is read or written beside."""
        before = tuple(getattr(extra_info, "prefix_keys", None) or ())
        self.shelf.told_beside.extend((transfer.keys[0], before) for transfer in transfers if transfer.keys)

    def _read(self, transfer: Any) -> list[bool]:
        names, slots = _names(transfer), _slots(transfer)
        found = self.shelf.get(names) or [None] * len(names)
        for slot, state in zip(slots, found, strict=True):
            if state is not None:
                self._pools[transfer.name].set_from_flat_data_page(slot, state)
        return [state is not None for state in found]

    def _write(self, transfer: Any) -> list[bool]:
        pool = self._pools[transfer.name]
        return self.shelf.put(_names(transfer), [pool.get_data_page(slot) for slot in _slots(transfer)])

    def clear(self) -> None:
        self.shelf.pages.clear()

    def close(self) -> None:
        pass

    def get_stats(self) -> None:
        return None


def _names(transfer: Any) -> list[str]:
    return [_named(key, transfer) for key in transfer.keys]


def _slots(transfer: Any) -> list[int]:
    """Where each begins: it has one slot, or one for each token of its page."""
    slots: list[int] = transfer.host_indices.tolist()
    return slots[:: max(1, len(slots) // max(1, len(transfer.keys)))]


def _named(key: str, transfer: Any) -> str:
    """What stores call that which another pool has for a page."""
    return f"{key}.{transfer.name.value}"
