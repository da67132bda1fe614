"""§10 Copying between device and host: what is run on, written, evicted from the device, loaded back."""

from __future__ import annotations

from ..bounds import WRITE_BACK
from ..events import ON_DECLINED, ON_WRITTEN
from ..language import NONE, State, action, emit, require
from ..pipeline import submit
from ..state import CHAINS, DEPTHS, LENGTH, RANKS
from ..tree import evict, room
from .copying_state import (
    ARRIVING,
    CHAIN_OF,
    LOAD_QUOTA,
    NO_ANCHOR,
    NOWHERE,
    ON_LOADED,
    POSITIONS,
    READABLE,
    RUNS_BEFORE_WRITE,
    WRITE_POLICY_NOW,
    forget_from,
    is_node_start,
    is_readable,
    is_within,
    node_end,
    node_start,
    refresh_leaf,
    split,
)

# ---- §10.2 a request runs, and its pages are written


def sched_write_through_on_device(s: State, chain: int) -> None:
    """§10.2 Never: with a device tier a page is computed there, and copied."""
    require(False, "a request computes its pages on the device")


@action(chain=CHAINS, depth=DEPTHS)
def sched_run(s: State, chain: int, depth: int) -> None:
    """§10.2 A request runs on the first pages of a chain: what the device lacks is computed there."""
    require(is_serving(s), "requests run")
    require(depth > 0, "a request has a page")
    require(depth - s.on_device[chain] <= s.device_free, "the device has a page for each that it lacks")
    run(s, chain, depth)


def is_serving(s: State) -> bool:
    """The schedulers let requests run, and make room for them: always, unless something else says when not."""
    return True


def run(s: State, chain: int, depth: int) -> None:
    """What the device lacks of these pages is there now, what the tree lacks is a new node, and the policy looks at
    each node on the way."""
    split(s, chain, depth)
    take_device_pages(s, chain, depth)
    if s.resident[chain] < depth:
        known = s.resident[chain]
        s.resident[chain] = depth
        split(s, chain, known)
    refresh_leaf(s, chain)
    for p in POSITIONS:
        if p < depth:
            s.runs[chain][p] = min(RUNS_BEFORE_WRITE, s.runs[chain][p] + 1)
    if WRITE_POLICY_NOW != WRITE_BACK:
        for p in POSITIONS:
            if p < depth and is_due(s, chain, p) and fits_on_host(s, node_end(s, chain, p) - p):
                begin_copy(s, chain, p, node_end(s, chain, p) - p)


def fits_on_host(s: State, pages: int) -> bool:
    """Can the host memory be had that so many pages take, with eviction?"""
    return pages <= room(s)


def take_device_pages(s: State, chain: int, depth: int) -> None:
    """The chain's first `depth` pages have device pages."""
    s.device_free -= max(0, depth - s.on_device[chain])
    s.on_device[chain] = max(s.on_device[chain], depth)


def is_due(s: State, chain: int, p: int) -> bool:
    """A node begins here that is to be written: it has no copy, was run on often enough, and what it follows has one.

    Why the last: what is on the host must be reached from the root when the device has nothing left of it.
    """
    return (
        is_node_start(s, chain, p)
        and s.host[chain][p] == NOWHERE
        and s.runs[chain][p] >= RUNS_BEFORE_WRITE
        and is_attached(s, chain, p)
    )


def is_attached(s: State, chain: int, p: int) -> bool:
    """Has the page before this one a host page, be it still being copied to?"""
    return p == 0 or s.host[chain][p - 1] != NOWHERE


def begin_copy(s: State, chain: int, first: int, pages: int) -> None:
    """Host pages are taken for these pages, with eviction if need be, and the copy is on its way on every rank.

    Why the device pages are locked: they are read until the copy has landed on every rank.
    """
    if s.free[0] < pages:
        evict(s, pages - s.free[0])
    for r in RANKS:
        s.free[r] -= pages
    for p in POSITIONS:
        if first <= p < first + pages:
            s.host[chain][p] = ARRIVING
            s.locked[chain][p] += 1
    s.copy_pages[chain * LENGTH + first] = pages
    s.copies.append(chain * LENGTH + first)


@action(fairness="weak", rank=RANKS)
def copy_land_on_host(s: State, rank: int) -> None:
    """§10.2 On one rank, the bytes of the next copy to the host are in place."""
    require(s.copied[rank] < len(s.copies), "a copy is under way on this rank")
    s.copied[rank] += 1


