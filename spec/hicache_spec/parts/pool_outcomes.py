"""§12.5 Extra pools: what must be reachable."""

from __future__ import annotations

from ..bounds import OPTIONAL_STATE, SIDECAR, STATE
from ..events import ON_FETCHED, ON_IO_RELEASED, ON_QUERY_AGREED, ON_REVOKED, ON_SUBMITTED
from ..language import State, emitted, sometimes
from ..outcomes import evicts
from ..properties import newly
from ..state import ALLOCATED, CHAINS, DEPTHS, FETCHED, NO_MEMORY, OPS, RANKS, REVOKED, THRESHOLD
from ..tree import room
from .pool_properties import takes_one
from .pool_state import (
    KIND,
    ON_SLOT_FAILED,
    ON_SLOT_LANDED,
    ON_SLOT_RELEASED,
    ON_SLOTS_RECLAIMED,
    ON_STATE_EVICTED,
    ON_STATE_PUBLISHED,
    POOLS,
    is_offered_everywhere,
    lacks_sidecars,
)


@sometimes
def sometimes_a_sidecar_shortens_the_hit(s: State, t: State) -> bool:
    """§12.5 Every rank has more pages than the agreed hit, and for some of them no sidecar."""
    return any(emitted(t, ON_QUERY_AGREED, op=op) and t.hit[0][op] < least_answer(t) for op in OPS) and any(
        KIND[pool] == SIDECAR and not is_offered_everywhere(t, pool, least_answer(t)) for pool in POOLS
    )


@sometimes
def sometimes_a_hit_ends_at_an_earlier_state(s: State, t: State) -> bool:
    """§12.5 The agreed hit is shorter than the pages, because a state is for that shorter prefix."""
    return any(emitted(t, ON_QUERY_AGREED, op=op) and 0 < t.hit[0][op] < least_answer(t) for op in OPS) and any(
        KIND[pool] == STATE and not is_offered_everywhere(t, pool, least_answer(t)) for pool in POOLS
    )


@sometimes
def sometimes_without_a_state_there_is_no_hit(s: State, t: State) -> bool:
    """§12.5 Every rank has pages, and no state for any prefix of them."""
    return any(emitted(t, ON_QUERY_AGREED, op=op, hit=0) for op in OPS) and any(
        KIND[pool] == STATE
        and least_answer(t) > 0
        and all(not any(t.offers[r][pool][d] for d in DEPTHS) for r in RANKS)
        for pool in POOLS
    )


@sometimes
def sometimes_ranks_have_states_for_different_prefixes(s: State, t: State) -> bool:
    """§12.5 Each rank has a state for some prefix, and there is no prefix for which all have it."""
    return any(emitted(t, ON_QUERY_AGREED, op=op, hit=0) for op in OPS) and any(
        KIND[pool] == STATE
        and all(any(t.offers[r][pool][d] for d in DEPTHS) for r in RANKS)
        and not any(is_offered_everywhere(t, pool, d) for d in DEPTHS)
        for pool in POOLS
    )


@sometimes
def sometimes_a_pool_shortens_the_grant(s: State, t: State) -> bool:
    """§12.5 There is memory for more pages, and not for what belongs to them."""
    return takes_one(s, t) and any(
        newly(s, t, op, ALLOCATED) and t.granted[op] < min(s.hit[0][op], room(s)) for op in OPS
    )


@sometimes
def sometimes_a_pool_refuses(s: State, t: State) -> bool:
    """§12.5 There is memory for the pages, and an operation is refused for want of a slot."""
    return takes_one(s, t) and any(
        emitted(t, ON_REVOKED, op=op, reason=NO_MEMORY) and room(s) >= THRESHOLD for op in OPS
    )


@sometimes
def sometimes_pages_are_evicted_for_their_sidecars(s: State, t: State) -> bool:
    """§12.5 Pages leave the tree although enough are free: a sidecar needs their slots."""
    return (
        takes_one(s, t) and evicts(t) and any(newly(s, t, op, ALLOCATED) and t.granted[op] <= s.free[0] for op in OPS)
    )


@sometimes
def sometimes_a_state_is_evicted_and_its_page_stays(s: State, t: State) -> bool:
    """§12.5 A state makes room for another; its prefix stays, and is of no use to a later request."""
    return any(any(any(leaves_its_page(s, t, pool, c, d) for d in DEPTHS) for c in CHAINS) for pool in POOLS)


@sometimes
def sometimes_a_state_goes_with_its_page(s: State, t: State) -> bool:
    """§12.5 A page is evicted, and the state of the prefix that ended there with it."""
    return any(
        any(
            any(emitted(t, ON_STATE_EVICTED, pool=pool, chain=c, depth=d) and d > t.resident[c] for d in DEPTHS)
            for c in CHAINS
        )
        for pool in POOLS
    )


@sometimes
def sometimes_a_prefix_waits_for_its_state(s: State, t: State) -> bool:
    """§12.5 A request hangs above the end of the resident prefix: what lies below has no state."""
    return any(emitted(t, ON_SUBMITTED, op=op) and t.base[op] < t.resident[t.chain[op]] for op in OPS)


