"""§8.6 sglang 0.5.15 and before, but for attempts: host pages are taken at submission, before anything is looked up.

What the hit does not need goes back by the release queue, and the query thread hands hits to the IO thread itself. So
there is no hit queue, and a drain decides nothing: it carries out revokes and takes pages back.

The releases know an operation by its request id alone (§8.7); here it is known by its attempt, as in the canonical
design, so that the difference is the order of memory and look-up and nothing else.
"""

from __future__ import annotations

from ..events import ON_ALLOCATED, ON_DECLINED, ON_QUERY_AGREED, ON_QUERY_PUT, ON_QUERY_TAKEN
from ..language import State, action, emit, require
from ..pipeline import admit, agreed_hit, forget_agreed, forget_answer, is_free, reclaim, released_everywhere
from ..state import (
    AGREED,
    ALLOCATE,
    ANSWERED,
    HITS,
    IDLE,
    LOOKING,
    NO_MEMORY,
    PAGES,
    QUERIED,
    QUERY,
    QUEUED,
    RANKS,
    THRESHOLD,
    advance,
)
from ..tree import evict, protected_depth, room
from . import revoking
from .decide_at_drain import DECIDE_AT_DRAIN
from .revoking import KNOWS_THE_REVOKE_QUEUE, WithRevokeQueue, carry_out_revoke, take_revoke


def admit_with_pages(s: State, request: int, chain: int, span: int) -> None:
    """§8.6 (new) -> queued. The operation gets host pages for its span, or for the longest prefix that fits; or none,
    and is declined.

    Why: the pages are there when the hit is known, so that the IO thread need not wait for a tick of the scheduler.
    Ref: sglang 0.5.15 hiradix_cache.py::prefetch_from_storage
    """
    pages = min(span, room_beside(s, chain))
    if pages < THRESHOLD:
        emit(s, ON_DECLINED, request, NO_MEMORY, span)
    else:
        admit(s, request, chain, pages)
        take_pages(s, s.record[request], pages)


def room_beside(s: State, chain: int) -> int:
    """Host pages that can be had while this chain is protected to its end."""
    return room(s) - (s.resident[chain] - protected_depth(s, chain))


def take_pages(s: State, op: int, pages: int) -> None:
    """The operation owns `pages` host pages on every rank; no thread reads into them yet."""
    if s.free[0] < pages:
        evict(s, pages - s.free[0])
    for r in RANKS:
        s.free[r] -= pages
    s.granted[op] = pages


def query_take_whatever_comes(s: State, rank: int) -> None:
    """§8.6 The query thread takes the next operation and looks it up, terminated or not.

    Ref: sglang 0.5.15 cache_controller.py::prefetch_thread_func
    """
    require(len(s.query_queue[rank]) > 0, "an operation waits for its look-up")
    require(is_free(s, rank), "the thread is free")
    op = s.query_queue[rank][0]
    s.stage[rank] = LOOKING
    emit(s, ON_QUERY_TAKEN, rank, op)


def query_agree_and_give_back(s: State) -> None:
    """§8.6 queued -> queried. The ranks agree on the hit, and each gives back the pages that it does not need.

    Why all ranks at once: a drain takes back what every rank has released, so a rank that is late cannot be told from
    a drain that takes less.
    Ref: sglang 0.5.15 cache_controller.py::prefetch_thread_func
    """
    require(all(s.stage[r] == ANSWERED for r in RANKS), "every rank has its answer and is in the all-reduce")
    op = s.query_queue[0][0]
    for r in RANKS:
        s.hit[r][op] = agreed_hit(s, r)
        s.stage[r] = AGREED
    if s.phase[op] == QUEUED:
        advance(s, op, QUERY)
    emit(s, ON_QUERY_AGREED, op, s.hit[0][op])
    give_back(s, op, s.hit[0][op])


def give_back(s: State, op: int, hit: int) -> None:
    """Pages beyond the hit, or all of them if it is below the threshold, go to the release queue."""
    if hit < THRESHOLD:
        for r in RANKS:
            s.releasing[r] += s.granted[op]
            s.given[r][op] += s.granted[op]
    else:
        for r in RANKS:
            s.releasing[r] += s.granted[op] - hit
        s.granted[op] = hit


def query_put_to_io(s: State, rank: int) -> None:
    """§8.6 queried -> allocated. A rank hands a hit to its IO thread, and the rest to its scheduler, to be revoked.

    The first rank's step is the one that shows. Terminated operations go the same way: the IO thread returns their
    pages.
    Ref: sglang 0.5.15 cache_controller.py::prefetch_thread_func
    """
    require(s.stage[rank] == AGREED, "the hit count is agreed")
    op = s.query_queue[rank].pop(0)
    s.stage[rank] = IDLE
    forget_answer(s, rank)
    emit(s, ON_QUERY_PUT, rank, op)
    if s.hit[rank][op] < THRESHOLD:
        s.revoke_queue[rank].append(op)
    else:
        s.buffer[rank].append(op)
        if s.phase[op] == QUERIED:
            advance(s, op, ALLOCATE)
            emit(s, ON_ALLOCATED, op, s.granted[op], s.hit[rank][op], room(s))
        if all(op not in s.query_queue[r] for r in RANKS):
            for r in RANKS:
                forget_agreed(s, r, op)


@action(fairness="weak", chosen=("revokes", "pages"), revokes=HITS, pages=PAGES)
def sched_drain_nothing_to_decide(s: State, revokes: int, pages: int) -> None:
    """§8.6 Every rank takes the same number of revokes and of released pages, in that order.

    Ref: sglang 0.5.15 hiradix_cache.py::_drain_storage_control_queues_impl
    """
    require(revokes + pages > 0, "there is something to take")
    require(revokes <= min(len(s.revoke_queue[r]) for r in RANKS), "every rank has that many revokes")
    require(pages <= released_everywhere(s), "every rank has that many released pages")
    for _ in range(revokes):
        carry_out_revoke(s, take_revoke(s))
    if pages > 0:
        reclaim(s, pages)


ALLOC_FIRST = DECIDE_AT_DRAIN.variant(
    name="alloc_first",
    summary="host pages are taken at submission; the query thread revokes, or hands the hit to the IO thread",
    shape=WithRevokeQueue,
    modules=(revoking,),
    replaces={
        "admit": admit_with_pages,
        "query_take": query_take_whatever_comes,
        "query_agree": query_agree_and_give_back,
        "query_put": query_put_to_io,
        "sched_drain": sched_drain_nothing_to_decide,
        **KNOWS_THE_REVOKE_QUEUE,
    },
    violates=("inv_no_memory_before_verdict",),
)
