"""Pages in Redis: a string a page, header and payload. A server that does not answer is a miss, and is asked again.

Reads are MGETs, writes are pipelines, both cut to `BATCH_BYTES`. Nothing waits longer than `TIMEOUT_S` for a server
that says nothing; after that nobody asks it for a while (see `Patience`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from hicache_impl.storage.checksum import ABSENT, HEADER_BYTES, SHORT
from hicache_impl.storage.keys import is_key
from hicache_impl.storage.pages import Runs, copy_to_runs
from hicache_impl.storage.patience import Patience
from hicache_impl.storage.store import PageStore

PREFIX = "hicheck"
TIMEOUT_S = 1.0
PAUSE_S, PAUSE_S_MAX = 0.1, 2.0
BATCH_BYTES = 2 << 20
EXISTS_BATCH = 256
CONNECTIONS_MAX = 16
_PREFIX = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_UNREACHABLE = "unreachable"
_SCANNED = 1000


class RedisStorage(PageStore):
    """A store on a server at `host`, `port`, in its database `database`; names are `PREFIX:KEY`.

    ValueError: a prefix that might be a part of another one. It need not be reachable now. Stats have `unreachable`,
    too: pages that were asked for or given in vain.
    """

    def __init__(self, host: str, port: int, database: int = 0, prefix: str = PREFIX, checksums: bool = True) -> None:
        super().__init__(checksums, _UNREACHABLE)
        if _PREFIX.fullmatch(prefix) is None:
            raise ValueError(f"a prefix has letters, digits and any of _ . -, not {prefix!r}")
        self._prefix = f"{prefix}:"
        self._pool = redis.BlockingConnectionPool(
            host=host,
            port=port,
            db=database,
            max_connections=CONNECTIONS_MAX,
            timeout=TIMEOUT_S,
            socket_timeout=TIMEOUT_S,
            socket_connect_timeout=TIMEOUT_S,
            socket_read_size=1 << 20,
            retry=Retry(NoBackoff(), 0),
        )
        self._client = redis.Redis(connection_pool=self._pool)
        self._patience = Patience(PAUSE_S, PAUSE_S_MAX)

    def clear(self) -> None:
        """Remove what is called `PREFIX:` and the name of a page; nothing else in the database."""

        def remove() -> None:
            start = len(self._prefix)
            names = self._client.scan_iter(match=f"{self._prefix}*", count=_SCANNED)
            found = [name for name in names if is_key(name[start:].decode(errors="replace"))]
            for first in range(0, len(found), _SCANNED):
                self._client.unlink(*found[first : first + _SCANNED])

        self._asked(remove, None)

    def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        self._pool.disconnect()

    def _present(self, keys: Sequence[str]) -> int:
        for first in range(0, len(keys), EXISTS_BATCH):
            names = [self._prefix + key for key in keys[first : first + EXISTS_BATCH]]
            present = self._asked(partial(self._exist, names), [])
            for count, is_there in enumerate(present):
                if is_there != 1:
                    return first + count
            if len(present) < len(names):
                return first + len(present)
        return len(keys)

    def _exist(self, names: Sequence[str]) -> list[Any]:
        with self._client.pipeline(transaction=False) as pipeline:
            for name in names:
                pipeline.exists(name)
            return pipeline.execute(raise_on_error=False)

    def _get(self, keys: Sequence[str], destinations: Sequence[Runs]) -> list[str]:
        outcomes: list[str] = []
        for part in _parts(destinations):
            names = [self._prefix + key for key in keys[part]]
            records = self._asked(partial(self._client.mget, names), None)
            if records is None:
                # The others would wait for the same silence.
                return outcomes + [_UNREACHABLE] * (len(keys) - len(outcomes))
            outcomes += map(self._take, keys[part], records, destinations[part])
        return outcomes

    def _take(self, key: str, record: bytes | None, runs: Runs) -> str:
        if record is None:
            return ABSENT
        if len(record) != HEADER_BYTES + runs.size_bytes:
            return SHORT
        copy_to_runs(np.frombuffer(record, np.uint8, offset=HEADER_BYTES), runs)
        return self.records.judge(key, record[:HEADER_BYTES], len(record) - HEADER_BYTES, runs)

    def _put(self, keys: Sequence[str], sources: Sequence[Runs]) -> list[bool]:
        stored: list[bool] = []
        for part in _parts(sources):
            answers = self._asked(partial(self._set, keys[part], sources[part]), None)
            if answers is None:
                self.counts.note(_UNREACHABLE, len(keys) - len(stored))
                return stored + [False] * (len(keys) - len(stored))
            stored += [answer is True for answer in answers]
        return stored

    def _set(self, keys: Sequence[str], sources: Sequence[Runs]) -> list[Any]:
        with self._client.pipeline(transaction=False) as pipeline:
            for key, runs in zip(keys, sources, strict=True):
                pipeline.set(
                    self._prefix + key, b"".join([self.records.header(key, runs), *(run.data for run in runs)])
                )
            return pipeline.execute(raise_on_error=False)

    def _asked(self, ask: Callable[[], Any], instead: Any) -> Any:
        """What the server says, or `instead`: where it is silent or gone, or was just now."""
        if self._patience.is_pausing():
            return instead
        try:
            answer = ask()
        except (redis.RedisError, OSError):
            self._patience.failed()
            return instead
        self._patience.worked()
        return answer


def _parts(pages: Sequence[Runs]) -> Iterator[slice]:
    """Slices of a batch, none of them of many more bytes than `BATCH_BYTES`."""
    first = size_bytes = 0
    for index, runs in enumerate(pages):
        size_bytes += runs.size_bytes
        if size_bytes >= BATCH_BYTES:
            yield slice(first, index + 1)
            first, size_bytes = index + 1, 0
    if first < len(pages):
        yield slice(first, len(pages))
