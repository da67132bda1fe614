"""Faulty rules of §12.8: what goes wrong where pages are copied together with what belongs to them."""

from __future__ import annotations

from hicache_spec.bounds import SIDECAR
from hicache_spec.language import State
from hicache_spec.parts.carrying_rules import carry_state
from hicache_spec.parts.copying_rules import (
    begin_copy,
    evict_device,
    finish_copy,
    finish_load,
    fits_on_host,
    has_landed_on_host,
    is_usable,
    run,
    take_landed,
)
from hicache_spec.parts.copying_state import CHAIN_OF, FIRST_OF, node_end
from hicache_spec.parts.pool_scheduler import evict_state, missing_sidecars
from hicache_spec.parts.pool_state import KIND, POOLS, is_spare, missing_slots
from hicache_spec.state import DEPTHS, LENGTH, RANKS
from hicache_spec.tree import evict, evictable_pages

# ---- copies to the host


def cover_nothing(s: State, pool: int, chain: int, pages: int) -> None:
    """A copy is of pages alone, and its sidecars stay on the device."""


def fit_without_evicting_for_a_sidecar(s: State, pages: int) -> bool:
    """A sidecar must have the slots already."""
    return fits_on_host(s, pages) and all(KIND[pool] != SIDECAR or missing_slots(s, pool, pages) == 0 for pool in POOLS)


def copy_and_evict_a_page(s: State, chain: int, first: int, pages: int) -> None:
    """A page leaves the host for each copy, be it needed or not."""
    if evictable_pages(s) > 0:
        evict(s, 1)
    begin_copy(s, chain, first, pages)


def begin_copy_with_a_free_slot(s: State, chain: int, first: int, pages: int) -> None:
    """The state of a copy does not make another one leave."""
    if missing_sidecars(s, pages) > 0:
        evict(s, missing_sidecars(s, pages))
    begin_copy(s, chain, first, pages)
    for pool in POOLS:
        if s.device_states[pool][chain][first + pages] and s.pool_free[0][pool] > 0:
            carry_state(s, pool, chain * LENGTH + first)


def carry_a_state_in_place_of_another(s: State, pool: int, x: int) -> None:
    """A state leaves the tree for each that comes, although a slot is free."""
    evict_state(s, pool)
    s.copy_states[pool][x] = True
    for r in RANKS:
        s.pool_free[r][pool] -= 1


def keep_the_slot_of_a_known_state(s: State, pool: int, chain: int, depth: int) -> None:
    """A state that the tree has already is dropped, and its slot with it."""
    s.states[pool][chain][depth] = True


def has_landed_without_its_slots(s: State) -> bool:
    """A copy ends with its pages."""
    return has_landed_on_host(s)


def take_landed_and_what_there_is(s: State, rank: int) -> None:
    """What has landed of the pools is counted down as far as it goes."""
    take_landed(s, rank)
    for pool in POOLS:
        s.slots_copied[rank][pool] = max(0, s.slots_copied[rank][pool] - 1)


def finish_copy_of_the_first_node(s: State, x: int) -> None:
    """The ack of a copy names a node, and the state goes to the end of what that is by now."""
    depth = min(FIRST_OF[x] + s.copy_pages[x], node_end(s, CHAIN_OF[x], FIRST_OF[x]))
    for pool in POOLS:
        if s.copy_states[pool][x]:
            s.copy_states[pool][x] = False
            s.states[pool][CHAIN_OF[x]][depth] = True
    finish_copy(s, x)


# ---- the device


def run_on_in_the_same_states(s: State, chain: int, depth: int) -> None:
    """A request goes on in the state of the prefix that it began with, and leaves none there."""
    for pool in POOLS:
        if KIND[pool] != SIDECAR:
            for d in DEPTHS:
                s.device_states[pool][chain][d] = d == depth
    run(s, chain, depth)


def evict_pages_alone(s: State, chain: int) -> None:
    """A page leaves the device, and the state for its end stays."""
    evict_device(s, chain)


# ---- loads


def use_without_states(s: State, chain: int, depth: int) -> bool:
    """What the host has of a prefix is loaded, with or without a state."""
    return is_usable(s, chain, depth)


def spare_what_is_loaded(s: State, pool: int, chain: int, depth: int) -> bool:
    """A state that is being loaded may make room for another."""
    return is_spare(s, pool, chain, depth)


def load_without_keeping_the_state(s: State, pool: int, chain: int, depth: int) -> None:
    """A state that is read on the host is not kept there."""


def finish_load_without_states(s: State, x: int) -> None:
    """A load ends with its pages, and the state that it has read is nowhere."""
    for pool in POOLS:
        if s.load_states[pool][x]:
            s.load_states[pool][x] = False
            s.states_kept[pool][CHAIN_OF[x]][FIRST_OF[x] + s.load_pages[x]] -= 1
    finish_load(s, x)
