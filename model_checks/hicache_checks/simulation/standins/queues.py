"""The module `queue`."""

from __future__ import annotations

import heapq
import queue
import types
from collections import deque
from typing import Any, ClassVar

from hicache_checks.simulation.standins import locks
from hicache_checks.simulation.tasks import Task
from hicache_checks.simulation.world import current


class SimpleQueue(locks.Incomplete):
    """`queue.SimpleQueue`."""

    _real: ClassVar[object] = queue.SimpleQueue()

    def __class_getitem__(cls, item: Any) -> type:
        return cls

    def __init__(self) -> None:
        self._name_it()
        self._items: deque[Any] = deque()

    def _name_it(self) -> None:
        self._label = locks.named("queue")
        self._putting, self._getting = f"put {self._label}", f"get {self._label}"
        self._getters: list[Task] = []

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """See queue.SimpleQueue."""
        world = current()
        if world is not None:
            world.point(self._putting, self._label)
        self._items.append(item)
        locks.hand_over(world, self._getters)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """See queue.SimpleQueue."""
        if not block:
            locks.pause(self._getting, self._label)
            if not self._qsize():
                raise queue.Empty
        else:
            if timeout is not None and timeout < 0:
                raise ValueError("'timeout' must be a non-negative number")
            world = current()
            wait = locks.wait_until if world is None else world.wait
            if not wait(self._qsize, self._getters, self._getting, self._label, timeout):
                raise queue.Empty
        item = self._get()
        if self._getters and not self._qsize():
            locks.took(self._getters)
        return item

    def put_nowait(self, item: Any) -> None:
        """See queue.SimpleQueue."""
        self.put(item, block=False)

    def get_nowait(self) -> Any:
        """See queue.SimpleQueue."""
        return self.get(block=False)

    def qsize(self) -> int:
        """See queue.SimpleQueue."""
        locks.pause(f"size of {self._label}", self._label)
        return self._qsize()

    def empty(self) -> bool:
        """See queue.SimpleQueue."""
        return not self.qsize()

    def _qsize(self) -> int:
        return len(self._items)

    def _get(self) -> Any:
        return self._items.popleft()


class Queue(SimpleQueue):
    """`queue.Queue`; `queue` is the deque inside, which some programs reach into."""

    _real: ClassVar[object] = queue.Queue()

    def __init__(self, maxsize: int = 0) -> None:
        self._name_it()
        self.maxsize = maxsize
        self.mutex = locks.Lock()
        self.unfinished_tasks = 0
        self._putters: list[Task] = []
        self._joiners: list[Task] = []
        self._init(maxsize)

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """See queue.Queue."""
        if self.maxsize <= 0:
            locks.pause(self._putting, self._label)
        elif not block:
            locks.pause(self._putting, self._label)
            if not self._has_room():
                raise queue.Full
        else:
            if timeout is not None and timeout < 0:
                raise ValueError("'timeout' must be a non-negative number")
            if not locks.wait_until(self._has_room, self._putters, self._putting, self._label, timeout):
                raise queue.Full
        self._put(item)
        self.unfinished_tasks += 1
        locks.hand_over(current(), self._getters, to=1)
        if self._putters and not self._has_room():
            locks.took(self._putters)
        if self._joiners:
            locks.took(self._joiners)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """See queue.Queue."""
        item = super().get(block, timeout)
        if self._putters:
            locks.hand_over(current(), self._putters, to=1)
        return item

    def full(self) -> bool:
        """See queue.Queue."""
        return 0 < self.maxsize <= self.qsize()

    def task_done(self) -> None:
        """See queue.Queue."""
        locks.pause(f"task done of {self._label}", self._label)
        if self.unfinished_tasks <= 0:
            raise ValueError("task_done() called too many times")
        self.unfinished_tasks -= 1
        if not self.unfinished_tasks:
            locks.hand_over(current(), self._joiners)

    def join(self) -> None:
        """See queue.Queue."""
        locks.wait_until(self._is_done, self._joiners, f"join {self._label}", self._label, None)

    def _has_room(self) -> bool:
        return self._qsize() < self.maxsize

    def _is_done(self) -> bool:
        return not self.unfinished_tasks

    # What a subclass may do otherwise, as in queue.Queue.

    def _init(self, maxsize: int) -> None:
        self.queue: Any = deque()

    def _qsize(self) -> int:
        return len(self.queue)

    def _put(self, item: Any) -> None:
        self.queue.append(item)

    def _get(self) -> Any:
        return self.queue.popleft()


class LifoQueue(Queue):
    """`queue.LifoQueue`."""

    def _init(self, maxsize: int) -> None:
        self.queue = []

    def _get(self) -> Any:
        return self.queue.pop()


class PriorityQueue(Queue):
    """`queue.PriorityQueue`."""

    def _init(self, maxsize: int) -> None:
        self.queue = []

    def _put(self, item: Any) -> None:
        heapq.heappush(self.queue, item)

    def _get(self) -> Any:
        return heapq.heappop(self.queue)


def module() -> types.ModuleType:
    """A module with the names of `queue`."""
    made = types.ModuleType("queue")
    made.__dict__.update({name: value for name, value in vars(queue).items() if not name.startswith("_")})
    made.__dict__.update(Queue=Queue, LifoQueue=LifoQueue, PriorityQueue=PriorityQueue, SimpleQueue=SimpleQueue)
    return made
