"""Pages in Redis as `hicheck store` handles them: each place has a server of its own. See `places`."""

from __future__ import annotations

from typing import ClassVar

import redis

from hicache_impl.storage import Storage, open_storage
from hicache_impl.storage.places import OURS, SMALL_BYTES, damaged, opening, page_name
from hicache_impl.storage.redis import PREFIX
from hicache_impl.storage.servers import LOOPBACK, RedisServer

# An empty server has used about this much of its memory.
_EMPTY_REDIS_BYTES = 1_200_000


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
