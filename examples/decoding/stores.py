"""The stores by the names of the command line, with a server where one is needed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Protocol

from hicache_impl import open_storage
from hicache_impl.storage import Storage
from hicache_impl.storage.servers import MooncakeServers, RedisServer, Unavailable

NAMES = ("memory", "file", "lmdb", "redis", "mooncake", "dynamic")
DEFAULT = "lmdb"
FOLDERS = ("file", "lmdb")
OWN = "dynamic:decoding.own_store:OwnStore"
GONE_WITH_THE_PROCESS = ("memory", "dynamic")


class Server(Protocol):
    """What a store needs, until it is closed. `spec`: what `open_storage` takes."""

    @property
    def spec(self) -> str:
        """With its port."""
        ...

    def close(self) -> None:
        """End it."""
        ...


SERVERS: dict[str, Callable[[], Server]] = {"redis": RedisServer, "mooncake": MooncakeServers}


class Missing(Exception):
    """A store that cannot be had here, and why."""


def spec_of(store: str, folder: Path, servers: ExitStack, open_store: Callable[[str], Storage] = open_storage) -> str:
    """What `open_storage` takes: `store` itself, unless it is a bare name. Missing.

    Files are put into `folder`; `servers` ends what was started.
    """
    try:
        spec = {**{name: f"{name}:{folder / name}" for name in FOLDERS}, "dynamic": OWN}.get(store, store)
        if store in SERVERS:
            spec = servers.enter_context(closing(SERVERS[store]())).spec
        if spec != OWN:
            # What is our own can be had, and takes a process to try.
            open_store(spec).close()
    except (ValueError, Unavailable) as error:
        raise Missing(f"{store}: {error}") from None
    return spec


def name_of(store: str) -> str:
    """What is said of it in the table."""
    return store.partition(":")[0]


def is_durable(store: str) -> bool:
    """Whether a second process finds what a first one has left."""
    return name_of(store) not in GONE_WITH_THE_PROCESS
