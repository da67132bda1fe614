"""Pages as files: one a page, written beside its place and renamed into it, with a checksum.

A reader sees an old page, a new page or none, never half of one (P30). A page is durable against the end of the
process, not against a power failure: nothing is synced, because a lost page is only a miss. Bytes go from the page's
own memory to the file and back, by `writev` and `preadv`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
import uuid
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hicache_impl.storage.checksum import ABSENT, HEADER_BYTES, SHORT, UNREADABLE
from hicache_impl.storage.keys import check_keys, is_key
from hicache_impl.storage.pages import Run, Runs
from hicache_impl.storage.store import PageStore

_TEMPORARY = ".tmp-"
_PUT_ATTEMPTS = 3
# How many runs a system call takes, at least, on any system; Linux takes 1,024.
_RUNS_MAX = 1000


class FileStorage(PageStore):
    """A store in `directory`, which is made (OSError if it cannot be). Threads, processes and machines may share it."""

    def __init__(self, directory: str | os.PathLike[str], checksums: bool = True) -> None:
        super().__init__(checksums)
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self._root = os.fspath(self.directory)
        self._writer = uuid.uuid4().hex
        self._temporaries = itertools.count()

    def path(self, key: str) -> Path:
        """Where the page lies: in a sub-directory by its first two digits. ValueError: not a key."""
        check_keys([key])
        return Path(self._path(key))

    def clear(self) -> None:
        """Remove the pages, and the temporary files of writers that died; nothing else that lies in the directory."""
        for folder in self._folders():
            for entry in _listed(folder):
                if entry.name.startswith(_TEMPORARY) or (is_key(entry.name) and entry.name.startswith(folder.name)):
                    with contextlib.suppress(OSError):
                        entry.unlink()
            with contextlib.suppress(OSError):
                folder.rmdir()

    def close(self) -> None:
        """No file is open between calls."""

    def _path(self, key: str) -> str:
        return f"{self._root}/{key[:2]}/{key}"

    def _present(self, keys: Sequence[str]) -> int:
        for count, key in enumerate(keys):
            try:
                if not stat.S_ISREG(os.stat(self._path(key)).st_mode):  # noqa: PTH116  # a Path a page is slow
                    return count
            except OSError:
                return count
        return len(keys)

    def _get(self, keys: Sequence[str], destinations: Sequence[Runs]) -> list[str]:
        return [self._read(key, runs) for key, runs in zip(keys, destinations, strict=True)]

    def _read(self, key: str, runs: Runs) -> str:
        header = bytearray(HEADER_BYTES)
        # One byte more than is wanted, so that a longer file is seen without reading all of it.
        excess = bytearray(1)
        try:
            file = os.open(self._path(key), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return ABSENT
        except OSError:
            return UNREADABLE
        try:
            read_bytes = _read_all(file, [header, *runs, excess])
        except OSError:
            return UNREADABLE
        finally:
            os.close(file)
        if read_bytes < HEADER_BYTES:
            return SHORT
        return self.records.judge(key, header, read_bytes - HEADER_BYTES, runs)

    def _put(self, keys: Sequence[str], sources: Sequence[Runs]) -> list[bool]:
        return [self._put_one(key, runs) for key, runs in zip(keys, sources, strict=True)]

    def _put_one(self, key: str, runs: Runs) -> bool:
        header = self.records.header(key, runs)
        # The directory may be deleted between making it and renaming into it; then it is made again.
        return any(self._write(self._path(key), [header, *runs]) for _ in range(_PUT_ATTEMPTS))

    def _write(self, path: str, parts: Sequence[Run | bytes]) -> bool:
        folder = os.path.dirname(path)  # noqa: PTH120
        temporary = Path(folder) / f"{_TEMPORARY}{self._writer}-{next(self._temporaries)}"
        try:
            os.makedirs(folder, exist_ok=True)  # noqa: PTH103
            file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            try:
                self._fill(file, parts)
            finally:
                os.close(file)
            temporary.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()
            return False
        return True

    def _fill(self, file: int, parts: Sequence[Run | bytes]) -> None:
        """Write the parts into an empty file; OSError."""
        left = _as_bytes(parts)
        while left:
            left = _after(left, os.writev(file, left[:_RUNS_MAX]))

    def _folders(self) -> list[Path]:
        return [entry for entry in _listed(self.directory) if len(entry.name) == 2 and entry.is_dir()]


def _read_all(file: int, parts: Sequence[Run | bytearray]) -> int:
    """Fill the parts from the beginning of the file; how many bytes there were."""
    total = 0
    left = _as_bytes(parts)
    while left:
        count = os.preadv(file, left[:_RUNS_MAX], total)
        if not count:
            break
        total += count
        left = _after(left, count)
    return total


def _as_bytes(parts: Sequence[Run | bytes | bytearray]) -> list[memoryview]:
    views = (part.reshape(-1).data if isinstance(part, np.ndarray) else memoryview(part) for part in parts)
    # An empty one would never be done with.
    return [view for view in views if len(view)]


def _after(parts: list[memoryview], count: int) -> list[memoryview]:
    """What is left of the parts without the first `count` bytes."""
    for index, part in enumerate(parts):
        if count < len(part):
            return [part[count:], *parts[index + 1 :]]
        count -= len(part)
    return []


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []
