"""Copies between two pools that end later than they begin: in order, with an event for every layer.

A lane is one such order. On CPU a worker copies; where a pool is on a CUDA device, a stream of the lane's own does,
with an event a layer. A copy is *under way* from `begin` until the scheduler takes it by `get`, however early it
landed: only then do all ranks know of it. So long its destination has a writer, and may be neither freed nor written by
others.
"""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from hicache_impl.controller import WorkerDied
from hicache_impl.runtime import Queue, Runtime, Stalled, Thread, Waiter
from hicache_impl.tensor_pool import TensorPool

WRITE = "write"
LOAD = "load"
LANES = (WRITE, LOAD)


@dataclass(frozen=True)
class Part:
    """`pages` of `target` get the bytes of `source_pages` of `source`, one to one."""

    source: TensorPool
    source_pages: tuple[int, ...]
    target: TensorPool
    pages: tuple[int, ...]

    def check(self) -> None:
        """May it be copied? Errors: see TensorPool.check_copy."""
        self.target.check_copy(self.source, self.source_pages, self.pages)

    def copy(self, layer: int) -> None:
        """One layer, if the pools have so many. Errors as of `check`."""
        if layer < self.target.layers:
            # Again, because a page that nobody owns any more may hold anything.
            self.check()
            self.target.copy_layer(self.source, self.source_pages, self.pages, layer)


@dataclass(frozen=True, eq=False)
class Copy:
    """Parts that travel together. `job`: what the scheduler knows of it.

    `layers`: a flag for each layer, up when it is in place in all parts; `landed`: everything is, and may be told.
    """

    parts: tuple[Part, ...]
    job: Any
    layers: tuple[Waiter, ...]
    landed: Waiter

    def copy_layer(self, layer: int) -> None:
        """This layer of all parts; its flag is up afterwards."""
        for part in self.parts:
            part.copy(layer)
        self.layers[layer].set()


class Lane:
    """Copies in one order, the scheduler's side. What is under way is the same on every rank, `qsize` is not."""

    def __init__(self, name: str, rank: int, runtime: Runtime) -> None:
        self.name = name
        self.rank = rank
        self.runtime = runtime
        self._under_way: deque[Copy] = deque()

    def __len__(self) -> int:
        """Copies under way."""
        return len(self._under_way)

    def jobs(self) -> list[Any]:
        """Of the copies under way, in order."""
        return [copy.job for copy in self._under_way]

    def begin(self, parts: Sequence[Part], job: Any) -> Copy:
        """Copy when all that was begun before is done. Errors: see TensorPool.copy_pages; WorkerDied."""
        for part in parts:
            part.check()
        copy = self._new_copy(tuple(parts), job, max(part.target.layers for part in parts))
        for part in parts:
            for page in part.pages:
                part.target.allocator.begin_write(page)
        self._start(copy)
        return copy

    def qsize(self) -> int:
        """How many copies, from the first, have landed here and were not taken."""
        landed = 0
        for copy in self._under_way:
            if not copy.landed.is_set():
                break
            landed += 1
        return landed

    def get(self, timeout: float | None = None) -> Copy:
        """The first copy under way, waiting until it has landed; from here on it is not. WorkerDied.

        `queue.Empty`: none is under way, or it does not land within `timeout` seconds.
        """
        if not self._under_way or not self._under_way[0].landed.wait(timeout):
            raise queue.Empty
        self._check_alive()
        return self._take_first()

    def wait_layer(self, layer: int | None) -> None:
        """Return when this layer (None: the last) of every copy under way may be read. WorkerDied."""
        for copy in self._under_way:
            _flag_of(copy, layer).wait()
        self._check_alive()

    def settle(self, timeout_s: float) -> None:
        """Return when all copies have landed. Stalled: one takes more than `timeout_s`."""
        for copy in self._under_way:
            if not copy.landed.wait(timeout_s):
                raise Stalled(f"a {self.name} copy of rank {self.rank} does not land within {timeout_s:g} s")

    def forget(self) -> list[Any]:
        """The jobs of what is under way, which nobody will take any more; to be called when nothing copies."""
        return [self._take_first().job for _ in range(len(self._under_way))]

    def open(self) -> None:
        """Before the first copy."""

    def close(self, timeout_s: float) -> bool:
        """Whether nothing copies any more, `timeout_s` seconds later at most."""
        raise NotImplementedError

    def _new_copy(self, parts: tuple[Part, ...], job: Any, layers: int) -> Copy:
        raise NotImplementedError

    def _start(self, copy: Copy) -> None:
        raise NotImplementedError

    def _take_first(self) -> Copy:
        copy = self._under_way.popleft()
        for part in copy.parts:
            for page in part.pages:
                part.target.allocator.end_write(page)
        return copy

    def _check_alive(self) -> None:
        """WorkerDied: nobody copies any more."""


