"""The stores by the names of the command line, with a server where one is needed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from hicache_impl import open_storage
from hicache_impl.storage import Storage

NAMES = ("memory", "file", "lmdb")
DURABLE = ("file", "lmdb")
"""They keep what they have from one process to the next."""


class Missing(Exception):
    """A store that cannot be had here, and why."""


def spec_of(store: str, folder: Path, servers: ExitStack, open_store: Callable[[str], Storage] = open_storage) -> str:
    """What `open_storage` takes: `store` itself, unless it is a bare name. Missing.

    Files are put into `folder`; `servers` ends what was started.
    """
    spec = f"{store}:{folder / store}" if store in DURABLE else store
    try:
        open_store(spec).close()
    except ValueError as error:
        raise Missing(str(error)) from None
    return spec


def name_of(store: str) -> str:
    """What is said of it in the table."""
    return store.partition(":")[0]


def is_durable(store: str) -> bool:
    """Whether a second process finds what a first one has left."""
    return name_of(store) in DURABLE
