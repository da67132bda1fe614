"""§13 Life-cycle control: storage is detached, attached and reset while operations are on their way.

A control call is many steps. The schedulers meet where it begins, where they agree, and where it ends; in between each
rank's scheduler waits for its own threads, and each thread ends at a point of its own.
"""

from __future__ import annotations

from ..language import (
    NONE,
    EventKind,
    State,
    action,
    emit,
    enumeration,
    field,
    flag,
    index,
    initial,
    member,
    require,
    switch,
    upto,
)
from ..pipeline import (
    abort,
    answers_everywhere,
    forget_agreed,
    has_work,
    is_free,
    may_write,
    released_everywhere,
    why_declined,
)
from ..state import ABSENT, CHAINS, HOST_PAGES, OPS, RANKS, REASON, REQUESTS, Pipeline, at_rest, retire

PLACE = enumeration("place", "attached draining stopping detached starting half_started started failed")
ATTACHED, DRAINING, STOPPING, DETACHED, STARTING, HALF_STARTED, STARTED, FAILED = PLACE

WHILE_DETACHED = len(REASON.members)
"""A further reason to decline a submission: no storage is attached. It comes after those of §3.1."""

THREADS = index("thread", lambda b: 2)
QUERY_THREAD, IO_THREAD = 0, 1
THREADS_MAX = 2

DETACHES = switch("detaches")
RESETS = switch("resets")
CONTROL_FAILS = switch("control_fails")


class WithControl(Pipeline):
    """§13.1 The state of the pipeline, and where each rank is between attached and detached."""

    # the schedulers, in lockstep: once
    resetting = field(flag())  # the detach under way is the first half of a reset
    # each rank's scheduler
    place = field(member(PLACE), RANKS)
    # each rank's threads
    living = field(upto(THREADS_MAX), RANKS, THREADS)  # threads that take from the rank's query queue, its buffer


ON_DETACHING = EventKind("detaching", ())
ON_RESETTING = EventKind("resetting", ())
ON_KEPT = EventKind("kept", ())
ON_DETACHED = EventKind("detached", ("rank",))
ON_BEGUN_AGAIN = EventKind("begun_again", ("rank",))
ON_ATTACHING = EventKind("attaching", ())
ON_ATTACHED = EventKind("attached", ())
ON_ATTACH_FAILED = EventKind("attach_failed", ())
ON_TOLD_TO_STOP = EventKind("told_to_stop", ("rank",))
ON_THREAD_ENDED = EventKind("thread_ended", ("rank", "thread"))
ON_THREAD_STARTED = EventKind("thread_started", ("rank", "thread"))
ON_START_FAILED = EventKind("start_failed", ("rank",))


@initial
def start_attached(s: State) -> None:
    """§13.1 Storage is attached, and every queue has its thread."""
    for r in RANKS:
        s.place[r] = ATTACHED
        for thread in THREADS:
            s.living[r][thread] = 1


def all_are(s: State, place: int) -> bool:
    """Every rank's scheduler is there."""
    return all(s.place[r] == place for r in RANKS)


def has_ended(s: State, rank: int) -> bool:
    """No thread of the rank lives."""
    return all(s.living[rank][thread] == 0 for thread in THREADS)


def control_rests(s: State) -> bool:
    """No control call is under way."""
    return all_are(s, ATTACHED) or (all_are(s, DETACHED) and not s.resetting)


# ---- the call begins


@action()
def sched_detach(s: State) -> None:
    """§13.2 Storage is to be detached. Every pending operation is aborted; nothing is submitted from here on.

    Why: an operation without its record would be found by nobody; as an aborted one it comes to its end by itself.
    """
    require(DETACHES, "storage is detached at run time")
    require(all_are(s, ATTACHED), "storage is attached")
    withdraw(s)
    emit(s, ON_DETACHING)


@action()
def sched_reset(s: State) -> None:
    """§13.2 Everything is to begin again: what is attached is detached first."""
    require(RESETS, "the cache is reset")
    require(control_rests(s), "no other control call is under way")
    s.resetting = True
    if all_are(s, ATTACHED):
        withdraw(s)
    emit(s, ON_RESETTING)


def withdraw(s: State) -> None:
    """Every pending operation is aborted, and the schedulers wait for what the threads still do."""
    for request in REQUESTS:
        if s.record[request] != NONE:
            abort(s, s.record[request])
    for r in RANKS:
        s.place[r] = DRAINING


