"""§13 What must hold, must be reachable and must happen when storage is detached, attached and reset."""

from __future__ import annotations

from ..events import ON_DECLINED, ON_IO_UNCOUNTED, ON_QUERY_AGREED, ON_REVOKED
from ..language import NONE, State, emitted, invariant, leads_to, sometimes, step_property
from ..properties import (
    inv_no_free_under_a_writer,
    inv_ranks_decide_alike,
    inv_rest_restores_the_pool,
    step_ended_stays_ended,
)
from ..state import (
    ABSENT,
    ANSWERED,
    CHAINS,
    DEPTHS,
    HOST_PAGES,
    IDLE,
    LOOKING,
    OPS,
    RANKS,
    REQUESTS,
    WAS_ABORTED,
    at_rest,
    held,
    is_travelling,
)
from ..tree import resident_pages
from .control_rules import (
    ATTACHED,
    DETACHED,
    DRAINING,
    IO_THREAD,
    ON_ATTACH_FAILED,
    ON_ATTACHED,
    ON_ATTACHING,
    ON_BEGUN_AGAIN,
    ON_DETACHED,
    ON_DETACHING,
    ON_KEPT,
    ON_RESETTING,
    ON_START_FAILED,
    QUERY_THREAD,
    STARTED,
    STARTING,
    STOPPING,
    THREADS,
    WHILE_DETACHED,
    all_are,
    are_in_their_loop,
    attaches,
    control_rests,
    has_ended,
)

# ---- invariants


@invariant
def inv_one_consumer_per_queue(s: State) -> bool:
    """§13.3 P16. At most one living thread takes from a queue."""
    return all(all(s.living[r][thread] <= 1 for thread in THREADS) for r in RANKS)


@invariant
def inv_attached_queues_have_their_threads(s: State) -> bool:
    """§13.3 P16. While storage is attached, or about to be let go, every queue has its thread."""
    return all(
        s.place[r] not in (ATTACHED, DRAINING) or all(s.living[r][thread] >= 1 for thread in THREADS) for r in RANKS
    )


@invariant
def inv_no_thread_outlives_its_storage(s: State) -> bool:
    """§13.3 P15, P16, P18. Where storage is detached, and where it is about to be attached, no thread lives."""
    return all(s.place[r] not in (DETACHED, STARTING) or has_ended(s, r) for r in RANKS)


@invariant
def inv_detached_is_at_rest(s: State) -> bool:
    """§13.3 P4, P15. On a rank that is detached nothing is on its way: no queue holds anything, no operation a page."""
    return all(
        s.place[r] != DETACHED
        or (
            has_empty_queues(s, r)
            and s.stage[r] == IDLE
            and all(s.hit[r][op] == 0 and held(s, r, op) == 0 for op in OPS)
        )
        for r in RANKS
    )


def has_empty_queues(s: State, rank: int) -> bool:
    """No queue of the rank holds an operation or a page."""
    return len(s.query_queue[rank]) + len(s.hit_queue[rank]) + len(s.buffer[rank]) + s.releasing[rank] == 0


@invariant
def inv_nothing_is_pending_unless_attached(s: State) -> bool:
    """§13.3 P2, P15. From the moment of a detach on, until storage is attached again, no operation is pending."""
    return all_are(s, ATTACHED) or all(s.record[request] == NONE for request in REQUESTS)


@invariant
def inv_ranks_are_attached_alike(s: State) -> bool:
    """§13.3 P7, P10. Storage is attached on all ranks or on none; and, but for a reset, all ranks attach it or none."""
    return all(
        (s.place[r] == ATTACHED) == (s.place[0] == ATTACHED) and (s.resetting or attaches(s, r) == attaches(s, 0))
        for r in RANKS
    )


@invariant
def inv_nobody_waits_for_an_ended_thread(s: State) -> bool:
    """§13.3 P7. While a query thread is in the all-reduce, no other rank's query thread has ended."""
    return all(s.stage[r] != ANSWERED for r in RANKS) or all(s.living[r][QUERY_THREAD] > 0 for r in RANKS)


@invariant
def inv_stopped_ranks_hold_the_same(s: State) -> bool:
    """§13.3 P7, P15. Ranks whose threads have ended are left with as many answers as each other, and with as many
    released pages.

    Why: each rank takes what is left by itself, without asking the others.
    """
    return all(
        not has_stopped(s, r)
        or all(
            not has_stopped(s, q) or (s.releasing[q] == s.releasing[r] and len(s.hit_queue[q]) == len(s.hit_queue[r]))
            for q in RANKS
        )
        for r in RANKS
    )


