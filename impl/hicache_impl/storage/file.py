"""Pages as files: one a page, written beside its place and renamed into it, with a checksum.

A reader sees an old page, a new page or none, never half of one (P30). A page is durable against the end of the
process, not against a power failure: nothing is synced, because a lost page is only a miss.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import struct
import threading
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch

from hicache_impl.storage import check_keys, check_pages, fill_page, is_key, page_to_bytes

MAGIC = b"HiCkPg01"
_DIGEST_BYTES = 16
_HEADER = struct.Struct(f"<8sQ{_DIGEST_BYTES}s")
HEADER_BYTES = _HEADER.size
_TEMPORARY = ".tmp-"
_PUT_ATTEMPTS = 3


class FileStorage:
    """A store in `directory`, which is made (OSError if it cannot be). Threads, processes and machines may share it.

    Stats, in pages: hits, misses (all of them), puts, put_failures; of the misses, `short` had the wrong length,
    `corrupt` the wrong magic or checksum, `unreadable` an error of the file system.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self._writer = uuid.uuid4().hex
        self._temporaries = itertools.count()
        self._lock = threading.Lock()
        self._stats: Counter[str] = Counter(hits=0, misses=0, puts=0, put_failures=0, short=0, corrupt=0, unreadable=0)

    def path(self, key: str) -> Path:
        """Where the page lies: in a sub-directory by its first two digits. ValueError: not a key."""
        check_keys([key])
        return self.directory / key[:2] / key

    def exists(self, keys: Sequence[str]) -> int:
        """The leading run of files that are there; whether they can be read is only known by reading."""
        for count, key in enumerate(keys):
            if not self.path(key).is_file():
                return count
        return len(keys)

    def get_into(self, keys: Sequence[str], into: Sequence[torch.Tensor]) -> list[bool]:
        """Fill each destination whose file is whole; anything else is a miss and is counted."""
        check_pages(keys, into)
        return [self._get_one(key, page) for key, page in zip(keys, into, strict=True)]

    def put_from(self, keys: Sequence[str], pages: Sequence[torch.Tensor]) -> list[bool]:
        """Write each page, over whatever is there, so that a bad file is mended; False where the medium refuses."""
        check_pages(keys, pages)
        return [self._put_one(key, page_to_bytes(page)) for key, page in zip(keys, pages, strict=True)]

    def stats(self) -> dict[str, int]:
        """A copy of the counts."""
        with self._lock:
            return dict(self._stats)

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

    def _get_one(self, key: str, into: torch.Tensor) -> bool:
        payload, reason = self._read(key, into.numel())
        with self._lock:
            self._stats["hits" if payload is not None else "misses"] += 1
            if reason:
                self._stats[reason] += 1
        if payload is None:
            return False
        fill_page(into, payload)
        return True

    def _read(self, key: str, size_bytes: int) -> tuple[bytes | None, str]:
        """The payload, or None and the reason to count (none for a page that is not there)."""
        try:
            # One byte more than expected, so that a longer file is seen without reading all of it.
            with self.path(key).open("rb") as file:
                content = file.read(HEADER_BYTES + size_bytes + 1)
        except FileNotFoundError:
            return None, ""
        except OSError:
            return None, "unreadable"
        if len(content) < HEADER_BYTES:
            return None, "short"
        magic, length, digest = _HEADER.unpack_from(content)
        payload = content[HEADER_BYTES:]
        if magic != MAGIC:
            return None, "corrupt"
        if not length == len(payload) == size_bytes:
            return None, "short"
        if digest != _checksum(key, payload):
            return None, "corrupt"
        return payload, ""

    def _put_one(self, key: str, payload: bytes) -> bool:
        content = _HEADER.pack(MAGIC, len(payload), _checksum(key, payload)) + payload
        # The directory may be deleted between making it and renaming into it; then it is made again.
        stored = any(self._write(self.path(key), content) for _ in range(_PUT_ATTEMPTS))
        with self._lock:
            self._stats["puts" if stored else "put_failures"] += 1
        return stored

    def _write(self, path: Path, content: bytes) -> bool:
        temporary = path.parent / f"{_TEMPORARY}{self._writer}-{next(self._temporaries)}"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(content)
            temporary.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()
            return False
        return True

    def _folders(self) -> list[Path]:
        return [entry for entry in _listed(self.directory) if len(entry.name) == 2 and entry.is_dir()]


def _checksum(key: str, payload: bytes) -> bytes:
    """Over the name too, so that a file under another page's name is not taken for that page."""
    digest = hashlib.blake2b(key.encode(), digest_size=_DIGEST_BYTES)
    digest.update(payload)
    return digest.digest()


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []
