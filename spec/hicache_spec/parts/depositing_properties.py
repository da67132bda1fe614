"""§12.9 What must hold, and must be reachable, where what belongs to pages is stored with them."""

from __future__ import annotations

from ..bounds import OPTIONAL_STATE, SIDECAR
from ..language import State, emitted, invariant, sometimes, step_property
from ..properties import newly
from ..state import CHAINS, DEPTHS, FETCHED, OPS, QUERIED, RANKS
from .carrying_properties import ends_at_a_state, state_readers_of
from .carrying_rules import ends_at
from .copying_state import CHAIN_OF, FIRST_OF, POSITIONS, RANGES, READABLE
from .depositing_rules import POOL_OWNER, is_slot_stored
from .pool_state import KIND, ON_STATE_PUBLISHED, POOLS
from .storing_properties import ends
from .storing_rules import FORGETS, ON_BACKUP_PUT, OWNER

# ---- restated


def inv_states_kept_exactly_by_loads_and_jobs(s: State) -> bool:
    """§12.8 P14. A state on the host is kept once for each load, and once for the job, that has captured it."""
    return all(
        all(
            all(
                s.states_kept[pool][c][d]
                == state_readers_of(s, pool, c, d)
                + sum(s.job_states[pool][x] and ends_at(x, s.job_pages[x], c, d) for x in RANGES)
                for d in DEPTHS
            )
            for c in CHAINS
        )
        for pool in POOLS
    )


def step_counted_as_stored_was_taken_in_every_pool(s: State, t: State) -> bool:
    """§11.6 P32. A rank acknowledges as many pages of a job as its storage has taken whole; one that writes nothing,
    all."""
    return all(
        all(
            x not in t.backup_acks[r]
            or x in s.backup_acks[r]
            or t.taken[r][x]
            == (s.put[r] + emitted(t, ON_BACKUP_PUT, rank=r) if writes_something(r) else s.job_pages[x])
            for x in RANGES
        )
        for r in RANKS
    )


def writes_something(rank: int) -> bool:
    """Pages, sidecars or states are stored by this rank."""
    return OWNER[rank] == rank or any(POOL_OWNER[pool][rank] == rank for pool in POOLS)


# ---- invariants


@invariant
def inv_known_pages_have_stored_sidecars(s: State) -> bool:
    """§12.9 P20, P32. A page that is known to be stored has its sidecars in storage, for every rank, unless storage has
    dropped them since."""
    return FORGETS or all(
        KIND[pool] != SIDECAR
        or all(
            all(not s.known_stored[c][p] or all(is_slot_stored(s, r, pool, c, p + 1) for r in RANKS) for p in POSITIONS)
            for c in CHAINS
        )
        for pool in POOLS
    )


@invariant
def inv_each_slot_has_a_writer(s: State) -> bool:
    """§12.9 P7, P32. What every rank has its own shard of is stored under each rank's keys; where all ranks have the
    same, nobody writes under any keys but rank 0's. Each pool has it as it likes."""
    return all(
        all(
            POOL_OWNER[pool][r] == r or all(all(not s.pool_stored[r][pool][c][d] for d in DEPTHS) for c in CHAINS)
            for pool in POOLS
        )
        for r in RANKS
    )


@invariant
def inv_stored_states_stay_on_the_host(s: State) -> bool:
    """§12.9 P18. As long as a job is under way, the tree has the states that it has captured."""
    return all(
        all(not s.job_states[pool][x] or ends_at_a_state(s, pool, x, s.job_pages[x]) for x in RANGES) for pool in POOLS
    )


# ---- step properties


@step_property
def step_slot_is_stored_after_its_page(s: State, t: State) -> bool:
    """§12.9 P20, P28. A rank that stores pages puts what belongs to a page only when storage has that page."""
    return FORGETS or all(
        all(
            all(
                all(
                    not is_slot_put(s, t, r, pool, c, d)
                    or OWNER[r] != r
                    or any(p == d - 1 and s.stored[r][c][p] for p in POSITIONS)
                    for d in DEPTHS
                )
                for c in CHAINS
            )
            for pool in POOLS
        )
        for r in RANKS
    )