def has_stopped(s: State, rank: int) -> bool:
    """The threads of the rank have ended, and what they left is still there."""
    return s.place[rank] == STOPPING and has_ended(s, rank)


def inv_no_free_under_a_writer_across_control(s: State) -> bool:
    """§4.3 P18. While a page is being filled, a living thread fills it, for an operation that has given back at most
    the pages that landed before it."""
    return all(
        not s.writing[r] or (s.living[r][IO_THREAD] > 0 and len(s.buffer[r]) > 0) for r in RANKS
    ) and inv_no_free_under_a_writer(s)


def inv_pages_conserved_on_each_rank(s: State) -> bool:
    """§4.2 P4. On every rank, free, held, releasing and published pages together are the whole pool; where a reset has
    begun again, nothing is published."""
    return all(
        s.free[r] + s.releasing[r] + sum(held(s, r, op) for op in OPS) + (0 if is_empty(s, r) else resident_pages(s))
        == HOST_PAGES
        for r in RANKS
    )


def is_empty(s: State, rank: int) -> bool:
    """The rank's tree is empty, though the tree of a rank that is still to begin again may not be."""
    return s.resetting and attaches(s, rank)


def inv_rest_restores_the_pool_of_all(s: State) -> bool:
    """§4.15 P4, P14, P15. At rest every host page is free or in the tree, no anchor is protected and nothing is
    accounted; while a reset goes on, that is said of the pages of each rank by §4.2."""
    return any(is_empty(s, r) for r in RANKS) or inv_rest_restores_the_pool(s)


def inv_ranks_decide_alike_in_their_loop(s: State) -> bool:
    """§4.11 P7. What a drain decides by is the same on every rank, where the schedulers are in their loop: pool, queue
    order, hit counts and flags. A rank that waits for its threads, or begins again, decides nothing."""
    return not are_in_their_loop(s) or inv_ranks_decide_alike(s)


# ---- step properties


@step_property
def step_begins_again_as_at_the_start(s: State, t: State) -> bool:
    """§13.4 P8, P11, P14, P15. A reset leaves nothing of before: on a rank that begins again all pages are free, and
    nothing is on its way; when the last one has begun again, every variable has the value that it starts with, but for
    the tree, which is empty."""
    return all(not emitted(t, ON_BEGUN_AGAIN, rank=r) or is_new(t, r) for r in RANKS) and (
        not forgets(s, t)
        or (
            t.occupied == 0
            and all(t.attempts[request] == 0 and t.record[request] == NONE for request in REQUESTS)
            and all(is_unknown(t, op) for op in OPS)
            and all(t.resident[c] == 0 and all(t.protected[c][d] == 0 for d in DEPTHS) for c in CHAINS)
            and all(t.free[r] == HOST_PAGES and has_empty_queues(t, r) for r in RANKS)
        )
    )


def forgets(s: State, t: State) -> bool:
    """The step is the one by which the last rank begins again."""
    return any(emitted(t, ON_BEGUN_AGAIN, rank=r) for r in RANKS) and not t.resetting


def is_new(s: State, rank: int) -> bool:
    """All pages of the rank are free, its queues are empty, nothing is at work, and no thread is started."""
    return (
        s.free[rank] == HOST_PAGES
        and has_empty_queues(s, rank)
        and s.stage[rank] == IDLE
        and s.answer[rank] == 0
        and not s.writing[rank]
        and s.filled[rank] + s.tail[rank] == 0
        and has_ended(s, rank)
    )


def is_unknown(s: State, op: int) -> bool:
    """No variable says anything of the operation."""
    return (
        s.phase[op] == ABSENT
        and s.chain[op] == NONE
        and s.base[op] + s.span[op] + s.waited[op] + s.granted[op] == 0
        and all(not s.stopped[r][op] and s.hit[r][op] == 0 and s.counted[r][op] + s.given[r][op] == 0 for r in RANKS)
    )


@step_property
def step_attaching_touches_nothing(s: State, t: State) -> bool:
    """§13.4 P10. On the way to attached neither pool nor tree nor what is known of a request id changes.

    Why: a failed attach leaves the old state.
    """
    return (
        not (emitted(t, ON_ATTACHING) or any(attaches(s, r) for r in RANKS))
        or s.resetting
        or (
            all(t.attempts[request] == s.attempts[request] for request in REQUESTS)
            and all(t.phase[op] == s.phase[op] for op in OPS)
            and all(t.resident[c] == s.resident[c] for c in CHAINS)
            and all(t.free[r] == s.free[r] for r in RANKS)
        )
    )


