"""Runs in which a rank is told what a tick drains: they are explained, though its scheduler is behind the others'."""

from __future__ import annotations

from typing import Any

import pytest

from hicache_checks.conformance.merge import Merger
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


def kept(rank: int, node: int) -> list[Event]:
    """A page is written, copied and stored, up to the ack."""
    what = {"node": node, "pages": 1}
    return [
        Event(rank, 0, "written", None, what),
        Event(rank, 0, "copied", None, what),
        Event(rank, 0, "backed_up", None, {"pages": 1, "failed": 0}),
    ]


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


def late() -> list[list[Event]]:
    """Rank 1 is told. Rank 0 takes the ack of a page, and writes another one, before its query thread comes to a
    look-up; rank 1 stores both after it."""
    op, logs = ("a", 1), []
    for rank in range(2):

        def step(kind: str, rank: int = rank, **data: Any) -> Event:
            return Event(rank, 0, kind, op, data)

        def stored(node: int, rank: int = rank) -> Event:
            return Event(rank, 0, "stored", None, {"node": node, "pages": 1, "failed": 0})

        found = [
            *(step("query_taken", terminated=False), step("query_asked", hit=0), *call(rank, "query", 0, "min")),
            *(step("query_agreed", hit=0), step("query_put")),
        ]
        both = [*kept(rank, 1), *call(rank, "sched", 0, TELL), stored(1), *kept(rank, 2)]
        missed = step("revoked", reason="below_threshold", by="drain", evictable=0, free=4)
        order = [*both, *found] if rank == 0 else [*found, *both]
        submitted = step("submitted", span=2, base=0, anchor=0)
        logs.append([submitted, *order, *call(rank, "sched", 1, TELL), missed, stored(2)])
    return logs


def test_a_look_up_overtakes_what_is_stored() -> None:
    logs = late()
    assert explain(logs) is None
    backed_up = next(event for event in logs[1] if event.kind == "backed_up")
    logs[1].remove(backed_up)
    logs[1].insert(1, backed_up)
    finding = explain(logs)
    assert finding is not None, "it was stored before it was handed over"
    assert finding.property == "backup_put_page (§11.3)"


def test_a_scheduler_that_is_ahead_waits_for_what_its_threads_did() -> None:
    """As long as more is read: rank 1 cannot go on before a look-up of rank 0 that is not read yet."""
    merger = Merger(2)
    first, second = late()
    until = next(place for place, event in enumerate(first) if event.kind == "query_taken")
    merger.push(0, first[:until])
    merger.push(1, second)
    handed_out = list(merger.ready(more=True))
    assert [event.kind for event in handed_out if event.is_lockstep] == ["submitted", "submitted", "written"]
    merger.push(0, first[until:])
    handed_out += merger.ready()
    assert len(handed_out) == len(first) + len(second)


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
