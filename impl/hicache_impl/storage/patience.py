"""How long nobody is asked after there was no answer: longer each time, so that a dead medium costs little waiting."""

from __future__ import annotations

import threading
import time


class Patience:
    """The first pause is `first_s` long, each further one twice the last, up to `most_s`; an answer ends it."""

    def __init__(self, first_s: float, most_s: float) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._lock = threading.Lock()
        self._pause_s = first_s
        self._until_s = 0.0

    def is_pausing(self) -> bool:
        """Is it too early to ask again?"""
        with self._lock:
            return time.monotonic() < self._until_s

    def failed(self) -> None:
        """There was no answer: a pause begins."""
        with self._lock:
            now_s = time.monotonic()
            if now_s < self._until_s:
                # Others who waited for the same answer.
                return
            self._until_s = now_s + self._pause_s
            self._pause_s = min(2 * self._pause_s, self._most_s)

    def worked(self) -> None:
        """There was one."""
        if self._pause_s != self._first_s:
            with self._lock:
                self._pause_s = self._first_s
