"""§4-§7 What must hold: invariants, step properties, reachable outcomes, liveness. P-numbers are the project's list."""

from __future__ import annotations

from .bounds import TIMEOUT, WAIT_COMPLETE
from .events import (
    ON_ALLOCATED,
    ON_DECLINED,
    ON_EVICTED,
    ON_FETCHED,
    ON_IO_FAILED,
    ON_IO_RELEASED,
    ON_IO_UNCOUNTED,
    ON_QUERY_AGREED,
    ON_RECLAIMED,
    ON_REVOKED,
    ON_SKIPPED,
    ON_STOPPED,
    ON_SUBMITTED,
)
from .language import NONE, State, emitted, invariant, leads_to, sometimes, step_property
from .pipeline import (
    ABSENT,
    ALLOCATED,
    ANSWERED,
    ATTEMPTS,
    BELOW_THRESHOLD,
    CHAINS,
    DEPTHS,
    FETCHED,
    HOST_PAGES,
    ILLEGAL,
    LENGTH,
    LIMITED,
    NO_MEMORY,
    OPS,
    PENDING,
    POLICY_NOW,
    QUERIED,
    QUEUED,
    RANKS,
    REQUEST_OF,
    REQUESTS,
    REVOKED,
    THRESHOLD,
    TIMEOUT_TICKS,
    TOO_SHORT,
    WAS_ABORTED,
    WAS_STOPPED,
    at_rest,
    held,
    is_complete,
    is_ended,
    is_pending,
    is_terminated,
    protected_depth,
    span_of,
)

# ---- §4 invariants


@invariant
def inv_no_page_freed_twice(s: State) -> bool:
    """§4.1 P13. An operation gives back no more pages than it was granted."""
    return all(all(s.given[r][op] <= s.granted[op] for op in OPS) for r in RANKS)


@invariant
def inv_pages_conserved(s: State) -> bool:
    """§4.2 P4. On every rank, free, held, releasing and published pages together are the whole pool.

    Why: from outside, a leaked reservation looks like rate limiting.
    """
    return all(
        s.free[r] + s.releasing[r] + sum(held(s, r, op) for op in OPS) + sum(s.resident[c] for c in CHAINS)
        == HOST_PAGES
        for r in RANKS
    )


@invariant
def inv_no_free_under_a_writer(s: State) -> bool:
    """§4.3 P18. While a page is being filled, the operation has given back at most the pages that landed before it."""
    return all(not s.writing[r] or s.given[r][s.buffer[r][0]] <= s.counted[r][s.buffer[r][0]] for r in RANKS)


@invariant
def inv_counted_pages_are_filled(s: State) -> bool:
    """§4.4 P6. A page is counted only after its bytes are in place."""
    return all(len(s.buffer[r]) == 0 or s.counted[r][s.buffer[r][0]] <= s.filled[r] for r in RANKS)


@invariant
def inv_anchors_protected_exactly(s: State) -> bool:
    """§4.5 P14. An anchor's reference count is the number of pending operations that hang under it."""
    return all(
        all(
            s.protected[c][d] == sum(is_pending(s, op) and s.chain[op] == c and s.base[op] == d for op in OPS)
            for d in DEPTHS
        )
        for c in CHAINS
    )


@invariant
def inv_anchors_alive(s: State) -> bool:
    """§4.6 P14. The prefix down to a pending operation's anchor is resident."""
    return all(not is_pending(s, op) or s.base[op] <= s.resident[s.chain[op]] for op in OPS)


@invariant
def inv_occupied_is_sum_of_spans(s: State) -> bool:
    """§4.7 P8. The limiter's count is the sum of the pending spans."""
    return s.occupied == sum(span_of(s, op) if is_pending(s, op) else 0 for op in OPS)


@invariant
def inv_no_memory_before_verdict(s: State) -> bool:
    """§4.8 P1. No host page is granted before the hit count is agreed."""
    return all(s.phase[op] not in (ABSENT, QUEUED, QUERIED) or s.granted[op] == 0 for op in OPS)


@invariant
def inv_grant_is_worth_it(s: State) -> bool:
    """§4.9 P17. A grant is at least the threshold and at most the span; the page is the unit, so it is page-aligned."""
    return all(s.granted[op] == 0 or THRESHOLD <= s.granted[op] <= LENGTH - s.base[op] for op in OPS)


