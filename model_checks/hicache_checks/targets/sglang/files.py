"""Pages in the files of a release's own store, as a shelf has them, and a disk that is full."""

from __future__ import annotations

import os
import resource
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch

from hicache_checks.targets.sglang.grid import rank
from hicache_checks.targets.sglang.shelf import SHELVES, Shelf

MARK_NS = 0
"""The time that a file was written at, once it was looked at."""
_directories: list[tempfile.TemporaryDirectory[str]] = []


def new_directory() -> str:
    """An empty one for the files of a system; that of the system before is removed."""
    _directories[:] = [tempfile.TemporaryDirectory(prefix="hicheck-pages-")]
    return _directories[0].name


class Files(MutableMapping[str, torch.Tensor]):
    """Pages by key, each in a file of its own. `named`: the name that the release gives to a key's file, without its
    ending.
    """

    def __init__(self, directory: Path, named: Callable[[str], str]) -> None:
        self._directory = directory
        self._named = named
        self._marked: set[str] = set()

    def path(self, key: str) -> Path:
        """Where a page is, or would be."""
        return self._directory / f"{self._named(key)}.bin"

    def __getitem__(self, key: str) -> torch.Tensor:
        try:
            raw = self.path(key).read_bytes()
        except (FileNotFoundError, IsADirectoryError):
            raise KeyError(key) from None
        whole = len(raw) // torch.float32.itemsize * torch.float32.itemsize
        return torch.frombuffer(bytearray(raw[:whole]), dtype=torch.float32) if whole else torch.empty(0)

    def __setitem__(self, key: str, page: torch.Tensor) -> None:
        self.path(key).write_bytes(page.contiguous().view(torch.uint8).numpy().tobytes())
        self._marked.discard(key)

    def __contains__(self, key: object) -> bool:
        return self.path(str(key)).is_file()

    def __delitem__(self, key: str) -> None:
        self.path(key).unlink()
        self._marked.discard(key)

    def __iter__(self) -> Iterator[str]:
        end = len(self._named(""))
        files = (file for file in self._directory.glob(f"*{self._named('')}.bin") if file.is_file())
        return (file.stem[:-end] if end else file.stem for file in files)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def damage(self, key: str) -> None:
        """Half of a page is gone."""
        file = self.path(key)
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
        self._marked.discard(key)

    def pin(self, key: str) -> None:
        """Something that cannot be removed is in the place of a page's file."""
        file = self.path(key)
        file.unlink()
        file.mkdir()

    def written_again(self, page_bytes: int) -> set[str]:
        """Whole pages that were there when this was asked before, and that the release has written since then."""
        whole = {key: self.path(key) for key in self if self.path(key).stat().st_size == page_bytes}
        again = {key for key, file in whole.items() if key in self._marked and file.stat().st_mtime_ns != MARK_NS}
        for file in whole.values():
            os.utime(file, ns=(MARK_NS, MARK_NS))
        self._marked = set(whole)
        return again


class OsOf:
    """os, as a release's store of files has it: it is counted how many files are gone through, rank by rank."""

    def __init__(self) -> None:
        self.gone_through: Counter[int] = Counter()

    def scandir(self, path: Any) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
        """See os."""
        with os.scandir(path) as entries:
            found = list(entries)
        self.gone_through[rank()] += len(found)
        return nullcontext(iter(found))

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


OS = OsOf()


class FileShelf(Shelf):
    """The release's own files. What can go wrong is that the disk is full in the middle of a page."""

    def __init__(self, files: Files, page_bytes: int) -> None:
        super().__init__()
        self.files = files
        self.pages = files
        self._page_bytes = page_bytes

    def break_(self, call: str, how: str) -> None:
        """See Shelf."""
        if (call, how) != ("put", "short"):
            raise ValueError(f"the files of a release cannot {how} in {call}")
        for shelf in SHELVES.values():
            # It is everybody's disk.
            shelf.has_failed_to_put = True
        _limit_files(self._page_bytes // 2)

    def heal(self) -> None:
        """See Shelf."""
        super().heal()
        _limit_files(resource.RLIM_INFINITY)

    def damage(self, keys: Sequence[str]) -> None:
        """Half of the last of these pages is gone."""
        self.damaged.add(keys[-1])
        self.files.damage(keys[-1])

    def pin(self, keys: Sequence[str]) -> None:
        """The file of the last of these pages cannot be removed."""
        self.files.pin(keys[-1])

    def look(self) -> None:
        """See Shelf."""
        self.written_again |= self.files.written_again(self._page_bytes)


def _limit_files(size: int) -> None:
    """No file of this process grows beyond so many bytes."""
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard if size == resource.RLIM_INFINITY else size, hard))
