"""The monitor: merging logs, explaining them, and refusing what did not happen that way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hicache_checks.conformance.logs import explain_traces
from hicache_checks.conformance.merge import Merger
from hicache_checks.conformance.monitor import Finding, Monitor, MonitorConfig
from hicache_checks.conformance.observation import Event, OpId
from hicache_checks.conformance.traces import LogFile
from recorded_trace import config_of, explain, recorded, write_recorded

Logged = tuple[str, OpId | None, dict[str, Any]]
CONFIG = config_of(2)
LOGS = recorded()


def test_what_happened_is_explained() -> None:
    assert explain(LOGS) is None
    kinds = {event.kind for event in LOGS[0]}
    assert {"fetched", "revoked", "allocated", "marked", "evicted", "written", "stored", "reclaimed"} <= kinds


@pytest.mark.heavy
@settings(suppress_health_check=list(HealthCheck), max_examples=15)
@given(st.data())
def test_any_order_that_respects_collectives_is_explained(data: st.DataObject) -> None:
    """Feed the ranks' logs in chunks of any size: the merged orders differ, the verdict does not."""
    monitor, merger = Monitor(CONFIG), Merger(2)
    taken = [0, 0]
    while taken != [len(log) for log in LOGS]:
        rank = data.draw(st.integers(0, 1))
        size = data.draw(st.sampled_from((1, 3, 10, 40, 100)))
        merger.push(rank, LOGS[rank][taken[rank] : taken[rank] + size])
        taken[rank] = min(len(LOGS[rank]), taken[rank] + size)
        for event in merger.ready():
            monitor.feed(event)
    monitor.finish()
    assert monitor.finding is None


RUNS = {"waited for": LOGS, "told": recorded(2, stages=2)}


def changeable(logs: list[list[Event]]) -> list[tuple[int, int]]:
    return [(rank, at) for rank, log in enumerate(logs) for at, event in enumerate(log) if event.kind != "closed"]


@pytest.mark.heavy
@pytest.mark.parametrize("run", RUNS)
def test_every_lost_event_is_noticed(run: str) -> None:
    for rank, index in changeable(RUNS[run]):
        logs = [list(log) for log in RUNS[run]]
        lost = logs[rank].pop(index)
        assert explain(logs) is not None, f"without {lost}"


@pytest.mark.heavy
@pytest.mark.parametrize("run", RUNS)
def test_every_event_that_happened_twice_is_noticed(run: str) -> None:
    for rank, index in changeable(RUNS[run]):
        logs = [list(log) for log in RUNS[run]]
        logs[rank].insert(index, logs[rank][index])
        assert explain(logs) is not None, f"twice {logs[rank][index]}"


def test_more_operations_than_slots_are_followed() -> None:
    """Twenty operations wait; the monitor begins with few slots and then has more."""
    ops = [(f"r{n}", 1) for n in range(20)]
    config = MonitorConfig(ranks=1, host_pages=6, threshold_pages=1, limit_pages=99, policy="wait_complete")
    monitor = Monitor(config, slots=2)
    events = [Event(0, n, "submitted", op, {"span": 2, "base": 0, "anchor": 0}) for n, op in enumerate(ops)]
    gone = {"reason": "aborted", "by": "abort", "evictable": 0, "free": 6}
    events += [Event(0, 20 + n, "revoked", op, gone) for n, op in enumerate(ops)]
    for event in events[:20]:
        monitor.feed(event)
    assert monitor.state.occupied == 40
    assert [monitor.state.query_queue[0][n] for n in range(20)] == [monitor._slots[op] for op in ops]
    for event in events[20:]:
        monitor.feed(event)
    assert monitor.finding is None
    assert monitor.state.occupied == 0
    monitor.feed(Event(0, 40, "query_taken", ("r1", 1), {"terminated": True}))
    assert monitor.finding is not None
    assert "not at the head" in monitor.finding.message


def test_what_all_ranks_have_passed_is_forgotten() -> None:
    monitor, merger = Monitor(CONFIG), Merger(2)
    for rank, log in enumerate(LOGS):
        merger.push(rank, log)
    for event in merger.ready():
        monitor.feed(event)
    steps = sum(event.is_lockstep for event in LOGS[0])
    assert monitor._lockstep.position == [steps, steps]
    assert (len(monitor._lockstep._steps), monitor._calls, merger._joined, merger._left) == (0, {}, {}, {})
    assert (monitor._slots, monitor._marked, monitor._released) == ({}, {}, [{}, {}])


