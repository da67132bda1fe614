"""§10.7 What must hold where pages are copied between device and host."""

from __future__ import annotations

from ..bounds import WRITE_BACK
from ..events import ON_DECLINED, ON_WRITTEN
from ..language import State, emitted, invariant, leads_to, step_property
from ..properties import newly, takes_answers
from ..state import (
    ALLOCATED,
    CHAINS,
    DEPTHS,
    HOST_PAGES,
    OPS,
    RANKS,
    REQUESTS,
    at_rest,
    held,
    is_pending,
)
from ..tree import protected_depth
from .copying_rules import is_attached, is_due
from .copying_state import (
    ARRIVING,
    CHAIN_OF,
    DEVICE_PAGES,
    LOAD_QUOTA,
    NO_ANCHOR,
    NOWHERE,
    POSITIONS,
    RANGES,
    READABLE,
    RUNS_BEFORE_WRITE,
    WRITE_POLICY_NOW,
    host_floor,
    host_pages,
    is_node_start,
    is_readable,
    is_within,
    node_end,
    node_start,
    room_on_host,
)

# ---- properties of §4 and §5 that speak of the tree's pages, restated


def inv_pages_conserved_with_copies(s: State) -> bool:
    """§4.2 P4. On every rank, free, held, releasing, copied to and published pages together are the whole host pool."""
    return all(
        s.free[r] + s.releasing[r] + sum(held(s, r, op) for op in OPS) + host_pages(s) == HOST_PAGES for r in RANKS
    )


def inv_anchors_alive_on_host(s: State) -> bool:
    """§4.6 P14. The prefix down to a pending operation's anchor is known, and the anchor is readable on the host."""
    return all(
        not is_pending(s, op) or (s.base[op] <= s.resident[s.chain[op]] and is_readable(s, s.chain[op], s.base[op]))
        for op in OPS
    )


def inv_rest_restores_both_pools(s: State) -> bool:
    """§4.15 P4, P14, P15. At rest every page of either pool is free or in the tree, nothing is protected, locked or
    kept, and nothing is accounted."""
    return not (at_rest(s) and len(s.copies) + len(s.loads) == 0) or (
        s.occupied == 0
        and all(protected_depth(s, c) == 0 and s.protected[c][0] == 0 for c in CHAINS)
        and all(all(s.locked[c][p] + s.kept[c][p] == 0 and s.host[c][p] != ARRIVING for p in POSITIONS) for c in CHAINS)
        and all(s.free[r] + host_pages(s) == HOST_PAGES for r in RANKS)
        and s.device_free + sum(s.on_device[c] for c in CHAINS) == DEVICE_PAGES
    )


def step_eviction_is_needed_for_copies(s: State, t: State) -> bool:
    """§5.4 P9. A drain evicts exactly the host pages that its grants lack, a copy those that it lacks; no other step
    evicts."""
    if takes_answers(s, t):
        taken = sum(t.granted[op] if newly(s, t, op, ALLOCATED) else 0 for op in OPS)
    else:
        taken = sum(sum(begins_to_arrive(s, t, c, p) for p in POSITIONS) for c in CHAINS)
    return sum(sum(leaves_the_host(s, t, c, p) for p in POSITIONS) for c in CHAINS) == max(0, taken - s.free[0])


def leaves_the_host(s: State, t: State, chain: int, p: int) -> bool:
    """The step takes this page's host page away."""
    return s.host[chain][p] != NOWHERE and t.host[chain][p] == NOWHERE


def begins_to_arrive(s: State, t: State, chain: int, p: int) -> bool:
    """The step begins to copy this page to the host."""
    return s.host[chain][p] != ARRIVING and t.host[chain][p] == ARRIVING


# ---- §10.7 invariants


@invariant
def inv_device_pages_conserved(s: State) -> bool:
    """§10.7 P4. Free device pages and those of the tree together are the whole device pool."""
    return s.device_free + sum(s.on_device[c] for c in CHAINS) == DEVICE_PAGES


@invariant
def inv_both_ends_stay(s: State) -> bool:
    """§10.7 P18. As long as a copy or a load is under way, its pages are on the device and have their host pages."""
    return all(
        all(
            not (is_within(x, s.copy_pages[x], p) or is_within(x, s.load_pages[x], p))
            or (p < s.on_device[CHAIN_OF[x]] and s.host[CHAIN_OF[x]][p] != NOWHERE)
            for p in POSITIONS
        )
        for x in RANGES
    )


