"""What the storage threads of a rank do, as events: the query thread, and the IO thread.

A release may have more than one IO thread (P16). The specification has one, and no event says which of them it was. So
here they take turns, in the order in which operations were given memory: whoever is not the next one is slow.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty
from typing import Any

from hicache_checks.targets.sglang.event_log import EventLog, Followed, beside, reduces_by

QUERY, IO, BACKUP = "query", "io", "backup"
NEEDED = (
    *("_storage_hit_query", "_all_reduce_prefetch_groups", "_page_transfer", "append_host_mem_release"),
    "_page_backup",
)
"""What a controller must have to be followed."""


class FollowedLock:
    """An operation's lock. `changed(terminated, counted)` is called before it is let go, with what was before."""

    def __init__(self, operation: Any, changed: Callable[[bool, int], None]) -> None:
        self._operation = operation
        self._changed = changed
        self._lock = operation._lock
        self._before = (False, 0)

    def __enter__(self) -> None:
        self._lock.acquire()
        self._before = (self._operation._terminated_flag, self._operation.completed_tokens)

    def __exit__(self, *_: object) -> None:
        try:
            self._changed(*self._before)
        finally:
            self._lock.release()

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Hold it to look."""
        self._lock.acquire()
        try:
            yield
        finally:
            self._lock.release()


class ThreadEvents:
    """Stands beside the threads of a controller. `decided(operation)`: the scheduler sets a terminated flag. `queried`:
    the operation that the query thread took last.
    """

    def __init__(self, controller: Any, page: int, log: EventLog, decided: Callable[[Any], None]) -> None:
        self._controller = controller
        self._page = page
        self._log = log
        self._decided = decided
        self.queried: Any = None
        self._turns: deque[tuple[Any, Followed]] = deque()
        self._read: Any = None
        self._reader: Any = None
        beside(controller, "_storage_hit_query", self._asked)
        beside(controller, "_all_reduce_prefetch_groups", self._agreed)
        beside(controller, "_page_transfer", self._transferred)
        beside(controller, "append_host_mem_release", self._released)
        beside(controller, "_page_backup", self._backed_up)

    def restart(self) -> None:
        """Everything begins again."""
        for _, followed in self._turns:
            followed.turn.set()
        self._turns.clear()
        self.queried = self._read = self._reader = None

    # ---- operations

    def follow(self, operation: Any) -> Followed:
        """An operation that is about to be queued."""
        followed = self._log.begin(operation)
        lock = FollowedLock(operation, lambda *before: self._changed(operation, *before))
        operation._lock = lock
        beside(operation, "is_terminated", lambda original: self._taken(original, operation, lock))
        return followed

    def given_memory(self, operation: Any, followed: Followed) -> None:
        """An operation is about to be put into the IO thread's queue."""
        self._turns.append((operation, followed))
        if len(self._turns) == 1:
            followed.turn.set()

    def _changed(self, operation: Any, was_terminated: bool, before: int) -> None:
        """Something was done to an operation, under its lock."""
        followed = self._log.of(operation)
        if followed is None:
            return
        if threading.current_thread() is self._reader and operation is self._read:
            for _ in range((operation.completed_tokens - before) // self._page):
                self._landed(operation, followed)
            if operation._terminated_flag and followed.page is not None:
                kind, reason = ("io_uncounted", {}) if was_terminated else ("io_failed", {"reason": "not read"})
                self._log.emit(kind, followed.id, page=followed.page, **reason)
                followed.page = None
        elif operation._terminated_flag:
            self._decided(operation)

    # ---- the query thread

    def _taken(self, original: Callable[[], bool], operation: Any, lock: FollowedLock) -> bool:
        followed = self._log.of(operation)
        if followed is None or threading.current_thread() is not self._controller.prefetch_thread:
            return original()
        with lock.unchanged():
            is_terminated = original()
            self._log.emit("query_taken", followed.id, terminated=is_terminated)
        self.queried = operation
        if is_terminated:
            self._log.emit("query_asked", followed.id, hit=0)
        return is_terminated

    def _asked(self, original: Callable[..., Any], operation: Any) -> Any:
        with self._survived(QUERY):
            answer = original(operation)
        followed = self._log.of(operation)
        if followed is not None:
            self._log.emit("query_asked", followed.id, hit=int(answer[1]) // self._page)
        return answer

    def _agreed(self, original: Callable[..., None], tensor: Any, op: Any) -> None:
        followed = self._log.of(self.queried)
        if followed is None:
            original(tensor, op)
            return
        with self._survived(QUERY), self._log.meeting("query", reduces_by(op)):
            original(tensor, op)
        followed.hit = int(tensor.item()) // self._page
        self._log.emit("query_agreed", followed.id, hit=followed.hit)

    def answered(self, operation: Any) -> None:
        """The query thread is about to hand an operation to the scheduler."""
        followed = self._log.of(operation)
        if followed is not None:
            self._log.emit("query_put", followed.id)

    # ---- the IO thread

    def _transferred(self, original: Callable[[Any], None], operation: Any) -> None:
        followed = self._log.of(operation)
        if followed is None:
            original(operation)
            return
        followed.turn.wait()
        self._read, self._reader = operation, threading.current_thread()
        with operation._lock.unchanged():
            if not operation._terminated_flag:
                # What is read for a terminated operation, nobody counts and nobody waits for: it is no event.
                self._started(followed, 0)
        with self._survived(IO):
            original(operation)

    def _started(self, followed: Followed, page: int) -> None:
        followed.page = page
        self._log.emit("io_started", followed.id, page=page)

    def _landed(self, operation: Any, followed: Followed) -> None:
        """A page is counted, and with that it is decided that the next one is read."""
        page, granted = followed.page, len(operation.host_indices) // self._page
        assert page is not None
        self._log.emit("io_landed", followed.id, page=page)
        followed.page = None
        if page + 1 < granted:
            self._started(followed, page + 1)

    def _released(self, original: Callable[[Any], None], host_indices: Any) -> None:
        with self._survived(IO):
            original(host_indices)
        if self.is_read_by_caller():
            self._read = self._reader = None
            self._turns.popleft()
            if self._turns:
                self._turns[0][1].turn.set()

    def is_read_by_caller(self) -> bool:
        """Is the calling thread the one that reads pages?"""
        return self._reader is not None and threading.current_thread() is self._reader

    def released(self, slots: Any) -> None:
        """The caller is about to put the slots of a page on the release queue."""
        followed = self._log.of(self._read)
        if followed is not None and self.is_read_by_caller():
            first = self._read.host_indices[:: self._page].tolist()
            self._log.emit("io_released", followed.id, page=first.index(int(slots[0])))

    def _backed_up(self, original: Callable[[Any], None], operation: Any) -> None:
        with self._survived(BACKUP):
            original(operation)

    @contextmanager
    def _survived(self, thread: str) -> Iterator[None]:
        """What a thread does not catch, it dies of."""
        try:
            yield
        except Empty:
            raise
        except Exception as error:
            self._log.emit("died", thread=thread, error=repr(error))
            raise