class WorkerLane(Lane):
    """A thread copies. `on_death` is told why, when it ends by an exception."""

    def __init__(self, name: str, rank: int, runtime: Runtime, on_death: Callable[[str, BaseException], None]) -> None:
        super().__init__(name, rank, runtime)
        self._queue: Queue = runtime.queue()
        self._lock = runtime.lock()
        self._on_death = on_death
        self._failure: BaseException | None = None
        self._thread: Thread | None = None
        self._closing = False

    def open(self) -> None:
        """Start the thread."""
        self._thread = self.runtime.thread(f"{self.name}-{self.rank}", self._guarded)
        self._thread.start()

    def close(self, timeout_s: float) -> bool:
        """Copy what was begun, end the thread; whether it ended."""
        if self._thread is None:
            return True
        if not self._closing:
            self._closing = True
            self._queue.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _new_copy(self, parts: tuple[Part, ...], job: Any, layers: int) -> Copy:
        return Copy(parts, job, tuple(self.runtime.event() for _ in range(layers)), self.runtime.event())

    def _start(self, copy: Copy) -> None:
        with self._lock:
            self._under_way.append(copy)
        self._check_alive()
        self._queue.put(copy)

    def _take_first(self) -> Copy:
        with self._lock:
            return super()._take_first()

    def _check_alive(self) -> None:
        if self._failure is not None:
            message = f"the {self.name} thread of rank {self.rank} died: {self._failure!r}"
            raise WorkerDied(message) from self._failure

    def _guarded(self) -> None:
        try:
            self._run()
        except BaseException as error:
            if self._closing:
                return
            with self._lock:
                self._failure = error
                waited_for = list(self._under_way)
            self._on_death(self.name, error)
            for copy in waited_for:
                # Whoever waits is told by _check_alive.
                for flag in (*copy.layers, copy.landed):
                    flag.set()

    def _run(self) -> None:
        while (copy := self._queue.get()) is not None:
            self.runtime.gate(f"{self.name}.take", self.rank)
            self._copy(copy)
            self.runtime.gate(f"{self.name}.landed", self.rank)
            copy.landed.set()

    def _copy(self, copy: Copy) -> None:
        for layer in range(len(copy.layers)):
            self.runtime.gate(f"{self.name}.layer", self.rank)
            copy.copy_layer(layer)


class _StreamFlag:
    """What a stream reaches, as a flag that the host can look at."""

    def __init__(self) -> None:
        self.event = torch.cuda.Event()

    def set(self) -> None:
        """The present stream comes here."""
        self.event.record()

    def is_set(self) -> bool:
        """Whether it came here."""
        return bool(self.event.query())

    def wait(self, timeout: float | None = None) -> bool:
        """Hold up the host until it did, however long that takes: a copy that was put into a stream cannot fail."""
        self.event.synchronize()
        return True


class StreamLane(Lane):
    """A CUDA stream copies. It begins after what the scheduler's stream has done so far with the pages."""

    def __init__(self, name: str, rank: int, runtime: Runtime, device: torch.device) -> None:
        super().__init__(name, rank, runtime)
        self.stream = torch.cuda.Stream(device)

    def wait_layer(self, layer: int | None) -> None:
        """What is put into the present stream from now on finds this layer of every copy under way. Does not block."""
        for copy in self._under_way:
            flag = _flag_of(copy, layer)
            assert isinstance(flag, _StreamFlag)
            torch.cuda.current_stream(self.stream.device).wait_event(flag.event)

    def close(self, timeout_s: float) -> bool:
        """Wait for the stream."""
        self.stream.synchronize()
        return True

    def _new_copy(self, parts: tuple[Part, ...], job: Any, layers: int) -> Copy:
        flags = tuple(_StreamFlag() for _ in range(layers))
        return Copy(parts, job, flags, flags[-1])

    def _start(self, copy: Copy) -> None:
        self._under_way.append(copy)
        self.stream.wait_stream(torch.cuda.current_stream(self.stream.device))
        with torch.cuda.stream(self.stream):
            for layer in range(len(copy.layers)):
                copy.copy_layer(layer)


def _flag_of(copy: Copy, layer: int | None) -> Waiter:
    """Of a layer, or of the last, where the pools have fewer."""
    return copy.layers[-1 if layer is None else min(layer, len(copy.layers) - 1)]


def lane(
    name: str, rank: int, runtime: Runtime, device: str, on_death: Callable[[str, BaseException], None]
) -> WorkerLane | StreamLane:
    """A lane for copies between the host and `device`."""
    where = torch.device(device)
    if where.type == "cuda":
        return StreamLane(name, rank, runtime, where)
    return WorkerLane(name, rank, runtime, on_death)