@step_property
def step_declined_as_detached_for_cause(s: State, t: State) -> bool:
    """§13.4 P25. A submission is declined for want of storage only if some rank has none, or is about to let it go."""
    return not all_are(s, ATTACHED) or all(
        not emitted(t, ON_DECLINED, request=request, reason=WHILE_DETACHED) for request in REQUESTS
    )


def step_ended_stays_ended_until_a_reset(s: State, t: State) -> bool:
    """§5.7 P2. A final state has no way out, but that a reset forgets the operation."""
    return forgets(s, t) or step_ended_stays_ended(s, t)


# ---- liveness


def control_has_ended(s: State) -> bool:
    """Storage is attached on all ranks or detached on all, and no call is under way."""
    return control_rests(s)


@leads_to(control_has_ended)
def live_control_calls_end(s: State) -> bool:
    """§13.6 P15. Every detach, attach and reset comes to its end."""
    return not control_rests(s)


def has_left_the_agreement(s: State, rank: int) -> bool:
    """The rank's query thread is not in the all-reduce."""
    return s.stage[rank] != ANSWERED


@leads_to(has_left_the_agreement, rank=RANKS)
def live_agreements_end(s: State, rank: int) -> bool:
    """§13.6 P7. No query thread waits for ever for the others."""
    return s.stage[rank] == ANSWERED


# ---- outcomes


def begins_to_detach(t: State) -> bool:
    """The step aborted what is pending, for a detach or for a reset."""
    return (emitted(t, ON_DETACHING) or emitted(t, ON_RESETTING)) and all_are(t, DRAINING)


def is_withdrawn(t: State, op: int) -> bool:
    """The step aborted this operation, for a detach or for a reset."""
    return begins_to_detach(t) and emitted(t, ON_REVOKED, op=op, reason=WAS_ABORTED)


@sometimes
def sometimes_detached_before_the_look_up(s: State, t: State) -> bool:
    """§13.5 An operation is withdrawn that no query thread has taken."""
    return any(is_withdrawn(t, op) and all(op in s.query_queue[r] and s.stage[r] == IDLE for r in RANKS) for op in OPS)


@sometimes
def sometimes_detached_during_the_look_up(s: State, t: State) -> bool:
    """§13.5 An operation is withdrawn that one rank looks up, while another is in the all-reduce already."""
    return any(
        is_withdrawn(t, op)
        and any(op in s.query_queue[r] and s.stage[r] == LOOKING for r in RANKS)
        and any(op in s.query_queue[r] and s.stage[r] == ANSWERED for r in RANKS)
        for op in OPS
    )


@sometimes
def sometimes_detached_after_the_answer(s: State, t: State) -> bool:
    """§13.5 An operation is withdrawn whose answer waits for the drain, on some rank."""
    return any(is_withdrawn(t, op) and any(op in s.hit_queue[r] for r in RANKS) for op in OPS)


@sometimes
def sometimes_detached_during_a_read(s: State, t: State) -> bool:
    """§13.5 An operation is withdrawn of which a page has landed and another is being read."""
    return any(
        any(is_withdrawn(t, op) and s.writing[r] and op in s.buffer[r] and s.counted[r][op] > 0 for op in OPS)
        for r in RANKS
    )


@sometimes
def sometimes_detached_while_a_tail_is_released(s: State, t: State) -> bool:
    """§13.5 A detach begins when an operation that had been terminated before still gives back its pages."""
    return begins_to_detach(t) and any(s.tail[r] > 0 for r in RANKS)


@sometimes
def sometimes_a_rank_stops_before_another_is_told(s: State, t: State) -> bool:
    """§13.5 All threads of one rank have ended while another rank has not yet told its own to stop."""
    return any(s.place[r] == STOPPING and has_ended(s, r) for r in RANKS) and any(s.place[r] == DRAINING for r in RANKS)


@sometimes
def sometimes_told_threads_still_agree(s: State, t: State) -> bool:
    """§13.5 A query thread that is told to stop takes part in an all-reduce with one that is not yet told."""
    return (
        any(emitted(t, ON_QUERY_AGREED, op=op) for op in OPS)
        and any(s.place[r] == STOPPING for r in RANKS)
        and any(s.place[r] == DRAINING for r in RANKS)
    )


@sometimes
def sometimes_told_threads_look_up_what_is_left(s: State, t: State) -> bool:
    """§13.5 A query thread that is told to stop takes an operation that was queued before."""
    return any(s.place[r] == STOPPING and s.stage[r] == IDLE and t.stage[r] != IDLE for r in RANKS)


