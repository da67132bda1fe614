"""§12.1 Extra pools: their state, and the words that their rules share."""

from __future__ import annotations

from collections.abc import Sequence

from ..bounds import OPTIONAL_STATE, SIDECAR, STATE, Bounds
from ..language import EventKind, State, constant, field, flag, index, initial, optional, table, upto
from ..state import CHAINS, DEPTHS, LENGTH, OPS, RANKS, Pipeline, at_rest, forget, has_given_all, is_complete
from ..tree import evictable_pages

ON_SLOT_LANDED = EventKind("slot_landed", ("rank", "op", "pool"))
ON_SLOT_FAILED = EventKind("slot_failed", ("rank", "op", "pool"))
ON_SLOT_RELEASED = EventKind("slot_released", ("rank", "op", "pool"))
ON_SLOTS_RECLAIMED = EventKind("slots_reclaimed", ("pool", "slots"))
ON_STATE_EVICTED = EventKind("state_evicted", ("pool", "chain", "depth"))
ON_STATE_PUBLISHED = EventKind("state_published", ("op", "pool", "known"))


def _offered(b: Bounds) -> tuple[tuple[int, ...], ...]:
    """OFFERED[offer][pool * (LENGTH + 1) + length]: 1 if the pool has, in this offer, what a prefix so long needs."""
    pages = b.chain_pages
    return tuple(
        tuple(
            0 if length == 0 else offer >> (pool * pages + length - 1) & 1
            for pool in range(len(b.pools))
            for length in range(pages + 1)
        )
        for offer in range(2 ** (len(b.pools) * pages))
    )


def _in_store(b: Bounds) -> tuple[tuple[int, ...], ...]:
    """IN_STORE[pool][chain * (2 * LENGTH + 1) + depth]: 1 if steady storage has what the pool needs there."""
    return tuple(
        tuple(int(depth in stored) for stored in pool.stored for depth in range(2 * b.chain_pages + 1))
        for pool in b.pools
    )


POOLS = index("pool", lambda b: len(b.pools))
KIND: Sequence[int] = table("kind", lambda b: tuple(pool.kind for pool in b.pools))
SLOTS: Sequence[int] = table("slots_of", lambda b: tuple(pool.slots for pool in b.pools))
SLOTS_MAX = constant(lambda b: max((pool.slots for pool in b.pools), default=0), "slots_max")
SLOT_COUNTS = index("slots", lambda b: max((pool.slots for pool in b.pools), default=0) + 1)
OFFERS = index("offer", lambda b: 2 ** (len(b.pools) * b.chain_pages))
OFFERED: Sequence[Sequence[int]] = table("offered", _offered)
IN_STORE: Sequence[Sequence[int]] = table("in_store", _in_store)


class WithPools(Pipeline):
    """§12.1 The state of the pipeline, and that of the extra pools. A *slot* is to a pool what a page is to the KV."""

    # the schedulers, in lockstep: once
    slots = field(upto(LENGTH), POOLS, OPS)  # slots of the pool given to the operation, on every rank
    covered = field(upto(LENGTH), POOLS, CHAINS)  # of a sidecar: pages of the chain in the tree that have theirs
    states = field(flag(), POOLS, CHAINS, DEPTHS)  # of a state: the tree has the one for the end of this prefix
    # each rank's scheduler
    pool_free = field(upto(SLOTS_MAX), RANKS, POOLS)
    # each rank's query thread
    offers = field(flag(), RANKS, POOLS, DEPTHS)  # its storage has what the pool needs for so long a prefix
    agreed = field(flag(), RANKS, OPS, POOLS, DEPTHS)  # of a state: every rank's storage has it, up to the agreed hit
    # each rank's IO thread
    filling = field(optional(POOLS), RANKS)  # the pool of which a slot is being filled
    in_place = field(upto(LENGTH), RANKS, POOLS)  # slots of the head whose bytes are in place
    landed = field(flag(), RANKS, POOLS, OPS)  # of a state: it is in place, as the scheduler may read it
    slots_given = field(upto(LENGTH), RANKS, POOLS, OPS)  # slots that the operation no longer holds
    pool_releasing = field(upto(SLOTS_MAX), RANKS, POOLS)  # length of the pool's own release queue


@initial
def start_pools(s: State) -> None:
    """§12.1 What is resident has its sidecars and, for its end, its states; all other slots are free."""
    for pool in POOLS:
        for chain in CHAINS:
            if KIND[pool] == SIDECAR:
                s.covered[pool][chain] = s.resident[chain]
            elif s.resident[chain] > 0:
                s.states[pool][chain][s.resident[chain]] = True
        for r in RANKS:
            s.pool_free[r][pool] = SLOTS[pool] - tree_slots(s, pool)


# ---- words


def tree_slots(s: State, pool: int) -> int:
    """Slots of the pool that the tree holds."""
    return sum(s.covered[pool][c] + kept_states(s, pool, c) for c in CHAINS)


