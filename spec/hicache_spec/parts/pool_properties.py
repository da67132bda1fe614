"""§12.3, §12.4, §12.6 Extra pools: what must hold. Some canonical properties are restated; the rest stand."""

from __future__ import annotations

from ..bounds import OPTIONAL_STATE, SIDECAR, STATE
from ..events import ON_EVICTED, ON_FETCHED, ON_REVOKED
from ..language import NONE, State, emitted, invariant, leads_to, step_property
from ..properties import newly, policy_gives_up, takes_answers
from ..state import (
    ALLOCATED,
    CHAINS,
    DEPTHS,
    FETCHED,
    NO_MEMORY,
    OPS,
    QUERIED,
    RANKS,
    THRESHOLD,
    WAS_STOPPED,
    is_ended,
    is_pending,
    is_terminated,
)
from ..tree import resident_pages, room
from .pool_state import (
    KIND,
    POOLS,
    SLOTS,
    at_rest_in_every_pool,
    fits,
    has_landed_everywhere,
    is_complete_in_every_pool,
    tree_slots,
    wanted_slots,
)

# ---- invariants


@invariant
def inv_no_slot_freed_twice(s: State) -> bool:
    """§12.3 P13. An operation gives back no more slots of a pool than it was granted."""
    return all(all(all(s.slots_given[r][pool][op] <= s.slots[pool][op] for op in OPS) for pool in POOLS) for r in RANKS)


@invariant
def inv_slots_conserved(s: State) -> bool:
    """§12.3 P4. On every rank, free, held, releasing and published slots together are the whole pool, for each pool."""
    return all(
        all(
            s.pool_free[r][pool]
            + s.pool_releasing[r][pool]
            + sum(held_slots(s, r, pool, op) for op in OPS)
            + tree_slots(s, pool)
            == SLOTS[pool]
            for pool in POOLS
        )
        for r in RANKS
    )


@invariant
def inv_no_slot_freed_under_a_writer(s: State) -> bool:
    """§12.3 P18. While a slot is being filled, the operation has given back at most those that landed before it."""
    return all(
        all(
            s.filling[r] != pool or s.slots_given[r][pool][s.buffer[r][0]] <= landed_slots(s, r, pool, s.buffer[r][0])
            for pool in POOLS
        )
        for r in RANKS
    )


@invariant
def inv_counted_slots_are_filled(s: State) -> bool:
    """§12.3 P6. A page is counted only after the bytes of its sidecars are in place, a state after its own are."""
    return all(
        len(s.buffer[r]) == 0 or all(landed_slots(s, r, pool, s.buffer[r][0]) <= s.in_place[r][pool] for pool in POOLS)
        for r in RANKS
    )


@invariant
def inv_tree_pages_have_their_sidecars(s: State) -> bool:
    """§12.3 P20. Every page in the tree has its sidecars, and no sidecar is there without its page."""
    return all(KIND[pool] != SIDECAR or all(s.covered[pool][c] == s.resident[c] for c in CHAINS) for pool in POOLS)


@invariant
def inv_states_end_a_resident_prefix(s: State) -> bool:
    """§12.3 P20. A state in the tree is for the end of a prefix that is resident."""
    return all(
        all(all(not s.states[pool][c][d] or 0 < d <= s.resident[c] for d in DEPTHS) for c in CHAINS) for pool in POOLS
    )


@invariant
def inv_anchors_have_their_states(s: State) -> bool:
    """§12.3 P14. At the anchor of a pending operation, the tree keeps the states that are required."""
    return all(
        KIND[pool] != STATE
        or all(not is_pending(s, op) or s.base[op] == 0 or s.states[pool][s.chain[op]][s.base[op]] for op in OPS)
        for pool in POOLS
    )


@invariant
def inv_pools_are_granted_together(s: State) -> bool:
    """§12.3 P10. An operation has memory in every pool that is required, or in none."""
    return all(all(is_granted_alike(s, pool, op) for op in OPS) for pool in POOLS)


@invariant
def inv_ended_operations_hold_no_slot(s: State) -> bool:
    """§12.3 P4. An ended operation that no IO thread works on holds no slot."""
    return all(
        all(
            not is_ended(s, op) or op in s.buffer[r] or all(held_slots(s, r, pool, op) == 0 for pool in POOLS)
            for op in OPS
        )
        for r in RANKS
    )


@invariant
def inv_ranks_have_pools_alike(s: State) -> bool:
    """§12.3 P7. What a drain decides by is the same on every rank in every pool: free slots, and the agreed states."""
    return all(
        all(
            s.pool_free[r][pool] == s.pool_free[0][pool]
            and all(all(s.agreed[r][op][pool][d] == s.agreed[0][op][pool][d] for d in DEPTHS) for op in OPS)
            for pool in POOLS
        )
        for r in RANKS
    )


