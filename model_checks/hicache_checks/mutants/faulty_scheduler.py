"""Faulty rules of the scheduler, in the language of the specification. `spec_mutants.py` names what each replaces."""

from __future__ import annotations

from hicache_spec.events import ON_DECLINED, ON_FETCHED, ON_SKIPPED
from hicache_spec.language import NONE, State, emit, require
from hicache_spec.pipeline import (
    admit,
    agreed_pages,
    allocate,
    decide,
    drop_record,
    find_record,
    grant,
    mark,
    may_end,
    publish,
    reclaim,
    revoke,
    take_answered,
    terminate,
    why_declined,
)
from hicache_spec.state import (
    ABORTS,
    ALLOCATED,
    ATTEMPTS,
    BELOW_THRESHOLD,
    CHAINS,
    FETCH,
    IDLE,
    LENGTH,
    LIMIT,
    LIMITED,
    NO_MEMORY,
    OPS,
    PENDING,
    RANKS,
    REQUEST_OF,
    THRESHOLD,
    WAS_ABORTED,
    advance,
    retire,
)
from hicache_spec.tree import attach, evict, known_pages, room, unprotect


def revoke_without_unprotecting(s: State, op: int) -> None:
    s.record[REQUEST_OF[op]] = NONE
    s.occupied -= s.span[op]


def unprotect_at_the_root(s: State, op: int) -> None:
    s.record[REQUEST_OF[op]] = NONE
    s.protected[s.chain[op]][0] -= 1
    s.occupied -= s.span[op]


def revoke_without_accounting(s: State, op: int) -> None:
    s.record[REQUEST_OF[op]] = NONE
    unprotect(s, op)


def revoke_without_forgetting_the_record(s: State, op: int) -> None:
    unprotect(s, op)
    s.occupied -= s.span[op]


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
        decide(s, take_answered(s))


def decide_without_the_flag(s: State, op: int) -> None:
    found = find_record(s, op)
    if found == NONE:
        emit(s, ON_SKIPPED, op)
    else:
        allocate(s, found, s.hit[0][op])
    retire(s, op)


def grant_below_threshold(s: State, op: int, hit: int) -> None:
    pages = min(hit, room(s))
    if pages == 0:
        revoke(s, op, NO_MEMORY)
    else:
        evict(s, max(0, pages - s.free[0]))
        grant(s, op, pages, hit)


def grant_the_whole_span(s: State, op: int, hit: int) -> None:
    pages = min(s.span[op], s.free[0])
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
    allocate(s, op, hit)


def evict_before_a_refusal(s: State, op: int, hit: int) -> None:
    evict(s, max(0, hit - s.free[0]))
    allocate(s, op, hit)


def evict_protected_pages(s: State, missing: int) -> None:
    left = missing
    for chain in CHAINS:
        out = min(left, s.resident[chain])
        left -= out
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


def complete_without_a_plan(s: State, op: int) -> bool:
    return all(s.counted[r][op] == s.granted[op] for r in RANKS)


def terminated_on_every_rank(s: State, op: int) -> bool:
    return all(s.stopped[r][op] for r in RANKS)


def complete_on_the_first_rank(s: State, op: int) -> bool:
    return s.granted[op] > 0 and s.counted[0][op] == s.granted[op]


def publish_keeps_known_pages(s: State, op: int, pages: int) -> None:
    known = known_pages(s, op, pages)
    attach(s, op, pages - known)
    for r in RANKS:
        s.releasing[r] += s.counted[r][op] - pages
        s.given[r][op] += s.counted[r][op]
    advance(s, op, FETCH)
    emit(s, ON_FETCHED, op, pages, known)
    drop_record(s, op)
    retire(s, op)


def publish_frees_unagreed_pages_at_once(s: State, op: int, pages: int) -> None:
    known = known_pages(s, op, pages)
    attach(s, op, pages - known)
    for r in RANKS:
        s.free[r] += known + s.counted[r][op] - pages
        s.given[r][op] += s.counted[r][op]
    advance(s, op, FETCH)
    emit(s, ON_FETCHED, op, pages, known)
    drop_record(s, op)
    retire(s, op)


def allocate_at_submit(s: State, request: int, chain: int, span: int) -> None:
    admit(s, request, chain, span)
    op = s.record[request]
    s.granted[op] = min(s.free[0], s.span[op])
    for r in RANKS:
        s.free[r] -= s.granted[op]


def account_what_is_declined(s: State, request: int, chain: int) -> None:
    require(s.attempts[request] < ATTEMPTS, "bound: the request id is not used up")
    require(s.record[request] == NONE, "no attempt is pending")
    require(LENGTH - s.resident[chain] >= THRESHOLD, "the span is worth it")
    if s.occupied >= LIMIT:
        emit(s, ON_DECLINED, request, LIMITED, LENGTH - s.resident[chain])
        s.occupied += LENGTH - s.resident[chain]
    else:
        admit(s, request, chain, LENGTH - s.resident[chain])


def mark_the_first_rank_only(s: State, op: int) -> None:
    s.stopped[0][op] = True


def drain_ignores_a_fetching_operation(s: State, op: int) -> int:
    return op if s.phase[op] != ALLOCATED else NONE


def submit_out_of_order(s: State, request: int, chain: int, span: int) -> None:
    admit(s, request, chain, span)
    last = len(RANKS) - 1
    if len(s.query_queue[last]) == 2 and s.stage[last] == IDLE:
        earlier = s.query_queue[last].pop(0)
        s.query_queue[last].append(earlier)


def set_the_flag_only(s: State, op: int) -> None:
    mark(s, op)


def evict_one_too_many(s: State, missing: int) -> None:
    evict(s, missing + 1)


def refuse_the_second_answer(s: State, op: int, hit: int) -> None:
    if any(s.granted[other] > 0 for other in OPS):
        revoke(s, op, NO_MEMORY)
    else:
        allocate(s, op, hit)


def grant_all_but_one(s: State, op: int, hit: int) -> None:
    pages = min(hit, room(s))
    if pages < THRESHOLD:
        revoke(s, op, NO_MEMORY)
    else:
        evict(s, max(0, pages - s.free[0]))
        grant(s, op, max(THRESHOLD, pages - 1), hit)


def decline_too_early(s: State, request: int, span: int) -> int:
    if s.occupied > 0:
        return LIMITED
    return why_declined(s, request, span)


def publish_without_memory(s: State, request: int) -> None:
    require(s.record[request] != NONE, "the request has a pending operation")
    require(may_end(s, s.record[request]), "the policy waits no longer")
    op = s.record[request]
    terminate(s, op)
    publish(s, op, agreed_pages(s, op))


def admit_whatever_comes(s: State, request: int, span: int) -> int:
    if s.record[request] != NONE:
        return PENDING
    return NONE


def revoke_a_good_hit(s: State, op: int, hit: int) -> None:
    revoke(s, op, BELOW_THRESHOLD)


def all_but_the_last_page(s: State, op: int) -> int:
    return max(0, min(s.counted[r][op] for r in RANKS) - 1)
