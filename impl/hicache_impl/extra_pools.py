"""The extra pools of one rank: tensors and who owns which slot, on both tiers, and how their bytes are named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from hicache_impl.config import CacheConfig
from hicache_impl.content import page_content
from hicache_impl.keys import pool_hash
from hicache_impl.pool_spec import PoolSpec
from hicache_impl.storage import storage_key
from hicache_impl.tensor_pool import TensorPool
from hicache_impl.trees.components import DEVICE, Component


class ExtraPool:
    """One pool. `component` is what the tree knows of it."""

    def __init__(self, spec: PoolSpec, config: CacheConfig) -> None:
        beside_pages = spec.kind == "sidecar"
        host_slots = config.host_pages if beside_pages else spec.host_slots
        device_slots = config.device_pages if beside_pages else spec.device_slots
        pinned = torch.device(config.device).type == "cuda"
        self.spec = spec
        self._layout = config.layout
        self.component: Component = spec.component()
        self.host = TensorPool(host_slots, spec.layers, spec.slot_bytes, pinned=pinned)
        self.device = TensorPool(device_slots, spec.layers, spec.slot_bytes, device=config.device)

    @property
    def name(self) -> str:
        """The same on every rank."""
        return self.spec.name

    def on(self, tier: str) -> TensorPool:
        """The tensor of a tier."""
        return self.device if tier == DEVICE else self.host

    def key(self, page_hash: bytes, rank: int) -> str:
        """The slot's name in storage: the pool's name is in it, so that it is never taken for the page's."""
        return storage_key(pool_hash(page_hash, self.name), self._shard(rank))

    def is_stored_by(self, rank: int) -> bool:
        """Is it this rank's matter to store what it has? That of the pages says nothing of it."""
        return self._layout.is_writer(rank, self.spec.replicated)

    def content(self, page_hash: bytes, rank: int) -> torch.Tensor:
        """uint8 (layers, layer_bytes): what must be in the slot that is beside this page on this rank."""
        return page_content(pool_hash(page_hash, self.name), self._shard(rank), self.spec.layers, self.spec.layer_bytes)

    def _shard(self, rank: int) -> str:
        return self._layout.shard(rank, self.spec.replicated)


def open_pools(config: CacheConfig) -> dict[str, ExtraPool]:
    """A new pool for each that is not packed, by name, in the configured order. ValueError: no memory for one."""
    return {spec.name: ExtraPool(spec, config) for spec in config.pools if spec.place == "separate"}


def free_slots(pools: Mapping[str, ExtraPool], tier: str, slots: Mapping[str, Sequence[int]]) -> None:
    """Give slots back, by pool. Errors: see PageAllocator.free."""
    for name, given in slots.items():
        pools[name].on(tier).allocator.free(given)