@invariant
def inv_rest_restores_every_pool(s: State) -> bool:
    """§12.3 P4, P15. At rest every slot of every pool is free or in the tree."""
    return not at_rest_in_every_pool(s) or all(
        all(s.pool_free[r][pool] + tree_slots(s, pool) == SLOTS[pool] for pool in POOLS) for r in RANKS
    )


def held_slots(s: State, rank: int, pool: int, op: int) -> int:
    """Slots of the pool that the operation holds on a rank."""
    return max(0, s.slots[pool][op] - s.slots_given[rank][pool][op])


def landed_slots(s: State, rank: int, pool: int, op: int) -> int:
    """Slots of the pool that count: those of the counted pages, or the state."""
    if KIND[pool] == SIDECAR:
        return s.counted[rank][op]
    return 1 if s.landed[rank][pool][op] else 0


def is_granted_alike(s: State, pool: int, op: int) -> bool:
    """A sidecar for each granted page; one state, if it is required, for any."""
    if KIND[pool] == SIDECAR:
        return s.slots[pool][op] == s.granted[op]
    if KIND[pool] == STATE:
        return s.slots[pool][op] == min(1, s.granted[op])
    return s.slots[pool][op] <= min(1, s.granted[op])


# ---- step properties


def step_hit_is_everywhere_in_every_pool(s: State, t: State) -> bool:
    """§5.11 P7, P12. The agreed hit is, on every rank, the longest prefix that all ranks have in every required pool.

    And the states that the ranks agree on are those that every rank has.
    """
    return all(
        not newly(s, t, op, QUERIED)
        or all(
            t.hit[r][op] == longest_for_all(s)
            and all(all(is_agreed_rightly(s, t, r, op, pool, d) for d in DEPTHS) for pool in POOLS)
            for r in RANKS
        )
        for op in OPS
    )


def longest_for_all(s: State) -> int:
    """The longest prefix that every rank has of the pages and of every pool that is required; 0 if there is none."""
    longest = 0
    for length in DEPTHS:
        if all(length <= s.answer[r] and has_all(s, r, length) for r in RANKS):
            longest = length
    return longest


def has_all(s: State, rank: int, length: int) -> bool:
    """The rank's storage has what every required pool needs for a prefix of this length."""
    return all(KIND[pool] == OPTIONAL_STATE or s.offers[rank][pool][length] for pool in POOLS)


def is_agreed_rightly(s: State, t: State, rank: int, op: int, pool: int, length: int) -> bool:
    """A state within the hit is agreed on if every rank has it; nothing else is."""
    if KIND[pool] == SIDECAR or length > t.hit[rank][op]:
        return not t.agreed[rank][op][pool][length]
    return t.agreed[rank][op][pool][length] == all(s.offers[r][pool][length] for r in RANKS)


def step_published_landed_in_every_pool(s: State, t: State) -> bool:
    """§5.2 P6, P20. What is published is exactly the prefix that landed on every rank, in every pool that it needs."""
    return all(
        not newly(s, t, op, FETCHED)
        or any(emitted(t, ON_FETCHED, op=op, pages=n) and n == usable_pages(s, op) for n in DEPTHS)
        for op in OPS
    )


def usable_pages(s: State, op: int) -> int:
    """The prefix that landed on every rank; nothing, without a state that it needs."""
    if any(KIND[pool] == STATE and not has_landed_everywhere(s, pool, op) for pool in POOLS):
        return 0
    return min(s.counted[r][op] for r in RANKS)


@step_property
def step_state_is_published_with_its_prefix(s: State, t: State) -> bool:
    """§12.4 P20. The tree takes over a state exactly when it publishes the whole prefix for which it was read."""
    return all(
        KIND[pool] == SIDECAR
        or (
            all(
                all(s.states[pool][c][d] or not t.states[pool][c][d] or belongs(s, t, pool, c, d) for d in DEPTHS)
                for c in CHAINS
            )
            and all(
                not newly(s, t, op, FETCHED)
                or not is_publishable(s, pool, op)
                or t.states[pool][s.chain[op]][s.base[op] + s.granted[op]]
                for op in OPS
            )
        )
        for pool in POOLS
    )


def belongs(s: State, t: State, pool: int, chain: int, depth: int) -> bool:
    """An operation that ends here brought the state for just this prefix."""
    return any(
        newly(s, t, op, FETCHED)
        and s.chain[op] == chain
        and s.base[op] + s.granted[op] == depth
        and is_publishable(s, pool, op)
        for op in OPS
    )


def is_publishable(s: State, pool: int, op: int) -> bool:
    """The state landed on every rank, and so did all pages of its prefix."""
    return s.granted[op] > 0 and usable_pages(s, op) == s.granted[op] and has_landed_everywhere(s, pool, op)


