"""What is seen of an implementation: events, one log a rank.

A log is JSON lines: `rank`, `seq` (0, 1, 2, ... within the rank), `kind`, `op` ([request id, attempt] or null), `data`.
Kinds and fields are those of `hicache_spec.events`. Logs come from outside, so they are parsed and checked, never
trusted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from hicache_spec.events import LOGGED_LOCKSTEP, LOGGED_THREAD

FIELDS = {**LOGGED_LOCKSTEP, **LOGGED_THREAD}
OpId = tuple[str, int]


class LogError(Exception):
    """A log that cannot be used; the message is one line and names the place."""


@dataclass(frozen=True)
class Event:
    """One step that a rank logged."""

    rank: int
    seq: int
    kind: str
    op: OpId | None = None
    data: dict[str, Any] = field(default_factory=dict)

    @property
    def is_lockstep(self) -> bool:
        """Is it a scheduler's event, the same on every rank?"""
        return self.kind in LOGGED_LOCKSTEP

    def __str__(self) -> str:
        operation = "" if self.op is None else f" {self.op[0]}#{self.op[1]}"
        data = "".join(f" {name}={value}" for name, value in self.data.items())
        return f"rank {self.rank} #{self.seq}: {self.kind}{operation}{data}"


class Seen(Protocol):
    """Anything that looks like an event: what an adapter's log hands out."""

    @property
    def rank(self) -> int:
        """Whose event it is."""

    @property
    def seq(self) -> int:
        """Its number within the rank."""

    @property
    def kind(self) -> str:
        """Its name in the vocabulary."""

    @property
    def op(self) -> OpId | None:
        """The operation that it is about."""

    @property
    def data(self) -> dict[str, Any]:
        """Its fields."""


def checked(seen: Iterable[Seen]) -> Iterator[Event]:
    """Events from an adapter's log, with kinds and fields checked. Raises LogError."""
    for e in seen:
        yield _checked(Event(e.rank, e.seq, e.kind, e.op, dict(e.data)), f"rank {e.rank}, event {e.seq}")


def read_log(path: Path) -> Iterator[Event]:
    """The events of a rank's log. Raises LogError, naming the line, for what is not a log of one rank without gaps."""
    with path.open(encoding="utf-8") as lines:
        rank = None
        for number, line in enumerate(lines, 1):
            where = f"{path.name}, line {number}"
            event = _checked(_parse(line, where), where)
            if event.seq != number - 1 or event.rank != (rank := event.rank if rank is None else rank):
                raise LogError(f"{where}: expected event {number - 1} of rank {rank}")
            yield event


def _parse(line: str, where: str) -> Event:
    if not line.endswith("\n"):
        raise LogError(f"{where}: the line is cut")
    try:
        raw = json.loads(line)
        op = None if raw["op"] is None else (str(raw["op"][0]), int(raw["op"][1]))
        return Event(int(raw["rank"]), int(raw["seq"]), str(raw["kind"]), op, dict(raw["data"]))
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise LogError(f"{where}: not an event ({type(error).__name__})") from None


def _checked(event: Event, where: str) -> Event:
    fields = FIELDS.get(event.kind)
    if fields is None:
        raise LogError(f"{where}: unknown event {event.kind!r}")
    if set(event.data) != set(fields):
        raise LogError(f"{where}: {event.kind} has the fields {sorted(event.data)}, expected {sorted(fields)}")
    return event
