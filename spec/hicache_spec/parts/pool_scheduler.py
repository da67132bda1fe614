"""§12.2 Extra pools: what the schedulers do with them beside the pages."""

from __future__ import annotations

from ..bounds import SIDECAR, STATE
from ..language import State, action, emit, require
from ..pipeline import (
    agreed_pages,
    grant,
    grantable_pages,
    make_room,
    may_write,
    publish,
    release_landed,
    write_through,
)
from ..state import CHAINS, DEPTHS, RANKS
from ..tree import evict, known_pages
from .pool_state import (
    KIND,
    ON_SLOTS_RECLAIMED,
    ON_STATE_EVICTED,
    ON_STATE_PUBLISHED,
    POOLS,
    SLOT_COUNTS,
    fits,
    give_slot,
    has_landed_everywhere,
    is_spare,
    missing_slots,
    wanted_slots,
)

# ---- submission, and the drain: of all pools or of none


def anchor_with_its_states(s: State, chain: int) -> int:
    """The deepest resident prefix that has all its states: what lies behind it cannot be used."""
    found = 0
    for depth in DEPTHS:
        if depth <= s.resident[chain] and all(KIND[pool] != STATE or s.states[pool][chain][depth] for pool in POOLS):
            found = depth
    return found


def grantable_in_every_pool(s: State, op: int, hit: int) -> int:
    """The longest prefix of the hit that fits the pages and every required pool."""
    pages = grantable_pages(s, op, hit)
    found = 0
    for length in DEPTHS:
        if length <= pages and all(fits(s, op, pool, length) for pool in POOLS):
            found = length
    return found


def make_room_in_every_pool(s: State, op: int, pages: int) -> None:
    """What the grant lacks leaves the tree: pages, with their sidecars, for a sidecar; a state for a state."""
    if missing_sidecars(s, pages) > 0:
        evict(s, missing_sidecars(s, pages))
    make_room(s, op, pages)
    for pool in POOLS:
        if KIND[pool] != SIDECAR and s.pool_free[0][pool] < wanted_slots(s, op, pool, pages):
            evict_state(s, pool)


def missing_sidecars(s: State, pages: int) -> int:
    """Slots that the scarcest sidecar lacks for so many pages."""
    missing = 0
    for pool in POOLS:
        if KIND[pool] == SIDECAR:
            missing = max(missing, missing_slots(s, pool, pages))
    return missing


def evict_state(s: State, pool: int) -> None:
    """The first state at which no operation is anchored leaves the tree. Its pages stay."""
    found = False
    for chain in CHAINS:
        for depth in DEPTHS:
            if not found and is_spare(s, pool, chain, depth):
                found = True
                drop_state(s, pool, chain, depth)


def drop_state(s: State, pool: int, chain: int, depth: int) -> None:
    """A state leaves the tree, on every rank."""
    s.states[pool][chain][depth] = False
    for r in RANKS:
        s.pool_free[r][pool] += 1
    emit(s, ON_STATE_EVICTED, pool, chain, depth)


def evict_with_what_belongs_to_it(s: State, missing: int) -> None:
    """Pages leave the tree, and with them their sidecars and the states of the prefixes that ended there."""
    evict(s, missing)
    for pool in POOLS:
        for chain in CHAINS:
            if KIND[pool] == SIDECAR:
                cut_sidecars(s, pool, chain)
            else:
                cut_states(s, pool, chain)


def cut_sidecars(s: State, pool: int, chain: int) -> None:
    """Sidecars whose pages are gone are free."""
    for r in RANKS:
        s.pool_free[r][pool] += s.covered[pool][chain] - s.resident[chain]
    s.covered[pool][chain] = s.resident[chain]


def cut_states(s: State, pool: int, chain: int) -> None:
    """States of prefixes that are no longer resident are free."""
    for depth in DEPTHS:
        if s.states[pool][chain][depth] and depth > s.resident[chain]:
            drop_state(s, pool, chain, depth)


def grant_in_every_pool(s: State, op: int, pages: int, hit: int) -> None:
    """The operation owns its slots of every pool on every rank, in the same step as its pages."""
    for pool in POOLS:
        s.slots[pool][op] = wanted_slots(s, op, pool, pages)
        for r in RANKS:
            s.pool_free[r][pool] -= s.slots[pool][op]
    grant(s, op, pages, hit)


