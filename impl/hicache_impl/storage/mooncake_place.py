"""Pages in Mooncake as `hicheck store` handles them: each place has a master and an owner. See `places`."""

from __future__ import annotations

import subprocess
import sys
from typing import ClassVar

from hicache_impl.storage import Storage, open_storage
from hicache_impl.storage.mooncake import PREFIX
from hicache_impl.storage.places import opening, page_name
from hicache_impl.storage.servers import LOOPBACK, MooncakeServers

_FOREIGN = [f"{PREFIX}:notes", f"{PREFIX}2:000", "000", f"{PREFIX}:000:x"]


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
