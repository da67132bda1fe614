"""The life cycle of one operation, and the atomic steps that its threads take."""

from __future__ import annotations

import itertools
import threading

import pytest

from hicache_impl import events, operation
from hicache_impl.events import EventLog
from hicache_impl.keys import PrefixKey
from hicache_impl.operation import EDGES, FINAL, STATES, TRIGGERS, IllegalTrigger, Operation
from hicache_impl.trees.hiradix import HiRadixTree


def make(state: str = operation.QUEUED, pages: int = 3) -> tuple[Operation, EventLog]:
    log = EventLog(0)
    op = Operation(
        "r",
        1,
        PrefixKey.from_tokens(range(pages), 1),
        anchor=HiRadixTree().root,
        parent_hash=None,
        base_pages=0,
        submitted_at=0.0,
        log=log,
        lock=threading.Lock(),
    )
    op.state = state
    return op, log


def granted(pages: int = 3) -> tuple[Operation, EventLog]:
    op, log = make(pages=pages)
    op.agree_hit([bytes([page]) * 32 for page in range(pages)])
    op.allocate(range(10, 10 + pages), evictable=0, free=0)
    return op, log


def kinds(log: EventLog) -> list[str]:
    return [event.kind for event in log.take_since(0)]


@pytest.mark.parametrize(("state", "trigger"), list(itertools.product(STATES, TRIGGERS)))
def test_every_state_with_every_trigger(state: str, trigger: str) -> None:
    op, log = make(state)
    if (trigger, state) in EDGES:
        op.fire(trigger)
        assert op.state == EDGES[trigger, state]
    else:
        with pytest.raises(IllegalTrigger):
            op.fire(trigger)
        assert op.state == state
    assert len(log) == 0


def test_the_table_is_whole() -> None:
    assert {state for _, state in EDGES} == set(STATES) - set(FINAL), (
        "final states have no way out, all others have one"
    )
    assert set(EDGES.values()) | {operation.QUEUED} == set(STATES)
    assert {trigger for trigger, _ in EDGES} == set(TRIGGERS)


@pytest.mark.parametrize("name", ["to_fetched", "initial", "", "queried"])
def test_there_are_no_other_triggers(name: str) -> None:
    op, _ = make()
    with pytest.raises(ValueError, match="no trigger"):
        op.fire(name)


def test_the_machine_keeps_no_operation_alive() -> None:
    op, _ = make()
    op.fire("query")
    assert operation._MACHINE.models == []


def test_a_whole_life() -> None:
    op, log = make()
    assert op.take_for_query()
    op.agree_hit([b"a" * 32, b"b" * 32])
    op.allocate([5, 6], evictable=1, free=2)
    for page in range(2):
        assert op.start_page(page)
        assert op.count_pages(range(page, page + 1))
    assert op.is_complete
    assert op.mark(operation.COMPLETE) == 2
    op.fetch(2, 1, operation.COMPLETE)
    assert (op.state, op.terminated, op.hit_pages, op.granted_pages) == ("fetched", False, 2, 2)
    assert [(event.kind, event.data) for event in log.take_since(0)] == [
        ("query_taken", {"terminated": False}),
        ("query_agreed", {"hit": 2}),
        ("allocated", {"pages": 2, "hit": 2, "evictable": 1, "free": 2}),
        ("io_started", {"page": 0}),
        ("io_landed", {"page": 0}),
        ("io_started", {"page": 1}),
        ("io_landed", {"page": 1}),
        ("marked", {"reason": "complete", "counted": 2}),
        ("fetched", {"pages": 2, "known": 1, "reason": "complete"}),
    ]
    assert {event.op for event in log.take_since(0)} == {("r", 1)}


def test_a_late_query_changes_no_state() -> None:
    op, log = make()
    assert op.ask_stop()
    assert not op.take_for_query()
    op.agree_hit([])
    assert op.state == "terminated"
    op.revoke(operation.STOP, "drain", evictable=0, free=0)
    assert op.state == "revoked"
    assert kinds(log) == ["stopped", "query_taken", "query_agreed", "revoked"]


def test_an_abort_before_memory_is_one_step() -> None:
    op, log = make()
    op.revoke(operation.ABORT, "abort", evictable=0, free=0)
    assert (op.state, op.terminated) == ("revoked", True)
    op.agree_hit([b"a" * 32])
    assert op.state == "revoked"
    assert kinds(log) == ["revoked", "query_agreed"]


@pytest.mark.parametrize("reason", [operation.BELOW_THRESHOLD, operation.NO_MEMORY])
def test_a_refused_operation_does_not_pass_terminated(reason: str) -> None:
    op, _ = make(operation.QUERIED)
    op.revoke(reason, "drain", evictable=0, free=0)
    assert (op.state, op.terminated) == ("revoked", False)


def test_nothing_is_counted_after_the_mark() -> None:
    op, log = granted()
    assert op.start_page(0)
    assert op.count_pages(range(1))
    assert op.start_page(1)
    assert op.mark(operation.POLICY) == 1
    assert not op.count_pages(range(1, 2))
    assert not op.start_page(2)
    assert (op.counted_pages, op.state) == (1, "terminated")
    assert kinds(log)[-2:] == ["marked", "io_uncounted"]


def test_a_failed_page_terminates_once() -> None:
    op, log = granted()
    op.fail_page(0, "miss")
    assert (op.state, op.terminated, op.counted_pages) == ("terminated", True, 0)
    assert op.mark(operation.FAILED_PAGE) == 0
    op.fail_page(1, "miss")
    assert kinds(log)[-3:] == ["io_failed", "marked", "io_uncounted"]


def test_a_second_stop_says_nothing() -> None:
    op, log = granted()
    op.fail_page(0, "raised")
    assert op.ask_stop(), "every rank reports the stop, also the one that had failed already"
    assert not op.ask_stop()
    assert kinds(log).count(events.STOPPED) == 1


def test_the_tail_is_named_by_position() -> None:
    op, log = granted()
    assert [op.release_page(page) for page in (1, 2)] == [11, 12]
    assert [event.data for event in log.take_since(0)][-2:] == [{"page": 1}, {"page": 2}]