@action(fairness="weak", chosen=("slots",), pool=POOLS, slots=SLOT_COUNTS)
def sched_reclaim_slots(s: State, pool: int, slots: int) -> None:
    """§12.2 Every rank takes the same number of slots from the release queue of one pool: MIN of that queue's lengths.

    Why a step of its own: a drain that takes from several queues is such steps one after another.
    """
    require(slots > 0, "there is something to take")
    require(slots <= slots_everywhere(s, pool), "every rank has that many released slots")
    for r in RANKS:
        s.pool_releasing[r][pool] -= slots
        s.pool_free[r][pool] += slots
    emit(s, ON_SLOTS_RECLAIMED, pool, slots)


def slots_everywhere(s: State, pool: int) -> int:
    """So many released slots of the pool wait on every rank."""
    return min(s.pool_releasing[r][pool] for r in RANKS)


# ---- the end of an operation


def agreed_pages_of_every_pool(s: State, op: int) -> int:
    """The prefix that landed on every rank; nothing, if a state that it needs has not."""
    if any(KIND[pool] == STATE and not has_landed_everywhere(s, pool, op) for pool in POOLS):
        return 0
    return agreed_pages(s, op)


def publish_in_every_pool(s: State, op: int, pages: int) -> None:
    """The agreed prefix goes into the tree with its sidecars and, if it is the whole grant, its states."""
    known = known_pages(s, op, pages)
    for pool in POOLS:
        if KIND[pool] == SIDECAR:
            hand_over_sidecars(s, op, pool, pages, known)
        else:
            hand_over_state(s, op, pool, pages)
    publish(s, op, pages)


def hand_over_sidecars(s: State, op: int, pool: int, pages: int, known: int) -> None:
    """The sidecars go where their pages go: into the tree, back at once, or on the release queue."""
    s.covered[pool][s.chain[op]] += pages - known
    for r in RANKS:
        s.pool_free[r][pool] += known
        s.pool_releasing[r][pool] += s.counted[r][op] - pages
        s.slots_given[r][pool][op] += s.counted[r][op]


def hand_over_state(s: State, op: int, pool: int, pages: int) -> None:
    """The state goes into the tree for the end of the prefix that it belongs to, or back."""
    if pages == s.granted[op] and has_landed_everywhere(s, pool, op):
        keep_state(s, op, pool, s.base[op] + pages)
    else:
        release_state(s, op, pool)


def keep_state(s: State, op: int, pool: int, depth: int) -> None:
    """The tree takes the state over; if it has it already, the slot is free at once."""
    known = s.states[pool][s.chain[op]][depth]
    s.states[pool][s.chain[op]][depth] = True
    for r in RANKS:
        s.slots_given[r][pool][op] += 1
        if known:
            s.pool_free[r][pool] += 1
    emit(s, ON_STATE_PUBLISHED, op, pool, 1 if known else 0)


def release_state(s: State, op: int, pool: int) -> None:
    """A state that landed and is not published goes back; one that did not land is for the IO thread to give back."""
    for r in RANKS:
        if s.landed[r][pool][op]:
            give_slot(s, r, pool, op)


def release_landed_of_every_pool(s: State, op: int) -> None:
    """What has landed goes on the release queues, pool by pool."""
    for pool in POOLS:
        if KIND[pool] == SIDECAR:
            hand_over_sidecars(s, op, pool, 0, 0)
        else:
            release_state(s, op, pool)
    release_landed(s, op)


# ---- the rest of the server


def may_write_with_sidecars(s: State) -> bool:
    """There is memory for a page that is written through, and for its sidecars."""
    return may_write(s) and all(KIND[pool] != SIDECAR or s.pool_free[0][pool] > 0 for pool in POOLS)


def write_through_with_sidecars(s: State, chain: int) -> None:
    """The chain's next page is in the tree with its sidecars. A state for its end is not."""
    for pool in POOLS:
        if KIND[pool] == SIDECAR:
            s.covered[pool][chain] += 1
            for r in RANKS:
                s.pool_free[r][pool] -= 1
    write_through(s, chain)