@sometimes
def sometimes_a_page_is_given_up_between_its_sidecars(s: State, t: State) -> bool:
    """§12.5 A page is in place when its operation is terminated, and a sidecar of it is not: it belongs to the tail."""
    return any(
        len(s.buffer[r]) > 0
        and emitted(t, ON_IO_RELEASED, rank=r)
        and lacks_sidecars(s, r)
        and s.counted[r][s.buffer[r][0]] < s.filled[r]
        for r in RANKS
    )


@sometimes
def sometimes_a_sidecar_fails(s: State, t: State) -> bool:
    """§12.5 A sidecar cannot be read, although its page could."""
    return any(KIND[pool] == SIDECAR and any(fails(t, r, pool) for r in RANKS) for pool in POOLS)


@sometimes
def sometimes_a_state_fails(s: State, t: State) -> bool:
    """§12.5 A required state cannot be read, after all pages have landed."""
    return any(KIND[pool] == STATE and any(fails(t, r, pool) for r in RANKS) for pool in POOLS)


@sometimes
def sometimes_an_optional_state_fails(s: State, t: State) -> bool:
    """§12.5 An optional state cannot be read, and its operation goes on."""
    return any(KIND[pool] == OPTIONAL_STATE and any(fails(t, r, pool) for r in RANKS) for pool in POOLS)


@sometimes
def sometimes_a_state_keeps_all_pages_back(s: State, t: State) -> bool:
    """§12.5 All pages have landed on every rank, and nothing is published: a state has not."""
    return any(
        emitted(t, ON_FETCHED, op=op, pages=0) and all(s.counted[r][op] == s.granted[op] for r in RANKS) for op in OPS
    )


@sometimes
def sometimes_a_state_is_published(s: State, t: State) -> bool:
    """§12.5 A state comes into the tree with its prefix."""
    return any(any(emitted(t, ON_STATE_PUBLISHED, op=op, pool=pool, known=0) for op in OPS) for pool in POOLS)


@sometimes
def sometimes_a_published_state_is_known(s: State, t: State) -> bool:
    """§12.5 The tree has the state already."""
    return any(any(emitted(t, ON_STATE_PUBLISHED, op=op, pool=pool, known=1) for op in OPS) for pool in POOLS)


@sometimes
def sometimes_known_pages_get_their_state(s: State, t: State) -> bool:
    """§12.5 All pages that an operation publishes are known, and their state is not."""
    return any(
        any(emitted(t, ON_STATE_PUBLISHED, op=op, pool=pool, known=0) for pool in POOLS)
        and any(emitted(t, ON_FETCHED, op=op, pages=n, known=n) for n in DEPTHS)
        for op in OPS
    )


@sometimes
def sometimes_a_prefix_is_published_without_an_optional_state(s: State, t: State) -> bool:
    """§12.5 All pages are published, and the optional state is not."""
    return any(
        emitted(t, ON_FETCHED, op=op, pages=s.granted[op])
        and any(KIND[pool] == OPTIONAL_STATE and not emitted(t, ON_STATE_PUBLISHED, op=op, pool=pool) for pool in POOLS)
        for op in OPS
        if s.granted[op] > 0
    )


@sometimes
def sometimes_a_state_lands_after_termination(s: State, t: State) -> bool:
    """§12.5 The bytes of a state arrive after its operation was terminated; it does not count."""
    return any(
        KIND[pool] != SIDECAR
        and any(
            any(emitted(t, ON_SLOT_LANDED, rank=r, op=op, pool=pool) and s.stopped[r][op] for op in OPS) for r in RANKS
        )
        for pool in POOLS
    )


@sometimes
def sometimes_a_state_is_given_back_unread(s: State, t: State) -> bool:
    """§12.5 The IO thread releases the slot of a state that it does not read."""
    return any(any(emitted(t, ON_SLOT_RELEASED, rank=r, pool=pool) for r in RANKS) for pool in POOLS)


@sometimes
def sometimes_slots_are_reclaimed(s: State, t: State) -> bool:
    """§12.5 Released slots return to their pool."""
    return any(emitted(t, ON_SLOTS_RECLAIMED, pool=pool) for pool in POOLS)


@sometimes
def sometimes_a_landed_state_is_released(s: State, t: State) -> bool:
    """§12.5 A scheduler releases a state that landed and is not published."""
    return any(
        KIND[pool] != SIDECAR
        and any(
            (newly(s, t, op, FETCHED) or newly(s, t, op, REVOKED))
            and any(s.landed[r][pool][op] for r in RANKS)
            and not emitted(t, ON_STATE_PUBLISHED, op=op, pool=pool)
            for op in OPS
        )
        for pool in POOLS
    )


def least_answer(s: State) -> int:
    """The pages that every rank has."""
    return min(s.answer[r] for r in RANKS)


def leaves_its_page(s: State, t: State, pool: int, chain: int, depth: int) -> bool:
    """The step evicts a state, and not its page."""
    return emitted(t, ON_STATE_EVICTED, pool=pool, chain=chain, depth=depth) and depth <= t.resident[chain]


def fails(s: State, rank: int, pool: int) -> bool:
    """A slot of the pool could not be read."""
    return emitted(s, ON_SLOT_FAILED, rank=rank, pool=pool)