def step_waits_for_every_pool(s: State, t: State) -> bool:
    """§5.8 P1, P5. A poll ends an operation only if it is terminated or complete in every pool, or its policy
    gives up waiting."""
    return all(
        not (newly(s, t, op, FETCHED) or emitted(t, ON_REVOKED, op=op, reason=WAS_STOPPED))
        or is_terminated(s, op)
        or policy_gives_up(s, op)
        or (s.phase[op] == ALLOCATED and is_complete_in_every_pool(s, op))
        for op in OPS
    )


def step_eviction_is_needed_in_some_pool(s: State, t: State) -> bool:
    """§5.4 P9. A drain evicts exactly the pages that its grants lack, in the pool that lacks most; no other step
    evicts."""
    if not takes_answers(s, t):
        return not any(emitted(t, ON_EVICTED, chain=c) for c in CHAINS)
    granted = sum(t.granted[op] if newly(s, t, op, ALLOCATED) else 0 for op in OPS)
    lacking = max(0, granted - s.free[0])
    for pool in POOLS:
        if KIND[pool] == SIDECAR:
            lacking = max(lacking, granted - s.pool_free[0][pool])
    return resident_pages(s) - resident_pages(t) == lacking


@step_property
def step_state_eviction_is_needed(s: State, t: State) -> bool:
    """§12.4 P9. A state leaves the tree with its page, or because a grant needs its slot and no other is free.

    Judged where one answer is taken: a drain of several is such drains one after another.
    """
    return all(
        all(
            all(
                not s.states[pool][c][d]
                or t.states[pool][c][d]
                or (takes_answers(s, t) and (d > t.resident[c] or t.pool_free[0][pool] == 0 or not takes_one(s, t)))
                for d in DEPTHS
            )
            for c in CHAINS
        )
        for pool in POOLS
    )


def step_refusal_is_needed_in_some_pool(s: State, t: State) -> bool:
    """§5.5 P9. Memory is refused, or granted short of the hit, only if some pool cannot serve more. An optional state
    is left only if there is none, or no slot.

    Judged where one answer is taken: a drain of several is such drains one after another.
    """
    return not takes_one(s, t) or all(
        not is_served_short(s, t, op, longest_grant(s, op))
        and (
            not newly(s, t, op, ALLOCATED)
            or all(
                KIND[pool] == SIDECAR or t.slots[pool][op] >= wanted_slots(s, op, pool, t.granted[op]) for pool in POOLS
            )
        )
        for op in OPS
    )


def is_served_short(s: State, t: State, op: int, longest: int) -> bool:
    """The step refuses memory, or grants less, though this is the longest prefix that can be served."""
    return (emitted(t, ON_REVOKED, op=op, reason=NO_MEMORY) and longest >= THRESHOLD) or (
        newly(s, t, op, ALLOCATED) and t.granted[op] < longest
    )


def longest_grant(s: State, op: int) -> int:
    """The longest prefix of the agreed hit that fits the pages and every pool now, with eviction."""
    longest = 0
    for length in DEPTHS:
        if length <= s.hit[0][op] and length <= room(s) and all(fits(s, op, pool, length) for pool in POOLS):
            longest = length
    return longest


@step_property
def step_grant_ends_where_its_states_are(s: State, t: State) -> bool:
    """§12.4 P12. A grant takes a slot for a state only if every rank's storage has it, for the end of that grant."""
    return all(
        not newly(s, t, op, ALLOCATED)
        or all(
            KIND[pool] == SIDECAR or t.slots[pool][op] == 0 or s.agreed[0][op][pool][t.granted[op]] for pool in POOLS
        )
        for op in OPS
    )


@step_property
def step_no_slot_read_after_termination(s: State, t: State) -> bool:
    """§12.4 P18. The IO thread begins no slot of a terminated operation, and lets no state of one land."""
    return all(
        (t.filling[r] == NONE or s.filling[r] != NONE or not s.stopped[r][s.buffer[r][0]])
        and all(
            all(not s.stopped[r][op] or s.landed[r][pool][op] or not t.landed[r][pool][op] for op in OPS)
            for pool in POOLS
        )
        for r in RANKS
    )


def takes_one(s: State, t: State) -> bool:
    """The step is a drain that takes one answered operation."""
    return len(s.hit_queue[0]) == len(t.hit_queue[0]) + 1


# ---- liveness


def pool_queue_is_empty(s: State, pool: int) -> bool:
    """No released slot of the pool waits for the scheduler."""
    return all(s.pool_releasing[r][pool] == 0 for r in RANKS)


@leads_to(pool_queue_is_empty, pool=POOLS)
def live_released_slots_are_reclaimed(s: State, pool: int) -> bool:
    """§12.6 P3. Whatever is put on the release queue of a pool is taken."""
    return any(s.pool_releasing[r][pool] > 0 for r in RANKS)
