"""A store in memory for the releases' own `dynamic` backend: pages by key, a shelf of its own for each rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sglang.srt.mem_cache.hicache_storage import HiCacheStorage

from hicache_checks.targets.sglang.shelf import SHELVES, Shelf
from hicache_checks.targets.sglang.surroundings import rank


class PageStore(HiCacheStorage):
    """See HiCacheStorage of the release."""

    def __init__(self, storage_config: Any = None, kwargs: Any = None, **_: Any) -> None:
        self.shelf = SHELVES.setdefault(getattr(storage_config, "tp_rank", rank()), Shelf())

    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        self.mem_pool_host = mem_pool_host

    def register_mem_host_pool_v2(self, pool: Any, name: Any) -> None:
        pass

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

    def clear(self) -> None:
        self.shelf.pages.clear()

    def close(self) -> None:
        pass

    def get_stats(self) -> None:
        return None