@invariant
def inv_ended_operations_hold_nothing(s: State) -> bool:
    """§4.10 P4. An ended operation that no IO thread works on holds no page."""
    return all(all(not is_ended(s, op) or op in s.buffer[r] or held(s, r, op) == 0 for op in OPS) for r in RANKS)


@invariant
def inv_ranks_decide_alike(s: State) -> bool:
    """§4.11 P7. What a drain decides by is the same on every rank: pool, queue order, hit counts and flags."""
    return all(
        s.free[r] == s.free[0]
        and all(
            s.hit[r][op] == s.hit[0][op] and (s.granted[op] > 0 or s.stopped[r][op] == s.stopped[0][op]) for op in OPS
        )
        and all(s.hit_queue[r][i] == s.hit_queue[0][i] for i in range(min(len(s.hit_queue[r]), len(s.hit_queue[0]))))
        for r in RANKS
    )


@invariant
def inv_ranks_query_alike(s: State) -> bool:
    """§4.12 P7. Ranks that meet in the all-reduce of the query ask about the same operation."""
    return any(s.stage[r] != ANSWERED for r in RANKS) or all(s.query_queue[r][0] == s.query_queue[0][0] for r in RANKS)


@invariant
def inv_life_cycle_is_legal(s: State) -> bool:
    """§4.13 P2. No operation was ever moved along an edge that the life cycle does not have; final states are final."""
    return all(s.phase[op] != ILLEGAL for op in OPS)


@invariant
def inv_records_name_their_attempt(s: State) -> bool:
    """§4.14 P11. Every pending operation is recorded under its request id, as the latest attempt, and nothing else
    is."""
    return all(is_pending(s, op) == is_recorded(s, op) for op in OPS) and all(
        s.record[request] in (NONE, request * ATTEMPTS + s.attempts[request] - 1) for request in REQUESTS
    )


@invariant
def inv_rest_restores_the_pool(s: State) -> bool:
    """§4.15 P15. At rest every host page is free or in the tree, no anchor is protected and nothing is accounted."""
    return not at_rest(s) or (
        s.occupied == 0
        and all(protected_depth(s, c) == 0 and s.protected[c][0] == 0 for c in CHAINS)
        and all(s.free[r] + sum(s.resident[c] for c in CHAINS) == HOST_PAGES for r in RANKS)
    )


def is_recorded(s: State, op: int) -> bool:
    """Is this operation the one recorded under its request id?"""
    return s.record[REQUEST_OF[op]] == op


# ---- §5 step properties


@step_property
def step_drain_decides_its_own_attempt(s: State, t: State) -> bool:
    """§5.1 P11. A drain revokes or allocates an operation only by that operation's own answer."""
    return not takes_answers(s, t) or all(
        not (emitted(t, ON_REVOKED, op=op) or emitted(t, ON_ALLOCATED, op=op)) or is_taken(s, t, op) for op in OPS
    )


@step_property
def step_published_landed_everywhere(s: State, t: State) -> bool:
    """§5.2 P6. What is published landed on every rank."""
    return all(
        s.phase[op] == FETCHED
        or t.phase[op] != FETCHED
        or all(any(emitted(t, ON_FETCHED, op=op, pages=n) for n in range(s.counted[r][op] + 1)) for r in RANKS)
        for op in OPS
    )


@step_property
def step_aborted_is_not_published(s: State, t: State) -> bool:
    """§5.3 P10. An operation revoked in this step added nothing to the tree."""
    return all(not newly(s, t, op, REVOKED) for op in OPS) or all(t.resident[c] <= s.resident[c] for c in CHAINS)


@step_property
def step_eviction_is_needed(s: State, t: State) -> bool:
    """§5.4 P9. Pages are evicted only for answered operations that asked for more than was free."""
    return not any(emitted(t, ON_EVICTED, chain=c) for c in CHAINS) or (
        sum(s.hit[0][op] if is_taken(s, t, op) else 0 for op in OPS) > s.free[0]
    )


@step_property
def step_refusal_is_needed(s: State, t: State) -> bool:
    """§5.5 P9. A single answer is refused for lack of memory only if no eviction could have made room."""
    return (
        not any(emitted(t, ON_REVOKED, op=op, reason=NO_MEMORY) for op in OPS)
        or len(s.hit_queue[0]) - len(t.hit_queue[0]) != 1
        or s.free[0] + sum(s.resident[c] - protected_depth(s, c) for c in CHAINS) < THRESHOLD
    )


