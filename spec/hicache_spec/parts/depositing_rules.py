"""§12.9 Extra pools and storage that remembers: what belongs to pages is stored with them, and looked up with them.

A job puts a page, then its sidecars, then the next page; after the last one, the states at its end. A page counts as
stored when all of that is. Each pool has its own writers: every rank its shard, or rank 0 for all.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..bounds import SIDECAR
from ..language import State, action, field, flag, initial, require, table
from ..state import CHAINS, DEPTHS, LENGTH, RANKS
from .carrying_rules import WithDeviceAndPools, keep_state_for_a_reader
from .copying_state import CHAIN_OF, FIRST_OF, RANGES
from .pool_state import IN_STORE, KIND, POOLS
from .storing_rules import (
    FORGETS,
    OWNER,
    PUT_FAILS,
    WithStorage,
    count_put,
    end_job,
    finish_job,
    has_job,
    has_nothing_to_put,
    is_page_next,
    queue_job,
)

POOL_OWNER: Sequence[Sequence[int]] = table(
    "pool_owner", lambda b: tuple(tuple(0 if pool.replicated else r for r in range(b.ranks)) for pool in b.pools)
)
"""POOL_OWNER[pool][rank]: the rank under whose keys this rank's slots are stored: its own, or rank 0's."""


class WithStorageAndPools(WithDeviceAndPools, WithStorage):
    """§12.9 The state with extra pools, a device tier, and storage that remembers what is put there of each pool."""

    # storage
    pool_stored = field(flag(), RANKS, POOLS, CHAINS, DEPTHS)  # under this rank's keys: the slot that belongs there
    # the schedulers, in lockstep: once
    job_states = field(flag(), POOLS, RANGES)  # a job under way has captured the state at its end
    # each rank's backup thread
    page_put = field(flag(), RANKS)  # storage has taken the next page of the head
    slot_put = field(flag(), RANKS, POOLS)  # storage has taken what belongs to that page


@initial
def start_with_slots_in_storage(s: State) -> None:
    """§12.9 Storage has the sidecars and states of what it has at the start, for every rank."""
    for pool in POOLS:
        for chain in CHAINS:
            for d in DEPTHS:
                for r in RANKS:
                    s.pool_stored[r][pool][chain][d] = (
                        POOL_OWNER[pool][r] == r and IN_STORE[pool][chain * (2 * LENGTH + 1) + d] == 1
                    )


# ---- words


def is_slot_stored(s: State, rank: int, pool: int, chain: int, depth: int) -> bool:
    """Does storage have for the rank what belongs to the page, or to the prefix, that ends there?"""
    return s.pool_stored[POOL_OWNER[pool][rank]][pool][chain][depth]


def has_stored_slots(s: State, rank: int, pool: int, length: int) -> bool:
    """Does storage have what the pool needs, for a prefix of the span that the rank looks up?"""
    op = s.query_queue[rank][0]
    if KIND[pool] == SIDECAR:
        return all(
            not s.base[op] < d <= s.base[op] + length or is_slot_stored(s, rank, pool, s.chain[op], d) for d in DEPTHS
        )
    return is_slot_stored(s, rank, pool, s.chain[op], min(LENGTH, s.base[op] + length))


# ---- the schedulers queue jobs and take acks


def queue_job_with_states(s: State, chain: int, first: int, pages: int) -> None:
    """The states for the end of the job are kept until its ack, as its pages are."""
    queue_job(s, chain, first, pages)
    for pool in POOLS:
        if s.states[pool][chain][first + pages]:
            s.job_states[pool][chain * LENGTH + first] = True
            keep_state_for_a_reader(s, pool, chain, first + pages)


def finish_job_with_states(s: State, x: int, pages: int) -> None:
    """The states of the job are let go with its pages."""
    for pool in POOLS:
        if s.job_states[pool][x]:
            s.job_states[pool][x] = False
            s.states_kept[pool][CHAIN_OF[x]][FIRST_OF[x] + s.job_pages[x]] -= 1
    finish_job(s, x, pages)


# ---- the backup thread


def is_page_next_before_its_slots(s: State, rank: int) -> bool:
    """The page of the job that is next is put before what belongs to it."""
    return is_page_next(s, rank) and not s.page_put[rank]


def has_nothing_to_put_in_any_pool(s: State, rank: int) -> bool:
    """All that the rank has is put by another one, in every pool."""
    return has_nothing_to_put(s, rank) and all(POOL_OWNER[pool][rank] != rank for pool in POOLS)


def has_put_page_before_its_slots(s: State, rank: int) -> None:
    """Storage has taken the next page, which counts when it has what belongs to it."""
    s.page_put[rank] = True
    count_if_whole(s, rank)


def is_slot_next(s: State, rank: int, pool: int) -> bool:
    """The page is put, or by another rank; what belongs to it in this pool is put by this one, and not yet put."""
    return (
        (OWNER[rank] != rank or s.page_put[rank])
        and POOL_OWNER[pool][rank] == rank
        and not s.slot_put[rank][pool]
        and belongs_to_the_next_page(s, rank, pool)
    )


def belongs_to_the_next_page(s: State, rank: int, pool: int) -> bool:
    """A sidecar belongs to every page of a job, a state that it has captured to the last one."""
    return KIND[pool] == SIDECAR or (
        s.job_states[pool][s.backup_queue[rank][0]] and s.put[rank] + 1 == s.job_pages[s.backup_queue[rank][0]]
    )


def count_if_whole(s: State, rank: int) -> None:
    """The next page counts as stored if nothing that belongs to it is left to be put."""
    if all(not is_slot_next(s, rank, pool) for pool in POOLS):
        forget_what_is_put(s, rank)
        count_put(s, rank)


def forget_what_is_put(s: State, rank: int) -> None:
    """The thread is between two pages."""
    s.page_put[rank] = False
    for pool in POOLS:
        s.slot_put[rank][pool] = False


@action(fairness="weak", rank=RANKS, pool=POOLS)
def backup_put_slot(s: State, rank: int, pool: int) -> None:
    """§12.9 The backup thread puts a sidecar of the page, or a state at the end of the job, under its rank's key.

    Why after the page: nobody can find it before.
    """
    require(has_job(s, rank), "a job waits")
    require(is_slot_next(s, rank, pool), "the pool is next")
    x = s.backup_queue[rank][0]
    s.pool_stored[rank][pool][CHAIN_OF[x]][FIRST_OF[x] + s.put[rank] + 1] = True
    s.slot_put[rank][pool] = True
    count_if_whole(s, rank)


@action(fairness="weak", rank=RANKS)
def backup_pass_page(s: State, rank: int) -> None:
    """§12.9 Another rank puts the page, and nothing else belongs to it: this rank goes on to the next one."""
    require(has_job(s, rank), "a job waits")
    require(OWNER[rank] != rank, "another rank stores the pages")
    require(not has_nothing_to_put_in_any_pool(s, rank), "this rank stores something else")
    require(all(not is_slot_next(s, rank, pool) for pool in POOLS), "nothing of the page is left")
    count_put(s, rank)


@action(rank=RANKS, pool=POOLS)
def backup_fail_slot(s: State, rank: int, pool: int) -> None:
    """§12.9 Storage refuses what belongs to a page, or raises: the page does not count, and the job ends there."""
    require(PUT_FAILS, "storage may refuse")
    require(has_job(s, rank), "a job waits")
    require(is_slot_next(s, rank, pool), "the pool is next")
    end_job(s, rank, s.put[rank])


def end_job_between_pages(s: State, rank: int, pages: int) -> None:
    """Whatever of a page is put when its job ends, counts for nothing."""
    forget_what_is_put(s, rank)
    end_job(s, rank, pages)


# ---- storage


def can_have_what_is_stored(s: State, rank: int, pool: int, length: int) -> bool:
    """A look-up finds what storage has of the pool now."""
    return has_stored_slots(s, rank, pool, length)


def can_lack_what_is_not_stored(s: State, rank: int, pool: int, length: int) -> bool:
    """It finds all of it, too."""
    return not has_stored_slots(s, rank, pool, length)


@action(rank=RANKS, pool=POOLS, x=RANGES)
def env_forget_slot(s: State, rank: int, pool: int, x: int) -> None:
    """§12.9 Storage drops a sidecar or a state, and keeps its page."""
    require(FORGETS, "storage forgets")
    require(s.pool_stored[rank][pool][CHAIN_OF[x]][FIRST_OF[x] + 1], "storage has it")
    s.pool_stored[rank][pool][CHAIN_OF[x]][FIRST_OF[x] + 1] = False
