"""What pages hold: other values for every prefix, namespace, rank, layer and place, so that a page in the wrong place
shows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch


def content(prefix: Sequence[object], rank: int, like: torch.Tensor) -> torch.Tensor:
    """The last page of a prefix on a rank; shape and type as `like`."""
    seed = int.from_bytes(hashlib.sha256(repr((tuple(prefix), rank)).encode()).digest()[:4], "little")
    return torch.arange(like.numel(), dtype=like.dtype).view(like.shape) + float(seed % 10_000_000)
