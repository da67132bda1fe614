"""A watch in real time over simulated runs: who has made no step for too long is in a call that nobody simulates.

It is a real thread, so it sees whatever lets other threads run. A native call that does not can only be seen from
another process.
"""

from __future__ import annotations

import linecache
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from hicache_checks.simulation.world import World, running_world

FRAMES_MAX = 8
LOOKS = 4
"""In the time after which it barks."""


class Watchdog:
    """Within its block, `bark` is given one line when no step was made for so many seconds; once for each such time.

    It is called in the watchdog's thread, and may end the process.
    """

    def __init__(self, seconds: float, bark: Callable[[str], object]) -> None:
        self._seconds = seconds
        self._bark = bark
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> Watchdog:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        last: tuple[World, int] | None = None
        since, barked = time.monotonic(), False
        while not self._over.wait(self._seconds / LOOKS):
            world, now = running_world(), time.monotonic()
            state = None if world is None else (world, world.steps)
            if state is None or state != last:
                last, since, barked = state, now, False
            elif not barked and now - since >= self._seconds:
                barked = True
                self._bark(report(state[0], now - since))


def report(world: World, seconds: float) -> str:
    """Who is where, from the inside out, as one line."""
    task = world.running
    who = "the scheduler" if task is None else f"{task} (about to: {task.doing})"
    frame = sys._current_frames().get(world.ident)
    return f"no step for {seconds:.1f} s, {who} is in {' < '.join(_calls(frame))}"


def _calls(frame: FrameType | None) -> list[str]:
    calls: list[str] = []
    while frame is not None and len(calls) < FRAMES_MAX:
        code = frame.f_code
        place = f"{Path(code.co_filename).name}:{frame.f_lineno} {code.co_name}"
        line = linecache.getline(code.co_filename, frame.f_lineno).strip()
        # What is called is in the innermost line only; the others are on the way there.
        calls.append(f"`{line}` {place}" if line and not calls else place)
        frame = frame.f_back
    return calls