@action(fairness="weak")
def sched_take_copy(s: State) -> None:
    """§10.2 The oldest copy has landed on every rank (MIN): its host pages are readable, its device pages unlocked."""
    require(has_landed_on_host(s), "a copy has landed on every rank")
    x = s.copies.pop(0)
    for r in RANKS:
        take_landed(s, r)
    finish_copy(s, x)


def has_landed_on_host(s: State) -> bool:
    """The oldest copy is in place on every rank."""
    return all(s.copied[r] > 0 for r in RANKS)


def take_landed(s: State, rank: int) -> None:
    """A rank counts one landed copy less."""
    s.copied[rank] -= 1


def finish_copy(s: State, x: int) -> None:
    """The end of a copy, for the pages that it captured, whatever nodes they are in by now."""
    for p in POSITIONS:
        if is_within(x, s.copy_pages[x], p):
            s.host[CHAIN_OF[x]][p] = READABLE
            s.locked[CHAIN_OF[x]][p] -= 1
    emit(s, ON_WRITTEN, CHAIN_OF[x], s.copy_pages[x])
    s.copy_pages[x] = 0


# ---- §10.3 a node is split


@action(chain=CHAINS, depth=DEPTHS)
def sched_split(s: State, chain: int, depth: int) -> None:
    """§10.3 A prompt is matched that leaves the chain here, so the node of this page is split."""
    require(0 < depth < s.resident[chain], "the tree knows more of the chain")
    split(s, chain, depth)


# ---- §10.4 the device is short


@action(chain=CHAINS)
def sched_evict_device(s: State, chain: int) -> None:
    """§10.4 The last device page of a chain leaves the device: it stays on the host, or leaves the tree."""
    require(is_serving(s), "requests run")
    require(s.on_device[chain] > 0, "the chain has a device page")
    require(not is_last_locked(s, chain), "nobody copies it")
    require(
        is_readable(s, chain, s.on_device[chain]) or is_given_up(s, chain), "it is on the host, or it cannot be written"
    )
    evict_device(s, chain)


def evict_device(s: State, chain: int) -> None:
    """The page leaves the device, and the tree if it is not on the host."""
    s.on_device[chain] -= 1
    s.device_free += 1
    if not is_readable(s, chain, s.on_device[chain] + 1):
        forget_from(s, chain, s.on_device[chain])
    refresh_leaf(s, chain)


@action(chain=CHAINS)
def sched_write_back(s: State, chain: int) -> None:
    """§10.4 The last device node of a chain is to leave the device, and is written first; it leaves when that is done.

    Why not at once: the copy reads the device pages. The releases wait for it; here the scheduler goes on.
    """
    require(is_serving(s), "requests run")
    require(WRITE_POLICY_NOW == WRITE_BACK, "what is evicted is written back")
    require(s.on_device[chain] > 0, "the chain has a device page")
    require(not is_last_locked(s, chain), "nobody copies it")
    require(not is_readable(s, chain, s.on_device[chain]), "it is not on the host")
    require(fits_on_host(s, last_node_pages(s, chain)), "host pages for it can be had")
    begin_copy(s, chain, s.on_device[chain] - last_node_pages(s, chain), last_node_pages(s, chain))


def is_last_locked(s: State, chain: int) -> bool:
    """Does a copy or a load need the last device page?"""
    return any(p == s.on_device[chain] - 1 and s.locked[chain][p] > 0 for p in POSITIONS)


def last_node_pages(s: State, chain: int) -> int:
    """The device pages of the last node that has some."""
    return s.on_device[chain] - node_start(s, chain, s.on_device[chain] - 1)


def is_given_up(s: State, chain: int) -> bool:
    """A page that is not on the host may leave the tree: nothing follows it, and the policy does not write it now."""
    return s.resident[chain] == s.on_device[chain] and (
        WRITE_POLICY_NOW != WRITE_BACK or not fits_on_host(s, last_node_pages(s, chain))
    )


# ---- §10.5 a request needs on the device what only the host has


