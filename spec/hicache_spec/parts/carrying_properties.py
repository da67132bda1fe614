"""§12.8 What must hold where pages are copied together with what belongs to them."""

from __future__ import annotations

from ..bounds import OPTIONAL_STATE, SIDECAR, STATE
from ..language import State, invariant, step_property
from ..properties import newly, takes_answers
from ..state import ALLOCATED, CHAINS, DEPTHS, FETCHED, OPS, RANKS
from .carrying_rules import ends_at, host_pages_of, is_spare_and_unread
from .copying_properties import begins_to_arrive, is_dropped_early, is_left_unwritten, leaves_the_host
from .copying_state import (
    CHAIN_OF,
    FIRST_OF,
    NOWHERE,
    POSITIONS,
    RANGES,
    evictable_host_pages,
    room_on_host,
)
from .pool_properties import (
    belongs,
    held_slots,
    is_publishable,
    is_served_short,
    takes_one,
)
from .pool_state import KIND, POOLS, SLOTS, tree_slots

# ---- properties of §5, §10 and §12 that count pages or slots, restated


def inv_slots_conserved_with_copies(s: State) -> bool:
    """§12.3 P4. On every rank, free, held, releasing, copied to and published slots together are the whole pool, for
    each pool."""
    return all(
        all(
            s.pool_free[r][pool]
            + s.pool_releasing[r][pool]
            + sum(held_slots(s, r, pool, op) for op in OPS)
            + sum(s.copy_states[pool][x] for x in RANGES)
            + tree_slots(s, pool)
            == SLOTS[pool]
            for pool in POOLS
        )
        for r in RANKS
    )


def inv_host_pages_have_their_sidecars(s: State) -> bool:
    """§12.3 P20. Every page on the host has its sidecars there, and no sidecar is there without its page."""
    return all(
        KIND[pool] != SIDECAR or all(s.covered[pool][c] == host_pages_of(s, c) for c in CHAINS) for pool in POOLS
    )


def inv_states_end_a_host_prefix(s: State) -> bool:
    """§12.3 P20. A state in the tree is for the end of a prefix whose last page is on the host."""
    return all(
        all(
            all(
                not s.states[pool][c][d] or any(p == d - 1 and s.host[c][p] != NOWHERE for p in POSITIONS)
                for d in DEPTHS
            )
            for c in CHAINS
        )
        for pool in POOLS
    )


def step_eviction_is_needed_in_some_pool_for_copies(s: State, t: State) -> bool:
    """§5.4 P9. A drain evicts exactly the host pages that its grants lack, in the pool that lacks most, a copy those
    that it lacks; no other step evicts."""
    taken = host_pages_taken(s, t)
    lacking = max(0, taken - s.free[0])
    for pool in POOLS:
        if KIND[pool] == SIDECAR:
            lacking = max(lacking, taken - s.pool_free[0][pool])
    return sum(sum(leaves_the_host(s, t, c, p) for p in POSITIONS) for c in CHAINS) == lacking


def host_pages_taken(s: State, t: State) -> int:
    """Host pages that the step gives to operations or to copies."""
    if takes_answers(s, t):
        return sum(t.granted[op] if newly(s, t, op, ALLOCATED) else 0 for op in OPS)
    return sum(sum(begins_to_arrive(s, t, c, p) for p in POSITIONS) for c in CHAINS)


def room_in_every_pool(s: State) -> int:
    """Pages for which host memory can be had now, with a sidecar of each pool."""
    room = room_on_host(s)
    for pool in POOLS:
        if KIND[pool] == SIDECAR:
            room = min(room, s.pool_free[0][pool] + evictable_host_pages(s))
    return room


def step_copy_is_refused_for_want_of_room_in_some_pool(s: State, t: State) -> bool:
    """§10.7 P9, P25. What a run leaves unwritten though the policy asks for it would not have fitted, in some pool."""
    return all(all(not is_left_unwritten(s, t, c, p, room_in_every_pool(t)) for p in POSITIONS) for c in CHAINS)


