"""Logs in which one event is lost, stands twice or is another one."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from hicache_checks.conformance.observation import FIELDS, Event, values_of

Logs = list[list[Event]]
Free = Collection[tuple[str, str]]


@dataclass(frozen=True)
class Edit:
    """Logs with an event changed at this place of a rank's. `kinds`: of the event, and of what stands there now."""

    what: str
    logs: Logs
    place: int
    kinds: frozenset[str]


def lost(logs: Logs, kinds: Collection[str], free: Free) -> Iterator[Edit]:
    """Without an event of these kinds, each in turn."""
    for rank, place, event in _events(logs, kinds):
        yield _edit(f"without {event}", logs, rank, place)


def twice(logs: Logs, kinds: Collection[str], free: Free) -> Iterator[Edit]:
    """With such an event twice."""
    for rank, place, event in _events(logs, kinds):
        yield _edit(f"twice {event}", logs, rank, place, event, event)


def another(logs: Logs, kinds: Collection[str], free: Free) -> Iterator[Edit]:
    """With another kind of event that has the same fields, or with another value of a field that is not free."""
    for rank, place, event in _events(logs, kinds):
        others = [replace(event, kind=kind) for kind in kinds if FIELDS[kind] == FIELDS[event.kind]]
        for name, value in event.data.items():
            if (event.kind, name) not in free:
                others += [
                    replace(event, data={**event.data, name: other}) for other in _values(event.kind, name, value)
                ]
        for other in others:
            if other != event:
                yield _edit(f"{other} for {event}", logs, rank, place, other)


def _values(kind: str, name: str, value: object) -> list[object]:
    if isinstance(value, int):
        return [value + more for more in (-1, 1, 5) if value + more >= 0]
    return [word for word in values_of(kind, name).words.split(", ") if word != value]


def _events(logs: Logs, kinds: Collection[str]) -> Iterator[tuple[int, int, Event]]:
    for rank, log in enumerate(logs):
        yield from ((rank, place, event) for place, event in enumerate(log) if event.kind in kinds)


def _edit(what: str, logs: Logs, rank: int, place: int, *instead: Event) -> Edit:
    changed = [list(log) for log in logs]
    kinds = frozenset(event.kind for event in (logs[rank][place], *instead))
    changed[rank][place : place + 1] = instead
    return Edit(what, changed, place, kinds)
