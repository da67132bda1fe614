"""A run told step by step: recorded while it is judged.

Logs are read after each call, so an event stands below the call during which it happened. Ranks that did the same are
told once, unless one of them did something else, or the caller did, in between. What the query thread or the IO thread
does with an operation is told in one go, as long as nobody else does something.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from hicache_checks.conformance.difference import Change, said, together
from hicache_checks.conformance.findings import Finding
from hicache_checks.conformance.observation import Event, OpId
from hicache_checks.conformance.program import Setup, Step
from hicache_checks.reporting import counted
from hicache_checks.reporting.story import CALL, CALLER, EVENT, FINDING, Row, Story
from hicache_checks.simulation.world import DESYNC

SCHEDULER = "scheduler"
QUERY = "query"
IO = "io"
BACKUP = "backup"
# Who logs an event, and whom it hands something to.
HANDS: Mapping[str, tuple[str, str]] = {
    "submitted": (SCHEDULER, QUERY),
    "declined": (SCHEDULER, CALLER),
    "allocated": (SCHEDULER, IO),
    "fetched": (SCHEDULER, CALLER),
    "revoked": (SCHEDULER, CALLER),
    "written": (SCHEDULER, BACKUP),
    "query_put": (QUERY, SCHEDULER),
    "io_released": (IO, SCHEDULER),
}
COLLECTIVE = ("joined", "left")
# What follows from what was told, but where it is what is wrong.
FOLLOWS = (
    *("copied", "backed_up", "arrived", "slots_taken", "slots_freed"),
    *("told_to_stop", "thread_ended", "thread_started"),
)
# What is not asked of the system but done to it, or to its storage.
DONE_TO_IT = (
    *("store", "break_storage", "lose", "heal_storage"),
    *("set_clock", "slow_rank", "kill_thread", "kill_rank"),
)
# Calls that are told only when something comes of them.
ROUTINE = ("tick", "poll", "observe", "audit", "audit_stores")
FAULTS = ("break_storage", "lose")
HEALS = "heal_storage"
PASSED_S = 0.01


@dataclass
class _Told:
    """A row in the making. `events`: the rank and the number in its log of each event that the row stands for."""

    kind: str
    thread: str
    to: str
    what: list[str]
    op: OpId | None = None
    is_minor: bool = False
    ranks: list[int] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    events: list[tuple[int, int]] = field(default_factory=list)


class Recorder:
    """Takes calls and events in the order in which they are judged."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._told: list[_Told] = []
        self._now: float | None = None
        self._is_faulty = False
        self._broken: _Told | None = None
        self._broken_in_collective = False
        self._about: Sequence[Event] = ()
        self._allowed: list[str] = []

    def call(self, step: Step, now: float) -> None:
        """The caller calls."""
        if self._now is not None and now - self._now > PASSED_S:
            passed = f"{now - self._now:.1f} s pass"
            self._told.append(_Told(CALL, CALLER, "", [passed], is_minor=self._setup.policy != "timeout"))
        is_minor = step.kind in ROUTINE or (step.kind == HEALS and not self._is_faulty)
        self._is_faulty = step.kind in FAULTS or (self._is_faulty and step.kind != HEALS)
        what = "settle()" if step.kind == "observe" else str(step)
        self._told.append(_Told(CALL, CALLER, "" if step.kind in DONE_TO_IT else SCHEDULER, [what], is_minor=is_minor))

    def returned(self, now: float) -> None:
        """The call is over."""
        self._now = now

    def flushed(self) -> None:
        """Everything begins again, the numbers of events too."""
        for told in self._told:
            told.events.clear()

    def event(self, event: Event, changes: Sequence[Change]) -> None:
        """A rank logged an event that is explained."""
        self._add(_of(event), event, changes)

    def broken(self, event: Event, changes: Sequence[Change], about: Sequence[Event], allowed: Sequence[str]) -> None:
        """A rank logged an event that is not explained."""
        told = _of(event)
        self._told.append(told)
        told.ranks, told.events, told.changes = [event.rank], [(event.rank, event.seq)], list(changes)
        self._broken_in_collective = told.is_minor
        self._broken, self._about = told, about
        mine = [line for line in allowed if line.startswith(told.thread)]
        self._allowed = mine or list(allowed)

    def story(self, finding: Finding | None) -> Story:
        """Everything so far, and what is wrong."""
        told = self._in_one_go(self._worth_telling(finding))
        rows = [self._row(t) for t in told]
        if finding is not None:
            at = self._broken or _Told(FINDING, CALLER, "", [])
            rows.append(Row(FINDING, at.ranks, at.thread, "", [finding.property, finding.message], []))
        about = {(event.rank, event.seq) for event in self._about}
        numbers = [number for number, t in enumerate(told, 1) if about.intersection(t.events)]
        return Story(system_of(self._setup), rows, numbers, self._allowed)

    def _add(self, told: _Told, event: Event, changes: Sequence[Change]) -> None:
        same = self._same(told, event.rank)
        if same is None:
            self._told.append(told)
            same = told
        same.ranks.append(event.rank)
        same.events.append((event.rank, event.seq))
        same.changes += changes

    def _same(self, told: _Told, rank: int) -> _Told | None:
        """The row of another rank that this rank's step can join: nothing of this rank stands below it, and no call."""
        for earlier in reversed(self._told):
            if earlier.kind != EVENT or rank in earlier.ranks:
                return None
            if (earlier.thread, earlier.what) == (told.thread, told.what):
                return earlier
        return None

    def _worth_telling(self, finding: Finding | None) -> list[_Told]:
        """Without collectives, unless the finding is about them, and without calls of which nothing came."""
        is_of_collectives = finding is not None and (
            finding.place == DESYNC or "collective" in finding.message or self._broken_in_collective
        )
        told = [t for t in self._told if t.kind == CALL or not t.is_minor or is_of_collectives]
        nexts = [*told, None][1:]
        return [
            t
            for t, after in zip(told, nexts, strict=True)
            if t.kind != CALL or not t.is_minor or (after.kind != CALL if after else finding is not None)
        ]

    def _in_one_go(self, told: Sequence[_Told]) -> list[_Told]:
        """What one of the threads does with an operation, without anybody else in between, as one row."""
        rows: list[_Told] = []
        for t in told:
            last = rows[-1] if rows else None
            if (
                last is not None
                and t.thread in (QUERY, IO)
                and (t.thread, t.op, sorted(t.ranks)) == (last.thread, last.op, sorted(last.ranks))
                and t is not self._broken
            ):
                what, events = [*last.what, *t.what], [*last.events, *t.events]
                changes = together(last.changes, t.changes)
                rows[-1] = replace(last, what=what, to=t.to or last.to, changes=changes, events=events)
            else:
                rows.append(t)
        return rows

    def _row(self, told: _Told) -> Row:
        changes = said(told.changes, told.ranks, self._setup.ranks)
        return Row(told.kind, sorted(told.ranks), told.thread, told.to, told.what, changes)


def system_of(setup: Setup) -> str:
    """A setup in one line."""
    sizes = f"{setup.host_pages} host pages, threshold {setup.threshold_pages}, limit {setup.limit_pages}"
    stored = ", ".join(str(list(prompt)) for prompt in setup.stored) or "nothing"
    return f"{counted(setup.ranks, 'rank')}, {setup.policy}, {sizes}; stored: {stored}"


def _of(event: Event) -> _Told:
    what = [str(event).partition(": ")[2]]
    thread, to = HANDS.get(event.kind, (_thread(event), ""))
    return _Told(EVENT, thread, to, what, event.op, event.kind in (*COLLECTIVE, *FOLLOWS))


def _thread(event: Event) -> str:
    if event.kind == "backed_up":
        return BACKUP
    if event.kind in ("died", "thread_ended"):
        return str(event.data["thread"])
    name = str(event.data["group"]) if event.kind in COLLECTIVE else event.kind.partition("_")[0]
    return name if name in (QUERY, IO) else SCHEDULER
