"""§4, §5, §7 What must hold: invariants, step properties, liveness. The P-numbers are those of SPEC.md §9."""

from __future__ import annotations

from .bounds import TIMEOUT, WAIT_COMPLETE
from .events import ON_ALLOCATED, ON_DECLINED, ON_EVICTED, ON_FETCHED, ON_REVOKED, ON_SUBMITTED
from .language import NONE, State, emitted, invariant, leads_to, step_property
from .state import (
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
    LIMIT,
    LIMITED,
    NO_MEMORY,
    OPS,
    PAGES,
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
    WAS_STOPPED,
    at_rest,
    held,
    is_complete,
    is_ended,
    is_pending,
    is_terminated,
)
from .tree import protected_depth, resident_pages

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
        s.free[r] + s.releasing[r] + sum(held(s, r, op) for op in OPS) + resident_pages(s) == HOST_PAGES for r in RANKS
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
    return s.occupied == sum(s.span[op] if is_pending(s, op) else 0 for op in OPS)


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
    """§4.15 P4, P14, P15. At rest every host page is free or in the tree, no anchor is protected and nothing is
    accounted."""
    return not at_rest(s) or (
        s.occupied == 0
        and all(protected_depth(s, c) == 0 and s.protected[c][0] == 0 for c in CHAINS)
        and all(s.free[r] + resident_pages(s) == HOST_PAGES for r in RANKS)
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
    """§5.2 P6, P20. What is published is exactly the prefix that landed on every rank."""
    return all(
        not newly(s, t, op, FETCHED)
        or any(emitted(t, ON_FETCHED, op=op, pages=n) and n == min(s.counted[r][op] for r in RANKS) for n in DEPTHS)
        for op in OPS
    )


@step_property
def step_aborted_is_not_published(s: State, t: State) -> bool:
    """§5.3 P10. A step that revokes an operation adds nothing to the tree."""
    return all(not newly(s, t, op, REVOKED) for op in OPS) or all(t.resident[c] <= s.resident[c] for c in CHAINS)


@step_property
def step_eviction_is_needed(s: State, t: State) -> bool:
    """§5.4 P9. A drain evicts exactly the pages that its grants lack; no other step evicts."""
    if not takes_answers(s, t):
        return not any(emitted(t, ON_EVICTED, chain=c) for c in CHAINS)
    granted = sum(t.granted[op] if newly(s, t, op, ALLOCATED) else 0 for op in OPS)
    return resident_pages(s) - resident_pages(t) == max(0, granted - s.free[0])


@step_property
def step_refusal_is_needed(s: State, t: State) -> bool:
    """§5.5 P9. Memory is refused, or granted short of the hit, only if there is no more to be had, even by eviction."""
    return all(
        not any(emitted(t, ON_REVOKED, op=op, reason=NO_MEMORY, room=n) for n in PAGES if n >= THRESHOLD)
        and not any(
            emitted(t, ON_ALLOCATED, op=op, pages=t.granted[op], room=n) and t.granted[op] < s.hit[0][op]
            for n in PAGES
            if n > 0
        )
        for op in OPS
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
    """§5.8 P1, P5. A poll ends an operation only if it is terminated or complete, or its policy gives up waiting."""
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
    """§5.11 P7, P12. The agreed hit is, on every rank, the lowest of the ranks' answers."""
    return all(
        not newly(s, t, op, QUERIED) or all(t.hit[r][op] == min(s.answer[q] for q in RANKS) for r in RANKS)
        for op in OPS
    )


@step_property
def step_declined_for_cause(s: State, t: State) -> bool:
    """§5.12 P25. A submission is declined only if its id is pending, its span is too short, or the limit is reached."""
    return all(
        all(
            not (emitted(t, ON_DECLINED, request=q, reason=PENDING) and s.record[q] == NONE)
            and not (emitted(t, ON_DECLINED, request=q, reason=TOO_SHORT, span=n) and n >= THRESHOLD)
            and not (emitted(t, ON_DECLINED, request=q, reason=LIMITED) and s.occupied < LIMIT)
            for n in DEPTHS
        )
        for q in REQUESTS
    )


@step_property
def step_fetched_had_memory(s: State, t: State) -> bool:
    """§5.13 P1. Only an operation that was granted host pages ends fetched; one without memory is revoked."""
    return all(not newly(s, t, op, FETCHED) or s.granted[op] > 0 for op in OPS)


@step_property
def step_admitted_for_cause(s: State, t: State) -> bool:
    """§5.14 P8. A submission is admitted only if its span is worth it and the limit is not reached."""
    return all(not emitted(t, ON_SUBMITTED, op=op) or (t.span[op] >= THRESHOLD and s.occupied < LIMIT) for op in OPS)


@step_property
def step_revoked_for_cause(s: State, t: State) -> bool:
    """§5.15 P9. A drain revokes an answer as below the threshold only if it is."""
    return all(not emitted(t, ON_REVOKED, op=op, reason=BELOW_THRESHOLD) or s.hit[0][op] < THRESHOLD for op in OPS)


def takes_answers(s: State, t: State) -> bool:
    """The step is a drain that takes answered operations."""
    return len(t.hit_queue[0]) < len(s.hit_queue[0])


def is_taken(s: State, t: State, op: int) -> bool:
    """The step takes this operation from the hit queue."""
    return op in s.hit_queue[0] and op not in t.hit_queue[0]


def newly(s: State, t: State, op: int, phase: int) -> bool:
    """The operation reached this phase in this step."""
    return s.phase[op] != phase and t.phase[op] == phase


# ---- §7 liveness, under weak fairness of the threads and the scheduler's loop


def has_ended(s: State, op: int) -> bool:
    """The operation is revoked or fetched."""
    return is_ended(s, op)


@leads_to(has_ended, op=OPS)
def live_submitted_operations_end(s: State, op: int) -> bool:
    """§7.1 P2, P5, P31. Every submitted operation ends."""
    return is_pending(s, op)


def queues_are_empty(s: State) -> bool:
    """No answered operation and no released page waits for the scheduler."""
    return all(len(s.hit_queue[r]) == 0 and s.releasing[r] == 0 for r in RANKS)


@leads_to(queues_are_empty)
def live_control_queues_drain(s: State) -> bool:
    """§7.2 P3. Whatever the threads hand to the scheduler is taken."""
    return any(len(s.hit_queue[r]) > 0 or s.releasing[r] > 0 for r in RANKS)