@action(chain=CHAINS, depth=DEPTHS)
def sched_load_back(s: State, chain: int, depth: int) -> None:
    """§10.5 The host pages down to this depth are loaded back for a request: all of them, or none."""
    require(is_serving(s), "requests run")
    require(s.on_device[chain] < depth <= s.resident[chain], "the host alone has some of these pages")
    require(is_within_quota(s, depth - s.on_device[chain]), "the quota of the request covers them")
    require(is_usable(s, chain, depth), "a request can run on them")
    require(depth - s.on_device[chain] <= s.device_free, "the device has a page for each of them")
    begin_load(s, chain, depth)


def is_within_quota(s: State, pages: int) -> bool:
    """May a request have so many pages loaded back?"""
    return pages <= LOAD_QUOTA


def is_usable(s: State, chain: int, depth: int) -> bool:
    """Can a request go on from the end of this prefix? Always, unless something else says when not."""
    return True


def begin_load(s: State, chain: int, depth: int) -> None:
    """Device pages are taken, and the load is on its way on every rank.

    Why the host pages are kept, and the device pages locked: the ones are read, the others written, until the load has
    landed on every rank.
    """
    first = s.on_device[chain]
    pages = depth - first
    split(s, chain, depth)
    take_device_pages(s, chain, depth)
    for p in POSITIONS:
        if first <= p < first + pages:
            s.locked[chain][p] += 1
            keep(s, chain, p)
    s.load_pages[chain * LENGTH + first] = pages
    s.loads.append(chain * LENGTH + first)
    refresh_leaf(s, chain)


def keep(s: State, chain: int, p: int) -> None:
    """Somebody reads this host page."""
    s.kept[chain][p] += 1


@action(fairness="weak", rank=RANKS)
def copy_land_on_device(s: State, rank: int) -> None:
    """§10.5 On one rank, the bytes of the next load are in place."""
    require(s.loaded[rank] < len(s.loads), "a load is under way on this rank")
    s.loaded[rank] += 1


@action(fairness="weak")
def sched_take_load(s: State) -> None:
    """§10.5 The oldest load has landed on every rank (MIN): its device pages are unlocked, its host pages let go."""
    require(all(s.loaded[r] > 0 for r in RANKS), "a load has landed on every rank")
    x = s.loads.pop(0)
    for r in RANKS:
        s.loaded[r] -= 1
    finish_load(s, x)


def finish_load(s: State, x: int) -> None:
    """The end of a load, for the pages that it captured."""
    for p in POSITIONS:
        if is_within(x, s.load_pages[x], p):
            s.locked[CHAIN_OF[x]][p] -= 1
            s.kept[CHAIN_OF[x]][p] -= 1
    emit(s, ON_LOADED, CHAIN_OF[x], s.load_pages[x])
    s.load_pages[x] = 0
    refresh_leaf(s, CHAIN_OF[x])


# ---- §10.6 beside the prefetch pipeline


def submit_below_the_host(s: State, request: int, chain: int) -> None:
    """§10.6 Declined (`anchor`) if the last known page is not readable on the host: nothing may hang under it there."""
    if s.record[request] == NONE and not is_readable(s, chain, s.resident[chain]):
        emit(s, ON_DECLINED, request, NO_ANCHOR, LENGTH - s.resident[chain])
    else:
        submit(s, request, chain)


def known_on_host(s: State, op: int, pages: int) -> int:
    """§10.6 How many of the first `pages` pages below the operation's anchor have a host page already."""
    return sum(
        1 if s.base[op] <= p < s.base[op] + pages and s.host[s.chain[op]][p] != NOWHERE else 0 for p in POSITIONS
    )


def attach_below_the_anchor(s: State, op: int, pages: int) -> None:
    """§10.6 The tree takes over `pages` host pages, for the first pages below the anchor that have none.

    A page that the device has computed meanwhile adopts the fetched one, so that the copies on the host have no gap.
    """
    chain = s.chain[op]
    known = s.resident[chain]
    left = pages
    for p in POSITIONS:
        if left > 0 and p >= s.base[op] and s.host[chain][p] == NOWHERE:
            s.host[chain][p] = READABLE
            s.resident[chain] = max(s.resident[chain], p + 1)
            left -= 1
    split(s, chain, known)
    for p in POSITIONS:
        if 0 < p < known and (s.host[chain][p] == NOWHERE) != (s.host[chain][p - 1] == NOWHERE):
            s.cut[chain][p] = True
    refresh_leaf(s, chain)
