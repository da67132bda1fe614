"""§12.7 Extra pools and control together: a detach leaves nothing in any pool's queue, a reset empties every pool."""

from __future__ import annotations

from ..bounds import SIDECAR
from ..language import NONE, State, emitted, invariant, sometimes, step_property
from ..state import CHAINS, DEPTHS, OPS, RANKS
from .control_properties import forgets, has_stopped, is_empty
from .control_rules import (
    DETACHED,
    IO_THREAD,
    ON_BEGUN_AGAIN,
    ON_DETACHED,
    ON_DETACHING,
    ON_RESETTING,
    STOPPING,
    WithControl,
    are_in_their_loop,
    forget_everything,
    free_every_page,
    take_leftovers,
)
from .pool_properties import (
    held_slots,
    inv_no_slot_freed_under_a_writer,
    inv_ranks_have_pools_alike,
    inv_rest_restores_every_pool,
    step_state_eviction_is_needed,
)
from .pool_scheduler import slots_everywhere
from .pool_state import KIND, ON_SLOT_LANDED, ON_SLOT_RELEASED, POOLS, SLOTS, WithPools, tree_slots


class WithPoolsAndControl(WithPools, WithControl):
    """§12.7 Nothing more than what the two parts have."""


# ---- what a scheduler does


def take_leftovers_of_every_pool(s: State, rank: int) -> None:
    """Released slots, too, that nobody has taken."""
    take_leftovers(s, rank)
    for pool in POOLS:
        take_leftover_slots(s, rank, pool)


def take_leftover_slots(s: State, rank: int, pool: int) -> None:
    """A rank takes what is left in the pool's queue, by itself."""
    s.pool_free[rank][pool] += s.pool_releasing[rank][pool]
    s.pool_releasing[rank][pool] = 0


def slots_in_the_loop(s: State, pool: int) -> int:
    """A scheduler that waits for its threads samples no queue."""
    return slots_everywhere(s, pool) if are_in_their_loop(s) else 0


def free_every_page_and_slot(s: State, rank: int) -> None:
    """All pages of the rank are free, and all slots of every pool."""
    free_every_page(s, rank)
    for pool in POOLS:
        free_every_slot(s, rank, pool)


def free_every_slot(s: State, rank: int, pool: int) -> None:
    """All slots of the pool are free on this rank."""
    s.pool_free[rank][pool] = SLOTS[pool]


def forget_everything_in_every_pool(s: State) -> None:
    """Nothing of before is in the tree, of any pool."""
    forget_everything(s)
    for pool in POOLS:
        empty_pool(s, pool)


def empty_pool(s: State, pool: int) -> None:
    """No sidecar and no state is in the tree."""
    for chain in CHAINS:
        s.covered[pool][chain] = 0
        for depth in DEPTHS:
            s.states[pool][chain][depth] = False


# ---- what must hold


@invariant
def inv_detached_pools_are_at_rest(s: State) -> bool:
    """§12.7 P4, P15. On a rank that is detached no queue of a pool holds a slot, and no operation does."""
    return all(
        s.place[r] != DETACHED
        or all(s.pool_releasing[r][pool] == 0 and all(held_slots(s, r, pool, op) == 0 for op in OPS) for pool in POOLS)
        for r in RANKS
    )


@invariant
def inv_stopped_ranks_hold_the_same_slots(s: State) -> bool:
    """§12.7 P7, P15. Ranks whose threads have ended are left with as many released slots of each pool as each other.

    Why: each rank takes what is left by itself, without asking the others.
    """
    return all(
        not has_stopped(s, r)
        or all(
            not has_stopped(s, q) or all(s.pool_releasing[q][pool] == s.pool_releasing[r][pool] for pool in POOLS)
            for q in RANKS
        )
        for r in RANKS
    )


def inv_slots_conserved_on_each_rank(s: State) -> bool:
    """§12.3 P4. On every rank, free, held, releasing and published slots together are the whole pool, for each pool;
    where a reset has begun again, nothing is published."""
    return all(
        all(
            s.pool_free[r][pool]
            + s.pool_releasing[r][pool]
            + sum(held_slots(s, r, pool, op) for op in OPS)
            + (0 if is_empty(s, r) else tree_slots(s, pool))
            == SLOTS[pool]
            for pool in POOLS
        )
        for r in RANKS
    )


