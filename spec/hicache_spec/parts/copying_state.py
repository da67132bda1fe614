"""§10.1 The device tier: what is added to the state, and the words in which the rules of §10 speak of it.

A chain's pages are known down to `resident`. The first ones are on the device, and each may have a copy on the host; so
a page that the device lacks is on the host. A *range* is what a copy under way has captured: some pages of one chain,
known by the first of them. A node is what lies between two cuts; that a range is a node when its copy begins, and need
not be one when it ends, is what §10 is about.
"""

from __future__ import annotations

from ..bounds import WRITE_THROUGH_SELECTIVE
from ..events import ON_EVICTED
from ..language import (
    EventKind,
    State,
    constant,
    emit,
    enumeration,
    field,
    fifo,
    flag,
    index,
    initial,
    member,
    table,
    upto,
)
from ..state import CHAINS, LENGTH, RANKS, REASON, RESIDENT_AT_START, Pipeline, at_rest
from ..tree import protect, protected_depth, unprotect

HOST = enumeration("host", "nowhere arriving readable")
NOWHERE, ARRIVING, READABLE = HOST

NO_ANCHOR = len(REASON.members) + 1
"""A further reason to decline a submission (§10.6): `anchor` in §3.15. The number before it is that of `detached`."""

POSITIONS = index("position", "chain_pages")
RANGES = index("range", lambda b: len(b.resident_pages) * b.chain_pages)
CHAIN_OF = table("chain_of", lambda b: tuple(n // b.chain_pages for n in range(len(b.resident_pages) * b.chain_pages)))
FIRST_OF = table("first_of", lambda b: tuple(n % b.chain_pages for n in range(len(b.resident_pages) * b.chain_pages)))
DEVICE_PAGES = constant("device_pages")
WRITE_POLICY_NOW = constant("write_policy")
LOAD_QUOTA = constant("load_quota")
RUNS_BEFORE_WRITE = constant(lambda b: 2 if b.write_policy == WRITE_THROUGH_SELECTIVE else 0, "runs_before_write")
"""How often a page must have been run on before it is written. The releases take 2 for the selective policy."""
RANGES_MAX = constant(lambda b: len(b.resident_pages) * b.chain_pages, "ranges_max")
READERS_MAX = 2

ON_LOADED = EventKind("loaded", ("chain", "pages"))


class WithDevice(Pipeline):
    """§10.1 The state of the pipeline, with the device tier. `resident` counts the pages that either tier has."""

    # the schedulers, in lockstep: once
    on_device = field(upto(LENGTH), CHAINS)  # so many first pages of the chain are on the device
    device_free = field(upto(DEVICE_PAGES))  # free device pages
    host = field(member(HOST), CHAINS, POSITIONS)  # the page's copy on the host
    cut = field(flag(), CHAINS, POSITIONS)  # a node begins at this page
    runs = field(upto(RUNS_BEFORE_WRITE), CHAINS, POSITIONS)  # how often the page was run on, as far as it matters
    locked = field(upto(READERS_MAX), CHAINS, POSITIONS)  # copies and loads that need the device page
    kept = field(upto(READERS_MAX), CHAINS, POSITIONS)  # who reads the host page
    host_leaf = field(flag(), CHAINS)  # the chain stands in the set of those whose last page may leave the host
    copies = field(fifo(RANGES))  # device -> host, in the order of their beginning
    copy_pages = field(upto(LENGTH), RANGES)  # how many pages a copy under way has captured
    loads = field(fifo(RANGES))  # host -> device
    load_pages = field(upto(LENGTH), RANGES)
    # each rank's copy streams
    copied = field(upto(RANGES_MAX), RANKS)  # so many of `copies` have landed on this rank
    loaded = field(upto(RANGES_MAX), RANKS)  # so many of `loads`


@initial
def start_with_device(s: State) -> None:
    """§10.1 The device is empty; what is resident is readable on the host, a node for each chain."""
    s.device_free = DEVICE_PAGES
    for chain in CHAINS:
        for p in POSITIONS:
            if p < RESIDENT_AT_START[chain]:
                s.host[chain][p] = READABLE
        s.host_leaf[chain] = RESIDENT_AT_START[chain] > 0


# ---- nodes


def is_node_start(s: State, chain: int, p: int) -> bool:
    """Does a node begin at this page?"""
    return p == 0 or s.cut[chain][p]


def node_end(s: State, chain: int, first: int) -> int:
    """Where the node of this page ends: at the next cut, or where the chain does."""
    return min(p if s.cut[chain][p] and p > first else s.resident[chain] for p in POSITIONS)


def node_start(s: State, chain: int, last: int) -> int:
    """Where the node of this page begins."""
    return max(p if is_node_start(s, chain, p) and p <= last else 0 for p in POSITIONS)


def split(s: State, chain: int, depth: int) -> None:
    """A node ends at this depth, and what is left of it is a node of its own. Its values are divided, and that is all.

    Why a range that is being copied does not care: it is known by what it captured, not by a node.
    """
    for p in POSITIONS:
        if p == depth and 0 < p < s.resident[chain]:
            s.cut[chain][p] = True


def forget_from(s: State, chain: int, depth: int) -> None:
    """The chain's pages from this depth on are no longer in the tree."""
    s.resident[chain] = depth
    for p in POSITIONS:
        if p >= depth:
            s.host[chain][p] = NOWHERE
            s.cut[chain][p] = False
            s.runs[chain][p] = 0


# ---- what may leave the host


def kept_depth(s: State, chain: int) -> int:
    """Down to here somebody reads the chain's host pages."""
    return max(p + 1 if s.kept[chain][p] > 0 else 0 for p in POSITIONS)


def host_floor(s: State, chain: int) -> int:
    """Down to here the chain's pages stay: they are on the device, above an anchor, or somebody reads them."""
    return max(s.on_device[chain], protected_depth(s, chain), kept_depth(s, chain))


def refresh_leaf(s: State, chain: int) -> None:
    """The chain stands in the set of leaves if its last page may leave the host, else not."""
    s.host_leaf[chain] = s.resident[chain] > host_floor(s, chain)


def evictable_host_pages(s: State) -> int:
    """§3.13 Host pages that may leave the tree: of the chains in the set of leaves, what is on no device and unread."""
    return sum(s.resident[c] - host_floor(s, c) if s.host_leaf[c] else 0 for c in CHAINS)


def room_on_host(s: State) -> int:
    """Host pages that can be had now, as the rules of §10 count them; `room` is the same, as a design counts it."""
    return s.free[0] + evictable_host_pages(s)


def evict_from_host(s: State, missing: int) -> None:
    """§3.13 Pages that only the host has leave the tree until `missing` are free, from the ends of the chains."""
    left = missing
    for chain in CHAINS:
        out = min(left, s.resident[chain] - host_floor(s, chain)) if s.host_leaf[chain] else 0
        if out > 0:
            left -= out
            forget_from(s, chain, s.resident[chain] - out)
            refresh_leaf(s, chain)
            emit(s, ON_EVICTED, chain, out)
            for r in RANKS:
                s.free[r] += out


def protect_and_refresh(s: State, op: int) -> None:
    """The anchor stays, and with it the chain may leave the set of leaves."""
    protect(s, op)
    refresh_leaf(s, s.chain[op])


def unprotect_and_refresh(s: State, op: int) -> None:
    """The anchor need not stay, and with it the chain may come into the set of leaves."""
    unprotect(s, op)
    refresh_leaf(s, s.chain[op])


def host_pages(s: State) -> int:
    """Host pages that belong to the tree, with those that are still being copied to."""
    return sum(sum(s.host[c][p] != NOWHERE for p in POSITIONS) for c in CHAINS)


def is_readable(s: State, chain: int, depth: int) -> bool:
    """May something hang under the chain's first `depth` pages: is the last of them readable on the host?"""
    return depth == 0 or any(p == depth - 1 and s.host[chain][p] == READABLE for p in POSITIONS)


# ---- ranges


def is_within(x: int, pages: int, p: int) -> bool:
    """Is this page of its chain one of the range?"""
    return FIRST_OF[x] <= p < FIRST_OF[x] + pages


def at_rest_with_copies(s: State) -> bool:
    """§3.0 No operation is pending, every queue is empty, and nothing is being copied."""
    return at_rest(s) and len(s.copies) + len(s.loads) == 0
