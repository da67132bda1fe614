"""Our stores as `hicheck store` handles them: where each lies, and what can be done to it behind its back.

Registered in the group `hicheck.stores`. A place is new and empty; `lacks` says why a store does not have the rest.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import lmdb
import numpy as np

from hicache_impl.keys import PrefixKey, chain_hashes
from hicache_impl.layout import Layout
from hicache_impl.storage import Storage, open_storage, page_namespace, storage_key
from hicache_impl.storage.checksum import HEADER_BYTES
from hicache_impl.storage.file import FileStorage
from hicache_impl.storage.lmdb import HEADERS, PAYLOADS
from hicache_impl.storage.memory import MemoryStorage
from hicache_impl.storage.pages import Run

SMALL_BYTES = 1 << 20
_IN_ONE_PROCESS = "the pages are in the memory of one process"
OURS = "it is our own code in our own process: nothing of it comes from outside"


def page_name(*, rank: int, ranks: int, **parts: str) -> str:
    """The name of the first page of a prompt, in the namespace of the parts (see `page_namespace`)."""
    key = PrefixKey.from_tokens([1, 2, 3, 4], 4, page_namespace(**parts))
    return storage_key(chain_hashes(key)[0], Layout(tp=ranks).shard(rank))


class _Place:
    """What all places have: a temporary folder, and names."""

    page_name = staticmethod(page_name)

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="hicheck-store-"))

    def close(self) -> None:
        """The folder goes, with all that is in it."""
        shutil.rmtree(self.folder, ignore_errors=True)


class MemoryPlace(_Place):
    """Pages in a dictionary, all handles of a place are one store; they are damaged in place."""

    lacks: ClassVar[dict[str, str]] = {
        "durable": _IN_ONE_PROCESS,
        "elsewhere": _IN_ONE_PROCESS,
        "put_foreign": "nothing else can lie in a dictionary of its own",
        "open_small": "what is full is the machine: the process would end",
        "servers": "there is no server",
        "misbehave": OURS,
    }

    def __init__(self) -> None:
        super().__init__()
        self._trusting = MemoryStorage(checksums=False)
        self._checking = MemoryStorage()
        self._trusting._pages = self._checking._pages

    def open(self, checksums: bool = True) -> Storage:
        """One of two stores, which have their pages in common."""
        return self._checking if checksums else self._trusting

    def damage(self, key: str, how: str) -> None:
        """A byte in the middle, the second half, or one byte more."""
        header, payload = self._checking._pages[key]
        record = damaged(header + payload.tobytes(), how)
        self._checking._pages[key] = record[:HEADER_BYTES], np.frombuffer(record[HEADER_BYTES:], np.uint8)

    def misname(self, key: str, other: str) -> None:
        """The page of `key` lies under the name of `other`."""
        self._checking._pages[other] = self._checking._pages[key]


class FilePlace(_Place):
    """Files in a folder. The medium is made full by a limit on the size of a file, which a page meets half-way."""

    durable = True
    lacks: ClassVar[dict[str, str]] = {
        "servers": "there is no server: the file system is part of the kernel",
        "misbehave": OURS,
    }

    @property
    def elsewhere(self) -> str:
        """Code that opens the store in another process."""
        return opening(f"file:{self._pages}")

    @property
    def _pages(self) -> Path:
        return self.folder / "pages"

    def open(self, checksums: bool = True) -> Storage:
        """A store in the folder."""
        return FileStorage(self._pages, checksums)

    def damage(self, key: str, how: str) -> None:
        """A byte in the middle, the second half, or one byte more."""
        path = FileStorage(self._pages).path(key)
        path.write_bytes(damaged(path.read_bytes(), how))

    def misname(self, key: str, other: str) -> None:
        """The page of `key` lies under the name of `other`."""
        shutil.copy(FileStorage(self._pages).path(key), FileStorage(self._pages).path(other))

    def put_foreign(self) -> None:
        """Files beside the pages, whose names are no pages' names."""
        for path in self._foreign():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("kept")

    def foreign_is_left(self) -> bool:
        """All of them."""
        return all(path.is_file() and path.read_text() == "kept" for path in self._foreign())

    def open_small(self) -> Storage:
        """A store that has room for a MiB."""
        return _SmallFiles(self.folder / "small", SMALL_BYTES)

    def _foreign(self) -> list[Path]:
        return [self._pages / "README", self._pages / "00" / "notes.txt", self.folder / "000"]


class LmdbPlace(_Place):
    """An environment in a folder, whose map has an end."""

    durable = True
    lacks: ClassVar[dict[str, str]] = {
        "servers": "there is no server: the map is part of the process",
        "misbehave": OURS,
    }

    @property
    def elsewhere(self) -> str:
        """Code that opens the store in another process."""
        return opening(f"lmdb:{self._pages}")

    @property
    def _pages(self) -> Path:
        return self.folder / "pages"

    def open(self, checksums: bool = True) -> Storage:
        """A store in the folder."""
        return open_storage(f"lmdb:{self._pages}", checksums)

    def open_small(self) -> Storage:
        """A store whose map ends after a MiB."""
        return open_storage(f"lmdb:{self.folder / 'small'}?map_bytes={SMALL_BYTES}")

    def damage(self, key: str, how: str) -> None:
        """A byte in the middle, the second half, or one byte more, of the payload."""
        self._change(lambda get, put: put(PAYLOADS, key, damaged(get(PAYLOADS, key), how)))

    def misname(self, key: str, other: str) -> None:
        """Payload and header of `key` lie under the name of `other`."""
        self._change(lambda get, put: [put(name, other, get(name, key)) for name in (PAYLOADS, HEADERS)])

    def put_foreign(self) -> None:
        """A database of somebody else in the same environment."""
        self._change(lambda get, put: put(b"notes", "000", b"kept"))

    def foreign_is_left(self) -> bool:
        """It still has what was put."""
        left: list[bytes] = []
        self._change(lambda get, put: left.append(get(b"notes", "000")))
        return left == [b"kept"]

    def _change(self, change: Any) -> None:
        # Through the environment that the stores of this process share: LMDB must not be opened twice.
        store: Any = self.open()
        environment: lmdb.Environment = store._environment._lmdb
        databases = {name: environment.open_db(name) for name in (PAYLOADS, HEADERS, b"notes")}
        with environment.begin(write=True) as transaction:
            change(
                lambda name, key: transaction.get(key.encode(), db=databases[name]),
                lambda name, key, value: transaction.put(key.encode(), value, db=databases[name]),
            )
        store.close()


class _SmallFiles(FileStorage):
    """Files on a disk that is full after `room_bytes`: what goes beyond is cut off, as by a real one."""

    def __init__(self, directory: Path, room_bytes: int) -> None:
        super().__init__(directory)
        self._room_bytes = room_bytes

    def _fill(self, file: int, parts: Sequence[Run | bytes]) -> None:
        room_bytes = self._room_bytes - sum(path.stat().st_size for path in self.directory.rglob("*") if path.is_file())
        content = b"".join(part.tobytes() if isinstance(part, np.ndarray) else part for part in parts)
        super()._fill(file, [content[: max(0, room_bytes)]])
        if len(content) > room_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def damaged(record: bytes, how: str) -> bytes:
    middle = len(record) // 2
    if how == "flip":
        return record[:middle] + bytes([record[middle] ^ 0x10]) + record[middle + 1 :]
    return record[:middle] if how == "cut" else record + b"\0"


def opening(spec: str) -> str:
    return f"from hicache_impl.storage import open_storage\nstore = open_storage({spec!r})\n"