@action()
def sched_give_up_detaching(s: State) -> None:
    """§13.2 The threads do not come to rest in time: storage stays attached. What was aborted is aborted.

    Why before any thread is told to stop: afterwards there is no way back, for a peer's thread may have ended by then.
    """
    require(CONTROL_FAILS, "control calls fail")
    require(all_are(s, DRAINING), "no rank has told its threads to stop")
    s.resetting = False
    for r in RANKS:
        s.place[r] = ATTACHED
    emit(s, ON_KEPT)


# ---- the threads stop


@action(fairness="weak", rank=RANKS)
def sched_tell_threads_to_stop(s: State, rank: int) -> None:
    """§13.2 A rank tells its threads to stop, by a last item in each of their queues, and waits for them.

    Why a last item and not a flag: what was queued before it is queued on every rank, so every rank's query thread
    takes part in the same all-reduces before it ends.
    """
    require(s.place[rank] == DRAINING, "the operations are aborted")
    s.place[rank] = STOPPING
    emit(s, ON_TOLD_TO_STOP, rank)


@action(fairness="weak", rank=RANKS)
def query_end(s: State, rank: int) -> None:
    """§13.2 The query thread comes to the last item of its queue."""
    require(s.place[rank] == STOPPING, "the thread is told to stop")
    require(s.living[rank][QUERY_THREAD] > 0, "the thread lives")
    require(is_free(s, rank), "no operation is being looked up")
    require(len(s.query_queue[rank]) == 0, "everything that was queued is looked up")
    end_thread(s, rank, QUERY_THREAD)


@action(fairness="weak", rank=RANKS)
def io_end(s: State, rank: int) -> None:
    """§13.2 The IO thread comes to the last item of its buffer: every page is counted or released."""
    require(s.place[rank] == STOPPING, "the thread is told to stop")
    require(s.living[rank][IO_THREAD] > 0, "the thread lives")
    require(len(s.buffer[rank]) == 0, "everything that was queued is done")
    end_thread(s, rank, IO_THREAD)


def end_thread(s: State, rank: int, thread: int) -> None:
    """A thread less takes from the queue."""
    s.living[rank][thread] -= 1
    emit(s, ON_THREAD_ENDED, rank, thread)


def is_free_and_lives(s: State, rank: int) -> bool:
    """There is a query thread, and it is between two operations."""
    return s.living[rank][QUERY_THREAD] > 0 and is_free(s, rank)


def has_work_and_lives(s: State, rank: int) -> bool:
    """There is an IO thread, and an operation stands in its buffer."""
    return s.living[rank][IO_THREAD] > 0 and has_work(s, rank)


def answers_in_the_loop(s: State) -> int:
    """A scheduler that waits for its threads samples no queue."""
    return answers_everywhere(s) if are_in_their_loop(s) else 0


def released_in_the_loop(s: State) -> int:
    """A scheduler that waits for its threads samples no queue."""
    return released_everywhere(s) if are_in_their_loop(s) else 0


def may_write_in_the_loop(s: State) -> bool:
    """A scheduler that waits for its threads serves no request."""
    return are_in_their_loop(s) and may_write(s)


def are_in_their_loop(s: State) -> bool:
    """No rank's scheduler waits for its own threads, or for the others."""
    return all(s.place[r] in (ATTACHED, DRAINING) for r in RANKS) or control_rests(s)


@action(fairness="weak", rank=RANKS)
def sched_let_go(s: State, rank: int) -> None:
    """§13.2 The threads of a rank have ended. It takes what is left in its queues, by itself, and is detached.

    Why without asking the others: what is left is the same on every rank, because every thread has done all that there
    was.
    """
    require(s.place[rank] == STOPPING, "the threads are told to stop")
    require(has_ended(s, rank), "the threads have ended")
    take_leftovers(s, rank)
    s.place[rank] = DETACHED
    emit(s, ON_DETACHED, rank)


def take_leftovers(s: State, rank: int) -> None:
    """Answers and released pages that no drain has taken. An answer finds no record: every operation has ended."""
    for _ in range(len(s.hit_queue[rank])):
        pass_over(s, rank)
    s.free[rank] += s.releasing[rank]
    s.releasing[rank] = 0


