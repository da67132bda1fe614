"""Faulty control calls: replacements of rules and helpers of SPEC.md §13."""

from __future__ import annotations

from hicache_spec.events import ON_REVOKED
from hicache_spec.language import NONE, State, emit, require
from hicache_spec.parts.control_rules import (
    ATTACHED,
    CONTROL_FAILS,
    DETACHED,
    DRAINING,
    FAILED,
    HALF_STARTED,
    IO_THREAD,
    ON_ATTACH_FAILED,
    ON_ATTACHED,
    ON_ATTACHING,
    ON_BEGUN_AGAIN,
    ON_DETACHED,
    ON_KEPT,
    ON_START_FAILED,
    ON_TOLD_TO_STOP,
    QUERY_THREAD,
    STARTED,
    STARTING,
    STOPPING,
    WHILE_DETACHED,
    all_are,
    attaches,
    end_thread,
    forget_everything,
    has_ended,
    is_free_and_lives,
    pass_over,
    start_thread,
    take_leftovers,
)
from hicache_spec.pipeline import is_free, terminate, why_declined
from hicache_spec.state import (
    ABSENT,
    CHAINS,
    HOST_PAGES,
    OPS,
    RANKS,
    REQUESTS,
    REVOKE,
    WAS_ABORTED,
    advance,
    is_travelling,
    retire,
)
from hicache_spec.tree import room, unprotect

# ---- the call begins


def detach_without_aborting(s: State) -> None:
    for r in RANKS:
        s.place[r] = DRAINING


def withdraw_without_accounting(s: State) -> None:
    for request in REQUESTS:
        if s.record[request] != NONE:
            drop_without_accounting(s, s.record[request])
    for r in RANKS:
        s.place[r] = DRAINING


def drop_without_accounting(s: State, op: int) -> None:
    terminate(s, op)
    for r in RANKS:
        s.releasing[r] += s.counted[r][op]
        s.given[r][op] += s.counted[r][op]
    advance(s, op, REVOKE)
    emit(s, ON_REVOKED, op, WAS_ABORTED, room(s))
    for request in REQUESTS:
        if s.record[request] == op:
            s.record[request] = NONE
    unprotect(s, op)
    retire(s, op)


def admit_while_detaching(s: State, request: int, span: int) -> int:
    return why_declined(s, request, span)


def decline_until_everything_has_left(s: State, request: int, span: int) -> int:
    if any(is_travelling(s, op) for op in OPS):
        return WHILE_DETACHED
    return why_declined(s, request, span)


def give_up_after_threads_were_told(s: State) -> None:
    require(CONTROL_FAILS, "control calls fail")
    require(all(s.place[r] in (DRAINING, STOPPING) for r in RANKS), "storage is being detached")
    s.resetting = False
    for r in RANKS:
        s.place[r] = ATTACHED
    emit(s, ON_KEPT)


# ---- the threads stop


def take_what_is_released_so_far(s: State, rank: int) -> None:
    require(s.place[rank] == DRAINING, "the operations are aborted")
    s.place[rank] = STOPPING
    s.free[rank] += s.releasing[rank]
    s.releasing[rank] = 0
    emit(s, ON_TOLD_TO_STOP, rank)


def end_between_two_operations(s: State, rank: int) -> None:
    require(s.place[rank] == STOPPING, "the thread is told to stop")
    require(is_free_and_lives(s, rank), "no operation is being looked up")
    end_thread(s, rank, QUERY_THREAD)


def end_with_work_left(s: State, rank: int) -> None:
    require(s.place[rank] == STOPPING, "the thread is told to stop")
    require(s.living[rank][IO_THREAD] > 0, "the thread lives")
    require(not s.writing[rank], "no page is being read")
    end_thread(s, rank, IO_THREAD)


def end_during_a_read(s: State, rank: int) -> None:
    require(s.place[rank] == STOPPING, "the thread is told to stop")
    require(s.living[rank][IO_THREAD] > 0, "the thread lives")
    end_thread(s, rank, IO_THREAD)


def let_go_without_the_io_thread(s: State, rank: int) -> None:
    require(s.place[rank] == STOPPING, "the threads are told to stop")
    require(s.living[rank][QUERY_THREAD] == 0, "the query thread has ended")
    require(not s.writing[rank] and len(s.buffer[rank]) == 0, "the IO thread is not at work")
    take_leftovers(s, rank)
    s.place[rank] = DETACHED
    emit(s, ON_DETACHED, rank)


def let_go_during_the_look_up(s: State, rank: int) -> None:
    require(s.place[rank] == STOPPING, "the threads are told to stop")
    require(s.living[rank][IO_THREAD] == 0, "the IO thread has ended")
    take_leftovers(s, rank)
    s.place[rank] = DETACHED
    emit(s, ON_DETACHED, rank)


