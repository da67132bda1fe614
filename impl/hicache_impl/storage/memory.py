"""Pages in a dictionary, shared by the ranks of one process."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence

import torch

from hicache_impl.storage import check_keys, check_pages, fill_page, page_to_bytes


class MemoryStorage:
    """A store without a medium. Stats: hits, misses, puts, short (present, but not the size of the destination)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pages: dict[str, bytes] = {}
        self._stats: Counter[str] = Counter(hits=0, misses=0, puts=0, short=0)

    def exists(self, keys: Sequence[str]) -> int:
        """The leading run of present pages."""
        check_keys(keys)
        with self._lock:
            for count, key in enumerate(keys):
                if key not in self._pages:
                    return count
        return len(keys)

    def get_into(self, keys: Sequence[str], into: Sequence[torch.Tensor]) -> list[bool]:
        """Fill each destination whose page is here in its size."""
        check_pages(keys, into)
        return [self._get_one(key, page) for key, page in zip(keys, into, strict=True)]

    def put_from(self, keys: Sequence[str], pages: Sequence[torch.Tensor]) -> list[bool]:
        """Store copies; never fails."""
        check_pages(keys, pages)
        payloads = [page_to_bytes(page) for page in pages]
        with self._lock:
            self._pages.update(zip(keys, payloads, strict=True))
            self._stats["puts"] += len(keys)
        return [True] * len(keys)

    def stats(self) -> dict[str, int]:
        """A copy of the counts."""
        with self._lock:
            return dict(self._stats)

    def clear(self) -> None:
        """Forget every page."""
        with self._lock:
            self._pages.clear()

    def close(self) -> None:
        """Nothing to let go of; the pages stay for whoever shares the store."""

    def _get_one(self, key: str, into: torch.Tensor) -> bool:
        with self._lock:
            payload = self._pages.get(key)
            fits = payload is not None and len(payload) == into.numel()
            self._stats["hits" if fits else "misses"] += 1
            if payload is None:
                return False
            if not fits:
                self._stats["short"] += 1
                return False
        fill_page(into, payload)
        return True
