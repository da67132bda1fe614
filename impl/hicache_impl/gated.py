"""A runtime of real threads that a test can hold at gates, with an exact answer to "has everything come to rest?".

Accounting: a worker is *running* from the moment it is started or woken until it parks. Whoever wakes it (a put, a
released gate, a set flag) counts it as running under the same lock, so a pending wake-up is never mistaken for rest.
"""

from __future__ import annotations

import queue
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from hicache_impl.events import OpId
from hicache_impl.runtime import BESIDE_GATES, COPY_GATES, GATES, Queue, Stalled, Thread, Waiter


class _Parked:
    """One waiting thread. `where` is for people; `gate` is (name, rank, op) when it is held at one."""

    def __init__(
        self, lock: threading.Lock, is_worker: bool, where: str, gate: tuple[str, int, OpId | None] | None = None
    ) -> None:
        self.condition = threading.Condition(lock)
        self.thread = threading.current_thread()
        self.is_worker = is_worker
        self.where = where
        self.gate = gate
        self.woken = False


class _GatedThread:
    def __init__(self, runtime: GatedRuntime, name: str, target: Callable[[], None]) -> None:
        self._runtime = runtime
        self._target = target
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._runtime._enter(self._thread)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._target()
        finally:
            self._runtime._leave(self._thread)

    def join(self, timeout: float | None = None) -> None:
        self._thread.join(timeout)

    def is_alive(self) -> bool:
        return self._thread.is_alive()


class _GatedQueue:
    def __init__(self, runtime: GatedRuntime) -> None:
        self._runtime = runtime
        self._items: deque[Any] = deque()
        self._waiting: deque[_Parked] = deque()

    def put(self, item: Any) -> None:
        with self._runtime._lock:
            self._items.append(item)
            if self._waiting:
                self._runtime._wake(self._waiting.popleft())
            # `collect` waits there for either: an item, or rest.
            self._runtime._idle.notify_all()

    def get(self, timeout: float | None = None) -> Any:
        runtime = self._runtime
        with runtime._lock:
            while not self._items:
                if not runtime._park("empty queue", self._waiting, timeout):
                    raise queue.Empty
            return self._items.popleft()

    def qsize(self) -> int:
        with self._runtime._lock:
            return len(self._items)


class _GatedEvent:
    def __init__(self, runtime: GatedRuntime) -> None:
        self._runtime = runtime
        self._up = False
        self._waiting: deque[_Parked] = deque()

    def set(self) -> None:
        with self._runtime._lock:
            self._up = True
            while self._waiting:
                self._runtime._wake(self._waiting.popleft())

    def is_set(self) -> bool:
        with self._runtime._lock:
            return self._up

    def wait(self, timeout: float | None = None) -> bool:
        with self._runtime._lock:
            if not self._up:
                self._runtime._park("flag", self._waiting, timeout)
            return self._up


