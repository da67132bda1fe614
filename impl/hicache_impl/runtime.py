"""The one seam to the outside: threads, locks, queues, clock, and the gates at which a test may hold a thread.

Nothing else in this package imports `threading`, `queue` or `time` to make or to wait for something of its own.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from hicache_impl.events import OpId

GATES = (
    "query.take",
    "query.ask",
    "query.asked",
    "query.agreed",
    "io.take",
    "io.page",
    "io.copied",
    "io.release",
    "backup.take",
    "backup.put",
)
"""Query: op taken, before the store is asked, before the ranks agree, before the hit queue. IO: op taken, before a
page is started, bytes in place but not counted (the page still has its writer), before a tail page is released. Backup:
node taken, before the ack."""

BESIDE_GATES = ("io.beside",)
"""IO, with extra pools: bytes of a slot in place (it still has its writer)."""

COPY_GATES = ("write.take", "write.layer", "write.landed", "load.take", "load.layer", "load.landed")
"""Where copies end later than they begin: a copy taken, before each layer, all layers in place but not yet told."""


class Stalled(Exception):
    """What is waited for cannot come: nobody is left who could bring it, or the time is up."""


class Thread(Protocol):
    """A worker."""

    def start(self) -> None:
        """Run the target."""
        ...

    def join(self, timeout: float | None = None) -> None:
        """Wait until it ended, at most `timeout` seconds."""
        ...

    def is_alive(self) -> bool:
        """Started and not yet ended."""
        ...


class Queue(Protocol):
    """Unbounded, first in, first out, safe from any thread."""

    def put(self, item: Any) -> None:
        """Append; never blocks."""
        ...

    def get(self, timeout: float | None = None) -> Any:
        """Take the first item, waiting for one. `queue.Empty` after `timeout` seconds."""
        ...

    def qsize(self) -> int:
        """Items now."""
        ...


class Waiter(Protocol):
    """A flag that threads wait for (the part of `threading.Event` that is used)."""

    def set(self) -> None:
        """Raise the flag and let everybody go."""
        ...

    def is_set(self) -> bool:
        """Whether it is up."""
        ...

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for it, at most `timeout` seconds; whether it is up."""
        ...


class Runtime(Protocol):
    """What the implementation asks of the world."""

    def thread(self, name: str, target: Callable[[], None]) -> Thread:
        """A worker, not yet started."""
        ...

    def lock(self) -> AbstractContextManager[Any]:
        """A mutual exclusion that is held only for a few steps, never while waiting."""
        ...

    def event(self) -> Waiter:
        """A flag that threads can wait for."""
        ...

    def queue(self) -> Queue:
        """An empty queue."""
        ...

    def now(self) -> float:
        """Seconds of a clock that never goes back."""
        ...

    def gate(self, name: str, rank: int, op: OpId | None = None) -> None:
        """A named point (see GATES, BESIDE_GATES, COPY_GATES) of the calling worker."""
        ...

    def collect(self, queue: Queue, timeout_s: float) -> Any:
        """Take an item that some worker will put. Stalled: none will, or none did in time."""
        ...


class _PlainQueue:
    def __init__(self) -> None:
        self._items: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def put(self, item: Any) -> None:
        self._items.put(item)

    def get(self, timeout: float | None = None) -> Any:
        return self._items.get(timeout=timeout)

    def qsize(self) -> int:
        return self._items.qsize()


class ThreadRuntime:
    """The standard library's threads and its monotonic clock; gates are open."""

    def thread(self, name: str, target: Callable[[], None]) -> Thread:
        """A daemon thread, so that a worker that hangs in a store cannot keep the process."""
        return threading.Thread(target=target, name=name, daemon=True)

    def lock(self) -> AbstractContextManager[Any]:
        """`threading.Lock`."""
        return threading.Lock()

    def event(self) -> Waiter:
        """`threading.Event`."""
        return threading.Event()

    def queue(self) -> Queue:
        """`queue.SimpleQueue`."""
        return _PlainQueue()

    def now(self) -> float:
        """`time.monotonic`."""
        return time.monotonic()

    def gate(self, name: str, rank: int, op: OpId | None = None) -> None:
        """Open."""

    def collect(self, queue_: Queue, timeout_s: float) -> Any:
        """Wait in real time."""
        try:
            return queue_.get(timeout=timeout_s)
        except queue.Empty:
            raise Stalled(f"nothing came for {timeout_s:g} s") from None
