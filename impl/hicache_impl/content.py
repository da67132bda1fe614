"""The bytes a page must hold: a pure function, so that a wrong or stale page can be seen anywhere."""

from __future__ import annotations

import hashlib
import struct

import torch


def page_content(page_hash: bytes, rank: int, layers: int, layer_bytes: int) -> torch.Tensor:
    """uint8 tensor (layers, layer_bytes) that stands for the KV values of this page on this rank.

    Why it depends on all three: a page of another prefix, another rank or another layer differs.
    """
    rows = [
        hashlib.shake_128(page_hash + struct.pack("<II", layer, rank)).digest(layer_bytes) for layer in range(layers)
    ]
    return torch.frombuffer(bytearray(b"".join(rows)), dtype=torch.uint8).view(layers, layer_bytes)
