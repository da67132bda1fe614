"""Caches and stores that are wrong in one way, for the tests of the example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import torch

from hicache_impl.cache import HiCache
from hicache_impl.config import CacheConfig
from hicache_impl.extra_pools import ExtraPool
from hicache_impl.keys import PrefixKey
from hicache_impl.storage.memory import MemoryStorage
from hicache_impl.trees.components import DEVICE, Window
from hicache_impl.trees.core import RadixTree
from hicache_impl.trees.node import Inserted, Node, Slots


class ServesAnotherPage(MemoryStorage):
    """No checksum sees that a page holds what was stored before it."""

    def __init__(self) -> None:
        super().__init__()
        self._before: torch.Tensor | None = None

    def put_from(self, keys: Sequence[str], pages: Sequence[torch.Tensor]) -> list[bool]:
        """Each page under the name of the next one."""
        for key, page in zip(keys, pages, strict=True):
            before = self._before
            super().put_from([key], [page if before is None or before.shape != page.shape else before])
            self._before = page.clone()
        return [True] * len(keys)


class HasNothing(MemoryStorage):
    """Takes pages, and does not know of them."""

    def exists(self, keys: Sequence[str]) -> int:
        """None."""
        return 0


class TakesWrongBytes(MemoryStorage):
    """Nobody ever reads what it has, and it is wrong."""

    def exists(self, keys: Sequence[str]) -> int:
        """None."""
        return 0

    def put_from(self, keys: Sequence[str], pages: Sequence[torch.Tensor]) -> list[bool]:
        """Every bit is turned over."""
        return super().put_from(keys, [page.bitwise_not() for page in pages])


class LoadsPagesShifted(HiCache):
    """The pages of a node come to the device one position too early."""

    def _load_node(self, node: Node, device_pages: Sequence[int]) -> None:
        pages = list(device_pages)
        super()._load_node(node, pages)
        host = node.host or []
        self._parts.pop()
        self._move(self.host, [*host[1:], *host[:1]], self.device, pages)


class WindowIsOnePageShort(HiCache):
    """A prefix counts as served with one page of the window less than the model needs."""

    @classmethod
    def new_tree(cls, config: CacheConfig, extra: Mapping[str, ExtraPool]) -> RadixTree:
        """A tree with the wrong component, in its pool, too."""
        for pool in extra.values():
            if isinstance(pool.component, Window):
                pool.component = Window(pool.name, pool.component.pages - 1)
        return super().new_tree(config, extra)


class StateOfAShorterPrefix(HiCache):
    """What is kept for the end of a prefix is the state of an end before it."""

    def insert(self, key: PrefixKey, device_pages: Sequence[int], slots: Slots = MappingProxyType({})) -> Inserted:
        """With the bytes of the state before this one, where there is one."""
        pool = self.extra["state"]
        known = self.tree.slots_along(self.tree.match(key).host_node, DEVICE)["state"]
        if known and max(known) < len(key) - 1:
            (slot,) = slots["state"].values()
            pool.device.view(slot).copy_(pool.device.view(known[max(known)]))
        return super().insert(key, device_pages, slots)