def let_go_when_all_is_taken(s: State, rank: int) -> None:
    require(s.place[rank] == STOPPING, "the threads are told to stop")
    require(has_ended(s, rank), "the threads have ended")
    require(len(s.hit_queue[rank]) + s.releasing[rank] == 0, "no answer and no released page is left")
    s.place[rank] = DETACHED
    emit(s, ON_DETACHED, rank)


def keep_the_answers(s: State, rank: int) -> None:
    s.free[rank] += s.releasing[rank]
    s.releasing[rank] = 0


def drop_the_released_pages(s: State, rank: int) -> None:
    for _ in range(len(s.hit_queue[rank])):
        pass_over(s, rank)
    s.releasing[rank] = 0


def forget_ids_with_the_leftovers(s: State, rank: int) -> None:
    take_leftovers(s, rank)
    for request in REQUESTS:
        s.attempts[request] = 0
    for op in OPS:
        s.phase[op] = ABSENT


# ---- everything begins again


def begin_again_beside_living_threads(s: State, rank: int) -> None:
    require(s.resetting, "a reset is under way")
    require(s.place[rank] in (STOPPING, DETACHED), "the threads are told to stop")
    require(len(s.query_queue[rank]) + len(s.buffer[rank]) == 0, "no thread of the rank is at work")
    take_leftovers(s, rank)
    s.place[rank] = STARTING
    s.free[rank] = HOST_PAGES
    if all(attaches(s, r) for r in RANKS):
        s.resetting = False
        forget_everything(s)
    emit(s, ON_BEGUN_AGAIN, rank)


def begin_again_with_the_old_pool(s: State, rank: int) -> None:
    require(s.resetting, "a reset is under way")
    require(s.place[rank] == DETACHED, "the rank is detached")
    s.place[rank] = STARTING
    if all(attaches(s, r) for r in RANKS):
        s.resetting = False
        forget_everything(s)
    emit(s, ON_BEGUN_AGAIN, rank)


def remember_ids(s: State) -> None:
    for chain in CHAINS:
        s.resident[chain] = 0
    for op in OPS:
        s.phase[op] = ABSENT


def keep_the_tree(s: State) -> None:
    for request in REQUESTS:
        s.attempts[request] = 0
    for op in OPS:
        s.phase[op] = ABSENT


# ---- storage is attached


def attach_an_empty_tree(s: State) -> None:
    require(all_are(s, DETACHED), "storage is detached")
    require(not s.resetting, "no other control call is under way")
    for chain in CHAINS:
        s.resident[chain] = 0
    for r in RANKS:
        s.free[r] = HOST_PAGES
        s.place[r] = STARTING
    emit(s, ON_ATTACHING)


def start_the_query_thread_twice(s: State, rank: int) -> None:
    require(s.place[rank] in (STARTING, HALF_STARTED), "the rank attaches storage")
    s.place[rank] = HALF_STARTED
    start_thread(s, rank, QUERY_THREAD)


def fail_without_telling_the_others(s: State, rank: int) -> None:
    require(CONTROL_FAILS, "control calls fail")
    require(s.place[rank] == STARTING, "the rank attaches storage")
    s.place[rank] = DETACHED
    emit(s, ON_START_FAILED, rank)


def attach_where_it_can(s: State) -> None:
    require(all(s.place[r] in (STARTED, FAILED) for r in RANKS), "every rank has started its threads, or could not")
    for r in RANKS:
        s.place[r] = ATTACHED if s.place[r] == STARTED else STOPPING
    emit(s, ON_ATTACHED)


def attach_in_any_case(s: State) -> None:
    require(all(s.place[r] in (STARTED, FAILED) for r in RANKS), "every rank has started its threads, or could not")
    for r in RANKS:
        s.place[r] = ATTACHED
    emit(s, ON_ATTACHED)


def forget_what_was_started(s: State) -> None:
    require(all(s.place[r] in (STARTED, FAILED) for r in RANKS), "every rank has started its threads, or could not")
    if all_are(s, STARTED):
        for r in RANKS:
            s.place[r] = ATTACHED
        emit(s, ON_ATTACHED)
    else:
        for r in RANKS:
            s.place[r] = DETACHED
        emit(s, ON_ATTACH_FAILED)


# ---- what goes on for ever


def take_nothing_while_draining(s: State, rank: int) -> bool:
    return s.place[rank] != DRAINING and s.living[rank][QUERY_THREAD] > 0 and is_free(s, rank)


def try_again_where_nothing_has_started(s: State) -> None:
    require(all(s.place[r] in (STARTED, FAILED) for r in RANKS), "every rank has started its threads, or could not")
    if all_are(s, STARTED):
        for r in RANKS:
            s.place[r] = ATTACHED
        emit(s, ON_ATTACHED)
    elif all(has_ended(s, r) for r in RANKS):
        for r in RANKS:
            s.place[r] = STARTING
        emit(s, ON_ATTACHING)
    else:
        for r in RANKS:
            s.place[r] = STOPPING
        emit(s, ON_ATTACH_FAILED)
