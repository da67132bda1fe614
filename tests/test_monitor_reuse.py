"""Monitors of one configuration share what was bound for it, and nothing else."""

from __future__ import annotations

import pytest

from hicache_checks.conformance.explainer import bound_for, bounds_for
from hicache_checks.conformance.merge import Merger
from hicache_checks.conformance.monitor import Monitor
from hicache_checks.conformance.observation import Event
from recorded_trace import config_of, recorded

CONFIG = config_of(2)


@pytest.fixture(scope="module")
def events() -> list[Event]:
    merger = Merger(2)
    for rank, log in enumerate(recorded()):
        merger.push(rank, log)
    return list(merger.ready())


def test_two_monitors_follow_their_own_runs(events: list[Event]) -> None:
    """One is half a run behind the other, so their trees are different ones."""
    ahead, behind = Monitor(CONFIG), Monitor(CONFIG)
    half = len(events) // 2
    for event in events[:half]:
        ahead.feed(event)
    for late, early in zip(events[half:], events, strict=False):
        ahead.feed(late)
        behind.feed(early)
    for event in events[len(events) - half :]:
        behind.feed(event)
    for monitor in (ahead, behind):
        monitor.finish()
        assert monitor.finding is None
        assert monitor.explained == len(events)


def test_the_specification_is_bound_once() -> None:
    first, second = Monitor(CONFIG), Monitor(CONFIG)
    assert first.spec is second.spec
    assert first.state is not second.state


def test_a_bad_state_is_bad_every_time(events: list[Event]) -> None:
    for _ in range(2):
        monitor = Monitor(CONFIG)
        monitor.state.free[0] -= 1
        monitor.feed(events[0])
        assert monitor.finding is not None
        assert monitor.finding.property == "inv_pages_conserved"


def test_a_good_state_is_judged_once(events: list[Event]) -> None:
    bound = bound_for(bounds_for(CONFIG, 8, CONFIG.ranks), CONFIG.design)
    judged: list[int] = []
    for again in range(2):
        monitor = Monitor(CONFIG)
        before = len(bound.good)
        for event in events:
            monitor.feed(event)
            assert monitor.key in bound.good
        judged.append(len(bound.good) - before if again else 0)
    assert judged[-1] == 0
