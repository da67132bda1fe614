"""Faulty rules that break no safety property: something goes on for ever, and what was promised never happens.

No exploration finds them, however long: every state is as it should be, and there is always something to do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hicache_spec.bounds import SOLO_CHURN, TIMEOUT, Bounds
from hicache_spec.designs import DECIDE_AT_DRAIN
from hicache_spec.events import ON_IO_FAILED, ON_QUERY_AGREED, ON_QUERY_ASKED, ON_RECLAIMED, ON_SKIPPED
from hicache_spec.language import NONE, State, emit, require
from hicache_spec.parts.grid import Grid
from hicache_spec.pipeline import agreed_hit, decide, find_record, finish, may_answer, may_end
from hicache_spec.state import (
    AGREED,
    ANSWERED,
    CHURN,
    LOOKING,
    QUERY,
    QUEUED,
    RANKS,
    SKIPPING,
    TERMINATED,
    THRESHOLD,
    advance,
    is_complete,
)
from hicache_spec.tree import room


@dataclass(frozen=True)
class LivenessMutant:
    """A fault that only liveness catches: what it replaces, where it is looked for, which property it breaks.

    `stem` and `loop` are the lengths, in steps, of the lasso with the shortest stem. No `loop`: the last state is
    stayed in for ever. `design`: in what, if not in the canonical design.
    """

    name: str
    replaces: Mapping[str, Callable[..., Any]]
    bounds: Bounds | Grid
    caught_by: str
    stem: int
    loop: int
    design: str = DECIDE_AT_DRAIN.name


def put_low_answers_back(s: State, op: int) -> None:
    if find_record(s, op) != NONE and not s.stopped[0][op] and s.hit[0][op] < THRESHOLD:
        for r in RANKS:
            s.hit_queue[r].append(op)
    else:
        decide(s, op)


def put_skipped_answers_back(s: State, op: int) -> None:
    if find_record(s, op) == NONE:
        emit(s, ON_SKIPPED, op)
        for r in RANKS:
            s.hit_queue[r].append(op)
    else:
        decide(s, op)


def put_refused_answers_back(s: State, op: int) -> None:
    if find_record(s, op) != NONE and s.hit[0][op] >= THRESHOLD and not s.stopped[0][op] and room(s) < THRESHOLD:
        for r in RANKS:
            s.hit_queue[r].append(op)
    else:
        decide(s, op)


def put_released_pages_back(s: State, pages: int) -> None:
    emit(s, ON_RECLAIMED, pages)


def poll_and_wait_again(s: State, request: int) -> None:
    require(s.record[request] != NONE, "the request has a pending operation")
    require(may_end(s, s.record[request]), "the policy waits no longer")
    op = s.record[request]
    if s.granted[op] > 0 and not is_complete(s, op):
        s.waited[op] = 0
    else:
        finish(s, op)


def poll_in_vain(s: State, request: int) -> None:
    require(s.record[request] != NONE, "the request has a pending operation")
    require(may_end(s, s.record[request]), "the policy waits no longer")
    op = s.record[request]
    if s.phase[op] != TERMINATED or s.granted[op] == 0:
        finish(s, op)


def read_a_failed_page_again(s: State, rank: int) -> None:
    require(CHURN, "storage churns")
    require(s.writing[rank], "a page is being read")
    s.writing[rank] = False
    emit(s, ON_IO_FAILED, rank, s.buffer[rank][0], s.filled[rank])


def agree_when_the_answers_are_equal(s: State) -> None:
    require(all(s.stage[r] == ANSWERED for r in RANKS), "every rank has its answer and is in the all-reduce")
    op = s.query_queue[0][0]
    if any(s.answer[r] != s.answer[0] for r in RANKS):
        for r in RANKS:
            s.stage[r] = LOOKING
            s.answer[r] = 0
    else:
        for r in RANKS:
            s.hit[r][op] = agreed_hit(s, r)
            s.stage[r] = AGREED
        if s.phase[op] == QUEUED:
            advance(s, op, QUERY)
        emit(s, ON_QUERY_AGREED, op, s.hit[0][op])


def withdraw_an_answer(s: State, rank: int, hit: int) -> None:
    require(s.stage[rank] in (SKIPPING, LOOKING, ANSWERED), "an operation is taken and not yet agreed")
    require(s.stage[rank] != ANSWERED or hit == 0, "an answer is withdrawn")
    require(s.stage[rank] == ANSWERED or may_answer(s, rank, s.query_queue[rank][0], hit), "storage can answer this")
    if s.stage[rank] == ANSWERED:
        s.stage[rank] = LOOKING
        s.answer[rank] = 0
    else:
        s.stage[rank] = ANSWERED
        s.answer[rank] = hit
        emit(s, ON_QUERY_ASKED, rank, s.query_queue[rank][0], hit)


def ask_again_after_a_miss(s: State) -> None:
    require(all(s.stage[r] == ANSWERED for r in RANKS), "every rank has its answer and is in the all-reduce")
    op = s.query_queue[0][0]
    if s.phase[op] == QUEUED and agreed_hit(s, 0) == 0:
        for r in RANKS:
            s.stage[r] = LOOKING
            s.answer[r] = 0
    else:
        for r in RANKS:
            s.hit[r][op] = agreed_hit(s, r)
            s.stage[r] = AGREED
        if s.phase[op] == QUEUED:
            advance(s, op, QUERY)
        emit(s, ON_QUERY_AGREED, op, s.hit[0][op])


MISS = Bounds("miss", requests=1, resident_pages=(0,), stored_pages=(0,))
NO_ROOM = Bounds(
    "no_room", requests=1, ranks=1, resident_pages=(0,), stored_pages=(2,), threshold_pages=2, host_pages=1
)
LATE = replace(SOLO_CHURN, name="late", policy=TIMEOUT)
OPERATIONS_END = "live_submitted_operations_end"
QUEUES_DRAIN = "live_control_queues_drain"

LIVENESS_MUTANTS = (
    LivenessMutant("sched_puts_low_answers_back", {"decide": put_low_answers_back}, MISS, OPERATIONS_END, 8, 1),
    LivenessMutant(
        "sched_puts_skipped_answers_back", {"decide": put_skipped_answers_back}, SOLO_CHURN, QUEUES_DRAIN, 9, 1
    ),
    LivenessMutant(
        "sched_puts_refused_answers_back", {"decide": put_refused_answers_back}, NO_ROOM, OPERATIONS_END, 5, 1
    ),
    LivenessMutant(
        "sched_puts_released_pages_back", {"reclaim": put_released_pages_back}, SOLO_CHURN, QUEUES_DRAIN, 12, 1
    ),
    LivenessMutant("sched_polls_in_vain", {"sched_poll": poll_in_vain}, SOLO_CHURN, OPERATIONS_END, 13, 1),
    LivenessMutant("sched_polls_and_waits_again", {"sched_poll": poll_and_wait_again}, LATE, OPERATIONS_END, 13, 2),
    LivenessMutant(
        "io_reads_a_failed_page_again", {"io_fail_page": read_a_failed_page_again}, SOLO_CHURN, OPERATIONS_END, 9, 4
    ),
    LivenessMutant(
        "query_asks_until_the_answers_are_equal",
        {"query_agree": agree_when_the_answers_are_equal},
        SOLO_CHURN,
        OPERATIONS_END,
        3,
        3,
    ),
    LivenessMutant(
        "query_withdraws_its_answer", {"query_ask_storage": withdraw_an_answer}, SOLO_CHURN, OPERATIONS_END, 3, 4
    ),
    LivenessMutant(
        "query_asks_again_after_a_miss", {"query_agree": ask_again_after_a_miss}, MISS, OPERATIONS_END, 3, 3
    ),
)
