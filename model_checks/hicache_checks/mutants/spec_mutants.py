"""Mutants of the specification: one rule or helper of the canonical design replaced by a faulty one.

Each is named for its fault and says in which configuration it is looked for, which property is the first to break,
and in how many steps: breadth-first exploration finds a shortest run, so the number is part of the claim.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hicache_spec.bounds import AGAIN, PRESSURE, SOLO_CHURN, Bounds
from hicache_spec.designs.decide_at_drain_by_rid import find_record_by_request_id
from hicache_spec.events import ON_DECLINED, ON_FETCHED, ON_IO_LANDED, ON_IO_RELEASED, ON_IO_STARTED, ON_SKIPPED
from hicache_spec.language import NONE, State, emit, require
from hicache_spec.pipeline import (
    ABORTS,
    ALLOCATED,
    ATTEMPTS,
    CHAINS,
    CHURN,
    FETCH,
    IDLE,
    LENGTH,
    LIMIT,
    LIMITED,
    NO_MEMORY,
    RANKS,
    REQUEST_OF,
    THRESHOLD,
    WAS_ABORTED,
    admit,
    advance,
    allocate,
    decide,
    drop_record,
    evict,
    find_record,
    grant,
    leave_io,
    mark,
    reclaim,
    retire,
    revoke,
    span_of,
    terminate,
)


@dataclass(frozen=True)
class SpecMutant:
    """A fault: what it replaces, where it is looked for, and the first property that it breaks, in how many steps."""

    name: str
    replaces: Mapping[str, Callable[..., Any]]
    bounds: Bounds
    caught_by: str
    steps: int


def revoke_without_unprotecting(s: State, op: int) -> None:
    s.record[REQUEST_OF[op]] = NONE
    s.occupied -= span_of(s, op)


def unprotect_at_the_root(s: State, op: int) -> None:
    s.record[REQUEST_OF[op]] = NONE
    s.protected[s.chain[op]][0] -= 1
    s.occupied -= span_of(s, op)


def revoke_without_accounting(s: State, op: int) -> None:
    s.record[REQUEST_OF[op]] = NONE
    s.protected[s.chain[op]][s.base[op]] -= 1


def revoke_without_forgetting_the_record(s: State, op: int) -> None:
    s.protected[s.chain[op]][s.base[op]] -= 1
    s.occupied -= span_of(s, op)


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


def highest_answer(s: State, rank: int) -> int:
    return max(s.answer[r] for r in RANKS)


def drain_by_own_count(s: State, hits: int, pages: int) -> None:
    require(hits + pages > 0, "there is something to take")
    require(hits <= len(s.hit_queue[0]), "this rank has that many answered operations")
    require(pages <= min(s.releasing[r] for r in RANKS), "every rank has that many released pages")
    for _ in range(hits):
        op = s.hit_queue[0][0]
        for r in RANKS:
            if len(s.hit_queue[r]) > 0:
                s.hit_queue[r].pop(0)
        decide(s, op)
    if pages > 0:
        reclaim(s, pages)


def reclaim_by_own_count(s: State, pages: int) -> None:
    for r in RANKS:
        s.free[r] += s.releasing[r]
        s.releasing[r] = 0


def never_reclaim(s: State, hits: int, pages: int) -> None:
    require(hits > 0 and pages == 0, "only answered operations are taken")
    require(hits <= min(len(s.hit_queue[r]) for r in RANKS), "every rank has that many answered operations")
    for _ in range(hits):
        op = s.hit_queue[0][0]
        for r in RANKS:
            s.hit_queue[r].pop(0)
        decide(s, op)


def decide_without_the_flag(s: State, op: int) -> None:
    found = find_record(s, op)
    if found == NONE:
        emit(s, ON_SKIPPED, op)
    else:
        allocate(s, found, s.hit[0][op])
    retire(s, op)


def grant_below_threshold(s: State, op: int, hit: int) -> None:
    if s.free[0] < hit:
        evict(s, hit - s.free[0])
    pages = min(hit, s.free[0])
    if pages == 0:
        revoke(s, op, NO_MEMORY)
    else:
        grant(s, op, pages, hit)


def grant_the_whole_span(s: State, op: int, hit: int) -> None:
    pages = min(span_of(s, op), s.free[0])
    if pages < THRESHOLD:
        revoke(s, op, NO_MEMORY)
    else:
        grant(s, op, pages, hit)


def refuse_without_evicting(s: State, op: int, hit: int) -> None:
    pages = min(hit, s.free[0])
    if pages < THRESHOLD:
        revoke(s, op, NO_MEMORY)
    else:
        grant(s, op, pages, hit)


def evict_for_every_grant(s: State, op: int, hit: int) -> None:
    evict(s, hit)
    pages = min(hit, s.free[0])
    if pages < THRESHOLD:
        revoke(s, op, NO_MEMORY)
    else:
        grant(s, op, pages, hit)


def evict_protected_pages(s: State, missing: int) -> None:
    for chain in CHAINS:
        out = min(missing, s.resident[chain])
        s.resident[chain] -= out
        for r in RANKS:
            s.free[r] += out


def longest_landed_prefix(s: State, op: int) -> int:
    return max(s.counted[r][op] for r in RANKS)


def abort_releases_every_page(s: State, request: int) -> None:
    require(ABORTS, "callers abort requests")
    require(s.record[request] != NONE, "the request has a pending operation")
    op = s.record[request]
    terminate(s, op)
    for r in RANKS:
        s.releasing[r] += s.granted[op]
        s.given[r][op] += s.granted[op]
    revoke(s, op, WAS_ABORTED)


def abort_keeps_what_landed(s: State, request: int) -> None:
    require(ABORTS, "callers abort requests")
    require(s.record[request] != NONE, "the request has a pending operation")
    op = s.record[request]
    terminate(s, op)
    revoke(s, op, WAS_ABORTED)


def abort_publishes_what_landed(s: State, request: int) -> None:
    require(ABORTS, "callers abort requests")
    require(s.record[request] != NONE, "the request has a pending operation")
    op = s.record[request]
    terminate(s, op)
    pages = min(s.counted[r][op] for r in RANKS)
    s.resident[s.chain[op]] += min(pages, LENGTH - s.resident[s.chain[op]])
    for r in RANKS:
        s.releasing[r] += s.counted[r][op] - pages
        s.given[r][op] += s.counted[r][op]
    revoke(s, op, WAS_ABORTED)


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


def complete_without_a_plan(s: State, op: int) -> bool:
    return all(s.counted[r][op] == s.granted[op] for r in RANKS)


def terminated_on_every_rank(s: State, op: int) -> bool:
    return all(s.stopped[r][op] for r in RANKS)


def complete_on_the_first_rank(s: State, op: int) -> bool:
    return s.granted[op] > 0 and s.counted[0][op] == s.granted[op]


def publish_keeps_known_pages(s: State, op: int, pages: int) -> None:
    chain = s.chain[op]
    known = min(pages, s.resident[chain] - s.base[op])
    s.resident[chain] += pages - known
    for r in RANKS:
        s.releasing[r] += s.counted[r][op] - pages
        s.given[r][op] += s.counted[r][op]
    advance(s, op, FETCH)
    emit(s, ON_FETCHED, op, pages, known)
    drop_record(s, op)
    retire(s, op)


def publish_frees_unagreed_pages_at_once(s: State, op: int, pages: int) -> None:
    chain = s.chain[op]
    known = min(pages, s.resident[chain] - s.base[op])
    s.resident[chain] += pages - known
    for r in RANKS:
        s.free[r] += known + s.counted[r][op] - pages
        s.given[r][op] += s.counted[r][op]
    advance(s, op, FETCH)
    emit(s, ON_FETCHED, op, pages, known)
    drop_record(s, op)
    retire(s, op)


def allocate_at_submit(s: State, request: int, chain: int) -> None:
    admit(s, request, chain)
    op = s.record[request]
    s.granted[op] = min(s.free[0], span_of(s, op))
    for r in RANKS:
        s.free[r] -= s.granted[op]


def account_what_is_declined(s: State, request: int, chain: int) -> None:
    require(s.attempts[request] < ATTEMPTS, "bound: the request id is not used up")
    require(s.record[request] == NONE, "no attempt is pending")
    require(LENGTH - s.resident[chain] >= THRESHOLD, "the span is worth it")
    if s.occupied >= LIMIT:
        emit(s, ON_DECLINED, request, LIMITED)
        s.occupied += LENGTH - s.resident[chain]
    else:
        admit(s, request, chain)


def mark_the_first_rank_only(s: State, op: int) -> None:
    s.stopped[0][op] = True


def drain_ignores_a_fetching_operation(s: State, op: int) -> int:
    return op if s.phase[op] != ALLOCATED else NONE


def submit_out_of_order(s: State, request: int, chain: int) -> None:
    admit(s, request, chain)
    last = len(RANKS) - 1
    if len(s.query_queue[last]) == 2 and s.stage[last] == IDLE:
        earlier = s.query_queue[last].pop(0)
        s.query_queue[last].append(earlier)


def set_the_flag_only(s: State, op: int) -> None:
    mark(s, op)


TWO_RANKS = replace(PRESSURE, name="pair_pressure", ranks=2)
SOLO_LONG = Bounds(
    "solo_long", requests=1, host_pages=3, resident_pages=(0,), stored_pages=(2,), churn=True, stops=True
)
ONE_PAGE = Bounds("one_page", chain_pages=1, host_pages=1, resident_pages=(0,), stored_pages=(1,))
LOW_LIMIT = replace(PRESSURE, name="low_limit", limit_pages=1, host_pages=4)
ROOM_FOR_ONE = Bounds(
    "room_for_one", requests=1, ranks=1, resident_pages=(0,), stored_pages=(2,), threshold_pages=2, host_pages=1
)
NO_ABORTS = replace(SOLO_CHURN, name="no_aborts", aborts=False, stops=False)
SHORT_HIT = Bounds("short_hit", requests=1, ranks=1, resident_pages=(0,), stored_pages=(1,))

SPEC_MUTANTS = (
    SpecMutant(
        "sched_revokes_without_unprotecting",
        {"drop_record": revoke_without_unprotecting},
        SOLO_CHURN,
        "inv_anchors_protected_exactly",
        2,
    ),
    SpecMutant("sched_unprotects_the_root", {"drop_record": unprotect_at_the_root}, PRESSURE, "state_in_bounds", 2),
    SpecMutant(
        "sched_revokes_without_accounting",
        {"drop_record": revoke_without_accounting},
        SOLO_CHURN,
        "inv_occupied_is_sum_of_spans",
        2,
    ),
    SpecMutant(
        "sched_keeps_an_ended_record",
        {"drop_record": revoke_without_forgetting_the_record},
        SOLO_CHURN,
        "inv_records_name_their_attempt",
        2,
    ),
    SpecMutant(
        "sched_drains_by_its_own_count", {"sched_drain": drain_by_own_count}, ONE_PAGE, "inv_ranks_decide_alike", 16
    ),
    SpecMutant(
        "sched_reclaims_by_its_own_count", {"reclaim": reclaim_by_own_count}, SOLO_LONG, "inv_ranks_decide_alike", 14
    ),
    SpecMutant("sched_never_reclaims", {"sched_drain": never_reclaim}, SOLO_CHURN, "deadlock", 12),
    SpecMutant(
        "sched_decides_without_the_flag", {"decide": decide_without_the_flag}, SOLO_CHURN, "step_refusal_is_needed", 9
    ),
    SpecMutant(
        "sched_finds_records_by_request_id",
        {"find_record": find_record_by_request_id},
        AGAIN,
        "step_drain_decides_its_own_attempt",
        11,
    ),
    SpecMutant(
        "sched_finds_ended_operations",
        {"find_record": drain_ignores_a_fetching_operation},
        AGAIN,
        "step_ended_stays_ended",
        10,
    ),
    SpecMutant(
        "sched_grants_below_the_threshold",
        {"allocate": grant_below_threshold},
        ROOM_FOR_ONE,
        "inv_grant_is_worth_it",
        6,
    ),
    SpecMutant(
        "sched_grants_the_whole_span", {"allocate": grant_the_whole_span}, SHORT_HIT, "step_grant_is_within_the_hit", 6
    ),
    SpecMutant(
        "sched_refuses_without_evicting", {"allocate": refuse_without_evicting}, PRESSURE, "step_refusal_is_needed", 12
    ),
    SpecMutant(
        "sched_evicts_for_every_grant",
        {"allocate": evict_for_every_grant},
        replace(PRESSURE, host_pages=4),
        "step_eviction_is_needed",
        6,
    ),
    SpecMutant("sched_evicts_protected_pages", {"evict": evict_protected_pages}, PRESSURE, "inv_anchors_alive", 7),
    SpecMutant(
        "sched_publishes_the_longest_prefix",
        {"agreed_pages": longest_landed_prefix},
        SOLO_CHURN,
        "step_published_landed_everywhere",
        13,
    ),
    SpecMutant(
        "sched_aborts_and_releases_every_page",
        {"sched_abort": abort_releases_every_page},
        SOLO_LONG,
        "inv_no_free_under_a_writer",
        11,
    ),
    SpecMutant(
        "sched_aborts_and_keeps_what_landed",
        {"sched_abort": abort_keeps_what_landed},
        SOLO_CHURN,
        "inv_ended_operations_hold_nothing",
        12,
    ),
    SpecMutant(
        "sched_aborts_and_publishes",
        {"sched_abort": abort_publishes_what_landed},
        SOLO_CHURN,
        "step_aborted_is_not_published",
        14,
    ),
    SpecMutant(
        "sched_completes_without_a_plan",
        {"is_complete": complete_without_a_plan},
        SOLO_CHURN,
        "step_waits_for_the_verdict",
        2,
    ),
    SpecMutant(
        "sched_completes_on_the_first_rank",
        {"is_complete": complete_on_the_first_rank},
        SOLO_CHURN,
        "step_waits_for_the_verdict",
        12,
    ),
    SpecMutant(
        "sched_needs_termination_everywhere", {"is_terminated": terminated_on_every_rank}, NO_ABORTS, "deadlock", 14
    ),
    SpecMutant(
        "sched_marks_the_first_rank_only", {"mark": mark_the_first_rank_only}, SOLO_CHURN, "inv_ranks_decide_alike", 2
    ),
    SpecMutant(
        "sched_keeps_known_pages",
        {"publish": publish_keeps_known_pages},
        replace(PRESSURE, host_pages=4),
        "inv_pages_conserved",
        17,
    ),
    SpecMutant(
        "sched_frees_unagreed_pages_at_once",
        {"publish": publish_frees_unagreed_pages_at_once},
        SOLO_CHURN,
        "inv_ranks_decide_alike",
        13,
    ),
    SpecMutant(
        "sched_allocates_at_submit", {"admit": allocate_at_submit}, SOLO_CHURN, "inv_no_memory_before_verdict", 1
    ),
    SpecMutant(
        "sched_accounts_what_it_declines",
        {"sched_submit": account_what_is_declined},
        LOW_LIMIT,
        "step_declined_leaves_nothing",
        2,
    ),
    SpecMutant("sched_submits_out_of_order", {"admit": submit_out_of_order}, TWO_RANKS, "inv_ranks_query_alike", 6),
    SpecMutant("sched_sets_the_flag_only", {"terminate": set_the_flag_only}, SOLO_CHURN, "inv_life_cycle_is_legal", 2),
    SpecMutant("query_skips_the_agreement", {"agreed_hit": own_answer}, SOLO_CHURN, "step_hit_is_everywhere", 6),
    SpecMutant("query_agrees_on_the_highest", {"agreed_hit": highest_answer}, SOLO_CHURN, "step_hit_is_everywhere", 6),
    SpecMutant(
        "io_releases_the_tail_twice",
        {"io_release_page": release_the_tail_twice},
        SOLO_LONG,
        "inv_no_page_freed_twice",
        11,
    ),
    SpecMutant(
        "io_drops_the_tail", {"io_release_page": drop_the_tail}, SOLO_CHURN, "inv_ended_operations_hold_nothing", 11
    ),
    SpecMutant(
        "io_counts_before_the_copy",
        {"io_start_page": count_before_the_copy},
        SOLO_CHURN,
        "inv_counted_pages_are_filled",
        10,
    ),
    SpecMutant(
        "io_starts_without_the_flag",
        {"io_start_page": start_without_the_flag},
        SOLO_CHURN,
        "step_no_page_read_after_termination",
        11,
    ),
    SpecMutant(
        "io_counts_after_termination",
        {"io_land_page": count_after_termination},
        SOLO_CHURN,
        "step_no_page_read_after_termination",
        12,
    ),
    SpecMutant(
        "io_counts_a_failed_page", {"io_fail_page": count_a_failed_page}, SOLO_CHURN, "inv_counted_pages_are_filled", 11
    ),
)
