"""§12.8 Extra pools and the device tier together: what belongs to pages is copied, evicted and loaded with them.

On the device a sidecar is part of its page. A state is there for the end of what a request has run on.
"""

from __future__ import annotations

from ..bounds import SIDECAR, STATE
from ..language import State, action, field, flag, require, upto
from ..state import CHAINS, DEPTHS, LENGTH, RANKS
from ..tree import evict, evictable_pages
from .copying_rules import (
    begin_copy,
    begin_load,
    evict_device,
    finish_copy,
    finish_load,
    fits_on_host,
    has_landed_on_host,
    is_usable,
    run,
    take_landed,
)
from .copying_state import CHAIN_OF, FIRST_OF, NOWHERE, POSITIONS, RANGES, RANGES_MAX, READERS_MAX, WithDevice
from .pool_scheduler import evict_state, missing_sidecars
from .pool_state import KIND, POOLS, WithPools, is_spare, missing_slots, state_room


class WithDeviceAndPools(WithPools, WithDevice):
    """§12.8 The state with a device tier and extra pools, and what they have in common."""

    # the schedulers, in lockstep: once
    device_states = field(flag(), POOLS, CHAINS, DEPTHS)  # of a state: the device has the one for this prefix's end
    copy_states = field(flag(), POOLS, RANGES)  # a copy under way has a slot for the state at its end
    load_states = field(flag(), POOLS, RANGES)  # a load under way brings the state at its end
    states_kept = field(upto(READERS_MAX), POOLS, CHAINS, DEPTHS)  # who reads the state on the host
    # each rank's copy streams
    slots_copied = field(upto(RANGES_MAX), RANKS, POOLS)  # of so many of `copies` the pool's slots have landed


# ---- words


def host_pages_of(s: State, chain: int) -> int:
    """Host pages of a chain, with those that are still being copied to."""
    return sum(s.host[chain][p] != NOWHERE for p in POSITIONS)


def ends_at(x: int, pages: int, chain: int, depth: int) -> bool:
    """Does a range of so many pages end at the end of this prefix?"""
    return CHAIN_OF[x] == chain and FIRST_OF[x] + pages == depth


def is_spare_and_unread(s: State, pool: int, chain: int, depth: int) -> bool:
    """A state that somebody reads does not make room for another."""
    return is_spare(s, pool, chain, depth) and s.states_kept[pool][chain][depth] == 0


# ---- a request runs, and its pages are written


def run_and_leave_states(s: State, chain: int, depth: int) -> None:
    """§12.8 The device has the states for the end of what was run on."""
    for pool in POOLS:
        if KIND[pool] != SIDECAR:
            s.device_states[pool][chain][depth] = True
    run(s, chain, depth)


def fits_on_host_with_sidecars(s: State, pages: int) -> bool:
    """The memory can be had for the pages, and for a sidecar beside each of them."""
    return fits_on_host(s, pages) and all(
        KIND[pool] != SIDECAR or missing_slots(s, pool, pages) <= evictable_pages(s) for pool in POOLS
    )


def begin_copy_with_slots(s: State, chain: int, first: int, pages: int) -> None:
    """Slots are taken in every pool: for each page, or for the state at the end of the copy."""
    if missing_sidecars(s, pages) > 0:
        evict(s, missing_sidecars(s, pages))
    begin_copy(s, chain, first, pages)
    for pool in POOLS:
        if KIND[pool] == SIDECAR:
            cover(s, pool, chain, pages)
        elif s.device_states[pool][chain][first + pages] and state_room(s, pool) > 0:
            carry_state(s, pool, chain * LENGTH + first)


def cover(s: State, pool: int, chain: int, pages: int) -> None:
    """So many pages of the chain get a sidecar on the host."""
    s.covered[pool][chain] += pages
    for r in RANKS:
        s.pool_free[r][pool] -= pages


def carry_state(s: State, pool: int, x: int) -> None:
    """The copy has a slot for its state, if need be that of another one. Without a slot the pages go alone."""
    if s.pool_free[0][pool] == 0:
        evict_state(s, pool)
    s.copy_states[pool][x] = True
    for r in RANKS:
        s.pool_free[r][pool] -= 1


@action(fairness="weak", rank=RANKS, pool=POOLS)
def copy_land_slots(s: State, rank: int, pool: int) -> None:
    """§12.8 On one rank, what the next copy has of one pool is in place."""
    require(s.slots_copied[rank][pool] < len(s.copies), "a copy is under way on this rank")
    s.slots_copied[rank][pool] += 1


def has_landed_with_its_slots(s: State) -> bool:
    """The oldest copy is in place on every rank, in every pool."""
    return has_landed_on_host(s) and all(all(s.slots_copied[r][pool] > 0 for pool in POOLS) for r in RANKS)


def take_landed_with_its_slots(s: State, rank: int) -> None:
    """A rank counts one landed copy less, in every pool."""
    take_landed(s, rank)
    for pool in POOLS:
        s.slots_copied[rank][pool] -= 1


def finish_copy_with_states(s: State, x: int) -> None:
    """The states that the copy has brought are in the tree, for the end of what it captured, be that a node or not."""
    for pool in POOLS:
        if s.copy_states[pool][x]:
            s.copy_states[pool][x] = False
            receive_state(s, pool, CHAIN_OF[x], FIRST_OF[x] + s.copy_pages[x])
    finish_copy(s, x)


def receive_state(s: State, pool: int, chain: int, depth: int) -> None:
    """The tree takes the state over; if it has it already, the slot is free at once."""
    known = s.states[pool][chain][depth]
    s.states[pool][chain][depth] = True
    if known:
        for r in RANKS:
            s.pool_free[r][pool] += 1


# ---- pages leave a tier


def cut_sidecars_of_host_pages(s: State, pool: int, chain: int) -> None:
    """Sidecars whose host pages are gone are free. A page that only the device has, has none on the host."""
    for r in RANKS:
        s.pool_free[r][pool] += s.covered[pool][chain] - host_pages_of(s, chain)
    s.covered[pool][chain] = host_pages_of(s, chain)


def evict_device_with_its_states(s: State, chain: int) -> None:
    """With a page the device loses the states of the prefix that ended there."""
    for pool in POOLS:
        s.device_states[pool][chain][s.on_device[chain]] = False
    evict_device(s, chain)


# ---- what the host has is loaded back


def is_usable_with_its_states(s: State, chain: int, depth: int) -> bool:
    """A prefix is of use only with the states that are required for its end."""
    return is_usable(s, chain, depth) and all(KIND[pool] != STATE or s.states[pool][chain][depth] for pool in POOLS)


def begin_load_with_states(s: State, chain: int, depth: int) -> None:
    """The states for the end of the prefix are loaded with its pages, and stay on the host until that is done."""
    for pool in POOLS:
        if s.states[pool][chain][depth]:
            s.load_states[pool][chain * LENGTH + s.on_device[chain]] = True
            keep_state_for_a_reader(s, pool, chain, depth)
    begin_load(s, chain, depth)


def keep_state_for_a_reader(s: State, pool: int, chain: int, depth: int) -> None:
    """Somebody reads this state on the host."""
    s.states_kept[pool][chain][depth] += 1


def finish_load_with_states(s: State, x: int) -> None:
    """The device has the states that the load has brought."""
    for pool in POOLS:
        if s.load_states[pool][x]:
            s.load_states[pool][x] = False
            s.states_kept[pool][CHAIN_OF[x]][FIRST_OF[x] + s.load_pages[x]] -= 1
            s.device_states[pool][CHAIN_OF[x]][FIRST_OF[x] + s.load_pages[x]] = True
    finish_load(s, x)