def pass_over(s: State, rank: int) -> None:
    """A rank skips an answer."""
    op = s.hit_queue[rank].pop(0)
    forget_agreed(s, rank, op)
    retire(s, op)


# ---- everything begins again


@action(fairness="weak", rank=RANKS)
def sched_begin_again(s: State, rank: int) -> None:
    """§13.2 A rank begins again with an empty tree, an empty pool and no request id known; then it attaches storage.

    Why only now: no thread of the rank lives that could still write into a page, or answer for an operation of before.
    Why without asking the others: nothing of this rank is of use to them.
    """
    require(s.resetting, "a reset is under way")
    require(s.place[rank] == DETACHED, "the rank is detached")
    s.place[rank] = STARTING
    free_every_page(s, rank)
    if all(attaches(s, r) for r in RANKS):
        s.resetting = False
        forget_everything(s)
    emit(s, ON_BEGUN_AGAIN, rank)


def free_every_page(s: State, rank: int) -> None:
    """All pages of the rank are free."""
    s.free[rank] = HOST_PAGES


def forget_everything(s: State) -> None:
    """What all ranks have forgotten by now, one after the other; it is written once (§3.0)."""
    for request in REQUESTS:
        s.attempts[request] = 0
    for op in OPS:
        s.phase[op] = ABSENT
    for chain in CHAINS:
        s.resident[chain] = 0


def attaches(s: State, rank: int) -> bool:
    """The rank is on its way from detached to attached."""
    return s.place[rank] in (STARTING, HALF_STARTED, STARTED, FAILED)


# ---- storage is attached


@action()
def sched_attach(s: State) -> None:
    """§13.2 Storage is to be attached: every rank starts threads, on queues that are empty."""
    require(DETACHES, "storage is attached at run time")
    require(all_are(s, DETACHED), "storage is detached")
    require(not s.resetting, "no other control call is under way")
    for r in RANKS:
        s.place[r] = STARTING
    emit(s, ON_ATTACHING)


@action(fairness="weak", rank=RANKS)
def sched_start_query_thread(s: State, rank: int) -> None:
    """§13.2 A rank starts the first of its threads."""
    require(s.place[rank] == STARTING, "the rank attaches storage")
    s.place[rank] = HALF_STARTED
    start_thread(s, rank, QUERY_THREAD)


@action(fairness="weak", rank=RANKS)
def sched_start_io_thread(s: State, rank: int) -> None:
    """§13.2 A rank starts the second of its threads, and is ready."""
    require(s.place[rank] == HALF_STARTED, "the query thread is started")
    s.place[rank] = STARTED
    start_thread(s, rank, IO_THREAD)


def start_thread(s: State, rank: int, thread: int) -> None:
    """A thread more takes from the queue."""
    s.living[rank][thread] += 1
    emit(s, ON_THREAD_STARTED, rank, thread)


@action(rank=RANKS)
def sched_fail_to_start(s: State, rank: int) -> None:
    """§13.2 Storage or a thread cannot be had on this rank; what is started by then lives on until all have agreed."""
    require(CONTROL_FAILS, "control calls fail")
    require(s.place[rank] in (STARTING, HALF_STARTED), "the rank attaches storage")
    s.place[rank] = FAILED
    emit(s, ON_START_FAILED, rank)


@action(fairness="weak")
def sched_agree_to_attach(s: State) -> None:
    """§13.2 MAX over the ranks of their failures. Without one, storage is attached; else every rank stops its threads.

    Why: attached on one rank only, the ranks would admit different requests.
    """
    require(all(s.place[r] in (STARTED, FAILED) for r in RANKS), "every rank has started its threads, or could not")
    if all_are(s, STARTED):
        for r in RANKS:
            s.place[r] = ATTACHED
        emit(s, ON_ATTACHED)
    else:
        for r in RANKS:
            s.place[r] = STOPPING
        emit(s, ON_ATTACH_FAILED)


# ---- words of the pipeline that have to know of it


def why_declined_if_detached(s: State, request: int, span: int) -> int:
    """Without storage, or while it is being detached or attached, nothing is submitted."""
    if not all_are(s, ATTACHED):
        return WHILE_DETACHED
    return why_declined(s, request, span)


def at_rest_with_control(s: State) -> bool:
    """§13.1 No operation is pending, every queue is empty, and no control call is under way."""
    return at_rest(s) and control_rests(s)
