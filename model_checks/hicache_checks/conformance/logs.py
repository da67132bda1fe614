"""Offline: hold the finished logs of all ranks to the specification."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from hicache_checks.conformance.merge import Merger
from hicache_checks.conformance.monitor import Finding, Monitor, MonitorConfig
from hicache_checks.conformance.observation import Event, LogError, read_log

CHUNK_EVENTS = 256


@dataclass(frozen=True)
class Explained:
    """How many events the specification explained, how many it had to take on trust, and the first that it did not."""

    events: int
    unobserved: int
    finding: Finding | None


def explain_logs(
    logs: Sequence[Path], config: MonitorConfig, progress: Callable[[str], None], whole: bool = True
) -> Explained:
    """Merge the ranks' logs by the numbers of their collectives and replay them on the specification.

    `whole`: the run came to its end, so every operation must have ended. Raises LogError for a log that is not one.
    """
    monitor, merger = Monitor(config), Merger(config.ranks)
    streams = [read_log(path) for path in logs]
    if len(streams) != config.ranks:
        raise LogError(f"{len(streams)} logs for {config.ranks} ranks")
    while _push(merger, streams) and monitor.finding is None:
        for event in merger.ready():
            monitor.feed(event)
        progress(f"monitor: {monitor.explained:,} events explained")
    if monitor.finding is None and merger.stuck():
        waiting = "; ".join(map(str, merger.stuck()))
        finding = Finding("P7 lockstep", f"a rank left a collective that another never joined: {waiting}", None)
        return Explained(monitor.explained, monitor.unobserved, finding)
    if whole:
        monitor.finish()
    return Explained(monitor.explained, monitor.unobserved, monitor.finding)


def _push(merger: Merger, streams: Sequence[Iterator[Event]]) -> bool:
    """The next events of every rank; False when all logs are read."""
    chunks = [list(islice(stream, CHUNK_EVENTS)) for stream in streams]
    for rank, chunk in enumerate(chunks):
        merger.push(rank, chunk)
    return any(chunks)