def is_slot_put(s: State, t: State, rank: int, pool: int, chain: int, depth: int) -> bool:
    """The step brings this slot to storage."""
    return t.pool_stored[rank][pool][chain][depth] and not s.pool_stored[rank][pool][chain][depth]


@step_property
def step_slot_is_stored_from_the_host(s: State, t: State) -> bool:
    """§12.9 P6, P30. What is put of a pool belongs to the next page of the rank's job, and the host has it."""
    return all(
        all(
            all(
                all(not is_slot_put(s, t, r, pool, c, d) or is_next_slot(s, r, pool, c, d) for d in DEPTHS)
                for c in CHAINS
            )
            for pool in POOLS
        )
        for r in RANKS
    )


def is_next_slot(s: State, rank: int, pool: int, chain: int, depth: int) -> bool:
    """Does the head of the rank's queue go on here, and has the host what is to be put?"""
    return any(
        len(s.backup_queue[rank]) > 0
        and s.backup_queue[rank][0] == x
        and ends_at(x, s.put[rank] + 1, chain, depth)
        and (
            any(p == depth - 1 and s.host[chain][p] == READABLE for p in POSITIONS)
            if KIND[pool] == SIDECAR
            else s.states[pool][chain][depth]
        )
        for x in RANGES
    )


@step_property
def step_whole_job_has_its_states(s: State, t: State) -> bool:
    """§12.9 P20, P32. When all pages of a job are stored, so are the states at its end, for every rank."""
    return FORGETS or all(
        not ends(s, t, x)
        or any(s.taken[r][x] < s.job_pages[x] for r in RANKS)
        or all(
            not s.job_states[pool][x]
            or all(is_slot_stored(s, r, pool, CHAIN_OF[x], FIRST_OF[x] + s.job_pages[x]) for r in RANKS)
            for pool in POOLS
        )
        for x in RANGES
    )


@step_property
def step_agreed_slots_were_stored(s: State, t: State) -> bool:
    """§12.9 P12, P20. What an agreed hit needs is in storage on every rank, in every pool, and so are the states that
    are agreed on; unless storage forgets."""
    return FORGETS or all(
        not newly(s, t, op, QUERIED) or all(all(has_agreed_slots(t, r, op, pool) for r in RANKS) for pool in POOLS)
        for op in OPS
    )


def has_agreed_slots(t: State, rank: int, op: int, pool: int) -> bool:
    """Storage has for this rank what the hit needs of the pool."""
    if KIND[pool] == SIDECAR:
        return all(
            not t.base[op] < d <= t.base[op] + t.hit[0][op] or is_slot_stored(t, rank, pool, t.chain[op], d)
            for d in DEPTHS
        )
    return all(
        not (t.agreed[0][op][pool][d] or (d == t.hit[0][op] and d > 0 and KIND[pool] != OPTIONAL_STATE))
        or is_slot_stored(t, rank, pool, t.chain[op], t.base[op] + d)
        for d in DEPTHS
    )


# ---- outcomes


@sometimes
def sometimes_a_rank_stores_what_belongs_to_pages_alone(s: State, t: State) -> bool:
    """§12.9 A rank puts its shard of a sidecar or a state, whose page another rank puts for all."""
    return any(
        OWNER[r] != r
        and any(any(any(is_slot_put(s, t, r, pool, c, d) for d in DEPTHS) for c in CHAINS) for pool in POOLS)
        for r in RANKS
    )


@sometimes
def sometimes_a_rank_passes_a_page(s: State, t: State) -> bool:
    """§12.9 A rank that stores states alone goes on, where no state belongs to a page."""
    return any(
        OWNER[r] != r
        and emitted(t, ON_BACKUP_PUT, rank=r)
        and any(
            s.backup_queue[r][0] == x and all(KIND[pool] != SIDECAR and not s.job_states[pool][x] for pool in POOLS)
            for x in RANGES
        )
        for r in RANKS
    )


