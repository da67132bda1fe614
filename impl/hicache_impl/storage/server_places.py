"""Stores with servers, or with a process of their own, as `hicheck store` handles them. See `places`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import ClassVar

import redis

from hicache_impl.storage import Storage, open_storage
from hicache_impl.storage.file import FileStorage
from hicache_impl.storage.places import OURS, SMALL_BYTES, damaged, opening, page_name
from hicache_impl.storage.redis import PREFIX
from hicache_impl.storage.servers import LOOPBACK, MooncakeServers, RedisServer
from hicache_impl.storage.stranger import FOLDER_VARIABLE, TROUBLE

# An empty server has used about this much of its memory.
_EMPTY_REDIS_BYTES = 1_200_000
_STRANGER = "dynamic:hicache_impl.storage.stranger:Stranger"
_FOREIGN = [f"{PREFIX}:notes", f"{PREFIX}2:000", "000", f"{PREFIX}:000:x"]


class RedisPlace:
    """A redis-server without persistence."""

    page_name = staticmethod(page_name)
    durable = True
    lacks: ClassVar[dict[str, str]] = {"misbehave": OURS}

    def __init__(self) -> None:
        self.server = RedisServer()
        self.servers = {"server": self.server}
        self._small: list[RedisServer] = []
        self._client = redis.Redis(LOOPBACK, self.server.port)

    @property
    def elsewhere(self) -> str:
        """Code that opens the store in another process."""
        return opening(self.server.spec)

    def open(self, checksums: bool = True) -> Storage:
        """A store on the server."""
        return open_storage(self.server.spec, checksums)

    def open_small(self) -> Storage:
        """A store on another server, which may use about a MiB for pages."""
        self._small.append(RedisServer(_EMPTY_REDIS_BYTES + SMALL_BYTES))
        return open_storage(self._small[-1].spec)

    def close(self) -> None:
        """End the servers."""
        self._client.close()
        for server in (self.server, *self._small):
            server.close()

    def damage(self, key: str, how: str) -> None:
        """A byte in the middle, the second half, or one byte more."""
        record = self._client.get(f"{PREFIX}:{key}")
        assert isinstance(record, bytes)
        self._client.set(f"{PREFIX}:{key}", damaged(record, how))

    def misname(self, key: str, other: str) -> None:
        """The page of `key` lies under the name of `other`."""
        self._client.copy(f"{PREFIX}:{key}", f"{PREFIX}:{other}", replace=True)

    def put_foreign(self) -> None:
        """Keys of others: one that has our prefix and no page's name, one with another prefix, one with none."""
        self._client.mset({f"{PREFIX}:notes": "kept", f"{PREFIX}2:000": "kept", "000": "kept"})

    def foreign_is_left(self) -> bool:
        """All of them."""
        return self._client.mget(f"{PREFIX}:notes", f"{PREFIX}2:000", "000") == [b"kept"] * 3


class MooncakePlace:
    """A master and an owner."""

    page_name = staticmethod(page_name)
    durable = True
    evicts = True
    # No segment may be smaller.
    small_bytes = 16 << 20
    lacks: ClassVar[dict[str, str]] = {
        "misbehave": "what can misbehave is the owner and the master: see the checks of servers",
    }

    def __init__(self) -> None:
        self._mooncake = MooncakeServers()
        self.servers = {"owner": self._mooncake.owner, "master": self._mooncake.master}
        self._small: list[MooncakeServers] = []

    @property
    def elsewhere(self) -> str:
        """Code that opens the store in another process."""
        return opening(self._mooncake.spec)

    def open(self, checksums: bool = True) -> Storage:
        """A store on the master."""
        return open_storage(self._mooncake.spec, checksums)

    def open_small(self) -> Storage:
        """A store on another master, whose owner has little room."""
        self._small.append(MooncakeServers(self.small_bytes))
        return open_storage(self._small[-1].spec)

    def close(self) -> None:
        """End the servers."""
        for servers in (self._mooncake, *self._small):
            servers.close()

    def damage(self, key: str, how: str) -> None:
        """A byte in the middle, the second half, or one byte more."""
        change = {"flip": "r[:m] + bytes([r[m] ^ 16]) + r[m + 1 :]", "cut": "r[:m]", "grow": "r + bytes(1)"}[how]
        name = f"{PREFIX}:{key}"
        self._past_the_store(f"r = store.get({name!r}); m = len(r) // 2; assert store.upsert({name!r}, {change}) == 0")

    def misname(self, key: str, other: str) -> None:
        """The page of `key` lies under the name of `other`."""
        name, wrong = f"{PREFIX}:{key}", f"{PREFIX}:{other}"
        self._past_the_store(f"assert store.upsert({wrong!r}, store.get({name!r})) == 0")

    def put_foreign(self) -> None:
        """Objects of others: with our prefix and no page's name, with another prefix, with none."""
        self._past_the_store(f"assert all(store.put(name, b'kept') == 0 for name in {_FOREIGN})")

    def foreign_is_left(self) -> bool:
        """All of them."""
        said = self._past_the_store(f"print([store.is_exist(name) for name in {_FOREIGN}])")
        return said.splitlines()[-1] == str([1] * len(_FOREIGN))

    def _past_the_store(self, statement: str) -> str:
        """By a client of Mooncake itself; in a process of its own, because a process has one."""
        code = (
            "from mooncake.store import MooncakeDistributedStore\nstore = MooncakeDistributedStore()\n"
            f"store.setup('{LOOPBACK}', 'P2PHANDSHAKE', 0, 16 << 20, 'tcp', '', '{LOOPBACK}:{self._mooncake.port}')\n"
            f"{statement}\nimport os, sys; sys.stdout.flush(); os._exit(0)\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"Mooncake refuses: {done.stderr.strip().splitlines()[-1]}")
        return done.stdout


class DynamicPlace:
    """A stranger, in a folder that the environment names to all who open it."""

    page_name = staticmethod(page_name)
    durable = True
    lacks: ClassVar[dict[str, str]] = {
        "servers": "there is no server: the store has a process of its own, which is killed when it hangs",
        "open_small": "what is full is the affair of the store from outside",
        "put_foreign": "what is whose is the affair of the store from outside",
    }

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="hicheck-stranger-"))
        os.environ[FOLDER_VARIABLE] = str(self._folder)

    @property
    def elsewhere(self) -> str:
        """Code that opens the store in another process."""
        return opening(_STRANGER)

    def open(self, checksums: bool = True) -> Storage:
        """A store in a process of its own."""
        return open_storage(_STRANGER, checksums)

    def close(self) -> None:
        """The folder goes."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def damage(self, key: str, how: str) -> None:
        """A byte in the middle, the second half, or one byte more, of what the stranger keeps."""
        path = FileStorage(self._folder).path(key)
        path.write_bytes(damaged(path.read_bytes(), how))

    def misname(self, key: str, other: str) -> None:
        """The page of `key` lies under the name of `other`."""
        pages = FileStorage(self._folder)
        shutil.copy(pages.path(key), pages.path(other))

    def misbehave(self, how: str | None) -> None:
        """The stranger does so from its next call on."""
        trouble = self._folder / TROUBLE
        if how is None:
            trouble.unlink(missing_ok=True)
        else:
            trouble.write_text(how)