class GatedRuntime:
    """The runtime seam for tests: real threads, a clock that a test advances, gates that a test holds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._workers: dict[threading.Thread, _Parked | None] = {}
        self._running = 0
        self._seconds = 0.0
        self._holds: set[tuple[str, int | None]] = set()
        self._at_gates: deque[_Parked] = deque()

    # The seam.

    def thread(self, name: str, target: Callable[[], None]) -> Thread:
        """A daemon thread that counts as a worker."""
        return _GatedThread(self, name, target)

    def lock(self) -> AbstractContextManager[Any]:
        """A plain lock: it is never held while its owner is parked."""
        return threading.Lock()

    def event(self) -> Waiter:
        """A flag whose waiters count as parked."""
        return _GatedEvent(self)

    def queue(self) -> Queue:
        """A queue whose waiters count as parked."""
        return _GatedQueue(self)

    def now(self) -> float:
        """Seconds that `advance` has added up."""
        with self._lock:
            return self._seconds

    def gate(self, name: str, rank: int, op: OpId | None = None) -> None:
        """Pass, or wait here while the gate is held. ValueError: there is none of this name."""
        _check_gate(name)
        with self._lock:
            if self._is_held(name, rank):
                self._park(f"gate {name} of rank {rank}", self._at_gates, None, (name, rank, op))

    def collect(self, queue_: Queue, timeout_s: float) -> Any:
        """An item that some worker will put. Stalled at once when every worker is parked and none is there."""
        assert isinstance(queue_, _GatedQueue)
        with self._lock:
            if not self._idle.wait_for(lambda: queue_._items or self._running == 0, timeout_s) or not queue_._items:
                raise Stalled(f"nothing will come: {self._whereabouts()}")
            return queue_._items.popleft()

    # The test's side.

    def hold(self, gate: str, rank: int | None = None) -> None:
        """Stop every worker (of one rank) that comes to this gate from now on."""
        _check_gate(gate)
        with self._lock:
            self._holds.add((gate, rank))

    def release(self, gate: str, rank: int | None = None) -> None:
        """Undo the same `hold`, and let go whoever is no longer held. KeyError: there was no such hold."""
        with self._lock:
            self._holds.remove((gate, rank))
            self._let_go(lambda at: not self._is_held(at[0], at[1]))

    def release_all(self) -> None:
        """Undo every hold."""
        with self._lock:
            self._holds.clear()
            self._let_go(lambda at: True)

    def step(self, gate: str, rank: int | None = None) -> int:
        """Let those who wait at the gate now go on, keep holding it for the next; returns how many."""
        with self._lock:
            return self._let_go(lambda at: at[0] == gate and rank in (None, at[1]))

    def held(self) -> set[tuple[str, int]]:
        """(gate, rank) of every worker that waits at a gate."""
        with self._lock:
            return {parked.gate[:2] for parked in self._at_gates if parked.gate is not None}

    def held_ops(self) -> set[tuple[str, int, OpId | None]]:
        """(gate, rank, operation) of every worker that waits at a gate."""
        with self._lock:
            return {parked.gate for parked in self._at_gates if parked.gate is not None}

    def advance(self, seconds: float) -> None:
        """Move the clock on."""
        if seconds < 0:
            raise ValueError(f"a clock does not go back: {seconds}")
        with self._lock:
            self._seconds += seconds

    def wait_idle(self, timeout_s: float = 30) -> None:
        """Return when every worker is parked and none is about to wake.

        Stalled, with who runs where: not so within `timeout_s`.
        """
        with self._lock:
            if not self._idle.wait_for(lambda: self._running == 0, timeout_s):
                raise Stalled(f"not idle after {timeout_s:g} s: {self._whereabouts()}")

    def workers(self) -> dict[str, str]:
        """Where each live worker is, by thread name."""
        with self._lock:
            return {
                thread.name: "running" if parked is None else parked.where for thread, parked in self._workers.items()
            }

    # Accounting; `_lock` is held, except in _enter and _leave.

    def _enter(self, thread: threading.Thread) -> None:
        with self._lock:
            self._workers[thread] = None
            self._running += 1

    def _leave(self, thread: threading.Thread) -> None:
        with self._lock:
            del self._workers[thread]
            self._count_out()

    def _count_out(self) -> None:
        self._running -= 1
        if self._running == 0:
            self._idle.notify_all()

    def _park(
        self,
        where: str,
        waiting: deque[_Parked],
        timeout: float | None,
        gate: tuple[str, int, OpId | None] | None = None,
    ) -> bool:
        """Wait in `waiting` until woken; False when the time ran out first.

        A wait with a timeout wakes by itself, so its worker stays counted as running.
        """
        counts_out = threading.current_thread() in self._workers and timeout is None
        parked = _Parked(self._lock, counts_out, where, gate)
        waiting.append(parked)
        if counts_out:
            self._workers[parked.thread] = parked
            self._count_out()
        in_time = parked.condition.wait_for(lambda: parked.woken, timeout)
        if not in_time:
            waiting.remove(parked)
        return in_time

    def _wake(self, parked: _Parked) -> None:
        parked.woken = True
        if parked.is_worker:
            self._workers[parked.thread] = None
            self._running += 1
        parked.condition.notify()

    def _let_go(self, condition: Callable[[tuple[str, int, OpId | None]], bool]) -> int:
        going = [parked for parked in self._at_gates if parked.gate is not None and condition(parked.gate)]
        for parked in going:
            self._at_gates.remove(parked)
            self._wake(parked)
        return len(going)

    def _is_held(self, gate: str, rank: int) -> bool:
        return (gate, None) in self._holds or (gate, rank) in self._holds

    def _whereabouts(self) -> str:
        frames = sys._current_frames()
        lines = []
        for thread, parked in self._workers.items():
            if parked is not None:
                lines.append(f"{thread.name} is parked ({parked.where})")
            elif (frame := frames.get(thread.ident or 0)) is not None:
                top = traceback.extract_stack(frame)[-1]
                lines.append(f"{thread.name} runs in {top.name} ({top.filename.rpartition('/')[2]}:{top.lineno})")
            else:
                lines.append(f"{thread.name} is starting")
        return "; ".join(lines) or "no workers"


def _check_gate(name: str) -> None:
    known = (*GATES, *BESIDE_GATES, *COPY_GATES)
    if name not in known:
        raise ValueError(f"no gate {name!r}; the gates are {', '.join(known)}")