def step_dropped_for_want_of_room_in_some_pool(s: State, t: State) -> bool:
    """§10.7 P9. Under write_back a page leaves the device without a copy only if no copy of its node would have
    fitted, in some pool; it is never let go of while something hangs under it."""
    return all(not is_dropped_early(s, t, c, room_in_every_pool(s)) for c in CHAINS)


def step_refusal_is_needed_on_the_host(s: State, t: State) -> bool:
    """§5.5 P9. Memory is refused, or granted short of the hit, only if some pool cannot serve more of what the host
    can give up. An optional state is left only if there is none, or no slot.

    Judged where one answer is taken: a drain of several is such drains one after another.
    """
    return not takes_one(s, t) or all(
        not is_served_short(s, t, op, longest_grant_on_host(s, op))
        and (
            not newly(s, t, op, ALLOCATED)
            or all(
                KIND[pool] != OPTIONAL_STATE
                or t.slots[pool][op] > 0
                or not s.agreed[0][op][pool][t.granted[op]]
                or state_room_beside_readers(s, pool) == 0
                for pool in POOLS
            )
        )
        for op in OPS
    )


def longest_grant_on_host(s: State, op: int) -> int:
    """The longest prefix of the agreed hit that fits the pages and every pool now, with eviction from the host."""
    longest = 0
    for length in DEPTHS:
        if length <= min(s.hit[0][op], room_in_every_pool(s)) and all(
            KIND[pool] != STATE or (state_room_beside_readers(s, pool) > 0 and s.agreed[0][op][pool][length])
            for pool in POOLS
        ):
            longest = length
    return longest


def state_room_beside_readers(s: State, pool: int) -> int:
    """Slots for states that can be had: free, or held by a state that nobody needs."""
    return s.pool_free[0][pool] + sum(sum(is_spare_and_unread(s, pool, c, d) for d in DEPTHS) for c in CHAINS)


def step_state_comes_with_its_prefix(s: State, t: State) -> bool:
    """§12.4 P20. The tree takes over a state exactly when it publishes the whole prefix for which it was read, or when
    the copy ends that has brought it."""
    return all(
        KIND[pool] == SIDECAR
        or (
            all(
                all(
                    s.states[pool][c][d]
                    or not t.states[pool][c][d]
                    or belongs(s, t, pool, c, d)
                    or is_brought(s, t, pool, c, d)
                    for d in DEPTHS
                )
                for c in CHAINS
            )
            and all(
                not newly(s, t, op, FETCHED)
                or not is_publishable(s, pool, op)
                or t.states[pool][s.chain[op]][s.base[op] + s.granted[op]]
                for op in OPS
            )
            and all(all(t.states[pool][c][d] or not is_brought(s, t, pool, c, d) for d in DEPTHS) for c in CHAINS)
        )
        for pool in POOLS
    )


def is_brought(s: State, t: State, pool: int, chain: int, depth: int) -> bool:
    """A copy ends that has a state for just this prefix."""
    return any(
        s.copy_states[pool][x] and t.copy_pages[x] == 0 and ends_at(x, s.copy_pages[x], chain, depth) for x in RANGES
    )


def step_state_eviction_is_needed_for_copies(s: State, t: State) -> bool:
    """§12.4 P9. A state leaves the tree with its page, or because a grant or a copy needs its slot and no other is
    free.

    Of a drain, judged where it takes one answer.
    """
    return all(
        all(
            all(
                not s.states[pool][c][d]
                or t.states[pool][c][d]
                or (
                    (takes_answers(s, t) or len(t.copies) > len(s.copies))
                    and (
                        d > t.resident[c] or t.pool_free[0][pool] == 0 or (takes_answers(s, t) and not takes_one(s, t))
                    )
                )
                for d in DEPTHS
            )
            for c in CHAINS
        )
        for pool in POOLS
    )


# ---- invariants


@invariant
def inv_copied_states_are_on_the_device(s: State) -> bool:
    """§12.8 P18. As long as a copy with a state is under way, the device has that state, for the end of what the copy
    has captured."""
    return all(
        all(
            not s.copy_states[pool][x]
            or (s.copy_pages[x] > 0 and s.device_states[pool][CHAIN_OF[x]][FIRST_OF[x] + s.copy_pages[x]])
            for x in RANGES
        )
        for pool in POOLS
    )


