"""Runs in which a rank is told what a tick drains: they are explained, though its scheduler is behind the others'."""

from __future__ import annotations

from typing import Any

import pytest

from hicache_checks.conformance.observation import Event
from hicache_checks.conformance.overtaking import TELL, thread_of
from recorded_trace import explain, recorded

LOGS = recorded(2, stages=2)
GRANTED = [event.op for event in LOGS[1] if event.kind == "allocated"]


def not_told(logs: list[list[Event]]) -> list[list[Event]]:
    """As if every rank had been waited for."""
    call = {TELL: "min"}
    return [
        [
            Event(e.rank, e.seq, e.kind, e.op, {**e.data, "call": call.get(e.data["call"], e.data["call"])})
            if "call" in e.data
            else e
            for e in log
        ]
        for log in logs
    ]


@pytest.mark.parametrize("chunk", [1, 7, 10_000])
def test_what_happened_is_explained(chunk: int) -> None:
    assert TELL in {event.data.get("call") for log in LOGS for event in log}
    assert explain(LOGS, chunk=chunk) is None


@pytest.mark.parametrize("op", GRANTED, ids=str)
def test_an_answer_that_comes_to_the_told_rank_late(op: Any) -> None:
    """The others have drained it when this rank's query thread puts it."""
    log = list(LOGS[1])
    put = next(event for event in log if event.kind == "query_put" and event.op == op)
    log.remove(put)
    drained = next(place for place, event in enumerate(log) if event.kind == "allocated" and event.op == op)
    told = max(place for place in range(drained) if log[place].data.get("call") == TELL)
    assert log[told].kind == "left"
    log.insert(told + 1, put)
    assert explain([LOGS[0], log]) is None
    log.remove(put)
    log.insert(drained + 1, put)
    finding = explain([LOGS[0], log])
    assert finding is not None, "it was drained before it was put"


def call(rank: int, group: str, number: int, kind: str) -> list[Event]:
    data = {"group": group, "number": number, "call": kind}
    return [Event(rank, 0, "joined", None, data), Event(rank, 0, "left", None, data)]


def ahead() -> list[list[Event]]:
    """Rank 1 is told. Its query thread comes to a look-up before the tick after which rank 0 aborts the operation, and
    rank 0's query thread after that."""
    op = ("a", 1)

    def step(rank: int, kind: str, **data: Any) -> Event:
        return Event(rank, 0, kind, op, data)

    def look_up(rank: int, terminated: bool, hit: int) -> list[Event]:
        return [
            step(rank, "query_taken", terminated=terminated),
            step(rank, "query_asked", hit=hit),
            *call(rank, "query", 0, "min"),
            step(rank, "query_agreed", hit=0),
            step(rank, "query_put"),
        ]

    logs = []
    for rank in range(2):
        submitted = step(rank, "submitted", span=2, base=0, anchor=0)
        gone = step(rank, "revoked", reason="aborted", by="abort", evictable=0, free=6)
        found = look_up(rank, terminated=rank == 0, hit=2 * rank)
        tick = call(rank, "sched", 0, TELL)
        order = [*tick, gone, *found] if rank == 0 else [*found, *tick, gone]
        logs.append([submitted, *order, *call(rank, "sched", 1, TELL), step(rank, "skipped")])
    return logs


def test_a_look_up_of_which_the_told_rank_is_ahead() -> None:
    assert explain(ahead()) is None
    finding = explain(not_told(ahead()))
    assert finding is not None
    assert finding.property == "stuck"


def test_steps_of_the_same_operation_are_not_overtaken() -> None:
    logs = ahead()
    for log in logs:
        last, skipped = log.index(next(e for e in log if e.kind == "query_put")), log[-1]
        log.append(log.pop(last))
        assert log[-2] is skipped
    assert explain(logs) is not None


def test_whose_an_event_is() -> None:
    joined, left = call(0, "query", 0, "min")
    assert [thread_of(event) for event in (joined, left, *call(0, "sched", 0, TELL))] == ["query", "query", None, None]
    assert {event.kind for event in LOGS[0] if thread_of(event) == "io"} == {
        "io_started", "io_landed", "io_uncounted", "io_released",
    }  # fmt: skip
