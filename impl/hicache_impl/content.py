"""The bytes a page must hold: a pure function, so that a wrong or stale page can be seen anywhere."""

from __future__ import annotations

import hashlib
import struct
from functools import lru_cache

import torch

KEPT = 256
"""Pages whose bytes are remembered, because a run writes and checks the same ones again and again."""


def page_content(page_hash: bytes, rank: int, layers: int, layer_bytes: int) -> torch.Tensor:
    """uint8 tensor (layers, layer_bytes) that stands for the KV values of this page on this rank.

    Why it depends on all three: a page of another prefix, another rank or another layer differs.
    """
    payload = bytearray(_payload(page_hash, rank, layers, layer_bytes))
    return torch.frombuffer(payload, dtype=torch.uint8).view(layers, layer_bytes)


@lru_cache(KEPT)
def _payload(page_hash: bytes, rank: int, layers: int, layer_bytes: int) -> bytes:
    seeds = (page_hash + struct.pack("<II", layer, rank) for layer in range(layers))
    return b"".join(hashlib.shake_128(seed).digest(layer_bytes) for seed in seeds)