@step_property
def step_declined_leaves_nothing(s: State, t: State) -> bool:
    """§5.6 P10, P27. A declined submission records, protects and accounts nothing."""
    return not any(emitted(t, ON_DECLINED, request=request) for request in REQUESTS) or (
        t.occupied == s.occupied
        and all(t.record[request] == s.record[request] for request in REQUESTS)
        and all(all(t.protected[c][d] == s.protected[c][d] for d in DEPTHS) for c in CHAINS)
    )


@step_property
def step_ended_stays_ended(s: State, t: State) -> bool:
    """§5.7 P2. A final state has no way out."""
    return all(not is_ended(s, op) or t.phase[op] == s.phase[op] for op in OPS)


@step_property
def step_waits_for_the_verdict(s: State, t: State) -> bool:
    """§5.8 P1, P5. A poll ends an operation only if it is terminated or its policy has what it waits for."""
    return all(
        not (newly(s, t, op, FETCHED) or emitted(t, ON_REVOKED, op=op, reason=WAS_STOPPED))
        or is_terminated(s, op)
        or policy_gives_up(s, op)
        or (s.phase[op] == ALLOCATED and is_complete(s, op))
        for op in OPS
    )


def policy_gives_up(s: State, op: int) -> bool:
    """The policy ends the wait of an incomplete operation: best_effort always, timeout when it is late."""
    return POLICY_NOW != WAIT_COMPLETE and (POLICY_NOW != TIMEOUT or s.waited[op] >= TIMEOUT_TICKS)


@step_property
def step_no_page_read_after_termination(s: State, t: State) -> bool:
    """§5.9 P18. The IO thread begins no page of a terminated operation, and counts none."""
    return all(
        all(not s.stopped[r][op] or is_ended(t, op) or t.counted[r][op] <= s.counted[r][op] for op in OPS)
        and not (t.writing[r] and not s.writing[r] and s.stopped[r][s.buffer[r][0]])
        for r in RANKS
    )


@step_property
def step_grant_is_within_the_hit(s: State, t: State) -> bool:
    """§5.10 P12, P17. An operation is granted no more pages than the agreed hit."""
    return all(not newly(s, t, op, ALLOCATED) or t.granted[op] <= s.hit[0][op] for op in OPS)


@step_property
def step_hit_is_everywhere(s: State, t: State) -> bool:
    """§5.11 P7, P12. The agreed hit is no more than any rank's answer."""
    return all(
        not newly(s, t, op, QUERIED) or all(max(t.hit[q][op] for q in RANKS) <= s.answer[r] for r in RANKS)
        for op in OPS
    )


def takes_answers(s: State, t: State) -> bool:
    """The step is a drain that takes answered operations."""
    return len(t.hit_queue[0]) < len(s.hit_queue[0])


def is_taken(s: State, t: State, op: int) -> bool:
    """The step takes this operation from the hit queue."""
    return op in s.hit_queue[0] and op not in t.hit_queue[0]


def newly(s: State, t: State, op: int, phase: int) -> bool:
    """The operation reached this phase in this step."""
    return s.phase[op] != phase and t.phase[op] == phase


# ---- §6 what must be reachable


@sometimes
def sometimes_declined_too_short(s: State, t: State) -> bool:
    """§6.1 A span below the threshold is declined."""
    return any(emitted(t, ON_DECLINED, request=q, reason=TOO_SHORT) for q in REQUESTS)


@sometimes
def sometimes_declined_by_the_limiter(s: State, t: State) -> bool:
    """§6.2 The limiter declines a submission."""
    return any(emitted(t, ON_DECLINED, request=q, reason=LIMITED) for q in REQUESTS)


@sometimes
def sometimes_declined_while_pending(s: State, t: State) -> bool:
    """§6.3 A request id is submitted while its earlier attempt is pending."""
    return any(emitted(t, ON_DECLINED, request=q, reason=PENDING) for q in REQUESTS)


@sometimes
def sometimes_drain_skips_an_ended_operation(s: State, t: State) -> bool:
    """§6.4 The drain meets an operation whose record is gone."""
    return any(emitted(t, ON_SKIPPED, op=op) for op in OPS)


