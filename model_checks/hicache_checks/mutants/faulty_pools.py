"""Faulty extra pools: replacements of rules and helpers of SPEC.md §12."""

from __future__ import annotations

from hicache_spec.bounds import OPTIONAL_STATE, SIDECAR, STATE
from hicache_spec.language import NONE, State, action, emit, require
from hicache_spec.parts.control_rules import IO_THREAD, STOPPING, end_thread
from hicache_spec.parts.pool_scheduler import drop_state, evict_state, keep_state, slots_everywhere
from hicache_spec.parts.pool_state import (
    KIND,
    ON_SLOT_FAILED,
    ON_SLOT_LANDED,
    ON_SLOTS_RECLAIMED,
    POOLS,
    SLOT_COUNTS,
    give_slot,
    is_due,
    missing_slots,
    state_room,
    wanted_slots,
)
from hicache_spec.parts.pool_threads import has_landed_with_sidecars
from hicache_spec.pipeline import (
    count_page,
    fail,
    grant,
    grantable_pages,
    has_work,
    leave_io,
    make_room,
    revoke,
)
from hicache_spec.state import CHAINS, DEPTHS, NO_MEMORY, RANKS, THRESHOLD
from hicache_spec.tree import evict, evictable_pages

# ---- the look-up


def agree_on_the_pages_alone(s: State, rank: int) -> int:
    return min(s.answer[r] for r in RANKS)


def agree_on_the_least_of_each_rank(s: State, rank: int) -> int:
    """MIN of one number a rank: the longest prefix that it has of everything."""
    return min(longest_of(s, r) for r in RANKS)


def longest_of(s: State, rank: int) -> int:
    longest = 0
    for length in DEPTHS:
        if length <= s.answer[rank] and all(
            KIND[pool] == OPTIONAL_STATE or s.offers[rank][pool][length] for pool in POOLS
        ):
            longest = length
    return longest


# ---- the drain


def fit_without_a_slot(s: State, op: int, pool: int, length: int) -> bool:
    return KIND[pool] == SIDECAR or length == 0 or KIND[pool] == OPTIONAL_STATE or s.agreed[0][op][pool][length]


def want_a_slot_if_there_is_one(s: State, op: int, pool: int, pages: int) -> int:
    if KIND[pool] == SIDECAR:
        return pages
    return 1 if s.agreed[0][op][pool][pages] and state_room(s, pool) > 0 else 0


def fit_without_eviction(s: State, op: int, pool: int, length: int) -> bool:
    if KIND[pool] == SIDECAR:
        return length <= s.pool_free[0][pool]
    return KIND[pool] == OPTIONAL_STATE or (s.pool_free[0][pool] > 0 and s.agreed[0][op][pool][length])


def fit_whatever_was_agreed(s: State, op: int, pool: int, length: int) -> bool:
    if KIND[pool] == SIDECAR:
        return missing_slots(s, pool, length) <= evictable_pages(s)
    return state_room(s, pool) > 0


def take_slots_for_a_refused_grant(s: State, op: int, hit: int) -> None:
    pages = grantable_pages(s, op, hit)
    if pages < THRESHOLD:
        take_state_slots(s, op)
        revoke(s, op, NO_MEMORY)
    else:
        make_room(s, op, pages)
        grant(s, op, pages, hit)


def take_state_slots(s: State, op: int) -> None:
    for pool in POOLS:
        if KIND[pool] == STATE and s.pool_free[0][pool] > 0:
            s.slots[pool][op] = 1
            for r in RANKS:
                s.pool_free[r][pool] -= 1


def make_more_room_than_is_needed(s: State, op: int, pages: int) -> None:
    for pool in POOLS:
        if KIND[pool] == SIDECAR and evictable_pages(s) > 0 and s.pool_free[0][pool] == pages:
            evict(s, 1)
    make_room(s, op, pages)


def make_room_for_a_state_that_has_it(s: State, op: int, pages: int) -> None:
    if s.free[0] < pages:
        evict(s, pages - s.free[0])
    for pool in POOLS:
        if KIND[pool] != SIDECAR and wanted_slots(s, op, pool, pages) > 0:
            evict_state(s, pool)


def evict_any_state(s: State, pool: int) -> None:
    found = False
    for chain in CHAINS:
        for depth in DEPTHS:
            if not found and s.states[pool][chain][depth]:
                found = True
                drop_state(s, pool, chain, depth)


def leave_sidecars_behind(s: State, pool: int, chain: int) -> None:
    pass


def leave_states_behind(s: State, pool: int, chain: int) -> None:
    pass


@action(fairness="weak", chosen=("slots",), pool=POOLS, slots=SLOT_COUNTS)
def reclaim_what_each_rank_has(s: State, pool: int, slots: int) -> None:
    require(slots > 0, "there is something to take")
    require(slots == max(s.pool_releasing[r][pool] for r in RANKS), "a rank has that many released slots")
    for r in RANKS:
        s.pool_free[r][pool] += s.pool_releasing[r][pool]
        s.pool_releasing[r][pool] = 0
    emit(s, ON_SLOTS_RECLAIMED, pool, slots)


def count_of_the_pages(s: State, pool: int) -> int:
    return min(s.releasing[r] for r in RANKS)


@action(fairness="weak", chosen=("slots",), pool=POOLS, slots=SLOT_COUNTS)
def put_slots_back(s: State, pool: int, slots: int) -> None:
    require(slots > 0, "there is something to take")
    require(slots <= slots_everywhere(s, pool), "every rank has that many released slots")
    emit(s, ON_SLOTS_RECLAIMED, pool, slots)


# ---- the IO thread


