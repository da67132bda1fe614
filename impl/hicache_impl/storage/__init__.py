"""L3: a store of pages by name, behind one small interface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from hicache_impl.storage.keys import check_keys, is_key, page_namespace, storage_key, storage_keys
from hicache_impl.storage.opening import open_storage
from hicache_impl.storage.pages import check_pages, fill_page, page_to_bytes


class Storage(Protocol):
    """A store that threads of all ranks may share. Pages are contiguous or strided uint8 CPU tensors of any shape.

    A page that cannot be read is a miss, a page that cannot be written is a False: no exception. A store in the field
    may raise all the same, so a caller guards its calls. ValueError: a name that `storage_key` cannot have made, or
    lists of different length.
    """

    def exists(self, keys: Sequence[str]) -> int:
        """How many of `keys`, counted from the first, are present without a gap."""
        ...

    def get_into(self, keys: Sequence[str], into: Sequence[torch.Tensor]) -> list[bool]:
        """Fill each destination whole and say True, or say False; then its bytes are anything. Once this has returned,
        the store writes to none of them."""
        ...

    def put_from(self, keys: Sequence[str], pages: Sequence[torch.Tensor]) -> list[bool]:
        """Store a copy of each page; True once `get_into` would find it. Once this has returned, the store reads from
        none of them."""
        ...

    def stats(self) -> dict[str, int]:
        """Counts since the store was opened, by what happened to pages."""
        ...

    def clear(self) -> None:
        """Remove every page, and nothing that is not a page of this kind of store."""
        ...

    def close(self) -> None:
        """Let go of resources; may be called twice. The pages of a durable store stay."""
        ...


__all__ = [
    "Storage",
    "check_keys",
    "check_pages",
    "fill_page",
    "is_key",
    "open_storage",
    "page_namespace",
    "page_to_bytes",
    "storage_key",
    "storage_keys",
]
