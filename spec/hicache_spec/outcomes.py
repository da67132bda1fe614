"""§6 What must be reachable: every outcome that the pipeline is said to have. A model that misses one is wrong."""

from __future__ import annotations

from .bounds import BEST_EFFORT, TIMEOUT
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
from .language import State, emitted, sometimes
from .properties import takes_answers
from .state import (
    BELOW_THRESHOLD,
    CHAINS,
    DEPTHS,
    HOST_PAGES,
    LENGTH,
    LIMITED,
    NO_MEMORY,
    OPS,
    PENDING,
    POLICY_NOW,
    RANKS,
    REQUEST_OF,
    REQUESTS,
    TOO_SHORT,
    WAS_ABORTED,
    WAS_STOPPED,
    is_complete,
    is_terminated,
)


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
    """§6.12 A page fails on one rank while another rank does not yet know of it."""
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
    """§6.17 A whole chain is published."""
    return any(emitted(t, ON_FETCHED, op=op, pages=LENGTH) for op in OPS)


@sometimes
def sometimes_a_part_is_fetched(s: State, t: State) -> bool:
    """§6.18 An operation publishes a part of what it was granted, and not nothing."""
    return any(any(emitted(t, ON_FETCHED, op=op, pages=n) and n < s.granted[op] for n in DEPTHS if n > 0) for op in OPS)


@sometimes
def sometimes_nothing_is_fetched(s: State, t: State) -> bool:
    """§6.19 An operation with memory publishes an empty prefix."""
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


@sometimes
def sometimes_best_effort_stops_early(s: State, t: State) -> bool:
    """§6.28 The policy best_effort ends an operation that nobody terminated and that is not complete."""
    return POLICY_NOW == BEST_EFFORT and any(given_up(s, t, op) for op in OPS)


@sometimes
def sometimes_the_timeout_stops_early(s: State, t: State) -> bool:
    """§6.29 The policy timeout ends an operation that nobody terminated and that is not complete: it is late."""
    return POLICY_NOW == TIMEOUT and any(given_up(s, t, op) and s.waited[op] > 0 for op in OPS)


@sometimes
def sometimes_request_id_comes_back_after_its_end(s: State, t: State) -> bool:
    """§6.30 A request id is submitted again when nothing of its earlier attempt is left in the queues."""
    return any(
        emitted(t, ON_SUBMITTED, op=op) and t.attempts[REQUEST_OF[op]] > 1 and not earlier_attempt_travels(t, op)
        for op in OPS
    )


def given_up(s: State, t: State, op: int) -> bool:
    """A poll ended this operation although it was neither terminated nor complete."""
    ended = emitted(t, ON_FETCHED, op=op) or emitted(t, ON_REVOKED, op=op, reason=WAS_STOPPED)
    return ended and not is_terminated(s, op) and not is_complete(s, op)


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