def inv_ranks_have_pools_alike_in_their_loop(s: State) -> bool:
    """§12.3 P7. What a drain decides by is the same on every rank in every pool, where the schedulers are in their
    loop."""
    return not are_in_their_loop(s) or inv_ranks_have_pools_alike(s)


def inv_rest_restores_every_pool_of_all(s: State) -> bool:
    """§12.3 P4, P15. At rest every slot of every pool is free or in the tree, when no rank waits for another to begin
    again."""
    return any(is_empty(s, r) for r in RANKS) or inv_rest_restores_every_pool(s)


def inv_no_slot_freed_under_a_writer_across_control(s: State) -> bool:
    """§12.3 P18. While a slot is being filled, a living thread fills it, for an operation that has given back at most
    those that landed before it."""
    return all(
        s.filling[r] == NONE or (s.living[r][IO_THREAD] > 0 and len(s.buffer[r]) > 0) for r in RANKS
    ) and inv_no_slot_freed_under_a_writer(s)


@step_property
def step_begins_again_with_empty_pools(s: State, t: State) -> bool:
    """§12.7 P15. A reset leaves nothing of before in any pool: on a rank that begins again all slots are free, and
    nothing is on its way; when the last one has begun again, the tree has no slot."""
    return all(
        all(not emitted(t, ON_BEGUN_AGAIN, rank=r) or has_new_pool(t, r, pool) for r in RANKS)
        and (not forgets(s, t) or (tree_slots(t, pool) == 0 and all(is_unknown_to_pool(t, pool, op) for op in OPS)))
        for pool in POOLS
    )


def has_new_pool(s: State, rank: int, pool: int) -> bool:
    """All slots of the pool are free on this rank, and nothing is on its way to or from it."""
    return (
        s.pool_free[rank][pool] == SLOTS[pool]
        and s.pool_releasing[rank][pool] + s.in_place[rank][pool] == 0
        and s.filling[rank] == NONE
        and not any(s.offers[rank][pool][d] for d in DEPTHS)
    )


def is_unknown_to_pool(s: State, pool: int, op: int) -> bool:
    """No variable of the pool says anything of the operation."""
    return s.slots[pool][op] == 0 and all(not s.landed[r][pool][op] for r in RANKS)


def step_state_eviction_is_needed_until_a_reset(s: State, t: State) -> bool:
    """§12.4 P9. A state leaves the tree with its page, or because a grant needs its slot and no other is free; or in a
    reset."""
    return forgets(s, t) or step_state_eviction_is_needed(s, t)


# ---- what must be reachable


@sometimes
def sometimes_a_detach_finds_a_slot_being_filled(s: State, t: State) -> bool:
    """§12.7 Storage is to be detached while an IO thread reads a sidecar or a state."""
    return (emitted(t, ON_DETACHING) or emitted(t, ON_RESETTING)) and any(s.filling[r] != NONE for r in RANKS)


@sometimes
def sometimes_a_slot_lands_for_nobody(s: State, t: State) -> bool:
    """§12.7 The bytes of a slot arrive on a rank whose scheduler waits for its threads."""
    return any(s.place[r] == STOPPING and emitted(t, ON_SLOT_LANDED, rank=r) for r in RANKS)


@sometimes
def sometimes_a_state_is_released_for_nobody(s: State, t: State) -> bool:
    """§12.7 The IO thread gives a state's slot back after its scheduler has told it to stop."""
    return any(s.place[r] == STOPPING and emitted(t, ON_SLOT_RELEASED, rank=r) for r in RANKS)


@sometimes
def sometimes_slots_are_left_when_the_threads_have_ended(s: State, t: State) -> bool:
    """§12.7 A rank finds slots in the queue of a pool, when its threads have ended."""
    return any(emitted(t, ON_DETACHED, rank=r) and any(s.pool_releasing[r][pool] > 0 for pool in POOLS) for r in RANKS)


@sometimes
def sometimes_a_reset_empties_a_pool(s: State, t: State) -> bool:
    """§12.7 A reset takes sidecars and states out of the tree."""
    return forgets(s, t) and all(
        any(s.covered[pool][c] > 0 for c in CHAINS)
        if KIND[pool] == SIDECAR
        else any(any(s.states[pool][c][d] for d in DEPTHS) for c in CHAINS)
        for pool in POOLS
    )
