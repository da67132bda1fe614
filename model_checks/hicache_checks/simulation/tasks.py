"""Tasks: the threads of a simulated program. One runs at a time, carried by a greenlet or by a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

from greenlet import getcurrent, greenlet


class Task:
    """A thread of the program. `rank` is inherited by the tasks that it starts; None outside all ranks.

    `doing` is what it is about to do or waits for, `touches` the resource that this is about (None: anything), `label`
    the task itself as a resource: whoever joins it touches that.
    """

    __slots__ = (
        *("number", "name", "rank", "said", "label", "target", "carrier", "doing", "touches", "started", "ended"),
        *("waits_in", "parked", "deadline", "timed_out", "held", "held_until", "joiners", "to_raise", "kills"),
        *("thread", "__weakref__"),
    )

    def __init__(self, number: int, name: str, rank: int | None, target: Callable[[], object]) -> None:
        self.number = number
        self.name = name
        self.rank = rank
        self.said = name if rank is None else f"{name} (rank {rank})"
        self.label = f"thread {self.said}"
        self.target = target
        self.carrier: Carrier | None = None
        self.doing = "start"
        self.touches: object | None = self.label
        self.started = False
        self.ended = False
        self.waits_in: list[Task] | None = None
        self.parked = False
        self.deadline: float | None = None
        self.timed_out = False
        self.held = False
        self.held_until: float | None = None
        self.joiners: list[Task] = []
        self.to_raise: BaseException | None = None
        self.kills = 0
        self.thread: Any = None

    def __repr__(self) -> str:
        return self.said


class Carrier(Protocol):
    """What runs a task, or the hub: whoever called `World.run`."""

    def switch(self) -> Any:
        """Let it go on; returns when somebody switches back to the caller."""


class Carriers(Protocol):
    """How tasks are carried."""

    hub: Carrier

    def begin(self, body: Callable[[], None], name: str) -> Carrier:
        """One that runs `body` when it is first switched to, and then returns to the hub."""


class GreenletCarriers:
    """All tasks on the thread of the caller: switches are cheap and nothing else can run.

    Only the hub is to switch to one for the first time. Below a greenlet lies the stack of whoever did, and torch walks
    through all of it for each of its errors: the hub's stays as it is, a task's would be another one by then.
    """

    def __init__(self) -> None:
        self.hub: Carrier = getcurrent()

    def begin(self, body: Callable[[], None], name: str) -> Carrier:
        """See Carriers."""
        begun: Carrier = greenlet(body, self.hub)
        return begun


class ThreadCarriers:
    """A real thread for each task, which runs only while it holds the baton: for code that needs real threads."""

    def __init__(self) -> None:
        self.hub: Carrier = _Baton(self)
        self.holder = self.hub
        self.ending: threading.Thread | None = None

    def begin(self, body: Callable[[], None], name: str) -> Carrier:
        """See Carriers."""
        baton, hub = _Baton(self), self.hub
        assert isinstance(hub, _Baton)

        def run() -> None:
            baton.free.acquire()
            body()
            self.holder, self.ending = hub, thread
            hub.free.release()

        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        return baton


class _Baton:
    def __init__(self, carriers: ThreadCarriers) -> None:
        self.free = threading.Semaphore(0)
        self._carriers = carriers

    def switch(self) -> None:
        """See Carrier."""
        source, self._carriers.holder = self._carriers.holder, self
        self.free.release()
        assert isinstance(source, _Baton)
        source.free.acquire()
        if self._carriers.ending is not None:
            # Only then are its thread-local objects gone: they may do something when they go.
            self._carriers.ending.join()
            self._carriers.ending = None


CARRIERS: dict[str, Callable[[], Carriers]] = {"greenlets": GreenletCarriers, "threads": ThreadCarriers}
