"""The logs of several ranks as one sequence, in an order in which it can have happened.

Within a rank the log's order is kept. Between ranks only collectives order anything: nobody leaves the n-th
collective of a group before everybody has joined it. Any sequence that respects both is as good as another, because
steps of different ranks between collectives do not see each other. Where ranks are told, threads may overtake their
scheduler (see `overtaking`).

Nothing is kept of what all ranks have passed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from hicache_checks.conformance.observation import Event, OpId
from hicache_checks.conformance.overtaking import TELL, first_overtaking

# The scheduler's events that are equal on all ranks but for this field.
RANKS_OWN = {"stored": "failed", "marked": "counted"}


class Lockstep:
    """What the schedulers of all ranks do, as one sequence of steps: each rank logs a copy of each step."""

    def __init__(self, ranks: int) -> None:
        self.position = [0] * ranks
        self._steps: deque[Event] = deque()
        self._forgotten = 0

    @property
    def steps(self) -> int:
        """How many steps some rank has logged."""
        return self._forgotten + len(self._steps)

    def see(self, event: Event) -> Event | None:
        """The rank logs its next step. None: it is the first to do so; else the event of the rank that was."""
        place = self.position[event.rank]
        self.position[event.rank] += 1
        if place == self.steps:
            self._steps.append(event)
            first = None
        else:
            first = self._steps[place - self._forgotten]
        while self._steps and min(self.position) > self._forgotten:
            self._steps.popleft()
            self._forgotten += 1
        return first


def is_same_step(one: Event, other: Event) -> bool:
    """Do two ranks log the same step of their schedulers?"""
    return (one.kind, one.op, _shared(one)) == (other.kind, other.op, _shared(other))


def is_of_scheduler(event: Event) -> bool:
    """Does every rank log a copy of this event?"""
    return event.is_lockstep or event.kind in RANKS_OWN


def said(event: Event) -> str:
    """A step of the schedulers, whichever rank took it."""
    operation = "" if event.op is None else f" {event.op[0]}#{event.op[1]}"
    return f"{event.kind}{operation}{''.join(f' {name}={value}' for name, value in _shared(event).items())}"


def _shared(event: Event) -> dict[str, Any]:
    return {name: value for name, value in event.data.items() if name != RANKS_OWN.get(event.kind)}


class Merger:
    """Takes events rank by rank and hands them out in a common order, as far as that is settled."""

    def __init__(self, ranks: int) -> None:
        self._waiting: list[deque[Event]] = [deque() for _ in range(ranks)]
        self._joined: dict[tuple[str, int], set[int]] = {}
        self._left: dict[tuple[str, int], set[int]] = {}
        self._passed: dict[str, int] = {}
        self._asked: list[OpId | None] = [None] * ranks
        self._steps = [0] * ranks
        self._is_told = False

    def push(self, rank: int, events: Iterable[Event]) -> None:
        """Add the next events of a rank."""
        for event in events:
            self._waiting[rank].append(event)
            self._is_told |= event.data.get("call") == TELL

    def backlog(self, rank: int) -> int:
        """How many events of a rank wait."""
        return len(self._waiting[rank])

    def ready(self, more: bool = False) -> Iterator[Event]:
        """Every event whose place is settled, once. What waits for other ranks' events stays for the next call.

        `more`: events are pushed later. Where ranks are told, the step of a scheduler that is ahead of another one then
        waits for what its own threads may have done before.
        """
        while (place := self._next_place(more)) is not None:
            rank, index = place
            while True:
                event = self._waiting[rank][index]
                del self._waiting[rank][index]
                self._note(event)
                yield event
                if self._is_told or not self._waiting[rank] or not self._may_go(self._waiting[rank][0]):
                    break

    def _next_place(self, more: bool) -> tuple[int, int] | None:
        """The rank, and the place in what waits of it, of an event that may go now.

        Where ranks are told, all else comes before the next step of a scheduler, which is that of the rank that is
        furthest behind.
        """
        heads = [rank for rank, waiting in enumerate(self._waiting) if waiting and self._may_go(waiting[0])]
        if self._is_told:
            heads.sort(key=lambda rank: (is_of_scheduler(self._waiting[rank][0]), self._steps[rank]))
            if heads and not is_of_scheduler(self._waiting[heads[0]][0]):
                return heads[0], 0
            for rank, waiting in enumerate(self._waiting):
                index = first_overtaking(waiting, self._asked[rank], self._may_go)
                if index is not None:
                    return rank, index
            if more and heads and self._steps[heads[0]] > min(self._steps):
                return None
        return (heads[0], 0) if heads else None

    def _may_go(self, event: Event) -> bool:
        return event.kind != "left" or not self.missing(event)

    def _note(self, event: Event) -> None:
        self._steps[event.rank] += is_of_scheduler(event)
        if event.kind.startswith("query_"):
            self._asked[event.rank] = event.op
        if event.kind not in ("joined", "left"):
            return
        place = (event.data["group"], event.data["number"])
        noted = self._joined if event.kind == "joined" else self._left
        noted.setdefault(place, set()).add(event.rank)
        if len(self._left.get(place, ())) == len(self._waiting):
            self._joined.pop(place, None)
            del self._left[place]
            self._passed[place[0]] = max(place[1], self._passed.get(place[0], -1))

    def missing(self, left: Event) -> list[int]:
        """The ranks that have not joined the collective that this event leaves."""
        group, number = left.data["group"], left.data["number"]
        if number <= self._passed.get(group, -1):
            return []
        # Who is told is not waited for; the first rank is of those who decide.
        awaited = {0} if left.data["call"] == TELL else set(range(len(self._waiting)))
        return sorted(awaited - self._joined.get((group, number), set()))

    def rest(self) -> list[Event]:
        """What still waits, rank by rank."""
        return [event for waiting in self._waiting for event in waiting]

    def stuck(self) -> list[Event]:
        """The first event of each rank that is still waiting: somebody left a collective that somebody never joined."""
        return [waiting[0] for waiting in self._waiting if waiting]
