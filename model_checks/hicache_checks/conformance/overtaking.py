"""Where later stages of a pipeline are told what a tick drains: what of a rank's log may come before what it logged
earlier.

Nobody waits for a rank that is told (`tell`, EVENTS.md). So another one's scheduler may be steps ahead, and its threads
in look-ups with threads of this rank, whose own scheduler comes to those steps later. One order for all, in which the
schedulers keep step, is then found only if what the threads of a rank did may come before steps of its scheduler that
have nothing to do with it. Two steps have to do with each other if they are of one operation, if one gives up a page
and the other takes it back, or if one hands over what the other stores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hicache_checks.conformance.observation import Event, OpId

TELL = "tell"
THREADS = ("query", "io", "backup")
# Steps of a scheduler that threads may overtake.
OVERTAKEN = frozenset(
    ("submitted", "declined", "stopped", "skipped", "clamped", "revoked", "allocated", "fetched", "marked", "evicted")
) | {"written", "copied", "stored", "loaded", "arrived", "slots_taken", "slots_freed", "joined", "left", "reclaimed"}
# By which threads not, though they are of no operation.
NOT_OVERTAKEN_BY = {"reclaimed": "io", "copied": "backup"}


def thread_of(event: Event) -> str | None:
    """Which of a rank's threads logged it, if not the scheduler."""
    if event.kind == "backed_up":
        return "backup"
    name = str(event.data["group"]) if event.kind in ("joined", "left") else event.kind.partition("_")[0]
    return name if name in THREADS else None


def first_overtaking(waiting: Sequence[Event], asked: OpId | None, may_go: Callable[[Event], bool]) -> int | None:
    """The place of the first event, but for the very first, that may come before all that stand before it.

    `waiting`: what is left of a rank's log; `asked`: the operation that its query thread works on. None: there is none.
    """
    behind: set[OpId | None] = set()
    held: set[str] = set()
    for place, event in enumerate(waiting):
        thread = thread_of(event)
        if thread is not None:
            # A collective is part of the look-up that it stands in.
            op = asked if event.op is None else event.op
            # A backup is of no operation.
            if place and thread not in held and (thread == "backup" or op not in behind) and may_go(event):
                return place
            held.add(thread)
        elif event.kind in OVERTAKEN:
            behind.add(event.op)
            held.add(NOT_OVERTAKEN_BY.get(event.kind, ""))
        else:
            return None
        if held.issuperset(THREADS):
            return None
    return None
