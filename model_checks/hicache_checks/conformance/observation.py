"""What is seen of an implementation: events, one log a rank, and what can be observed between two calls.

Kinds and fields of events are those of `hicache_spec.events`; here is what a field may hold. Events come from outside,
so they are checked, never trusted. The format of a file is in `traces.py`; `spec/EVENTS.md` has both in words.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from reprlib import repr as shown
from typing import Any, Final, Protocol

from hicache_spec.events import LOGGED_LOCKSTEP, LOGGED_THREAD

FIELDS = {**LOGGED_LOCKSTEP, **LOGGED_THREAD}
OF_CONTROL = (
    *("detaching", "resetting", "kept", "attaching", "attached", "attach_failed"),
    *("told_to_stop", "thread_ended", "detached", "begun_again", "thread_started", "start_failed"),
)
WITHOUT_OPERATION = frozenset(
    (
        "evicted",
        "written",
        "copied",
        "reclaimed",
        "slots_taken",
        "slots_freed",
        "backed_up",
        "stored",
        "loaded",
        "arrived",
        *OF_CONTROL,
        "closed",
        "joined",
        "left",
        "died",
    )
)
OpId = tuple[str, int]


class Unobserved(enum.Enum):
    """The type of `UNOBSERVED`."""

    UNOBSERVED = "unobserved"

    def __repr__(self) -> str:
        return self.name

    __str__ = __repr__


UNOBSERVED: Final = Unobserved.UNOBSERVED
"""What an adapter says of something that it cannot see."""


class LogError(Exception):
    """A log that cannot be used; the message is one line and names the place."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an event was read."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}"


@dataclass(frozen=True)
class Event:
    """One step that a rank logged."""

    rank: int
    seq: int
    kind: str
    op: OpId | None = None
    data: dict[str, Any] = field(default_factory=dict)
    place: Place | None = field(default=None, compare=False)

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


# ---- what a field may hold


@dataclass(frozen=True)
class Values:
    """What a field may hold: in words, and as a test."""

    words: str
    admits: Callable[[Any], bool]


def is_count(value: object) -> bool:
    """A number from 0 on; neither a truth value nor a fraction."""
    return type(value) is int and value >= 0


def is_text(value: object) -> bool:
    """Text that can be written down: no half of a surrogate pair."""
    return isinstance(value, str) and not any("\ud800" <= character <= "\udfff" for character in value)


def is_operation(value: object) -> bool:
    """A request id and the number of its attempt, from 1 on."""
    return (
        isinstance(value, (list, tuple))
        and len(value) == 2
        and is_text(value[0])
        and type(value[1]) is int
        and value[1] >= 1
    )


def _one_of(*words: str) -> Values:
    return Values(", ".join(words), words.__contains__)


PAGES = Values("pages", is_count)
PAGE = Values("the page's place in the operation", is_count)
NODE = Values("a node's id", is_count)
NUMBER = Values("a number", is_count)
FLAG = Values("true, false", lambda value: type(value) is bool)
TEXT = Values("text", is_text)
SLOTS = Values("slots", is_count)

DECLINES = ("pending", "too_short", "limited")
# The last known node is on the device only, so nothing may hang under it on the host: a reason of a tree with two
# tiers, which the design's chains do not have. It is taken on trust, and counted.
TREE_DECLINES = "anchor"
# There is no store now.
STORE_DECLINES = "detached"
ENDS = ("complete", "policy", "stopped", "failed_page", "aborted")
VALUES: dict[str, Values] = {
    **dict.fromkeys(("span", "base", "pages", "hit", "known", "evictable", "free", "failed", "counted"), PAGES),
    **dict.fromkeys(("node", "anchor"), NODE),
    **dict.fromkeys(("group", "call", "error"), TEXT),
    **dict.fromkeys(("slots", "wanted"), SLOTS),
    "pool": TEXT,
    "page": PAGE,
    "number": NUMBER,
    "terminated": FLAG,
    "by": _one_of("drain", "poll", "abort"),
}
REASONS: dict[str, Values] = {
    "declined": _one_of(*DECLINES, TREE_DECLINES, STORE_DECLINES),
    "revoked": _one_of("below_threshold", "no_memory", "stopped", "aborted"),
    "fetched": _one_of(*ENDS),
    "marked": _one_of(*ENDS),
    "io_failed": TEXT,
    "start_failed": TEXT,
}
WORKERS = dict.fromkeys(("thread_ended", "thread_started"), _one_of("query", "io", "backup"))


def values_of(kind: str, name: str) -> Values:
    """What this field of this kind of event may hold."""
    if name == "thread":
        return WORKERS.get(kind, TEXT)
    return REASONS[kind] if name == "reason" else VALUES[name]


def problem_of(event: Event) -> str | None:
    """What is wrong with an event by itself: its kind, its operation or a field; None if nothing is."""
    fields = FIELDS.get(event.kind)
    if fields is None:
        return f"unknown event {shown(event.kind)}"
    if event.kind in WITHOUT_OPERATION:
        if event.op is not None:
            return f"{event.kind} has no operation"
    elif not is_operation(event.op):
        return f"{event.kind} needs the operation that it is about"
    if event.data.keys() != set(fields):
        return f"{event.kind} has the fields {shown(sorted(event.data))}, expected {sorted(fields)}"
    for name, value in event.data.items():
        values = values_of(event.kind, name)
        if not values.admits(value):
            return f"{name} of {event.kind} is {shown(value)}, expected {values.words}"
    return None


def checked(seen: Iterable[Seen]) -> Iterator[Event]:
    """Events from an adapter's log, with kinds and fields checked. Raises LogError."""
    for e in seen:
        event = Event(e.rank, e.seq, e.kind, e.op, dict(e.data))
        problem = problem_of(event)
        if problem is not None:
            raise LogError(f"rank {e.rank}, event {e.seq}: {problem}")
        yield event


def is_all_back(seen: Mapping[str, Any], host_pages: int) -> bool:
    """Can it be seen in an observation that nothing is pending, and that every page is free or in the tree?"""
    operations, free, resident = (seen.get(name, UNOBSERVED) for name in ("operations", "free_pages", "resident_pages"))
    if UNOBSERVED in (operations, free, resident):
        return False
    return not operations and free + resident == host_pages
