"""What one rank reports about itself: event names with their fields, and the log that all its threads share.

Order rule: an event is logged before, or under the same lock as, the change that another thread can see. So the order
of one rank's log is an order in which its steps really happened.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, TextIO

OpId = tuple[str, int]
"""Request id and attempt."""

# Lockstep: the scheduler's, the same sequence on every rank (of `stored`, `failed` alone is the rank's own).
SUBMITTED = "submitted"
DECLINED = "declined"
STOPPED = "stopped"
SKIPPED = "skipped"
CLAMPED = "clamped"
REVOKED = "revoked"
ALLOCATED = "allocated"
FETCHED = "fetched"
EVICTED = "evicted"
WRITTEN = "written"
COPIED = "copied"
RECLAIMED = "reclaimed"
SLOTS_TAKEN = "slots_taken"
SLOTS_FREED = "slots_freed"
STORED = "stored"
LOADED = "loaded"
ARRIVED = "arrived"
DETACHING = "detaching"
RESETTING = "resetting"
KEPT = "kept"
ATTACHING = "attaching"
ATTACHED = "attached"
ATTACH_FAILED = "attach_failed"
CLOSED = "closed"

# A rank's own.
MARKED = "marked"
QUERY_TAKEN = "query_taken"
QUERY_ASKED = "query_asked"
QUERY_AGREED = "query_agreed"
QUERY_PUT = "query_put"
IO_STARTED = "io_started"
IO_LANDED = "io_landed"
IO_UNCOUNTED = "io_uncounted"
IO_FAILED = "io_failed"
IO_RELEASED = "io_released"
BACKED_UP = "backed_up"
JOINED = "joined"
LEFT = "left"
TOLD_TO_STOP = "told_to_stop"
THREAD_ENDED = "thread_ended"
DETACHED = "detached"
BEGUN_AGAIN = "begun_again"
THREAD_STARTED = "thread_started"
START_FAILED = "start_failed"
DIED = "died"

LOCKSTEP_FIELDS: dict[str, tuple[str, ...]] = {
    SUBMITTED: ("span", "base", "anchor"),
    DECLINED: ("reason", "span"),
    STOPPED: (),
    SKIPPED: (),
    CLAMPED: ("pages", "pool", "wanted", "free", "evictable"),
    REVOKED: ("reason", "by", "evictable", "free"),
    ALLOCATED: ("pages", "hit", "evictable", "free"),
    FETCHED: ("pages", "known", "reason"),
    EVICTED: ("node", "pages"),
    WRITTEN: ("node", "pages"),
    COPIED: ("node", "pages"),
    RECLAIMED: ("pages",),
    SLOTS_TAKEN: ("pool", "slots", "free"),
    SLOTS_FREED: ("pool", "slots", "free"),
    STORED: ("node", "pages", "failed"),
    LOADED: ("node", "pages"),
    ARRIVED: ("node", "pages"),
    DETACHING: (),
    RESETTING: (),
    KEPT: (),
    ATTACHING: (),
    ATTACHED: (),
    ATTACH_FAILED: (),
    CLOSED: (),
}
THREAD_FIELDS: dict[str, tuple[str, ...]] = {
    MARKED: ("reason", "counted"),
    QUERY_TAKEN: ("terminated",),
    QUERY_ASKED: ("hit",),
    QUERY_AGREED: ("hit",),
    QUERY_PUT: (),
    IO_STARTED: ("page",),
    IO_LANDED: ("page",),
    IO_UNCOUNTED: ("page",),
    IO_FAILED: ("page", "reason"),
    IO_RELEASED: ("page",),
    BACKED_UP: ("pages", "failed"),
    JOINED: ("group", "number", "call"),
    LEFT: ("group", "number", "call"),
    TOLD_TO_STOP: (),
    THREAD_ENDED: ("thread",),
    DETACHED: (),
    BEGUN_AGAIN: (),
    THREAD_STARTED: ("thread",),
    START_FAILED: ("reason",),
    DIED: ("thread", "error"),
}
FIELDS = {**LOCKSTEP_FIELDS, **THREAD_FIELDS}


@dataclass(frozen=True, slots=True)
class Event:
    """One step. `seq` counts from 0 within a rank; `data` holds the fields that `FIELDS` names for `kind`.

    All numbers of pages are counts; `page` is an index into the operation's own pages; `node` and `anchor` are tree
    node ids, the same on every rank.
    """

    rank: int
    seq: int
    kind: str
    op: OpId | None = None
    data: dict[str, Any] = field(default_factory=dict)


class Log(Protocol):
    """Where events go."""

    def emit(self, kind: str, op: OpId | None = None, **data: Any) -> None:
        """Take one event, from any thread."""
        ...


class NullLog:
    """Keeps nothing."""

    def emit(self, kind: str, op: OpId | None = None, **data: Any) -> None:
        """Take the event and forget it."""


class EventLog:
    """The events of one rank in the order in which they happened.

    Any thread may emit. Without a lock, because appending to a list is one step, and the place in it is the number; so
    a simulated run has no switch there, where nobody could notice it. One thread at a time reads and forgets.
    ValueError from `emit`: a kind or fields that the vocabulary does not have.
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self._kept: list[tuple[str, OpId | None, dict[str, Any]]] = []
        self._forgotten = 0

    def emit(self, kind: str, op: OpId | None = None, **data: Any) -> None:
        """Append one event."""
        if FIELDS.get(kind) != tuple(data):
            raise ValueError(f"event {kind!r} has the fields {FIELDS.get(kind)}, not {tuple(data)}")
        self._kept.append((kind, op, data))

    def __len__(self) -> int:
        return self._forgotten + len(self._kept)

    def take_since(self, seq: int) -> list[Event]:
        """The events from number `seq` on. ValueError: some of them were forgotten."""
        if seq < self._forgotten:
            raise ValueError(f"events before {self._forgotten} were forgotten, {seq} is asked for")
        wanted = self._kept[seq - self._forgotten :]
        return [Event(self.rank, number, *kept) for number, kept in enumerate(wanted, seq)]

    def forget_before(self, seq: int) -> None:
        """Drop the events below `seq`, so that a long run that hands its events on stays small."""
        dropped = max(0, min(seq - self._forgotten, len(self._kept)))
        del self._kept[:dropped]
        self._forgotten += dropped

    def restart(self) -> None:
        """Forget everything and number from 0 again."""
        self._kept, self._forgotten = [], 0

    def dump(self, stream: TextIO) -> None:
        """Write the events as JSON lines."""
        dump_events(self.take_since(self._forgotten), stream)


def dump_events(events: Iterable[Event], stream: TextIO) -> None:
    """One JSON object a line: `rank, seq, kind`, `op` as [request id, attempt] or null, `data`."""
    for event in events:
        line = {"rank": event.rank, "seq": event.seq, "kind": event.kind, "op": event.op, "data": event.data}
        stream.write(json.dumps(line, separators=(",", ":")) + "\n")


def load_events(stream: TextIO) -> Iterator[Event]:
    """Read what `dump_events` wrote. ValueError names the line that is not an event."""
    for number, line in enumerate(stream, 1):
        try:
            raw = json.loads(line)
            op = None if raw["op"] is None else (str(raw["op"][0]), int(raw["op"][1]))
            yield Event(int(raw["rank"]), int(raw["seq"]), str(raw["kind"]), op, dict(raw["data"]))
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise ValueError(f"line {number} is not an event: {error}") from error
