"""Offline: hold the finished logs of all ranks to the specification.

The logs are read side by side, so that only what lies between two steps of the schedulers is ever in memory. A step of
the schedulers goes to the monitor when every rank's copy of it has been read: copies that differ are found before
anything that follows from one of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from hicache_checks.conformance.explainer import CANONICAL
from hicache_checks.conformance.merge import Lockstep, Merger, is_of_scheduler, is_same_step, said
from hicache_checks.conformance.monitor import Finding, Monitor, MonitorConfig
from hicache_checks.conformance.next_steps import next_steps
from hicache_checks.conformance.observation import Event, LogError
from hicache_checks.conformance.traces import LogFile

CHUNK_EVENTS = 64
# Ranks of one file whose lines lie further apart than this are not merged.
BACKLOG_EVENTS_MAX = 200_000


class TooFarApart(Exception):
    """The lines of different ranks cannot be brought together in the memory that is allowed."""


@dataclass(frozen=True)
class Explained:
    """How many events the specification explained, how many it had to take on trust, and the first that it did not.

    `whole`: the logs end where the run did; else nothing is said of what never ended. With a finding come `last`, the
    last event that was explained, and `possible`, what could have followed.
    """

    events: int
    unobserved: int
    whole: bool
    finding: Finding | None
    last: Event | None = None
    possible: Sequence[str] = ()


def explain_traces(files: Sequence[LogFile], progress: Callable[[str], None], design: str = CANONICAL) -> Explained:
    """Explain the traces of one run, which together hold the log of every rank, by a design.

    Raises LogError for what is no trace of one run, TooFarApart.
    """
    config = files[0].header.config
    of_rank: dict[int, LogFile] = {}
    for file in files:
        if file.header.config != config:
            raise LogError(f"{file.path}, line 1: of another run than {files[0].path}")
        for rank in file.header.logs_of:
            if rank in of_rank:
                raise LogError(f"{file.path}, line 1: the log of rank {rank} is in {of_rank[rank].path}, too")
            of_rank[rank] = file
    missing = sorted(set(range(config.ranks)) - of_rank.keys())
    if missing:
        raise LogError(f"no file has the log of {', '.join(f'rank {rank}' for rank in missing)}")
    return _explain(files, replace(config, design=design), progress, lambda: all(file.is_whole for file in files))


def _explain(
    files: Sequence[LogFile], config: MonitorConfig, progress: Callable[[str], None], is_whole: Callable[[], bool]
) -> Explained:
    monitor, merger = Monitor(config), Merger(config.ranks)
    reading = SideBySide({rank: file for file in files for rank in file.header.logs_of}, merger)
    before, last, more = monitor.spec.encode(monitor.state), None, True
    while more and monitor.finding is None:
        more = reading.read(CHUNK_EVENTS)
        for event in merger.ready(more):
            before = monitor.spec.encode(monitor.state)
            monitor.feed(event)
            if monitor.finding is not None:
                break
            last = event
        else:
            before = monitor.spec.encode(monitor.state)
        progress(f"monitor: {monitor.explained:,} events explained")
    whole = is_whole()
    finding = monitor.finding or reading.difference
    if finding is None and whole:
        monitor.finish()
        finding = _never_joined(monitor, merger) or monitor.finding
    if finding is None:
        return Explained(monitor.explained, monitor.unobserved, whole, None)
    rank = None if finding.event is None else finding.event.rank
    possible = next_steps(monitor, monitor.spec.decode(before), rank)
    return Explained(monitor.explained, monitor.unobserved, whole, finding, last, possible)


def _never_joined(monitor: Monitor, merger: Merger) -> Finding | None:
    """Somebody left a collective that somebody never joined."""
    stuck = merger.stuck()
    if not stuck:
        return None
    waiting = "; ".join(map(str, stuck))
    elsewhere = [event for left in stuck for rank in merger.missing(left) for event in monitor.collectives(rank)]
    message = f"a rank left a collective that another never joined: {waiting}"
    return Finding("P7 lockstep", message, stuck[0], (*stuck[1:], *elsewhere))


class SideBySide:
    """Reads the logs of all ranks, always the one that is furthest behind, and hands on to the merger what is settled.

    `difference`: two ranks' schedulers took different steps.
    """

    def __init__(self, of_rank: Mapping[int, LogFile], merger: Merger) -> None:
        self.difference: Finding | None = None
        self._of_rank = of_rank
        self._merger = merger
        self._events = {file: iter(file) for file in of_rank.values()}
        self._open = sorted(of_rank)
        self._unsettled: list[deque[Event]] = [deque() for _ in of_rank]
        self._read = Lockstep(len(of_rank))
        self._settled = [0] * len(of_rank)
        self._limit: float = inf

    def read(self, events: int) -> bool:
        """Read some more; False: that was all, or no further is of use. Raises LogError, TooFarApart."""
        for _ in range(events):
            if self.difference is not None or not self._open:
                break
            self._read_one(self._of_rank[min(self._open, key=self._progress)])
        self._settle()
        return self.difference is None and bool(self._open)

    def _progress(self, rank: int) -> tuple[int, int]:
        """How far a rank's log has been read: steps of its scheduler, then events that wait for other ranks."""
        return self._read.position[rank], self._backlog(rank)

    def _backlog(self, rank: int) -> int:
        return len(self._unsettled[rank]) + self._merger.backlog(rank)

    def _read_one(self, file: LogFile) -> None:
        event = next(self._events[file], None)
        if event is None:
            self._open = [rank for rank in self._open if self._of_rank[rank] is not file]
            return
        self._unsettled[event.rank].append(event)
        if self._backlog(event.rank) > BACKLOG_EVENTS_MAX:
            raise TooFarApart(f"{file.path}: more than {BACKLOG_EVENTS_MAX:,} events wait for those of other ranks")
        if is_of_scheduler(event):
            place = self._read.position[event.rank]
            first = self._read.see(event)
            if first is not None and not is_same_step(first, event):
                self._limit = place
                message = f"another rank did {said(first)} at this point"
                self.difference = Finding("P7 lockstep", message, event, (first,))

    def _settle(self) -> None:
        limit = min([self._limit, *(self._read.position[rank] for rank in self._open)])
        for rank, unsettled in enumerate(self._unsettled):
            while unsettled and (not is_of_scheduler(unsettled[0]) or self._settled[rank] < limit):
                self._settled[rank] += is_of_scheduler(unsettled[0])
                self._merger.push(rank, [unsettled.popleft()])
