"""What a page must hold and what a store calls it: pure functions, so that a wrong or stale page can be seen anywhere.

A *shard* is the name of what a rank holds of every page (see Layout.shard).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import torch

from hicache_impl.storage import storage_keys

if TYPE_CHECKING:
    from hicache_impl.config import CacheConfig

KEPT = 256
"""Pages whose bytes are remembered, because a run writes and checks the same ones again and again."""


def page_content(page_hash: bytes, shard: str, layers: int, layer_bytes: int) -> torch.Tensor:
    """uint8 tensor (layers, layer_bytes) that stands for the KV values of this shard of this page.

    Why it depends on all three: a page of another prefix, another shard or another layer differs.
    """
    payload = bytearray(_payload(page_hash, shard, layers, layer_bytes))
    return torch.frombuffer(payload, dtype=torch.uint8).view(layers, layer_bytes)


def page_on_rank(config: CacheConfig, rank: int, page_hash: bytes) -> torch.Tensor:
    """uint8 tensor (stored_layers, layer_bytes): what a page holds on this rank, with the sidecars packed into it."""
    return page_content(page_hash, config.shard(rank), config.stored_layers, config.layer_bytes)


def page_keys(config: CacheConfig, rank: int, hashes: Sequence[bytes]) -> list[str]:
    """What the store calls the pages with these hashes that this rank has."""
    return storage_keys(hashes, config.shard(rank))


@lru_cache(KEPT)
def _payload(page_hash: bytes, shard: str, layers: int, layer_bytes: int) -> bytes:
    seeds = (page_hash + struct.pack("<I", layer) + shard.encode() for layer in range(layers))
    return b"".join(hashlib.shake_128(seed).digest(layer_bytes) for seed in seeds)