@invariant
def inv_every_known_page_is_somewhere(s: State) -> bool:
    """§10.7 P6, P22. What the tree knows and the device lacks is readable on the host; what it does not know is
    nowhere."""
    return all(
        s.on_device[c] <= s.resident[c]
        and all(
            s.host[c][p] == NOWHERE if p >= s.resident[c] else p < s.on_device[c] or s.host[c][p] == READABLE
            for p in POSITIONS
        )
        for c in CHAINS
    )


@invariant
def inv_written_without_a_gap(s: State) -> bool:
    """§10.7 P23. Where pages are written through, what is on the host is a beginning of the chain."""
    return WRITE_POLICY_NOW == WRITE_BACK or all(
        all(s.host[c][p] == NOWHERE or is_attached(s, c, p) for p in POSITIONS) for c in CHAINS
    )


@invariant
def inv_nodes_are_whole(s: State) -> bool:
    """§10.7 P22. All pages of a node are on the host, or none is."""
    return all(
        all(
            p >= s.resident[c] or is_node_start(s, c, p) or (s.host[c][p] == NOWHERE) == (s.host[c][p - 1] == NOWHERE)
            for p in POSITIONS
        )
        for c in CHAINS
    )


@invariant
def inv_arriving_exactly(s: State) -> bool:
    """§10.7 P2, P6. A host page is not yet readable if, and only if, a copy under way has captured it."""
    return all(all((s.host[c][p] == ARRIVING) == is_copied(s, c, p) for p in POSITIONS) for c in CHAINS)


@invariant
def inv_locked_exactly(s: State) -> bool:
    """§10.7 P14. A device page is locked once for each copy and each load under way that has captured it."""
    return all(all(s.locked[c][p] == is_copied(s, c, p) + loads_of(s, c, p) for p in POSITIONS) for c in CHAINS)


@invariant
def inv_kept_exactly(s: State) -> bool:
    """§10.7 P14. A host page is kept once for each of those who read it."""
    return all(all(s.kept[c][p] == readers_of(s, c, p) for p in POSITIONS) for c in CHAINS)


@invariant
def inv_host_leaves_exact(s: State) -> bool:
    """§10.7 P24. The set of leaves has exactly the chains whose last page is on the host only, and which nobody
    protects or reads there."""
    return all(s.host_leaf[c] == (s.resident[c] > host_floor(s, c)) for c in CHAINS)


def is_copied(s: State, chain: int, p: int) -> bool:
    """Has a copy under way captured this page?"""
    return any(CHAIN_OF[x] == chain and is_within(x, s.copy_pages[x], p) for x in RANGES)


def loads_of(s: State, chain: int, p: int) -> int:
    """How many loads under way have captured this page."""
    return sum(CHAIN_OF[x] == chain and is_within(x, s.load_pages[x], p) for x in RANGES)


def readers_of(s: State, chain: int, p: int) -> int:
    """How many read this host page: the loads under way."""
    return loads_of(s, chain, p)


# ---- §10.7 step properties


@step_property
def step_written_landed_everywhere(s: State, t: State) -> bool:
    """§10.7 P6, P7. A host page becomes readable by a copy only when that has landed on every rank, the oldest
    first."""
    return all(all(not is_written(s, t, c, p) or is_oldest(s, c, p) for p in POSITIONS) for c in CHAINS)


def is_written(s: State, t: State, chain: int, p: int) -> bool:
    """The step ends the copy of this page."""
    return s.host[chain][p] == ARRIVING and t.host[chain][p] == READABLE


def is_oldest(s: State, chain: int, p: int) -> bool:
    """The oldest copy, landed on every rank, has captured this page."""
    return all(s.copied[r] > 0 for r in RANKS) and any(
        s.copies[0] == x and CHAIN_OF[x] == chain and is_within(x, s.copy_pages[x], p) for x in RANGES
    )


@step_property
def step_loaded_landed_everywhere(s: State, t: State) -> bool:
    """§10.7 P6, P7. The device pages of a load are unlocked only when it has landed on every rank."""
    return len(t.loads) >= len(s.loads) or all(s.loaded[r] > 0 for r in RANKS)