@sometimes
def sometimes_drain_revokes_a_terminated_operation(s: State, t: State) -> bool:
    """§6.5 The drain meets a terminated operation."""
    return takes_answers(s, t) and any(emitted(t, ON_REVOKED, op=op, reason=WAS_STOPPED) for op in OPS)


@sometimes
def sometimes_drain_revokes_below_threshold(s: State, t: State) -> bool:
    """§6.6 The hit is not worth fetching."""
    return any(emitted(t, ON_REVOKED, op=op, reason=BELOW_THRESHOLD) for op in OPS)


@sometimes
def sometimes_drain_allocates_the_hit(s: State, t: State) -> bool:
    """§6.7 Exactly the hit is allocated, without eviction."""
    return any(any(emitted(t, ON_ALLOCATED, op=op, pages=n, hit=n) for n in DEPTHS) for op in OPS) and not evicts(t)


@sometimes
def sometimes_drain_evicts_and_retries(s: State, t: State) -> bool:
    """§6.8 The whole hit is allocated after an eviction."""
    return any(any(emitted(t, ON_ALLOCATED, op=op, pages=n, hit=n) for n in DEPTHS) for op in OPS) and evicts(t)


@sometimes
def sometimes_drain_allocates_a_shorter_prefix(s: State, t: State) -> bool:
    """§6.9 A shorter prefix than the hit is allocated."""
    return any(
        any(
            emitted(t, ON_ALLOCATED, op=op, hit=n) and not emitted(t, ON_ALLOCATED, op=op, pages=n, hit=n)
            for n in DEPTHS
        )
        for op in OPS
    )


@sometimes
def sometimes_drain_refuses_for_memory(s: State, t: State) -> bool:
    """§6.10 The pool has no room even for the threshold."""
    return any(emitted(t, ON_REVOKED, op=op, reason=NO_MEMORY) for op in OPS)


@sometimes
def sometimes_drain_takes_only_a_part(s: State, t: State) -> bool:
    """§6.11 A drain leaves answered operations in the queue: they arrived after the sampling."""
    return any(emitted(t, ON_REVOKED, op=op) or emitted(t, ON_ALLOCATED, op=op) for op in OPS) and any(
        len(t.hit_queue[r]) > 0 for r in RANKS
    )


@sometimes
def sometimes_page_fails_on_one_rank(s: State, t: State) -> bool:
    """§6.12 A page fails on one rank while another rank's flag is not set."""
    return any(any(emitted(t, ON_IO_FAILED, rank=r, op=op) for r in RANKS) and not all_stopped(t, op) for op in OPS)


@sometimes
def sometimes_agreed_hit_is_gone_at_the_read(s: State, t: State) -> bool:
    """§6.13 Storage changed between query and fetch: the first page of an agreed hit fails."""
    return any(any(emitted(t, ON_IO_FAILED, rank=r, op=op, page=0) for op in OPS) for r in RANKS)


@sometimes
def sometimes_page_lands_after_termination(s: State, t: State) -> bool:
    """§6.14 A page's bytes arrive after the operation was terminated; it is not counted."""
    return any(any(emitted(t, ON_IO_UNCOUNTED, rank=r, op=op) for op in OPS) for r in RANKS)


@sometimes
def sometimes_ranks_answer_differently(s: State, t: State) -> bool:
    """§6.15 The agreed hit is lower than some rank's answer."""
    return any(
        any(any(emitted(t, ON_QUERY_AGREED, op=op, hit=n) and t.answer[r] > n for n in DEPTHS) for op in OPS)
        for r in RANKS
    )


@sometimes
def sometimes_terminated_before_the_agreement(s: State, t: State) -> bool:
    """§6.16 An operation is terminated while it is looked up: its agreed hit is not zero."""
    return any(
        any(emitted(t, ON_QUERY_AGREED, op=op, hit=n) and t.stopped[0][op] for n in DEPTHS if n > 0) for op in OPS
    )


@sometimes
def sometimes_everything_is_fetched(s: State, t: State) -> bool:
    """§6.17 A whole span is published."""
    return any(emitted(t, ON_FETCHED, op=op, pages=LENGTH) for op in OPS)


