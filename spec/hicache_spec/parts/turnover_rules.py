"""§12.7 Extra pools and control together: a detach leaves nothing in any pool's queue, a reset empties every pool."""

from __future__ import annotations

from ..bounds import SIDECAR
from ..language import NONE, State, emitted, invariant, sometimes, step_property
from ..state import CHAINS, DEPTHS, OPS, RANKS
from .control_rules import (
    DETACHED,
    IO_THREAD,
    ON_BEGUN_AGAIN,
    ON_DETACHED,
    ON_DETACHING,
    ON_RESETTING,
    STOPPING,
    WithControl,
    all_are,
    are_in_their_loop,
    begin_again,
    has_ended,
    take_leftovers,
)
from .pool_properties import held_slots, inv_no_slot_freed_under_a_writer, step_state_eviction_is_needed
from .pool_scheduler import slots_everywhere
from .pool_state import KIND, ON_SLOT_LANDED, ON_SLOT_RELEASED, POOLS, SLOTS, WithPools, tree_slots


class WithPoolsAndControl(WithPools, WithControl):
    """§12.7 Nothing more than what the two parts have."""


# ---- what a scheduler does


def take_leftovers_of_every_pool(s: State) -> None:
    """Released slots, too, that nobody has taken."""
    take_leftovers(s)
    for pool in POOLS:
        take_leftover_slots(s, pool)


def take_leftover_slots(s: State, pool: int) -> None:
    """Each rank takes what is left in the pool's queue, by itself."""
    for r in RANKS:
        s.pool_free[r][pool] += s.pool_releasing[r][pool]
        s.pool_releasing[r][pool] = 0


def slots_in_the_loop(s: State, pool: int) -> int:
    """A scheduler that waits for its threads samples no queue."""
    return slots_everywhere(s, pool) if are_in_their_loop(s) else 0


def begin_again_in_every_pool(s: State) -> None:
    """Nothing of before is in the tree, of any pool."""
    begin_again(s)
    for pool in POOLS:
        empty_pool(s, pool)


def empty_pool(s: State, pool: int) -> None:
    """No sidecar and no state is in the tree; all slots are free."""
    for chain in CHAINS:
        s.covered[pool][chain] = 0
        for depth in DEPTHS:
            s.kept[pool][chain][depth] = False
    for r in RANKS:
        s.pool_free[r][pool] = SLOTS[pool]


# ---- what must hold


@invariant
def inv_detached_pools_are_at_rest(s: State) -> bool:
    """§12.7 P4, P15. Where storage is detached no queue of a pool holds a slot, and no operation does."""
    return not all_are(s, DETACHED) or all(
        all(s.pool_releasing[r][pool] == 0 and all(held_slots(s, r, pool, op) == 0 for op in OPS) for pool in POOLS)
        for r in RANKS
    )


@invariant
def inv_stopped_ranks_hold_the_same_slots(s: State) -> bool:
    """§12.7 P7, P15. When the threads of all ranks have ended, as many released slots of each pool are left on every
    rank.

    Why: each rank takes what is left by itself, without asking the others.
    """
    return not all(s.place[r] == STOPPING and has_ended(s, r) for r in RANKS) or all(
        all(s.pool_releasing[r][pool] == s.pool_releasing[0][pool] for pool in POOLS) for r in RANKS
    )


def inv_no_slot_freed_under_a_writer_across_control(s: State) -> bool:
    """§12.3 P18. While a slot is being filled, a living thread fills it, for an operation that has given back at most
    those that landed before it."""
    return all(
        s.filling[r] == NONE or (s.living[r][IO_THREAD] > 0 and len(s.buffer[r]) > 0) for r in RANKS
    ) and inv_no_slot_freed_under_a_writer(s)


@step_property
def step_begins_again_with_empty_pools(s: State, t: State) -> bool:
    """§12.7 P15. A reset leaves nothing of before in any pool: all slots are free, and nothing is on its way."""
    return not emitted(t, ON_BEGUN_AGAIN) or all(
        tree_slots(t, pool) == 0
        and all(
            t.pool_free[r][pool] == SLOTS[pool]
            and t.pool_releasing[r][pool] + t.in_place[r][pool] == 0
            and t.filling[r] == NONE
            and all(not t.landed[r][pool][op] and t.slots[pool][op] == 0 for op in OPS)
            and not any(t.offers[r][pool][d] for d in DEPTHS)
            for r in RANKS
        )
        for pool in POOLS
    )


def step_state_eviction_is_needed_until_a_reset(s: State, t: State) -> bool:
    """§12.4 P9. A state leaves the tree with its page, or because a grant needs its slot and no other is free; or in a
    reset."""
    return emitted(t, ON_BEGUN_AGAIN) or step_state_eviction_is_needed(s, t)


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
    """§12.7 Each rank finds slots in the queue of a pool, when its threads have ended."""
    return emitted(t, ON_DETACHED) and any(s.pool_releasing[0][pool] > 0 for pool in POOLS)


@sometimes
def sometimes_a_reset_empties_a_pool(s: State, t: State) -> bool:
    """§12.7 A reset takes sidecars and states out of the tree."""
    return emitted(t, ON_BEGUN_AGAIN) and all(
        any(s.covered[pool][c] > 0 for c in CHAINS)
        if KIND[pool] == SIDECAR
        else any(any(s.kept[pool][c][d] for d in DEPTHS) for c in CHAINS)
        for pool in POOLS
    )