@sometimes
def sometimes_a_page_is_stored_without_its_sidecar(s: State, t: State) -> bool:
    """§12.9 A job ends on a rank when a page is put, and its sidecar is not: it does not count."""
    return any(
        any(KIND[pool] == SIDECAR and s.page_put[r] and not t.page_put[r] for pool in POOLS)
        and not emitted(t, ON_BACKUP_PUT, rank=r)
        for r in RANKS
    )


@sometimes
def sometimes_a_page_is_put_again_for_its_sidecar(s: State, t: State) -> bool:
    """§12.9 A page is put that storage has, for what belongs to it had been refused."""
    return any(
        t.page_put[r]
        and not s.page_put[r]
        and any(
            s.backup_queue[r][0] == x
            and any(
                p == FIRST_OF[x] + s.put[r]
                and s.stored[r][CHAIN_OF[x]][p]
                and any(not s.pool_stored[r][pool][CHAIN_OF[x]][p + 1] for pool in POOLS)
                for p in POSITIONS
            )
            for x in RANGES
        )
        for r in RANKS
    )


@sometimes
def sometimes_stored_sidecars_shorten_the_hit(s: State, t: State) -> bool:
    """§12.9 Storage has a page on every rank, and on some rank not its sidecar, so the page is no hit."""
    return any(
        newly(s, t, op, QUERIED)
        and all(s.answer[r] > t.hit[0][op] for r in RANKS)
        and any(
            KIND[pool] == SIDECAR
            and any(
                any(
                    d == s.base[op] + t.hit[0][op] + 1 and not is_slot_stored(s, r, pool, s.chain[op], d)
                    for d in DEPTHS
                )
                for r in RANKS
            )
            for pool in POOLS
        )
        for op in OPS
    )


@sometimes
def sometimes_a_state_is_stored(s: State, t: State) -> bool:
    """§12.9 A state comes to storage."""
    return any(
        any(
            KIND[pool] != SIDECAR and any(any(is_slot_put(s, t, r, pool, c, d) for d in DEPTHS) for c in CHAINS)
            for pool in POOLS
        )
        for r in RANKS
    )


@sometimes
def sometimes_a_job_has_no_state(s: State, t: State) -> bool:
    """§12.9 All pages of a job are stored, and the tree has no state for its end."""
    return any(
        ends(s, t, x)
        and all(s.taken[r][x] == s.job_pages[x] for r in RANKS)
        and any(KIND[pool] != SIDECAR and not s.job_states[pool][x] for pool in POOLS)
        for x in RANGES
    )


@sometimes
def sometimes_a_stored_state_keeps_its_slot(s: State, t: State) -> bool:
    """§12.9 A copy leaves its state behind, because a job has captured the one in the tree."""
    return any(
        any(
            s.copy_pages[x] == 0
            and t.copy_pages[x] > 0
            and not t.copy_states[pool][x]
            and t.device_states[pool][CHAIN_OF[x]][FIRST_OF[x] + t.copy_pages[x]]
            for x in RANGES
        )
        and any(t.job_states[pool][x] for x in RANGES)
        for pool in POOLS
    )


@sometimes
def sometimes_what_was_stored_is_fetched_with_its_state(s: State, t: State) -> bool:
    """§12.9 A prefix is fetched that was stored in the run, and its state with it."""
    return any(
        newly(s, t, op, FETCHED) and any(emitted(t, ON_STATE_PUBLISHED, op=op, pool=pool) for pool in POOLS)
        for op in OPS
    )


@sometimes
def sometimes_storage_drops_what_belongs_to_a_page(s: State, t: State) -> bool:
    """§12.9 Storage drops a sidecar or a state of a page that is known to be stored."""
    return any(
        any(
            any(
                any(
                    s.pool_stored[r][pool][c][p + 1] and not t.pool_stored[r][pool][c][p + 1] and s.known_stored[c][p]
                    for p in POSITIONS
                )
                for c in CHAINS
            )
            for pool in POOLS
        )
        for r in RANKS
    )