def first(kind: str) -> int:
    return next(i for i, event in enumerate(LOGS[0]) if event.kind == kind)


def altered(change: Callable[[list[list[Event]]], None]) -> Finding:
    logs = [list(log) for log in LOGS]
    change(logs)
    finding = explain(logs)
    assert finding is not None
    return finding


def test_a_finding_names_the_property_and_the_event() -> None:
    def swap_attempts(logs: list[list[Event]]) -> None:
        for log in logs:
            index = next(i for i, event in enumerate(log) if event.kind == "skipped")
            log[index] = Event(log[index].rank, log[index].seq, "skipped", ("half", 1), {})

    finding = altered(swap_attempts)
    assert finding.property in ("inv_records_name_their_attempt", "step_drain_decides_its_own_attempt")
    assert "skipped half#1" in str(finding)


def test_ranks_that_differ_are_a_finding() -> None:
    def grant_less(logs: list[list[Event]]) -> None:
        index = first("allocated")
        event = logs[1][next(i for i, e in enumerate(logs[1]) if e.kind == "allocated")]
        logs[1][next(i for i, e in enumerate(logs[1]) if e.kind == "allocated")] = Event(
            1, event.seq, "allocated", event.op, {**event.data, "pages": 2}
        )
        assert index

    assert altered(grant_less).property == "P7 lockstep"


def test_a_pool_of_another_size_is_not_explained() -> None:
    finding = explain(LOGS, MonitorConfig(2, 5, 1, 99, "wait_complete"))
    assert finding is not None


def test_a_rank_that_never_joins_is_named(tmp_path: Path) -> None:
    cut = next(i for i, e in enumerate(LOGS[1]) if e.kind == "joined" and e.data["group"] == "sched")
    write_recorded(tmp_path / "trace.jsonl", [LOGS[0], LOGS[1][:cut]])
    finding = explain_traces([LogFile(tmp_path / "trace.jsonl")], lambda _: None).finding
    assert finding is not None
    assert finding.property == "P7 lockstep"
    assert "never joined" in finding.message


def watched(config: MonitorConfig, *steps: Logged) -> Monitor:
    monitor = Monitor(config)
    for seq, (kind, op, data) in enumerate(steps):
        monitor.feed(Event(0, seq, kind, op, data))
    return monitor


STORED: list[Logged] = [
    ("written", None, {"node": 1, "pages": 1}),
    ("copied", None, {"node": 1, "pages": 1}),
    ("backed_up", None, {"pages": 1, "failed": 0}),
    ("stored", None, {"node": 1, "pages": 1, "failed": 0}),
]
EVICTED: Logged = ("evicted", None, {"node": 1, "pages": 1})


@pytest.mark.parametrize("end", [Monitor.finish, lambda monitor: monitor.compare({})])
def test_an_eviction_that_nothing_follows_was_not_needed(end: Callable[[Monitor], None]) -> None:
    monitor = watched(config_of(1), *STORED, EVICTED)
    assert monitor.finding is None
    end(monitor)
    assert monitor.finding is not None
    assert monitor.finding.property == "step_eviction_is_needed"


def test_an_eviction_before_a_refusal_was_not_needed() -> None:
    op = ("a", 1)
    look_up: list[Logged] = [
        ("submitted", op, {"span": 3, "base": 0, "anchor": 0}),
        ("query_taken", op, {"terminated": False}),
        ("query_asked", op, {"hit": 3}),
        ("query_agreed", op, {"hit": 3}),
        ("query_put", op, {}),
    ]
    refused: Logged = ("revoked", op, {"reason": "no_memory", "by": "drain", "evictable": 0, "free": 1})
    config = MonitorConfig(ranks=1, host_pages=1, threshold_pages=2, limit_pages=99, policy="wait_complete")
    finding = watched(config, *STORED, *look_up, EVICTED, refused).finding
    assert finding is not None
    assert (finding.property, finding.message) == (
        "step_eviction_is_needed",
        "pages were evicted for no step that needs them",
    )