@sometimes
def sometimes_a_page_lands_after_the_detach(s: State, t: State) -> bool:
    """§13.5 A page's bytes arrive when its rank already waits for its threads."""
    return any(s.place[r] == STOPPING and any(emitted(t, ON_IO_UNCOUNTED, rank=r, op=op) for op in OPS) for r in RANKS)


@sometimes
def sometimes_answers_are_left_over(s: State, t: State) -> bool:
    """§13.5 Storage is let go with answers that no drain has taken."""
    return any(emitted(t, ON_DETACHED, rank=r) and len(s.hit_queue[r]) > 0 for r in RANKS)


@sometimes
def sometimes_pages_are_left_over(s: State, t: State) -> bool:
    """§13.5 Storage is let go with released pages that no drain has taken."""
    return any(emitted(t, ON_DETACHED, rank=r) and s.releasing[r] > 0 for r in RANKS)


@sometimes
def sometimes_nothing_is_left_over(s: State, t: State) -> bool:
    """§13.5 Storage is let go after the drains have taken everything, and an operation had been withdrawn."""
    return (
        any(emitted(t, ON_DETACHED, rank=r) for r in RANKS) and at_rest(s) and any(s.phase[op] != ABSENT for op in OPS)
    )


@sometimes
def sometimes_a_rank_is_detached_before_another_has_stopped(s: State, t: State) -> bool:
    """§13.5 One rank is detached while a thread of another still works on what was withdrawn."""
    return any(s.place[r] == DETACHED for r in RANKS) and any(
        any(s.writing[r] or op in s.query_queue[r] or op in s.buffer[r] for op in OPS) for r in RANKS
    )


@sometimes
def sometimes_a_detach_is_given_up(s: State, t: State) -> bool:
    """§13.5 Storage stays attached while what was withdrawn is still on its way."""
    return emitted(t, ON_KEPT) and any(is_travelling(t, op) for op in OPS)


@sometimes
def sometimes_declined_while_detached(s: State, t: State) -> bool:
    """§13.5 A submission is declined because storage is detached."""
    return all_are(s, DETACHED) and any(emitted(t, ON_DECLINED, request=q, reason=WHILE_DETACHED) for q in REQUESTS)


@sometimes
def sometimes_ranks_attach_apart(s: State, t: State) -> bool:
    """§13.5 One rank's threads have started and another rank has not begun to start its own."""
    return any(t.place[r] == STARTED for r in RANKS) and any(t.place[r] == STARTING for r in RANKS)


@sometimes
def sometimes_attach_fails_on_one_rank(s: State, t: State) -> bool:
    """§13.5 Attaching fails on one rank only, and is undone on the others."""
    return emitted(t, ON_ATTACH_FAILED) and any(s.place[r] == STARTED for r in RANKS)


@sometimes
def sometimes_attach_fails_half_way(s: State, t: State) -> bool:
    """§13.5 A rank fails to attach when one of its threads has started."""
    return any(emitted(t, ON_START_FAILED, rank=r) and s.living[r][QUERY_THREAD] > 0 for r in RANKS)


@sometimes
def sometimes_attached_again(s: State, t: State) -> bool:
    """§13.5 Storage is attached again, and what was published before is still in the tree."""
    return emitted(t, ON_ATTACHED) and any(s.resident[c] > 0 for c in CHAINS)


@sometimes
def sometimes_reset_with_operations_on_their_way(s: State, t: State) -> bool:
    """§13.5 A reset begins while an operation is on its way."""
    return begins_to_detach(t) and emitted(t, ON_RESETTING) and any(is_travelling(s, op) for op in OPS)


@sometimes
def sometimes_reset_forgets_what_was_published(s: State, t: State) -> bool:
    """§13.5 A reset empties a tree that held pages."""
    return forgets(s, t) and any(s.resident[c] > 0 for c in CHAINS)


@sometimes
def sometimes_new_threads_live_beside_old_ones(s: State, t: State) -> bool:
    """§13.5 One rank has begun again and started a thread, while a thread of before still works on another rank."""
    return any(is_empty(s, r) and not has_ended(s, r) for r in RANKS) and any(
        s.place[r] == STOPPING and s.writing[r] for r in RANKS
    )


@sometimes
def sometimes_reset_while_detached(s: State, t: State) -> bool:
    """§13.5 A reset begins where nothing is attached."""
    return emitted(t, ON_RESETTING) and all_are(t, DETACHED)
