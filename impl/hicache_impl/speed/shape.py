"""What one round of a measurement moves: operations of pages, their names and their bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from hicache_impl.keys import PrefixKey, chain_hashes

OPERATION_BYTES = 64 << 20
PAGE_TOKENS = 64


@dataclass(frozen=True)
class Shape:
    """`operations` prefixes that have no page in common, each of `operation_pages` pages of `page_bytes` bytes."""

    page_bytes: int
    operation_pages: int
    operations: int

    @property
    def page_tokens(self) -> int:
        """Tokens that a page is for."""
        return PAGE_TOKENS

    @property
    def pages(self) -> int:
        """Of all operations together."""
        return self.operations * self.operation_pages

    @property
    def total_bytes(self) -> int:
        """Of all pages together."""
        return self.pages * self.page_bytes

    def keys(self) -> list[PrefixKey]:
        """A prefix for each operation."""
        tokens = np.arange(self.pages * PAGE_TOKENS, dtype="<i4").reshape(self.operations, self.operation_pages, -1)
        return [PrefixKey("", tuple(page.tobytes() for page in operation)) for operation in tokens]

    def hashes(self) -> list[bytes]:
        """Of all pages, operation by operation."""
        return [page_hash for key in self.keys() for page_hash in chain_hashes(key)]

    def contents(self) -> torch.Tensor:
        """uint8 (pages, page_bytes), in the order of `hashes`: always the same, and no two pages alike."""
        words = torch.arange(self.total_bytes // 8, dtype=torch.int64).mul_(-7046029254386353131)
        return words.view(torch.uint8).view(self.pages, self.page_bytes)


def shape_for(page_bytes: int, round_bytes: int) -> Shape:
    """Operations of 64 MiB, as many as `round_bytes` holds, or one of less. ValueError: not even a page fits."""
    if page_bytes < 8 or page_bytes % 8 or round_bytes < page_bytes:
        raise ValueError(f"a round of {round_bytes} bytes has no pages of {page_bytes} bytes")
    operations = max(1, round_bytes // OPERATION_BYTES)
    return Shape(page_bytes, round_bytes // operations // page_bytes, operations)
