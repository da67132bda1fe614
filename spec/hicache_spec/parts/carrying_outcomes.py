"""§12.8 What must be reachable where pages are copied together with what belongs to them."""

from __future__ import annotations

from ..bounds import SIDECAR, STATE, WRITE_BACK
from ..language import State, emitted, sometimes
from ..state import CHAINS, DEPTHS, RANKS
from .carrying_properties import is_brought, room_in_every_pool
from .copying_properties import is_left_unwritten
from .copying_state import (
    CHAIN_OF,
    FIRST_OF,
    ON_LOADED,
    POSITIONS,
    RANGES,
    READABLE,
    WRITE_POLICY_NOW,
    is_within,
    room_on_host,
)
from .pool_state import KIND, ON_STATE_EVICTED, POOLS


def begins(s: State, t: State, x: int) -> bool:
    """A copy of this range begins."""
    return s.copy_pages[x] == 0 and t.copy_pages[x] > 0


@sometimes
def sometimes_a_copy_carries_a_state(s: State, t: State) -> bool:
    """§12.8 A copy ends, and the tree has the state that it has brought."""
    return any(any(any(is_brought(s, t, pool, c, d) for d in DEPTHS) for c in CHAINS) for pool in POOLS)


@sometimes
def sometimes_a_state_is_left_behind(s: State, t: State) -> bool:
    """§12.8 A copy begins without the state that the device has, for want of a slot."""
    return any(
        any(
            begins(s, t, x)
            and t.device_states[pool][CHAIN_OF[x]][FIRST_OF[x] + t.copy_pages[x]]
            and not t.copy_states[pool][x]
            for x in RANGES
        )
        for pool in POOLS
    )


@sometimes
def sometimes_a_node_has_no_state_to_copy(s: State, t: State) -> bool:
    """§12.8 A copy begins of a node for whose end the device has no state, as after a split."""
    return any(
        any(
            begins(s, t, x)
            and KIND[pool] != SIDECAR
            and not t.device_states[pool][CHAIN_OF[x]][FIRST_OF[x] + t.copy_pages[x]]
            for x in RANGES
        )
        for pool in POOLS
    )


@sometimes
def sometimes_a_node_is_split_under_its_state(s: State, t: State) -> bool:
    """§12.8 A node is split while it is copied with a state: the state is for the end of the lower half."""
    return any(
        any(
            s.copy_states[pool][x]
            and any(
                p > FIRST_OF[x]
                and is_within(x, s.copy_pages[x], p)
                and t.cut[CHAIN_OF[x]][p]
                and not s.cut[CHAIN_OF[x]][p]
                for p in POSITIONS
            )
            for x in RANGES
        )
        for pool in POOLS
    )


@sometimes
def sometimes_pages_land_before_their_slots(s: State, t: State) -> bool:
    """§12.8 The pages of a copy are in place on every rank, and what belongs to them is not."""
    return all(t.copied[r] > 0 for r in RANKS) and any(
        any(t.slots_copied[r][pool] == 0 for pool in POOLS) for r in RANKS
    )


@sometimes
def sometimes_a_sidecar_refuses_a_copy(s: State, t: State) -> bool:
    """§12.8 A run leaves pages unwritten for which there is room, for want of a sidecar's slots."""
    return any(
        any(
            is_left_unwritten(s, t, c, p, room_on_host(t)) and not is_left_unwritten(s, t, c, p, room_in_every_pool(t))
            for p in POSITIONS
        )
        for c in CHAINS
    )


@sometimes
def sometimes_a_copy_evicts_a_state(s: State, t: State) -> bool:
    """§12.8 A state leaves the tree for that of a copy, and its page stays."""
    return any(
        any(
            any(
                emitted(t, ON_STATE_EVICTED, pool=pool, chain=c, depth=d)
                and len(t.copies) > len(s.copies)
                and d <= t.resident[c]
                for d in DEPTHS
            )
            for c in CHAINS
        )
        for pool in POOLS
    )


@sometimes
def sometimes_an_eviction_is_written_back_with_its_state(s: State, t: State) -> bool:
    """§12.8 Under write_back, a page leaves the device whose state went to the host with it."""
    return WRITE_POLICY_NOW == WRITE_BACK and any(
        any(
            t.on_device[c] < s.on_device[c]
            and s.device_states[pool][c][s.on_device[c]]
            and s.states[pool][c][s.on_device[c]]
            for c in CHAINS
        )
        for pool in POOLS
    )


@sometimes
def sometimes_a_state_is_loaded_back(s: State, t: State) -> bool:
    """§12.8 A load ends that has brought a state."""
    return any(emitted(t, ON_LOADED, chain=c) for c in CHAINS) and any(
        any(s.load_states[pool][x] and not t.load_states[pool][x] for x in RANGES) for pool in POOLS
    )


@sometimes
def sometimes_nothing_is_loaded_for_want_of_a_state(s: State, t: State) -> bool:
    """§12.8 The host alone has the last page of a chain, and not the state that is required for its end."""
    return any(
        any(
            KIND[pool] == STATE
            and t.on_device[c] < t.resident[c]
            and not t.states[pool][c][t.resident[c]]
            and any(p == t.resident[c] - 1 and t.host[c][p] == READABLE for p in POSITIONS)
            for c in CHAINS
        )
        for pool in POOLS
    )


@sometimes
def sometimes_a_loaded_state_refuses_its_slot(s: State, t: State) -> bool:
    """§12.8 A copy leaves its state behind while another one is being loaded, which would else make room for it."""
    return any(
        any(begins(s, t, x) and not t.copy_states[pool][x] for x in RANGES)
        and any(any(t.states_kept[pool][c][d] > 0 for d in DEPTHS) for c in CHAINS)
        for pool in POOLS
    )


@sometimes
def sometimes_a_copied_state_is_known(s: State, t: State) -> bool:
    """§12.8 A copy brings a state that the tree has got from storage meanwhile."""
    return any(
        any(any(is_brought(s, t, pool, c, d) and s.states[pool][c][d] for d in DEPTHS) for c in CHAINS)
        for pool in POOLS
    )
