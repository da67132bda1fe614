"""Pages in LMDB, a memory-mapped file: the default. A page is copied from the map straight into the host page.

One transaction a batch; headers and payloads lie in two named databases of one environment, which may hold others.
Like files, a page is durable against the end of the process, not against a power failure: nothing is synced. Several
processes may use one directory; within a process, all stores of a directory share one environment, as LMDB wants it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import lmdb
import numpy as np
import torch

from hicache_impl.storage.checksum import ABSENT, CORRUPT, HIT, SHORT, UNREADABLE
from hicache_impl.storage.pages import Run, Runs, copy_to_runs
from hicache_impl.storage.store import PageStore

MAP_BYTES = 16 << 30
PAYLOADS, HEADERS = b"hicheck.pages", b"hicheck.headers"
WRITER_FILE = "hicheck-writer.lock"
# How long a put waits for another writer, who may be stopped in the middle of a transaction.
PUT_WAIT_S = 5.0
# So much is copied before it is checked.
CHECKED_BYTES = 1 << 18
# No page is called so.
_MARK = b"cleared"
_PUT_POLL_S = 0.001
_NAMED_MAX = 16
_READERS_MAX = 512

Answer = TypeVar("Answer")


class WriterBusy(Exception):
    """Somebody else has been writing for `PUT_WAIT_S` seconds."""


class LmdbStorage(PageStore):
    """A store in `directory`, which is made. The file grows as it is filled, up to `map_bytes`; then puts are refused.

    OSError: the directory cannot be used. After `close`, everything is a miss or a refusal.
    """

    def __init__(self, directory: str | os.PathLike[str], map_bytes: int = MAP_BYTES, checksums: bool = True) -> None:
        super().__init__(checksums)
        self.directory = Path(directory)
        self._environment: _Environment | None = _opened(self.directory, map_bytes)
        self._lock = threading.Lock()

    def clear(self) -> None:
        """Empty the two databases; others of the environment stay."""
        with contextlib.suppress(lmdb.Error, WriterBusy, OSError), self._use() as used:
            if used is not None:
                used.write(lambda transaction: [transaction.drop(db, delete=False) for db in used.databases])
                # What a transaction frees can be used by the next but one, counting those that changed something.
                used.write(lambda transaction: transaction.put(_MARK, _MARK, db=used.headers))
                used.write(lambda transaction: transaction.delete(_MARK, db=used.headers))

    def close(self) -> None:
        """The environment is closed by the last who uses it, so that nobody reads in a map that is gone."""
        with self._lock:
            environment, self._environment = self._environment, None
        if environment is not None:
            environment.release()

    def _present(self, keys: Sequence[str]) -> int:
        with self._use() as used:
            if used is None:
                return 0
            with contextlib.suppress(lmdb.Error), used.read() as transaction:
                # A cursor finds a page without a look at its bytes, which a get touches.
                is_there = transaction.cursor().set_key
                for count, key in enumerate(keys):
                    if not is_there(key.encode()):
                        return count
                return len(keys)
        return 0

    def _get(self, keys: Sequence[str], destinations: Sequence[Runs]) -> list[str]:
        with self._use() as used:
            if used is None:
                return [ABSENT] * len(keys)
            try:
                with used.read() as transaction:
                    names = [key.encode() for key in keys]
                    payloads = _values(transaction.cursor(), names)
                    if not self.records.checksums:
                        # LMDB itself knows the length, and nothing else of a header is looked at.
                        return _copy(payloads, destinations)
                    headers = _values(transaction.cursor(used.headers), names)
                    return self._copy_checked(keys, headers, payloads, destinations)
            except lmdb.Error:
                return [UNREADABLE] * len(keys)

    def _copy_checked(
        self, keys: Sequence[str], headers: Sequence[Any], payloads: Sequence[Any], destinations: Sequence[Runs]
    ) -> list[str]:
        """A few pages at a time, so that digests find them where the copy has just left them, close to the core."""
        outcomes: list[str] = []
        while len(outcomes) < len(keys):
            first = len(outcomes)
            step = max(1, CHECKED_BYTES // max(1, destinations[first].size_bytes))
            outcomes += _copy(payloads[first : first + step], destinations[first : first + step])
            for index in range(first, len(outcomes)):
                if outcomes[index] == HIT:
                    outcomes[index] = self._judge(keys[index], headers[index], destinations[index])
        return outcomes

    def _judge(self, key: str, header: Any, runs: Runs) -> str:
        return CORRUPT if header is None else self.records.judge(key, header, runs.size_bytes, runs)

    def _put(self, keys: Sequence[str], sources: Sequence[Runs]) -> list[bool]:
        records = [
            # A page that is not in one piece is brought into one: LMDB takes a value from one place.
            (key.encode(), self.records.header(key, runs), runs[0] if len(runs) == 1 else _joined(runs))
            for key, runs in zip(keys, sources, strict=True)
        ]
        with self._use() as used:
            if used is None:
                return [False] * len(keys)
            if _stored(used, records):
                return [True] * len(keys)
            # The map is full, or somebody is in the way: what still goes in, one by one.
            return [_stored(used, [record]) for record in records] if len(records) > 1 else [False]

    @contextlib.contextmanager
    def _use(self) -> Iterator[_Environment | None]:
        with self._lock:
            environment = self._environment
            if environment is not None:
                environment.hold()
        try:
            yield environment
        finally:
            if environment is not None:
                environment.release()


class _Environment:
    """An open directory, until as many have let go of it as held it."""

    def __init__(self, directory: Path, map_bytes: int) -> None:
        self._lmdb = lmdb.open(
            os.fspath(directory),
            map_size=map_bytes,
            max_dbs=_NAMED_MAX,
            max_readers=_READERS_MAX,
            sync=False,
            metasync=False,
            meminit=False,
        )
        # Slots of readers that were killed hold old pages for ever, and the file would grow.
        self._lmdb.reader_check()
        self.payloads, self.headers = (self._lmdb.open_db(name) for name in (PAYLOADS, HEADERS))
        self.databases = (self.payloads, self.headers)
        self._writer_file = os.open(directory / WRITER_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._writer = threading.Lock()
        self._held = 0

    def hold(self) -> None:
        """One more uses it."""
        with _registry:
            self._held += 1

    def release(self) -> None:
        """One less; the last one closes it."""
        with _registry:
            self._held -= 1
            if self._held:
                return
            for directory, environment in list(_open.items()):
                if environment is self:
                    del _open[directory]
            self._lmdb.close()
            os.close(self._writer_file)

    def read(self) -> Any:
        """A transaction that reads payloads in place."""
        return self._lmdb.begin(db=self.payloads, buffers=True)

    def write(self, work: Any) -> None:
        """Do `work` in a transaction of writing. lmdb.Error; WriterBusy, where LMDB itself would wait for ever."""
        until_s = time.monotonic() + PUT_WAIT_S
        if not self._writer.acquire(timeout=PUT_WAIT_S):
            raise WriterBusy
        try:
            self._wait_for_other_processes(until_s)
            try:
                with self._lmdb.begin(write=True) as transaction:
                    work(transaction)
            finally:
                fcntl.flock(self._writer_file, fcntl.LOCK_UN)
        finally:
            self._writer.release()

    def _wait_for_other_processes(self, until_s: float) -> None:
        while True:
            try:
                fcntl.flock(self._writer_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > until_s:
                    raise WriterBusy from None
                time.sleep(_PUT_POLL_S)


_registry = threading.Lock()
_open: dict[str, _Environment] = {}


def _opened(directory: Path, map_bytes: int) -> _Environment:
    """The environment of this directory, held once more."""
    directory.mkdir(parents=True, exist_ok=True)
    name = os.path.realpath(directory)
    with _registry:
        if name not in _open:
            try:
                _open[name] = _Environment(directory, map_bytes)
            except lmdb.Error as error:
                raise OSError(f"not an LMDB environment: {error}") from error
        _open[name]._held += 1
        return _open[name]


def _stored(used: _Environment, records: Sequence[tuple[bytes, bytes, Run]]) -> bool:
    def put(transaction: Any) -> None:
        for name, header, payload in records:
            transaction.put(name, payload, db=used.payloads)
            transaction.put(name, header, db=used.headers)

    try:
        used.write(put)
    except (lmdb.Error, OSError, WriterBusy):
        return False
    return True


def _values(cursor: Any, names: Sequence[bytes]) -> list[Any]:
    """What is under each name, in place; None: nothing. A cursor finds it without a look at its bytes."""
    return [cursor.value() if cursor.set_key(name) else None for name in names]


def _copy(payloads: Sequence[Any], destinations: Sequence[Runs]) -> list[str]:
    """From the map into the pages; what became of each. Pages in one piece by a single call, while other threads go on.

    Why not run by run with numpy: from a map of a file, its copy of larger pages takes a third longer.
    """
    outcomes = [
        ABSENT if payload is None else HIT if len(payload) == runs.size_bytes else SHORT
        for payload, runs in zip(payloads, destinations, strict=True)
    ]
    if outcomes.count(HIT) < len(outcomes):
        pairs = [
            pair for pair, one in zip(zip(payloads, destinations, strict=True), outcomes, strict=True) if one == HIT
        ]
        payloads, destinations = [payload for payload, _ in pairs], [runs for _, runs in pairs]
    targets = [runs.flat for runs in destinations if runs.flat is not None]
    if len(targets) == len(payloads):
        if targets:
            torch._foreach_copy_(targets, [torch.frombuffer(payload, dtype=torch.uint8) for payload in payloads])
    else:
        for payload, runs in zip(payloads, destinations, strict=True):
            copy_to_runs(np.frombuffer(payload, np.uint8), runs)
    return outcomes


def _allow_read_only_buffers() -> None:
    """torch says once in a process that what it was given must not be written to; nobody does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.frombuffer(b"page", dtype=torch.uint8)


def _joined(runs: Runs) -> Run:
    return np.concatenate([run.reshape(-1) for run in runs])


_allow_read_only_buffers()
