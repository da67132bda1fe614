"""A small store of pages with everything that the suite for stores can ask for: files, and a server that is a flag.

`ToyPlace` is as it should be. `tests/faulty_toy_stores.py` has one that is not for each check.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

ROOM_BYTES = 1 << 20
UNCHECKED = bytes(16)
LATE_S = 0.1


class ToyServer:
    """Whoever holds the pages: `is_up` or not."""

    def __init__(self) -> None:
        self.is_up = True

    def stop(self) -> None:
        self.is_up = False

    def go_on(self) -> None:
        self.is_up = True

    kill, restart = stop, go_on


class ToyStore:
    """One file a page: a digest and the bytes. `trouble`: what misbehaves behind it."""

    def __init__(
        self, folder: Path, checksums: bool = True, server: ToyServer | None = None, room_bytes: int | None = None
    ) -> None:
        self.folder = folder
        self.checksums = checksums
        self.server = server or ToyServer()
        self.room_bytes = room_bytes
        self.trouble: list[str] = []
        self.counts: Counter[str] = Counter()
        folder.mkdir(parents=True, exist_ok=True)

    def exists(self, keys: Sequence[str]) -> int:
        self.check(keys)
        if not self.works():
            return 0
        present = [self.path(key).is_file() for key in keys]
        return present.index(False) if False in present else len(keys)

    def get_into(self, keys: Sequence[str], into: Sequence[torch.Tensor]) -> list[bool]:
        self.check(keys, into)
        if not self.works():
            return self.missed(keys, into)
        got = [self.read(key, page) for key, page in zip(keys, into, strict=True)]
        self.counts["hits"] += got.count(True)
        self.counts["misses"] += got.count(False)
        return got

    def put_from(self, keys: Sequence[str], pages: Sequence[torch.Tensor]) -> list[bool]:
        self.check(keys, pages)
        if not self.works():
            return [False] * len(keys)
        self.counts["puts"] += len(keys)
        return [self.write(key, page) for key, page in zip(keys, pages, strict=True)]

    def stats(self) -> dict[str, int]:
        return dict(self.counts)

    def clear(self) -> None:
        if self.works():
            for path in self.folder.glob("page-*"):
                path.unlink(missing_ok=True)

    def close(self) -> None:
        pass

    def works(self) -> bool:
        return self.server.is_up and not self.trouble

    def missed(self, keys: Sequence[str], into: Sequence[torch.Tensor]) -> list[bool]:
        return [False] * len(keys)

    def check(self, keys: Sequence[str], pages: Sequence[torch.Tensor] | None = None) -> None:
        if not all(re.fullmatch(r"[0-9a-f_]{3,200}", key) for key in keys):
            raise ValueError("not a name")
        if pages is not None and (len(pages) != len(keys) or any(page.dtype != torch.uint8 for page in pages)):
            raise ValueError("not a page for each name")

    def path(self, key: str) -> Path:
        return self.folder / f"page-{key}"

    def digest(self, key: str, payload: bytes) -> bytes:
        return hashlib.blake2b(payload, key=key.encode()[:64], digest_size=16).digest()

    def read(self, key: str, into: torch.Tensor) -> bool:
        try:
            record = self.path(key).read_bytes()
        except OSError:
            return False
        payload = record[16:]
        if len(payload) != into.numel() or (self.checksums and not self.is_right(key, record[:16], payload)):
            return False
        self.fill(into, payload)
        return True

    def is_right(self, key: str, digest: bytes, payload: bytes) -> bool:
        return digest == self.digest(key, payload)

    def fill(self, into: torch.Tensor, payload: bytes) -> None:
        into.copy_(torch.frombuffer(bytearray(payload), dtype=torch.uint8).view(into.shape))

    def write(self, key: str, page: torch.Tensor) -> bool:
        payload = page.contiguous().numpy().tobytes()
        if self.room_bytes is not None:
            used = sum(path.stat().st_size for path in self.folder.glob("page-*"))
            if used + len(payload) > self.room_bytes:
                return self.refused()
        digest = self.digest(key, payload) if self.checksums else UNCHECKED
        self.put_file(self.path(key), digest + payload)
        return True

    def refused(self) -> bool:
        return False

    def put_file(self, path: Path, record: bytes) -> None:
        with tempfile.NamedTemporaryFile(dir=self.folder, prefix=".new-", delete=False) as file:
            file.write(record)
        Path(file.name).replace(path)


class ToyPlace:
    """Where toy stores lie; `store_class` is what is opened there."""

    store_class: type[ToyStore] = ToyStore
    durable = True
    answer_s = 30.0

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="toy-store-"))
        self.server = ToyServer()
        self.servers = {"server": self.server}
        self.opened: list[ToyStore] = []

    @property
    def elsewhere(self) -> str:
        here, name = str(Path(__file__).parent), self.store_class.__name__
        return (
            f"import sys; sys.path.insert(0, {here!r})\nfrom pathlib import Path\n"
            f"from {self.store_class.__module__} import {name}\nstore = {name}(Path({str(self.folder)!r}))\n"
        )

    def open(self, checksums: bool = True) -> ToyStore:
        self.opened.append(self.store_class(self.folder, checksums, self.server))
        return self.opened[-1]

    def open_small(self) -> ToyStore:
        return self.store_class(self.folder / "small", room_bytes=ROOM_BYTES)

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def page_name(self, **parts: Any) -> str:
        return hashlib.sha256(repr(sorted(parts.items())).encode()).hexdigest()

    def damage(self, key: str, how: str) -> None:
        path = self.opened[0].path(key)
        record = path.read_bytes()
        path.write_bytes(
            {"flip": record[:-1] + bytes([record[-1] ^ 1]), "cut": record[:-7], "grow": record + b"x"}[how]
        )

    def misname(self, key: str, other: str) -> None:
        shutil.copy(self.opened[0].path(key), self.opened[0].path(other))

    def put_foreign(self) -> None:
        (self.folder / "notes").write_text("kept")

    def foreign_is_left(self) -> bool:
        return (self.folder / "notes").is_file()

    def misbehave(self, how: str | None) -> None:
        for store in self.opened:
            store.trouble[:] = [how] if how else []


def late(write: Any) -> None:
    """Do it in a moment."""

    def work() -> None:
        time.sleep(LATE_S)
        write()

    threading.Thread(target=work, daemon=True).start()