@sometimes
def sometimes_a_part_is_fetched(s: State, t: State) -> bool:
    """§6.18 A terminated operation publishes a part of what it was granted."""
    return any(any(emitted(t, ON_FETCHED, op=op, pages=n) for n in DEPTHS if 0 < n < LENGTH) for op in OPS)


@sometimes
def sometimes_nothing_is_fetched(s: State, t: State) -> bool:
    """§6.19 An operation with memory ends with an empty prefix."""
    return any(emitted(t, ON_FETCHED, op=op, pages=0) for op in OPS)


@sometimes
def sometimes_fetched_pages_are_known(s: State, t: State) -> bool:
    """§6.20 Published pages were already in the tree."""
    return any(any(emitted(t, ON_FETCHED, op=op, known=n) for n in DEPTHS if n > 0) for op in OPS)


@sometimes
def sometimes_landed_pages_are_not_agreed(s: State, t: State) -> bool:
    """§6.21 A rank landed more pages than were agreed, and releases the rest."""
    return any(any(emitted(t, ON_FETCHED, op=op, pages=n) for n in DEPTHS) for op in OPS) and any(
        t.releasing[r] > s.releasing[r] for r in RANKS
    )


@sometimes
def sometimes_stopped_by_the_caller(s: State, t: State) -> bool:
    """§6.22 The caller stops an operation."""
    return any(emitted(t, ON_STOPPED, op=op) for op in OPS)


@sometimes
def sometimes_aborted_before_allocation(s: State, t: State) -> bool:
    """§6.23 A request is aborted before it has memory."""
    return any(emitted(t, ON_REVOKED, op=op, reason=WAS_ABORTED) and s.granted[op] == 0 for op in OPS)


@sometimes
def sometimes_aborted_after_allocation(s: State, t: State) -> bool:
    """§6.24 A request is aborted while its pages arrive."""
    return any(emitted(t, ON_REVOKED, op=op, reason=WAS_ABORTED) and s.granted[op] > 0 for op in OPS)


@sometimes
def sometimes_tail_released_page_by_page(s: State, t: State) -> bool:
    """§6.25 The IO thread releases a page of the unread tail."""
    return any(any(emitted(t, ON_IO_RELEASED, rank=r, op=op) for op in OPS) for r in RANKS)


@sometimes
def sometimes_released_pages_are_reclaimed(s: State, t: State) -> bool:
    """§6.26 Released pages return to the pool."""
    return any(emitted(t, ON_RECLAIMED, pages=n) for n in range(1, HOST_PAGES + 1))


@sometimes
def sometimes_request_id_is_submitted_again(s: State, t: State) -> bool:
    """§6.27 A request id is submitted again while its earlier attempt still travels through the queues."""
    return any(emitted(t, ON_SUBMITTED, op=op) and earlier_attempt_travels(t, op) for op in OPS)


def evicts(s: State) -> bool:
    """The step evicted pages."""
    return any(emitted(s, ON_EVICTED, chain=c) for c in CHAINS)


def all_stopped(s: State, op: int) -> bool:
    """The terminated flag is set on every rank."""
    return all(s.stopped[r][op] for r in RANKS)


def earlier_attempt_travels(s: State, op: int) -> bool:
    """An ended operation of the same request id is still in a queue."""
    return any(
        other != op
        and REQUEST_OF[other] == REQUEST_OF[op]
        and any(other in s.query_queue[r] or other in s.hit_queue[r] for r in RANKS)
        for other in OPS
    )


# ---- §7 liveness, under weak fairness of the threads and the scheduler's loop


def has_ended(s: State, op: int) -> bool:
    """The operation is revoked or fetched."""
    return is_ended(s, op)


@leads_to(has_ended, op=OPS)
def live_submitted_operations_end(s: State, op: int) -> bool:
    """§7.1 P2. Every submitted operation ends."""
    return is_pending(s, op)


def queues_are_empty(s: State) -> bool:
    """No answered operation and no released page waits for the scheduler."""
    return all(len(s.hit_queue[r]) == 0 and s.releasing[r] == 0 for r in RANKS)


@leads_to(queues_are_empty)
def live_control_queues_drain(s: State) -> bool:
    """§7.2 P3. Whatever the threads hand to the scheduler is taken."""
    return any(len(s.hit_queue[r]) > 0 or s.releasing[r] > 0 for r in RANKS)
