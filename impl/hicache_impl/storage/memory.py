"""Pages in a dictionary, shared by the ranks of one process."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hicache_impl.storage.checksum import ABSENT, HIT, SHORT
from hicache_impl.storage.pages import Run, Runs, copy_to_runs
from hicache_impl.storage.store import PageStore


class MemoryStorage(PageStore):
    """A store without a medium. A put replaces a page's copy and never writes into it: who reads it, reads it whole.

    A dictionary needs no lock for one key; what looks at many takes that of the counts, so that a call takes one.
    """

    def __init__(self, checksums: bool = True) -> None:
        super().__init__(checksums)
        self._pages: dict[str, tuple[bytes, Run]] = {}

    def clear(self) -> None:
        """Forget every page."""
        with self.counts.lock:
            self._pages.clear()

    def close(self) -> None:
        """Nothing to let go of; the pages stay for whoever shares the store."""

    def _present(self, keys: Sequence[str]) -> int:
        with self.counts.lock:
            for count, key in enumerate(keys):
                if key not in self._pages:
                    return count
        return len(keys)

    def _get(self, keys: Sequence[str], destinations: Sequence[Runs]) -> list[str]:
        kept = list(map(self._pages.get, keys))
        return [
            ABSENT if record is None else self._fill(key, *record, runs)
            for key, record, runs in zip(keys, kept, destinations, strict=True)
        ]

    def _fill(self, key: str, header: bytes, payload: Run, runs: Runs) -> str:
        if payload.size != runs.size_bytes:
            return SHORT
        copy_to_runs(payload, runs)
        # Nobody but this store can reach the bytes; so without digests there is nothing to judge.
        return self.records.judge(key, header, payload.size, runs) if self.records.checksums else HIT

    def _put(self, keys: Sequence[str], sources: Sequence[Runs]) -> list[bool]:
        copies = [np.concatenate([run.reshape(-1) for run in runs]) for runs in sources]
        headers = [self.records.header(key, Runs([copy])) for key, copy in zip(keys, copies, strict=True)]
        self._pages.update(zip(keys, zip(headers, copies, strict=True), strict=True))
        return [True] * len(keys)