@step_property
def step_one_event_for_each_copy(s: State, t: State) -> bool:
    """§10.7 P29. The end of a copy is told once, with the pages that it captured, and nothing else is told so."""
    return all(
        all(
            emitted(t, ON_WRITTEN, chain=c, pages=n) == (n > 0 and n == sum(is_written(s, t, c, p) for p in POSITIONS))
            for n in DEPTHS
        )
        for c in CHAINS
    )


@step_property
def step_copied_for_cause(s: State, t: State) -> bool:
    """§10.7 P9. A copy begins only where the policy asks for it: after as many runs as it takes, or at an eviction."""
    return all(
        all(
            not begins_to_arrive(s, t, c, p)
            or (
                t.on_device[c] == s.on_device[c] and p >= node_start(s, c, s.on_device[c] - 1)
                if WRITE_POLICY_NOW == WRITE_BACK
                else t.runs[c][p] >= RUNS_BEFORE_WRITE
            )
            for p in POSITIONS
        )
        for c in CHAINS
    )


@step_property
def step_copy_is_refused_for_want_of_room(s: State, t: State) -> bool:
    """§10.7 P9, P25. What a run leaves unwritten though the policy asks for it would not have fitted."""
    return all(all(not is_left_unwritten(s, t, c, p, room_on_host(t)) for p in POSITIONS) for c in CHAINS)


def is_left_unwritten(s: State, t: State, chain: int, p: int, room: int) -> bool:
    """The step is a run that leaves the node of this page unwritten, though the policy asks for it and it would fit."""
    return (
        WRITE_POLICY_NOW != WRITE_BACK
        and has_run(s, t, chain)
        and is_due(t, chain, p)
        and p < t.on_device[chain]
        and node_end(t, chain, p) - p <= room
    )


def has_run(s: State, t: State, chain: int) -> bool:
    """The step is a request that runs on new device pages of this chain: it lacked some, and loads none."""
    return t.on_device[chain] > s.on_device[chain] and len(t.loads) == len(s.loads)


@step_property
def step_dropped_for_want_of_room(s: State, t: State) -> bool:
    """§10.7 P9. Under write_back a page leaves the device without a copy only if no copy of its node would have
    fitted; it is never let go of while something hangs under it."""
    return all(not is_dropped_early(s, t, c, room_on_host(s)) for c in CHAINS)


def is_dropped_early(s: State, t: State, chain: int, room: int) -> bool:
    """The step drops a device page that has no copy, though something hangs under it or its node would fit."""
    return (
        t.on_device[chain] < s.on_device[chain]
        and not is_readable(s, chain, s.on_device[chain])
        and (
            s.resident[chain] != s.on_device[chain]
            or (
                WRITE_POLICY_NOW == WRITE_BACK
                and s.on_device[chain] - node_start(s, chain, s.on_device[chain] - 1) <= room
            )
        )
    )


@step_property
def step_load_is_within_the_quota(s: State, t: State) -> bool:
    """§10.7 P9. No load is larger than the quota of its request, and it loads all that it was to load."""
    return len(t.loads) <= len(s.loads) or all(
        t.on_device[c] - s.on_device[c] <= LOAD_QUOTA and t.on_device[c] <= s.resident[c] for c in CHAINS
    )


@step_property
def step_declined_for_an_anchor(s: State, t: State) -> bool:
    """§10.7 P10, P14. A submission is declined for its anchor only if that is not readable on the host."""
    return all(
        not emitted(t, ON_DECLINED, request=q, reason=NO_ANCHOR)
        or any(not is_readable(s, c, s.resident[c]) for c in CHAINS)
        for q in REQUESTS
    )


# ---- §10.7 liveness


def copy_is_taken(s: State, x: int) -> bool:
    """No copy of this range is under way."""
    return s.copy_pages[x] == 0


@leads_to(copy_is_taken, x=RANGES)
def live_copies_are_taken(s: State, x: int) -> bool:
    """§10.7 P2, P3. Every copy ends, and its pages are unlocked."""
    return s.copy_pages[x] > 0


def load_is_taken(s: State, x: int) -> bool:
    """No load of this range is under way."""
    return s.load_pages[x] == 0


@leads_to(load_is_taken, x=RANGES)
def live_loads_are_taken(s: State, x: int) -> bool:
    """§10.7 P2, P3. Every load ends, and its pages are let go."""
    return s.load_pages[x] > 0
