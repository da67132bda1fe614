"""Mooncake's client, in the process of `serve.py`: records are read into mapped memory, which is registered."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence

from mooncake.store import MooncakeDistributedStore

# The client insists on some memory of its own.
_OWN_BYTES = 16 << 20
_ABSENT, _MAY_BE_ALIVE = -1, -2
# What Mooncake says of a name that it does not know, of a place that is too small, and of a lease that ran out when
# all had been read: nothing is under way then.
_OVER = {-704, -600, -707}


class Backend:
    """One client without a segment. Names are `PREFIX:KEY`."""

    def __init__(self, memory: mmap.mmap, host: str, port: int, prefix: str, local: str) -> None:
        self._prefix = f"{prefix}:"
        self._store = MooncakeDistributedStore()
        code = self._store.setup(local, "P2PHANDSHAKE", 0, _OWN_BYTES, "tcp", "", f"{host}:{port}")
        if code:
            raise ConnectionError(f"the master at {host}:{port} does not take a client: {code}")
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        if self._store.register_buffer(self._address, len(memory)):
            raise MemoryError("memory cannot be registered")

    def exists(self, keys: Sequence[str]) -> list[bool]:
        """As the master knows it: a page of an owner who is gone is there for some seconds more."""
        return [code == 1 for code in self._store.batch_is_exist(self._names(keys))]

    def get(self, keys: Sequence[str], places: Sequence[tuple[int, int]]) -> list[int]:
        """How long each record is that was read."""
        read = self._store.batch_get_into(self._names(keys), self._addresses(places), [size for _, size in places])
        return [size if size >= 0 else _ABSENT if size in _OVER else _MAY_BE_ALIVE for size in read]

    def put(self, keys: Sequence[str], places: Sequence[tuple[int, int]]) -> list[bool]:
        """Over what is there."""
        codes = self._store.batch_upsert_from(self._names(keys), self._addresses(places), [size for _, size in places])
        return [code == 0 for code in codes]

    def clear(self) -> list[int]:
        """All pages of the prefix, also those that somebody has just read."""
        return [self._store.remove_by_regex(f"^{self._prefix}[0-9a-f_]+$".replace(".", r"\."), True)]

    def _names(self, keys: Sequence[str]) -> list[str]:
        return [self._prefix + key for key in keys]

    def _addresses(self, places: Sequence[tuple[int, int]]) -> list[int]:
        return [self._address + offset for offset, _ in places]
