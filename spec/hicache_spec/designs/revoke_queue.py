"""§8.3 sglang 0.5.16 and 0.5.17, but for attempts: the query thread revokes, by a queue that each drain empties first.

The releases know an operation by its request id alone (§8.4). Here it is known by its attempt, as in the canonical
design, so that the two designs differ in nothing but the revoke queue and can be compared on that alone.
"""

from __future__ import annotations

from ..events import ON_QUERY_PUT, ON_SKIPPED
from ..language import NONE, State, action, emit, require
from ..pipeline import (
    allocate,
    answers_everywhere,
    decide,
    find_record,
    forget_agreed,
    forget_answer,
    reclaim,
    released_everywhere,
    revoke,
    take_answered,
)
from ..state import AGREED, HITS, IDLE, PAGES, RANKS, THRESHOLD, WAS_STOPPED, retire
from . import revoking
from .decide_at_drain import DECIDE_AT_DRAIN
from .revoking import KNOWS_THE_REVOKE_QUEUE, WithRevokeQueue, carry_out_revoke, take_revoke


def query_put_in_either_queue(s: State, rank: int) -> None:
    """§8.3 A rank hands the answered operation to its scheduler: a hit by the hit queue, the rest by the revoke queue.

    Why: the query thread has the agreed hit at hand, so it can tell at once that nothing is to be fetched.
    Ref: sglang 0.5.17 cache_controller.py::prefetch_thread_func
    """
    require(s.stage[rank] == AGREED, "the hit count is agreed")
    op = s.query_queue[rank].pop(0)
    s.stage[rank] = IDLE
    forget_answer(s, rank)
    emit(s, ON_QUERY_PUT, rank, op)
    if s.hit[rank][op] < THRESHOLD:
        s.revoke_queue[rank].append(op)
    else:
        s.hit_queue[rank].append(op)


@action(fairness="weak", chosen=("revokes", "hits", "pages"), revokes=HITS, hits=HITS, pages=PAGES)
def sched_drain_revokes_first(s: State, revokes: int, hits: int, pages: int) -> None:
    """§8.3 Every rank takes the same number of revokes, of answered operations and of released pages, in that order.

    Why: a revoke only gives back, so what comes after it finds more that can be evicted. It also overtakes every hit
    that was answered before it.
    Ref: sglang 0.5.17 hiradix_cache.py::_drain_storage_control_queues_impl
    """
    require(revokes + hits + pages > 0, "there is something to take")
    require(revokes <= min(len(s.revoke_queue[r]) for r in RANKS), "every rank has that many revokes")
    require(hits <= answers_everywhere(s), "every rank has that many answered operations")
    require(pages <= released_everywhere(s), "every rank has that many released pages")
    for _ in range(revokes):
        carry_out_revoke(s, take_revoke(s))
    for _ in range(hits):
        decide(s, take_answered(s))
    if pages > 0:
        reclaim(s, pages)


def decide_a_hit(s: State, op: int) -> None:
    """§8.3 One answered operation: skipped, revoked or given host pages. That the hit is worth it is known.

    Why not the canonical words: they would do the same, for no hit below the threshold comes here. These are the
    releases', and a comparison of the designs shows by them that the comparison has moved.
    Ref: sglang 0.5.17 hiradix_cache.py::_drain_storage_control_queues_impl
    """
    found = find_record(s, op)
    if found == NONE:
        emit(s, ON_SKIPPED, op)
    elif s.stopped[0][op]:
        revoke(s, found, WAS_STOPPED)
    else:
        allocate(s, found, s.hit[0][op])
    for r in RANKS:
        forget_agreed(s, r, op)
    retire(s, op)


REVOKE_QUEUE = DECIDE_AT_DRAIN.variant(
    name="revoke_queue",
    summary="the query thread revokes what is below the threshold; a drain carries out revokes before it looks at hits",
    shape=WithRevokeQueue,
    modules=(revoking,),
    replaces={
        "query_put": query_put_in_either_queue,
        "sched_drain": sched_drain_revokes_first,
        "decide": decide_a_hit,
        **KNOWS_THE_REVOKE_QUEUE,
    },
)
