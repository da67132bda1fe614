"""The event log of one rank of a release, in the words of `spec/EVENTS.md`: what its methods and queues show when one
stands beside them. The release's own code runs unchanged; `event_scheduler` and `event_threads` stand beside it.

An event is logged before the change that another thread can see, or under the same lock.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

OpId = tuple[str, int]
Entry = tuple[str, OpId | None, dict[str, Any]]


@dataclass
class Followed:
    """An operation: its name, the hit that the ranks agreed on, and the page that is being read, None: none. `turn`:
    it is the first of those that wait for the IO thread."""

    id: OpId
    hit: int = 0
    page: int | None = None
    turn: Any = field(default_factory=threading.Event)


class EventLog:
    """What a rank did since it began. Any thread may emit; to append to a list is one step."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Everything begins again. What still goes on of the operations before is not looked at."""
        self._kept: list[Entry] = []
        self._attempts: Counter[str] = Counter()
        self._met: Counter[str] = Counter()
        self._nodes: list[Any] = []
        self._followed: dict[int, tuple[Any, Followed]] = {}

    def emit(self, kind: str, op: OpId | None = None, **data: Any) -> None:
        """Append one event."""
        self._kept.append((kind, op, data))

    def since(self, seq: int) -> Sequence[Entry]:
        """The events from number `seq` on."""
        return self._kept[seq:]

    # ---- names

    def begin(self, operation: Any) -> Followed:
        """A new attempt of a request."""
        followed = Followed(self.next_attempt(operation.request_id))
        self._attempts[followed.id[0]] += 1
        self._followed[id(operation)] = (operation, followed)
        return followed

    def next_attempt(self, rid: Any) -> OpId:
        """What the next attempt of a request would be called."""
        return str(rid), self._attempts[str(rid)] + 1

    def of(self, operation: Any) -> Followed | None:
        """What is known of an operation; None: it is one of before the log began."""
        return self._followed.get(id(operation), (None, None))[1]

    def node(self, node: Any) -> int:
        """A node's number: ranks that do the same give the same numbers."""
        for number, known in enumerate(self._nodes):
            if known is node:
                return number
        self._nodes.append(node)
        return len(self._nodes) - 1

    # ---- collectives

    def join(self, group: str, call: str) -> dict[str, Any]:
        """Before a collective of a group. Its place, for `leave`."""
        place: dict[str, Any] = {"group": group, "number": self._met[group], "call": call}
        self._met[group] += 1
        self.emit("joined", **place)
        return place

    def leave(self, place: dict[str, Any]) -> None:
        """After it."""
        self.emit("left", **place)

    @contextmanager
    def meeting(self, group: str, call: str) -> Iterator[None]:
        """A collective of a group."""
        place = self.join(group, call)
        yield
        self.leave(place)


def beside(owner: Any, name: str, around: Callable[..., Any]) -> None:
    """From now on `around(original, ...)` is called in place of an object's own method."""
    setattr(owner, name, partial(around, getattr(owner, name)))


def reduces_by(op: Any) -> str:
    """The word for a reduction."""
    return "min" if "MIN" in str(op).upper() else "max"
