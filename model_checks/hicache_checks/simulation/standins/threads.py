"""The module `threading`: threads are tasks of the current world."""

from __future__ import annotations

import _threading_local
import threading
import types
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from typing import Any

from hicache_checks.simulation.standins import library, locks
from hicache_checks.simulation.tasks import Task
from hicache_checks.simulation.world import current

FIRST_IDENT = 1000


class Thread(locks.Incomplete, locks.Numbered):
    """`threading.Thread`. A thread that nobody ends is unwound at the end of the run, daemon or not."""

    _real = threading.Thread(name="never started")
    _initialized = False

    def __init__(
        self,
        group: None = None,
        target: Callable[..., object] | None = None,
        name: str | None = None,
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        self._target, self._args, self._kwargs = target, tuple(args), dict(kwargs or {})
        self.name = str(name) if name else _default_name(target)
        self.daemon = daemon if daemon is not None else current_thread().daemon
        self._task: Task | None = None
        self._initialized = True

    def start(self) -> None:
        """See threading.Thread."""
        if not self._initialized:
            raise RuntimeError("thread.__init__() not called")
        world = current()
        if world is None:
            raise locks.not_simulated(f"thread {self.name} is started outside a simulated task")
        if self._task is not None:
            raise RuntimeError("threads can only be started once")
        self._task = world.spawn(self.run, self.name)
        self._task.thread = self
        world.point(f"start {self.name}", self._task.label)

    def run(self) -> None:
        """See threading.Thread."""
        if self._target is not None:
            self._target(*self._args, **self._kwargs)

    def join(self, timeout: float | None = None) -> None:
        """See threading.Thread."""
        if not self._initialized:
            raise RuntimeError("Thread.__init__() not called")
        task = self._task
        if task is None:
            raise RuntimeError("cannot join thread before it is started")
        if task is _running():
            raise RuntimeError("cannot join current thread")
        limit = None if timeout is None else max(0.0, timeout)
        locks.wait_until(lambda: task.ended, task.joiners, f"join {self.name}", task.label, limit)

    def is_alive(self) -> bool:
        """See threading.Thread."""
        if self._task is None:
            return False
        locks.pause(f"look at {self.name}", self._task.label)
        return not self._task.ended

    @property
    def ident(self) -> int | None:
        """See threading.Thread."""
        return None if self._task is None else FIRST_IDENT + self._task.number

    @property
    def native_id(self) -> int | None:
        """See threading.Thread."""
        return self.ident

    def getName(self) -> str:
        """See threading.Thread."""
        return self.name

    def setName(self, name: str) -> None:
        """See threading.Thread."""
        self.name = name

    def isDaemon(self) -> bool:
        """See threading.Thread."""
        return self.daemon

    def setDaemon(self, daemonic: bool) -> None:
        """See threading.Thread."""
        self.daemon = daemonic

    def __repr__(self) -> str:
        return f"<{type(self).__name__}({self.name}, {self.ident})>"


def _default_name(target: Callable[..., object] | None) -> str:
    called = getattr(target, "__name__", None)
    return locks.named("Thread") + (f" ({called})" if called is not None else "")


def _running() -> Task | None:
    world = current()
    return None if world is None else world.running


def _thread_of(task: Task) -> Any:
    """Its thread; one is made for a task that no Thread started."""
    if task.thread is None:
        task.thread = Thread(name=task.name, daemon=False)
        task.thread._task = task
    return task.thread


def current_thread() -> Any:
    """The thread of the running task; the real one outside."""
    task = _running()
    return threading.current_thread() if task is None else _thread_of(task)


def main_thread() -> Any:
    """The thread of the caller's task; the real one outside."""
    world = current()
    return threading.main_thread() if world is None else _thread_of(world.tasks[0])


def get_ident() -> int:
    """The number of the running task; the real one outside."""
    task = _running()
    return threading.get_ident() if task is None else FIRST_IDENT + task.number


def enumerate_() -> list[Any]:
    """Threads that have not ended."""
    world = current()
    if world is None:
        return list(threading.enumerate())
    return [_thread_of(task) for task in world.tasks if not task.ended]


def active_count() -> int:
    """How many."""
    return len(enumerate_())


local: Any = library.module_over(
    _threading_local, {"threading": types.SimpleNamespace(current_thread=current_thread, RLock=nullcontext)}
).local
"""`threading.local`, as the standard library writes it where there is none in C."""


def module() -> types.ModuleType:
    """A module with the names of `threading`."""
    standins: dict[str, Any] = {
        **{kind.__name__: kind for kind in (Thread, locks.Lock, locks.RLock, locks.Condition, locks.Event)},
        **{kind.__name__: kind for kind in (locks.Semaphore, locks.BoundedSemaphore)},
        **{function.__name__: function for function in (current_thread, main_thread, get_ident, active_count)},
        "enumerate": enumerate_,
        "get_native_id": get_ident,
        "local": local,
    }
    standins.update(
        Timer=library.class_over(threading.Timer, standins),
        Barrier=library.class_over(threading.Barrier, standins),
    )
    made = types.ModuleType("threading")
    made.__dict__.update({name: value for name, value in vars(threading).items() if not name.startswith("_")})
    made.__dict__.update(standins)
    return made