def kept_states(s: State, pool: int, chain: int) -> int:
    """States of the pool in the tree, along a chain."""
    return sum(s.states[pool][chain][d] for d in DEPTHS)


def has_in_offer(offer: int, pool: int, length: int) -> bool:
    """The pool has, in this offer, what a prefix of this length needs."""
    return OFFERED[offer][pool * (LENGTH + 1) + length] == 1


def is_offered_everywhere(s: State, pool: int, length: int) -> bool:
    """Every rank's storage has it: MIN, element by element, of what they offer."""
    return all(s.offers[r][pool][length] for r in RANKS)


def state_room(s: State, pool: int) -> int:
    """Slots for states that can be had: free, or held by a state at which no operation is anchored."""
    return s.pool_free[0][pool] + sum(spare_states(s, pool, c) for c in CHAINS)


def spare_states(s: State, pool: int, chain: int) -> int:
    """States along a chain at which no operation is anchored."""
    return sum(is_spare(s, pool, chain, d) for d in DEPTHS)


def is_spare(s: State, pool: int, chain: int, depth: int) -> bool:
    """The tree has a state for the end of this prefix, and no operation is anchored there."""
    return s.states[pool][chain][depth] and s.protected[chain][depth] == 0


def missing_slots(s: State, pool: int, wanted: int) -> int:
    """Slots that are not free, of so many that are wanted."""
    return max(0, wanted - s.pool_free[0][pool])


def fits(s: State, op: int, pool: int, length: int) -> bool:
    """The pool can serve a grant of this length: a sidecar has the slots; a state is there, for just this prefix, and
    has a slot. What is optional stands in nobody's way."""
    if KIND[pool] == SIDECAR:
        return missing_slots(s, pool, length) <= evictable_pages(s)
    return KIND[pool] == OPTIONAL_STATE or (state_room(s, pool) > 0 and s.agreed[0][op][pool][length])


def wanted_slots(s: State, op: int, pool: int, pages: int) -> int:
    """Slots that a grant of `pages` pages takes of the pool."""
    if KIND[pool] == SIDECAR:
        return pages
    if KIND[pool] == STATE:
        return 1
    return 1 if s.agreed[0][op][pool][pages] and state_room(s, pool) > 0 else 0


def is_settled(s: State, rank: int, pool: int, op: int) -> bool:
    """Nothing of the pool is still to be read for this operation: the state has landed, or its slot went back."""
    return KIND[pool] == SIDECAR or s.landed[rank][pool][op] or s.slots_given[rank][pool][op] == s.slots[pool][op]


def has_landed_everywhere(s: State, pool: int, op: int) -> bool:
    """The state is in place on every rank."""
    return all(s.landed[r][pool][op] for r in RANKS)


def slots_behind(s: State, rank: int, pool: int) -> int:
    """Pages of the head that are in place without their slot of this pool."""
    return max(0, s.filled[rank] - s.in_place[rank][pool])


def lacks_sidecars(s: State, rank: int) -> bool:
    """A page of the head is in place, and a sidecar of it is not."""
    return any(KIND[pool] == SIDECAR and slots_behind(s, rank, pool) > 0 for pool in POOLS)


def is_due(s: State, rank: int, pool: int, op: int) -> bool:
    """A slot of the pool is to be read next: the sidecar of the latest page or, after all pages, the state."""
    if KIND[pool] == SIDECAR:
        return slots_behind(s, rank, pool) > 0
    return s.counted[rank][op] == s.granted[op] and not is_settled(s, rank, pool, op)


def give_slot(s: State, rank: int, pool: int, op: int) -> None:
    """A slot of the operation goes on the release queue of its pool."""
    s.slots_given[rank][pool][op] += 1
    s.pool_releasing[rank][pool] += 1


# ---- words that have to know of the pools


def at_rest_in_every_pool(s: State) -> bool:
    """§3.0 No operation is pending and every queue is empty, the release queues of all pools too."""
    return at_rest(s) and all(all(s.pool_releasing[r][pool] == 0 for pool in POOLS) for r in RANKS)


def is_complete_in_every_pool(s: State, op: int) -> bool:
    """Every rank has counted all pages, and no state is still to be read."""
    return is_complete(s, op) and all(all(is_settled(s, r, pool, op) for pool in POOLS) for r in RANKS)


def has_given_all_of_every_pool(s: State, op: int) -> bool:
    """The operation holds nothing any more, in no pool, and gave back nothing twice."""
    return has_given_all(s, op) and all(
        all(s.slots_given[r][pool][op] == s.slots[pool][op] for pool in POOLS) for r in RANKS
    )


def forget_in_every_pool(s: State, op: int) -> None:
    """The variables of the operation are as they were before it."""
    forget(s, op)
    for pool in POOLS:
        s.slots[pool][op] = 0
        for r in RANKS:
            s.landed[r][pool][op] = False
            s.slots_given[r][pool][op] = 0
