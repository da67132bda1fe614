"""L3: a store of pages by name, behind one small interface."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

import torch

_KEY = re.compile(r"[0-9a-f_]{3,200}")


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


def storage_key(page_hash: bytes, shard: str) -> str:
    """The page's name: its hash, and which part of it that is (see Layout.shard), because a page of 1 of 2 ranks is not
    a page of 1 of 4."""
    return f"{page_hash.hex()}_{shard}"


def is_key(name: str) -> bool:
    """Is it made of hexadecimal digits and underscores, at least 3 of them, and no longer than a file name may be?"""
    return _KEY.fullmatch(name) is not None


def check_keys(keys: Sequence[str]) -> None:
    """ValueError unless all are keys: so a key can never be a path."""
    for key in keys:
        if not is_key(key):
            raise ValueError(f"not a storage key: {key!r}")


def check_pages(keys: Sequence[str], pages: Sequence[torch.Tensor]) -> None:
    """ValueError unless there is one uint8 tensor a key."""
    check_keys(keys)
    if len(keys) != len(pages):
        raise ValueError(f"{len(keys)} keys for {len(pages)} pages")
    for page in pages:
        if page.dtype != torch.uint8:
            raise ValueError(f"a page is a uint8 tensor, not {page.dtype}")


def page_to_bytes(page: torch.Tensor) -> bytes:
    """The bytes of a page, row by row."""
    return page.detach().cpu().contiguous().numpy().tobytes()


def fill_page(into: torch.Tensor, payload: bytes) -> None:
    """Copy `payload` over a tensor of the same number of bytes."""
    into.copy_(torch.frombuffer(bytearray(payload), dtype=torch.uint8).view(into.shape))


def open_storage(spec: str) -> Storage:
    """`memory`, or `file:DIRECTORY` (made if missing). ValueError: anything else, or a directory that cannot be."""
    from hicache_impl.storage.file import FileStorage
    from hicache_impl.storage.memory import MemoryStorage

    if spec == "memory":
        return MemoryStorage()
    kind, _, directory = spec.partition(":")
    if kind == "file" and directory:
        try:
            return FileStorage(directory)
        except OSError as error:
            raise ValueError(f"cannot use {directory} as a page store: {error.strerror or error}") from None
    raise ValueError(f"storage must be 'memory' or 'file:DIRECTORY', not {spec!r}")
