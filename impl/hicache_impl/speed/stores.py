"""The stores that are measured, each where it stands in for what people run: in memory, on disk, behind a server."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass

from hicache_impl.storage import Storage, open_storage
from hicache_impl.storage.servers import MooncakeServers, RedisServer, Unavailable


@dataclass(frozen=True)
class StoreFor:
    """`spec`: see open_storage. `is_shared`: what is put by one that is opened so, is there for the next."""

    spec: str
    is_shared: bool

    def open(self, checksums: bool) -> Storage:
        """With digests, or without."""
        return open_storage(self.spec, checksums)


def opened(name: str, size_bytes: int, stack: ExitStack) -> StoreFor | str:
    """A store with room for so many bytes, until the stack is closed, or why there is none. ValueError: no such."""
    if name not in _WAYS:
        raise ValueError(f"the stores that are measured are {', '.join(_WAYS)}, not {name!r}")
    return _WAYS[name](size_bytes, stack)


def _memory(size_bytes: int, stack: ExitStack) -> StoreFor:
    return StoreFor("memory", is_shared=False)


def _lmdb(size_bytes: int, stack: ExitStack) -> StoreFor:
    return StoreFor(f"lmdb:{_directory(stack)}?map_bytes={4 * size_bytes + (64 << 20)}", is_shared=True)


def _file(size_bytes: int, stack: ExitStack) -> StoreFor:
    return StoreFor(f"file:{_directory(stack)}", is_shared=True)


def _redis(size_bytes: int, stack: ExitStack) -> StoreFor | str:
    try:
        return StoreFor(stack.enter_context(closing(RedisServer())).spec, is_shared=True)
    except Unavailable as reason:
        return str(reason)


def _mooncake(size_bytes: int, stack: ExitStack) -> StoreFor | str:
    try:
        # A segment is not filled to the brim before pages have to go.
        return StoreFor(stack.enter_context(closing(MooncakeServers(4 * size_bytes))).spec, is_shared=True)
    except Unavailable as reason:
        return str(reason)


def _directory(stack: ExitStack) -> str:
    return stack.enter_context(tempfile.TemporaryDirectory(prefix="hicheck-speed-"))


_WAYS: dict[str, Callable[[int, ExitStack], StoreFor | str]] = {
    "memory": _memory,
    "lmdb": _lmdb,
    "file": _file,
    "redis": _redis,
    "mooncake": _mooncake,
}
STORES = tuple(_WAYS)
EXTRA_COPIES = {"memory": 0, "lmdb": 0, "file": 0, "redis": 3, "mooncake": 1}
"""Of a page's bytes, by a get, in the memory of this process, besides the one that leaves them in the page."""
