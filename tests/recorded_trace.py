"""A run of the reference with real threads in which nearly every kind of event happens, recorded; and its file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cache_scenario import Scenario, tokens
from hicache_checks.conformance.merge import Merger
from hicache_checks.conformance.monitor import Finding, Monitor, MonitorConfig
from hicache_checks.conformance.observation import Event, checked
from hicache_checks.conformance.traces import write_trace
from hicache_impl.adapter import Reference
from hicache_impl.controller import Controller
from hicache_impl.layout import Layout


def config_of(ranks: int) -> MonitorConfig:
    return MonitorConfig(ranks=ranks, host_pages=6, threshold_pages=1, limit_pages=99, policy="wait_complete")


def recorded(ranks: int = 2, stages: int = 1) -> list[list[Event]]:
    """Pages are fetched, aborted, missed, stopped, written through, evicted and loaded: the logs of all ranks."""
    config = config_of(ranks)
    layout = Layout(tp=ranks // stages, pp=stages)
    scenario = Scenario(layout=layout, host_pages=config.host_pages, threshold_pages=1)
    reference = scenario.reference
    scenario.fetch("whole", tokens(1, 3))
    scenario.submit("gone", tokens(2, 2))
    scenario.turn()
    reference.abort("gone")
    scenario.submit("early", tokens(6, 1))
    reference.abort("early")
    scenario.submit("miss", tokens(3, 2), stored=0)
    assert reference.submit("miss", tokens(3, 2))["reason"] == "pending"
    assert reference.submit("nothing", [])["reason"] == "too_short"
    scenario.turn()
    reference.break_storage(ranks - 1, "get", "miss")
    scenario.submit("half", tokens(4, 3))
    scenario.turn()
    assert scenario.poll("half")[:2] == (True, "fetched")
    reference.heal_storage()
    reference.quiesce()
    scenario.runtime.hold("io.copied", 0)
    scenario.submit("late", tokens(7, 2))
    scenario.turn()
    reference.stop("late")
    scenario.runtime.release_all()
    scenario.turn()
    assert scenario.poll("late")[:3] == (True, "fetched", "stopped")
    reference.prefill(tokens(5, 4))
    reference.quiesce()
    reference.evict_device(4)
    reference.prefill(tokens(5, 4))
    reference.quiesce()
    reference.close()
    return logs_of(reference)


def recorded_clamp(ranks: int = 2) -> list[list[Event]]:
    """Two prefixes are fetched, and there is one state: the second hit is clamped to nothing."""
    config = config_of(ranks)
    state = {"name": "state", "kind": "state", "host_slots": 1, "device_slots": 1}
    scenario = Scenario(ranks=ranks, host_pages=config.host_pages, threshold_pages=1, tree="hi_mamba", pools=[state])
    scenario.runtime.hold("io.take")
    scenario.submit("first", tokens(1, 2))
    scenario.submit("second", tokens(2, 2))
    scenario.turn()
    scenario.runtime.release_all()
    scenario.turn()
    assert scenario.poll("first")[:2] == (True, "fetched")
    scenario.reference.quiesce()
    scenario.reference.close()
    return logs_of(scenario.reference)


class FailsOnce(Controller):
    """The last rank cannot start all its threads, while `fails`."""

    fails = False

    def start(self) -> None:
        super().start()
        if FailsOnce.fails and self.rank == self.config.ranks - 1:
            raise RuntimeError("no thread can be had")


def recorded_control(ranks: int = 2) -> list[list[Event]]:
    """A detach is given up, another comes with operations on their way; an attach fails, the next does not; resets."""
    scenario = Scenario(
        ranks=ranks, host_pages=config_of(ranks).host_pages, threshold_pages=1, controller_class=FailsOnce, timeout_s=2
    )
    reference = scenario.reference
    scenario.fetch("before", tokens(1, 2))
    scenario.runtime.hold("io.copied", ranks - 1)
    scenario.submit("reading", tokens(2, 2))
    scenario.turn()
    scenario.submit("answered", tokens(3, 1))
    reference.settle()
    assert not reference.detach()
    scenario.runtime.release_all()
    scenario.submit("again", tokens(4, 2))
    scenario.turn()
    scenario.submit("waits", tokens(5, 1))
    assert reference.detach()
    assert reference.submit("late", tokens(1, 3))["reason"] == "detached"
    reference.prefill(tokens(6, 1))
    FailsOnce.fails = True
    assert not reference.attach()
    FailsOnce.fails = False
    assert reference.attach()
    scenario.fetch("again", tokens(4, 2))
    scenario.submit("lost", tokens(7, 2))
    scenario.turn()
    assert reference.begin_again()
    scenario.fetch("lost", tokens(7, 2))
    assert reference.detach()
    assert reference.begin_again()
    scenario.fetch("before", tokens(1, 2))
    reference.close()
    return logs_of(reference)


def recorded_tiers(ranks: int = 2, **settings: Any) -> list[list[Event]]:
    """Prompts are computed, copied to the host, stored, loaded back; a store refuses some; one comes while detached."""
    scenario = Scenario(ranks=ranks, host_pages=config_of(ranks).host_pages, threshold_pages=1, **settings)
    reference = scenario.reference
    scenario.runtime.hold("backup.take")
    reference.prefill(tokens(1, 1))
    reference.prefill(tokens(2, 2))
    scenario.turn()
    reference.break_storage(ranks - 1, "put", "miss")
    scenario.runtime.release_all()
    reference.quiesce()
    reference.heal_storage()
    reference.evict_device(3)
    reference.prefill(tokens(1, 1))
    reference.prefill([*tokens(2, 2), *tokens(3, 1)])
    reference.quiesce()
    assert reference.detach()
    reference.prefill(tokens(4, 1))
    assert reference.attach()
    reference.prefill(tokens(5, 1))
    reference.quiesce()
    reference.close()
    return logs_of(reference)


def logs_of(reference: Reference) -> list[list[Event]]:
    """What each rank logged, up to its last word; what its threads log after that is not looked at."""
    logs = [list(checked(log.take_since(0))) for log in reference.logs()]
    return [log[: next((i for i, event in enumerate(log, 1) if event.kind == "closed"), None)] for log in logs]


def explain(
    logs: Sequence[Sequence[Event]], config: MonitorConfig | None = None, chunk: int = 10_000
) -> Finding | None:
    """What the monitor says, which gets so many events of each rank at a time."""
    monitor, merger = Monitor(config or config_of(len(logs))), Merger(len(logs))
    for start in range(0, max(map(len, logs)), chunk):
        for rank, log in enumerate(logs):
            merger.push(rank, log[start : start + chunk])
        for event in merger.ready():
            monitor.feed(event)
    if monitor.finding is None and merger.stuck():
        return Finding("stuck", "", None)
    monitor.finish()
    return monitor.finding


@dataclass(frozen=True)
class Kept:
    """Events that look like a rank's log."""

    events: Sequence[Event]

    def take_since(self, seq: int) -> Sequence[Event]:
        return self.events[seq:]


def write_recorded(path: Path, logs: Sequence[Sequence[Event]], is_whole: bool = True) -> list[str]:
    """The lines of the file that these logs make."""
    write_trace(path, config_of(len(logs)), [Kept(log) for log in logs], "tests/recorded_trace.py", is_whole)
    return path.read_text(encoding="utf-8").splitlines(keepends=True)
