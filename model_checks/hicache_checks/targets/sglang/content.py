"""What pages hold: other values for every prefix, namespace, rank, layer and place, so that a page in the wrong place
shows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache

import torch

PAGES_KEPT = 4096


def content(prefix: Sequence[object], rank: int, like: torch.Tensor) -> torch.Tensor:
    """The last page of a prefix on a rank; shape and type as `like`. It is everybody's: nobody changes it."""
    return _content(tuple(prefix), rank, like.shape, like.dtype)


@lru_cache(PAGES_KEPT)
def _content(prefix: tuple[object, ...], rank: int, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
    seed = int.from_bytes(hashlib.sha256(repr((prefix, rank)).encode()).digest()[:4], "little")
    return torch.arange(shape.numel(), dtype=dtype).view(shape) + float(seed % 10_000_000)