@invariant
def inv_states_kept_exactly(s: State) -> bool:
    """§12.8 P14. A state on the host is kept once for each of those who read it."""
    return all(
        all(all(s.states_kept[pool][c][d] == state_readers_of(s, pool, c, d) for d in DEPTHS) for c in CHAINS)
        for pool in POOLS
    )


def state_readers_of(s: State, pool: int, chain: int, depth: int) -> int:
    """How many read this state: the loads under way."""
    return sum(s.load_states[pool][x] and ends_at(x, s.load_pages[x], chain, depth) for x in RANGES)


@invariant
def inv_loaded_states_stay_on_the_host(s: State) -> bool:
    """§12.8 P18. As long as a load with a state is under way, the tree has that state."""
    return all(
        all(not s.load_states[pool][x] or ends_at_a_state(s, pool, x, s.load_pages[x]) for x in RANGES)
        for pool in POOLS
    )


def ends_at_a_state(s: State, pool: int, x: int, pages: int) -> bool:
    """The range is under way, and the tree has the state for its end."""
    return pages > 0 and s.states[pool][CHAIN_OF[x]][FIRST_OF[x] + pages]


@invariant
def inv_device_states_end_a_device_prefix(s: State) -> bool:
    """§12.8 P20. A state on the device is for the end of a prefix that the device has."""
    return all(
        all(all(not s.device_states[pool][c][d] or 0 < d <= s.on_device[c] for d in DEPTHS) for c in CHAINS)
        for pool in POOLS
    )


# ---- step properties


@step_property
def step_written_with_its_slots(s: State, t: State) -> bool:
    """§12.8 P6, P7, P20. A copy ends only when its slots, too, have landed on every rank, in every pool."""
    return all(t.copy_pages[x] > 0 or s.copy_pages[x] == 0 or have_slots_landed(s) for x in RANGES)


def have_slots_landed(s: State) -> bool:
    """What the oldest copy has of each pool is in place on every rank."""
    return all(all(s.slots_copied[r][pool] > 0 for pool in POOLS) for r in RANKS)


@step_property
def step_copy_carries_its_states(s: State, t: State) -> bool:
    """§12.8 P9, P20. A copy begins with the states that the device has for its end, and with no others; one stays
    behind only for want of a slot."""
    return all(
        s.copy_pages[x] > 0
        or t.copy_pages[x] == 0
        or all(KIND[pool] == SIDECAR or carries_rightly(t, pool, x) for pool in POOLS)
        for x in RANGES
    )


def carries_rightly(t: State, pool: int, x: int) -> bool:
    """The copy has the state, if there is one and a slot can be had."""
    on_device = t.device_states[pool][CHAIN_OF[x]][FIRST_OF[x] + t.copy_pages[x]]
    return on_device if t.copy_states[pool][x] else not on_device or state_room_beside_readers(t, pool) == 0


@step_property
def step_load_ends_at_its_states(s: State, t: State) -> bool:
    """§12.8 P12, P20. What is loaded back ends where the tree has the states that are required, and they are loaded,
    too."""
    return all(
        s.load_pages[x] > 0
        or t.load_pages[x] == 0
        or all(
            KIND[pool] == SIDECAR
            or (
                t.load_states[pool][x] == s.states[pool][CHAIN_OF[x]][FIRST_OF[x] + t.load_pages[x]]
                and (KIND[pool] != STATE or t.load_states[pool][x])
            )
            for pool in POOLS
        )
        for x in RANGES
    )


@step_property
def step_loaded_states_are_on_the_device(s: State, t: State) -> bool:
    """§12.8 P20. When a load ends, the device has the states that it was to bring."""
    return all(
        all(
            not s.load_states[pool][x]
            or t.load_pages[x] > 0
            or t.device_states[pool][CHAIN_OF[x]][FIRST_OF[x] + s.load_pages[x]]
            for x in RANGES
        )
        for pool in POOLS
    )
