"""A store as one gets it from outside, to be opened as `dynamic:hicache_impl.storage.stranger:Stranger`, for checks.

It keeps pages in the folder that the environment variable `HICHECK_STRANGER` names, looks at no digest, and does what
the file `trouble` in there says: `raise`, `hang`, `short`, `nonsense`, `lie`, `late`.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from hicache_impl.storage.file import FileStorage

FOLDER_VARIABLE = "HICHECK_STRANGER"
TROUBLE = "trouble"
HANG_S = 3600.0
LATE_S = 0.3


class Stranger:
    """All calls of `Storage`. KeyError: no folder is named."""

    def __init__(self) -> None:
        self._folder = Path(os.environ[FOLDER_VARIABLE])
        self._pages = FileStorage(self._folder, checksums=False)

    def exists(self, keys: Sequence[str]) -> Any:
        """The truth, if there is no trouble."""
        return self._answer(lambda: self._pages.exists(keys), len(keys) + 1, len(keys))

    def get_into(self, keys: Sequence[str], into: Sequence[torch.Tensor]) -> Any:
        """In trouble, what is written to the pages is not what is in them."""
        trouble = self._trouble()
        if trouble == "late":
            threading.Timer(LATE_S, _spoil, (into,)).start()
            return [False] * len(keys)
        if trouble:
            _spoil(into)
        return self._answer(lambda: self._pages.get_into(keys, into), [True] * (len(keys) - 1), [True] * len(keys))

    def put_from(self, keys: Sequence[str], pages: Sequence[torch.Tensor]) -> Any:
        """The truth, if there is no trouble."""
        return self._answer(lambda: self._pages.put_from(keys, pages), [True] * (len(keys) - 1), [True] * len(keys))

    def clear(self) -> None:
        """Its own pages."""
        self._answer(self._pages.clear, None, None)

    def stats(self) -> dict[str, int]:
        """Of the folder."""
        return self._pages.stats()

    def close(self) -> None:
        """Nothing to let go of."""

    def _trouble(self) -> str:
        path = self._folder / TROUBLE
        return path.read_text() if path.is_file() else ""

    def _answer(self, truth: Callable[[], Any], short: Any, lie: Any) -> Any:
        trouble = self._trouble()
        if trouble == "raise":
            raise RuntimeError("it is told to")
        if trouble == "hang":
            time.sleep(HANG_S)
        return {"short": short, "nonsense": "yes", "lie": lie}.get(trouble) if trouble not in ("", "late") else truth()


def _spoil(pages: Sequence[torch.Tensor]) -> None:
    for page in pages:
        page.fill_(0x55)
