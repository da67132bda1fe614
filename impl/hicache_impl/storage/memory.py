"""Pages in a dictionary, shared by the ranks of one process."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

from hicache_impl.storage.checksum import ABSENT, SHORT
from hicache_impl.storage.pages import Run, copy_to_runs
from hicache_impl.storage.store import PageStore


class MemoryStorage(PageStore):
    """A store without a medium. A put replaces a page's copy and never writes into it: who reads it, reads it whole."""

    def __init__(self, checksums: bool = True) -> None:
        super().__init__(checksums)
        self._lock = threading.Lock()
        self._pages: dict[str, tuple[bytes, Run]] = {}

    def clear(self) -> None:
        """Forget every page."""
        with self._lock:
            self._pages.clear()

    def close(self) -> None:
        """Nothing to let go of; the pages stay for whoever shares the store."""

    def _present(self, keys: Sequence[str]) -> int:
        with self._lock:
            for count, key in enumerate(keys):
                if key not in self._pages:
                    return count
        return len(keys)

    def _get(self, keys: Sequence[str], destinations: Sequence[Sequence[Run]]) -> list[str]:
        with self._lock:
            kept = list(map(self._pages.get, keys))
        return [
            ABSENT if record is None else self._fill(key, *record, runs)
            for key, record, runs in zip(keys, kept, destinations, strict=True)
        ]

    def _fill(self, key: str, header: bytes, payload: Run, runs: Sequence[Run]) -> str:
        if payload.size != sum(run.size for run in runs):
            return SHORT
        copy_to_runs(payload, runs)
        return self.records.judge(key, header, payload.size, runs)

    def _put(self, keys: Sequence[str], sources: Sequence[Sequence[Run]]) -> list[bool]:
        copies = [np.concatenate([run.reshape(-1) for run in runs]) for runs in sources]
        headers = [self.records.header(key, [copy]) for key, copy in zip(keys, copies, strict=True)]
        with self._lock:
            self._pages.update(zip(keys, zip(headers, copies, strict=True), strict=True))
        return [True] * len(keys)
