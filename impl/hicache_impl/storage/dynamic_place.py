"""A store from outside as `hicheck store` handles it: it can be told to misbehave. See `places`."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import ClassVar

from hicache_impl.storage import Storage, open_storage
from hicache_impl.storage.file import FileStorage
from hicache_impl.storage.places import damaged, opening, page_name
from hicache_impl.storage.stranger import FOLDER_VARIABLE, TROUBLE

_STRANGER = "dynamic:hicache_impl.storage.stranger:Stranger"


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
