"""Faulty rules of the designs with acks. `design_mutants.py` names what each replaces."""

from __future__ import annotations

from hicache_spec.designs.acknowledging import (
    ack_of,
    acknowledged_pages,
    agreed_ack,
    count_acknowledged,
    find_acknowledged,
    leave_with_the_last_ack,
    release_tail,
)
from hicache_spec.events import ON_IO_LANDED, ON_IO_STARTED
from hicache_spec.language import NONE, State, emit, require
from hicache_spec.pipeline import publish, revoke, terminate
from hicache_spec.state import RANKS, WAS_ABORTED, retire


def acknowledge_no_page_that_is_not_read(s: State, rank: int, op: int) -> None:
    leave_with_the_last_ack(s, rank, op)


def acknowledge_before_the_copy(s: State, rank: int) -> None:
    require(len(s.buffer[rank]) > 0, "an operation waits for its pages")
    require(not s.writing[rank], "no page is being read")
    require(not s.stopped[rank][s.buffer[rank][0]], "the operation is not terminated")
    s.writing[rank] = True
    s.sync_queue[rank].append(ack_of(s.buffer[rank][0], s.filled[rank] + 1))
    emit(s, ON_IO_STARTED, rank, s.buffer[rank][0], s.filled[rank])


def land_what_is_acknowledged(s: State, rank: int) -> None:
    require(s.writing[rank], "a page is being read")
    op = s.buffer[rank][0]
    s.writing[rank] = False
    emit(s, ON_IO_LANDED, rank, op, s.filled[rank])
    s.filled[rank] += 1
    if s.filled[rank] == s.granted[op]:
        leave_with_the_last_ack(s, rank, op)


def acknowledge_after_termination(s: State, rank: int) -> None:
    require(s.writing[rank], "a page is being read")
    op = s.buffer[rank][0]
    s.writing[rank] = False
    emit(s, ON_IO_LANDED, rank, op, s.filled[rank])
    s.filled[rank] += 1
    s.sync_queue[rank].append(ack_of(op, s.filled[rank]))
    if s.filled[rank] == s.granted[op]:
        leave_with_the_last_ack(s, rank, op)


def most_that_a_rank_has_read(s: State, rank: int) -> int:
    return max(s.sync_queue[r][0] for r in RANKS)


def keep_back_what_is_less_than_read(s: State) -> None:
    require(all(len(s.sync_queue[r]) > 0 for r in RANKS), "every rank has an ack and is in the all-reduce")
    for r in RANKS:
        if agreed_ack(s, r) == s.sync_queue[r][0]:
            s.ack_queue[r].append(agreed_ack(s, r))
    for r in RANKS:
        s.sync_queue[r].pop(0)


def count_for_ended_operations(s: State, op: int, pages: int) -> None:
    for r in RANKS:
        s.counted[r][op] = pages


def put_acks_of_ended_operations_back(s: State, op: int, pages: int) -> None:
    if find_acknowledged(s, op) == NONE:
        for r in RANKS:
            s.ack_queue[r].append(ack_of(op, pages))
    else:
        count_acknowledged(s, op, pages)


def end_before_the_last_ack(s: State, op: int) -> bool:
    return True


def release_the_tail_of_what_is_published_only(s: State, op: int) -> None:
    found = find_acknowledged(s, op)
    if found != NONE:
        publish(s, found, acknowledged_pages(s, found, op))
        release_tail(s, op)
    retire(s, op)


def drop_the_tail(s: State, op: int) -> None:
    retire(s, op)


def abort_and_release_the_tail(s: State, op: int) -> None:
    terminate(s, op)
    for r in RANKS:
        s.releasing[r] += s.granted[op]
        s.given[r][op] += s.granted[op]
    revoke(s, op, WAS_ABORTED)
