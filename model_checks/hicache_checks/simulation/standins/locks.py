"""Locks and flags of `threading`.

None of them gives way when it is released: what follows up to the next point nobody else can notice before it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, ClassVar

from hicache_checks.simulation.tasks import Task
from hicache_checks.simulation.world import WATCHED, NotSimulated, World, current, running_world


def not_simulated(message: str) -> NotSimulated:
    """What to raise where a stand-in ends. In a world it is not left to the program to catch: the run is over. A thread
    that is no task cannot end it; the world hears of it all the same."""
    error = NotSimulated(message)
    world = current()
    if world is not None:
        world.give_up(error)
    if (running := running_world()) is not None:
        running.disturbed = running.disturbed or error
    return error


def named(kind: str) -> str:
    """A label for a new object, the same in every run of the same program."""
    world = current()
    return kind if world is None else world.label(kind)


class Incomplete:
    """What the real object has besides, public or not, is left out: it ends the run, and is no fault of the program."""

    _real: ClassVar[object]

    def __getattr__(self, name: str) -> Any:
        if hasattr(self._real, name):
            raise not_simulated(f"{type(self).__name__}.{name} has no stand-in")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


class Numbered:
    """Objects that programs keep in sets: they have the same order there in every run, which their addresses do not."""

    _number: int | None = None

    def __hash__(self) -> int:
        if self._number is None:
            world = current()
            self._number = id(self) if world is None else world.number()
        return self._number


def pause(doing: str, touches: object) -> None:
    """A point, if somebody is simulated."""
    world = current()
    if world is not None:
        world.point(doing, touches)


def wait_until(
    is_ready: Callable[[], Any], waiting: list[Task], doing: str, touches: object, timeout: float | None
) -> bool:
    """Wait in `waiting` until `is_ready()`; False: the time ran out. Somebody else may go first either way."""
    world = current()
    if world is not None:
        return world.wait(is_ready, waiting, doing, touches, timeout)
    if not is_ready():
        if timeout is not None and timeout <= 0:
            return False
        raise not_simulated(f"{doing} would wait for ever outside a simulated task")
    return True


def hand_over(world: World | None, waiting: list[Task], to: int | None = None) -> None:
    """Something came, and the program has got further: those who wait here can go on, or the first so many of them."""
    if world is not None:
        world.progress()
        if waiting:
            world.wake(waiting if to is None else [task for task in waiting if task.parked][:to])
    elif waiting:
        raise not_simulated("a task is woken from outside its world")


def took(waiting: list[Task]) -> None:
    """What these wait for is gone."""
    world = current()
    if world is not None:
        world.refuse(waiting)


def touch(resource: object) -> None:
    """The calling task does something to this without giving way."""
    world = current()
    if world is not None:
        world.touch(resource)


class Lock(Incomplete):
    """`threading.Lock`."""

    _real = threading.Lock()

    def __init__(self) -> None:
        self._label = named("lock")
        self._taking = f"take {self._label}"
        self._waiting: list[Task] = []
        self._held = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """See threading.Lock."""
        if blocking:
            limit = None if timeout == -1 else _checked(timeout)
            world = current()
            wait = wait_until if world is None else world.wait
            if not wait(self._is_free, self._waiting, self._taking, self._label, limit):
                return False
        else:
            if timeout != -1:
                raise ValueError("can't specify a timeout for a non-blocking call")
            pause(f"try {self._label}", self._label)
            if self._held:
                return False
        self._held = True
        if self._waiting:
            took(self._waiting)
        return True

    __enter__ = acquire

    def release(self) -> None:
        """See threading.Lock."""
        if not self._held:
            raise RuntimeError("release unlocked lock")
        self._held = False
        if self._waiting or WATCHED:
            self._let_go()

    def __exit__(self, *error: object) -> None:
        self.release()

    def locked(self) -> bool:
        """See threading.Lock."""
        pause(f"look at {self._label}", self._label)
        return self._held

    def _let_go(self) -> None:
        world = current()
        if world is not None:
            world.touch(self._label)
            world.wake(self._waiting)
        elif self._waiting:
            raise not_simulated("a task is woken from outside its world")

    def _is_free(self) -> bool:
        return not self._held

    # What a Condition does with its lock.

    def _is_owned(self) -> bool:
        return self._held

    def _release_save(self) -> Any:
        self.release()

    def _acquire_restore(self, saved: Any) -> None:
        self.acquire()


class RLock(Incomplete):
    """`threading.RLock`."""

    _real = threading.RLock()

    def __init__(self) -> None:
        self._lock = Lock()
        self._owner: object | None = None
        self._count = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """See threading.RLock."""
        if not self._is_owned():
            if not self._lock.acquire(blocking, timeout):
                return False
            self._owner = _me()
        self._count += 1
        return True

    def release(self) -> None:
        """See threading.RLock."""
        if not self._is_owned():
            raise RuntimeError("cannot release un-acquired lock")
        self._count -= 1
        if not self._count:
            self._owner = None
            self._lock.release()

    def _is_owned(self) -> bool:
        return bool(self._count) and self._owner is _me()

    def _release_save(self) -> Any:
        count, self._count, self._owner = self._count, 0, None
        self._lock.release()
        return count

    def _acquire_restore(self, saved: Any) -> None:
        self._lock.acquire()
        self._owner, self._count = _me(), saved

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()


class Condition(Incomplete):
    """`threading.Condition`."""

    _real = threading.Condition()

    def __init__(self, lock: Lock | RLock | None = None) -> None:
        if lock is not None and not isinstance(lock, Lock | RLock):
            raise not_simulated(f"a Condition over {lock!r} has no stand-in")
        self._label = named("condition")
        self._lock = lock if lock is not None else RLock()
        self._waiters: list[_Waiter] = []
        self.acquire = self._lock.acquire
        self.release = self._lock.release

    def wait(self, timeout: float | None = None) -> bool:
        """See threading.Condition."""
        self._check_held("wait on")
        waiter = _Waiter()
        self._waiters.append(waiter)
        touch(self._label)
        saved = self._lock._release_save()
        try:
            return wait_until(waiter.is_notified, waiter.waiting, f"wait for {self._label}", self._label, timeout)
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            self._lock._acquire_restore(saved)

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        """See threading.Condition."""
        world = current()
        deadline = None if world is None else world.deadline(timeout)
        while not (result := predicate()):
            left = None if deadline is None or world is None else deadline - world.now
            if left is not None and left <= 0:
                return result
            self.wait(left)
        return result

    def notify(self, n: int = 1) -> None:
        """See threading.Condition."""
        self._check_held("notify on")
        touch(self._label)
        for waiter in self._waiters[:n]:
            self._waiters.remove(waiter)
            waiter.notified = True
            hand_over(current(), waiter.waiting)

    def notify_all(self) -> None:
        """See threading.Condition."""
        self.notify(len(self._waiters))

    def _check_held(self, what: str) -> None:
        if not self._lock._is_owned():
            raise RuntimeError(f"cannot {what} un-acquired lock")

    def __enter__(self) -> bool:
        return self._lock.__enter__()

    def __exit__(self, *error: object) -> None:
        self._lock.__exit__(*error)


class _Waiter:
    def __init__(self) -> None:
        self.notified = False
        self.waiting: list[Task] = []

    def is_notified(self) -> bool:
        return self.notified


class Semaphore(Incomplete):
    """`threading.Semaphore`."""

    _real = threading.Semaphore()

    def __init__(self, value: int = 1) -> None:
        if value < 0:
            raise ValueError("semaphore initial value must be >= 0")
        self._label = named("semaphore")
        self._value = value
        self._waiting: list[Task] = []

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        """See threading.Semaphore."""
        if not blocking:
            if timeout is not None:
                raise ValueError("can't specify timeout for non-blocking acquire")
            pause(f"try {self._label}", self._label)
            if not self._value:
                return False
        elif not wait_until(self._is_positive, self._waiting, f"take {self._label}", self._label, timeout):
            return False
        self._value -= 1
        if self._waiting and not self._value:
            took(self._waiting)
        return True

    def release(self, n: int = 1) -> None:
        """See threading.Semaphore."""
        if n < 1:
            raise ValueError("n must be one or more")
        pause(f"give {self._label}", self._label)
        self._give(n)

    def _give(self, n: int) -> None:
        self._value += n
        hand_over(current(), self._waiting, to=n)

    def _is_positive(self) -> bool:
        return self._value > 0

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()


class BoundedSemaphore(Semaphore):
    """`threading.BoundedSemaphore`."""

    def __init__(self, value: int = 1) -> None:
        super().__init__(value)
        self._most = value

    def _give(self, n: int) -> None:
        if self._value + n > self._most:
            raise ValueError("Semaphore released too many times")
        super()._give(n)


class Event(Incomplete):
    """`threading.Event`."""

    _real = threading.Event()

    def __init__(self) -> None:
        self._label = named("event")
        self._waiting: list[Task] = []
        self._up = False

    def is_set(self) -> bool:
        """See threading.Event."""
        pause(f"look at {self._label}", self._label)
        return self._up

    def set(self) -> None:
        """See threading.Event."""
        pause(f"set {self._label}", self._label)
        if not self._up:
            self._up = True
            # Whoever waits now goes on, even if the flag is down again by then; so it is in the list no more.
            waiting, self._waiting = self._waiting, []
            hand_over(current(), waiting)

    def clear(self) -> None:
        """See threading.Event."""
        pause(f"clear {self._label}", self._label)
        self._up = False
        if self._waiting:
            took(self._waiting)

    def wait(self, timeout: float | None = None) -> bool:
        """See threading.Event."""
        waiting = self._waiting
        return wait_until(
            lambda: self._up or self._waiting is not waiting,
            waiting,
            f"wait for {self._label}",
            self._label,
            timeout,
        )


def _checked(timeout: float) -> float:
    if not 0 <= timeout <= threading.TIMEOUT_MAX:
        threading.Lock().acquire(timeout=timeout)  # it says what is wrong with it
    return timeout


def _me() -> object:
    world = current()
    return None if world is None else world.running