def count_a_page_ahead_of_its_sidecars(s: State, rank: int, op: int) -> None:
    count_page(s, rank, op)


@action(fairness="weak", rank=RANKS, pool=POOLS)
def land_without_counting_again(s: State, rank: int, pool: int) -> None:
    require(s.filling[rank] == pool, "a slot of the pool is being filled")
    op = s.buffer[rank][0]
    s.filling[rank] = NONE
    s.in_place[rank][pool] += 1
    emit(s, ON_SLOT_LANDED, rank, op, pool)
    leave_io(s, rank, op)


@action(fairness="weak", rank=RANKS, pool=POOLS)
def land_a_state_after_termination(s: State, rank: int, pool: int) -> None:
    require(s.filling[rank] == pool, "a slot of the pool is being filled")
    op = s.buffer[rank][0]
    s.filling[rank] = NONE
    s.in_place[rank][pool] += 1
    emit(s, ON_SLOT_LANDED, rank, op, pool)
    if KIND[pool] == SIDECAR:
        has_landed_with_sidecars(s, rank, op)
    else:
        s.landed[rank][pool][op] = True
    leave_io(s, rank, op)


@action(fairness="weak", rank=RANKS, pool=POOLS)
def start_a_slot_after_termination(s: State, rank: int, pool: int) -> None:
    require(has_work(s, rank), "an operation waits for its slots")
    require(not s.writing[rank] and s.filling[rank] == NONE, "nothing is being read")
    require(is_due(s, rank, pool, s.buffer[rank][0]), "the pool is next")
    s.filling[rank] = pool


@action(rank=RANKS, pool=POOLS)
def read_a_failed_state_again(s: State, rank: int, pool: int) -> None:
    require(s.filling[rank] == pool, "a slot of the pool is being filled")
    op = s.buffer[rank][0]
    s.filling[rank] = NONE
    emit(s, ON_SLOT_FAILED, rank, op, pool)
    if KIND[pool] != OPTIONAL_STATE:
        fail(s, rank, op)


def leave_without_the_states(s: State, rank: int, op: int) -> bool:
    return s.counted[rank][op] + s.tail[rank] == s.granted[op]


def drop_a_slot(s: State, rank: int, pool: int, op: int) -> None:
    s.slots_given[rank][pool][op] += 1


# ---- the end of an operation


def complete_with_the_pages_alone(s: State, op: int) -> bool:
    return s.granted[op] > 0 and all(s.counted[r][op] == s.granted[op] for r in RANKS)


def complete_when_every_state_landed(s: State, op: int) -> bool:
    return complete_with_the_pages_alone(s, op) and all(
        all(KIND[pool] == SIDECAR or s.slots[pool][op] == 0 or s.landed[r][pool][op] for pool in POOLS) for r in RANKS
    )


def publish_the_pages_alone(s: State, op: int) -> int:
    return min(s.counted[r][op] for r in RANKS)


def keep_the_state_of_a_shorter_prefix(s: State, op: int, pool: int, pages: int) -> None:
    if pages > 0 and all(s.landed[r][pool][op] for r in RANKS):
        keep_state(s, op, pool, s.base[op] + 1)
    else:
        release_states_that_landed(s, op, pool)


def keep_a_state_that_did_not_land_everywhere(s: State, op: int, pool: int, pages: int) -> None:
    if pages == s.granted[op] and any(s.landed[r][pool][op] for r in RANKS):
        keep_state(s, op, pool, s.base[op] + pages)
    else:
        release_states_that_landed(s, op, pool)


def release_states_that_landed(s: State, op: int, pool: int) -> None:
    for r in RANKS:
        if s.landed[r][pool][op]:
            give_slot(s, r, pool, op)


def release_whatever_is_held(s: State, op: int, pool: int) -> None:
    for r in RANKS:
        if s.slots_given[r][pool][op] < s.slots[pool][op]:
            give_slot(s, r, pool, op)


def release_a_state_twice(s: State, op: int, pool: int) -> None:
    for r in RANKS:
        if s.landed[r][pool][op]:
            give_slot(s, r, pool, op)
            give_slot(s, r, pool, op)


def release_pages_alone(s: State, op: int) -> None:
    for r in RANKS:
        s.releasing[r] += s.counted[r][op]
        s.given[r][op] += s.counted[r][op]


def lose_known_sidecars(s: State, op: int, pool: int, pages: int, known: int) -> None:
    s.covered[pool][s.chain[op]] += pages - known
    for r in RANKS:
        s.pool_releasing[r][pool] += s.counted[r][op] - pages
        s.slots_given[r][pool][op] += s.counted[r][op]


def free_sidecars_of_published_pages(s: State, op: int, pool: int, pages: int, known: int) -> None:
    for r in RANKS:
        s.pool_free[r][pool] += pages
        s.pool_releasing[r][pool] += s.counted[r][op] - pages
        s.slots_given[r][pool][op] += s.counted[r][op]


# ---- control


def take_no_slots(s: State, rank: int, pool: int) -> None:
    pass


def drop_the_slots(s: State, rank: int, pool: int) -> None:
    s.pool_releasing[rank][pool] = 0


def keep_the_slots_of_before(s: State, rank: int, pool: int) -> None:
    pass


def keep_what_a_pool_has(s: State, pool: int) -> None:
    pass


@action(fairness="weak", rank=RANKS)
def end_while_a_slot_is_filled(s: State, rank: int) -> None:
    require(s.place[rank] == STOPPING, "the thread is told to stop")
    require(s.living[rank][IO_THREAD] > 0, "the thread lives")
    require(len(s.buffer[rank]) == 0 or s.filling[rank] != NONE, "the thread is done, or it is not")
    end_thread(s, rank, IO_THREAD)
