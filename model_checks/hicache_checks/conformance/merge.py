"""The logs of several ranks as one sequence, in an order in which it can have happened.

Within a rank the log's order is kept. Between ranks only collectives order anything: nobody leaves the n-th
collective of a group before everybody has joined it. Any sequence that respects both is as good as another, because
steps of different ranks between collectives do not see each other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from hicache_checks.conformance.observation import Event


class Merger:
    """Takes events rank by rank and hands them out in a common order, as far as that is settled."""

    def __init__(self, ranks: int) -> None:
        self._waiting: list[deque[Event]] = [deque() for _ in range(ranks)]
        self._joined: dict[tuple[str, int], int] = {}

    def push(self, rank: int, events: Iterable[Event]) -> None:
        """Add the next events of a rank."""
        self._waiting[rank].extend(events)

    def ready(self) -> Iterator[Event]:
        """Every event whose place is settled, once. What waits for other ranks' events stays for the next call."""
        moved = True
        while moved:
            moved = False
            for waiting in self._waiting:
                while waiting and self._may_go(waiting[0]):
                    event = waiting.popleft()
                    if event.kind == "joined":
                        place = (event.data["group"], event.data["number"])
                        self._joined[place] = self._joined.get(place, 0) + 1
                    moved = True
                    yield event

    def _may_go(self, event: Event) -> bool:
        if event.kind != "left":
            return True
        return self._joined.get((event.data["group"], event.data["number"]), 0) == len(self._waiting)

    def stuck(self) -> list[Event]:
        """The first event of each rank that is still waiting: somebody left a collective that somebody never joined."""
        return [waiting[0] for waiting in self._waiting if waiting]
