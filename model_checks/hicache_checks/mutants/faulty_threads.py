"""Faulty rules of the query thread and the IO thread. `spec_mutants.py` names what each replaces."""

from __future__ import annotations

from hicache_spec.events import ON_IO_LANDED, ON_IO_RELEASED, ON_IO_STARTED
from hicache_spec.language import State, emit, require
from hicache_spec.pipeline import leave_io
from hicache_spec.state import CHURN, RANKS


def release_the_tail_twice(s: State, rank: int) -> None:
    require(len(s.buffer[rank]) > 0, "an operation is in work")
    require(not s.writing[rank], "no page is being read")
    require(s.stopped[rank][s.buffer[rank][0]], "the operation is terminated")
    op = s.buffer[rank][0]
    s.tail[rank] += 1
    s.given[rank][op] += 2
    emit(s, ON_IO_RELEASED, rank, op)
    s.releasing[rank] += 2
    leave_io(s, rank, op)


def drop_the_tail(s: State, rank: int) -> None:
    require(len(s.buffer[rank]) > 0, "an operation is in work")
    require(not s.writing[rank], "no page is being read")
    require(s.stopped[rank][s.buffer[rank][0]], "the operation is terminated")
    s.buffer[rank].pop(0)
    s.filled[rank] = 0


def own_answer(s: State, rank: int) -> int:
    return s.answer[rank]


def less_than_the_lowest_answer(s: State, rank: int) -> int:
    return max(0, min(s.answer[r] for r in RANKS) - 1)


def highest_answer(s: State, rank: int) -> int:
    return max(s.answer[r] for r in RANKS)


def count_before_the_copy(s: State, rank: int) -> None:
    require(len(s.buffer[rank]) > 0, "an operation waits for its pages")
    require(not s.writing[rank], "no page is being read")
    require(not s.stopped[rank][s.buffer[rank][0]], "the operation is not terminated")
    s.writing[rank] = True
    s.counted[rank][s.buffer[rank][0]] += 1
    emit(s, ON_IO_STARTED, rank, s.buffer[rank][0], s.filled[rank])


def start_without_the_flag(s: State, rank: int) -> None:
    require(len(s.buffer[rank]) > 0, "an operation waits for its pages")
    require(not s.writing[rank], "no page is being read")
    s.writing[rank] = True
    emit(s, ON_IO_STARTED, rank, s.buffer[rank][0], s.filled[rank])


def count_after_termination(s: State, rank: int) -> None:
    require(s.writing[rank], "a page is being read")
    op = s.buffer[rank][0]
    s.writing[rank] = False
    s.filled[rank] += 1
    s.counted[rank][op] += 1
    emit(s, ON_IO_LANDED, rank, op, s.filled[rank] - 1)
    leave_io(s, rank, op)


def count_a_failed_page(s: State, rank: int) -> None:
    require(CHURN, "storage churns")
    require(s.writing[rank], "a page is being read")
    op = s.buffer[rank][0]
    s.writing[rank] = False
    s.counted[rank][op] += 1
    leave_io(s, rank, op)
