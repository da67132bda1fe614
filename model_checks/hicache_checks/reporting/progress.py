"""One line that says how far a long run has come."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from types import TracebackType
from typing import TextIO

TTY_INTERVAL_S = 0.1
PLAIN_INTERVAL_S = 5.0


class Progress:
    """A progress line: redrawn in place on a terminal, else at most one line every few seconds.

    A log file wants few lines, a person wants a living one; callers just call `update` as often as they like.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._in_place = stream.isatty()
        self._interval_s = TTY_INTERVAL_S if self._in_place else PLAIN_INTERVAL_S
        # The first plain line waits a whole interval: a run that ends sooner needs none.
        self._next_s = clock() + (0.0 if self._in_place else self._interval_s)
        self._drawn = False

    def update(self, text: str) -> None:
        """Show `text` (one line) unless the last one was shown too short a time ago."""
        now_s = self._clock()
        if now_s < self._next_s:
            return
        self._next_s = now_s + self._interval_s
        if self._in_place:
            width = shutil.get_terminal_size().columns - 1
            self._stream.write("\r\x1b[K" + text[:width])
            self._drawn = True
        else:
            self._stream.write(text + "\n")
        self._stream.flush()

    def clear(self) -> None:
        """Take the line off the terminal, so that a result can be printed in its place."""
        if self._drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._drawn = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()
