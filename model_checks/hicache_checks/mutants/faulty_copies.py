"""Faulty rules of §10: what goes wrong where pages are copied between device and host."""

from __future__ import annotations

from hicache_spec.bounds import WRITE_BACK
from hicache_spec.events import ON_DECLINED, ON_EVICTED, ON_WRITTEN
from hicache_spec.language import NONE, State, action, emit, require
from hicache_spec.parts.copying_rules import (
    attach_below_the_anchor,
    begin_copy,
    begin_load,
    finish_copy,
    finish_load,
    is_due,
    is_last_locked,
    last_node_pages,
    run,
    take_device_pages,
)
from hicache_spec.parts.copying_state import (
    ARRIVING,
    CHAIN_OF,
    FIRST_OF,
    LOAD_QUOTA,
    NO_ANCHOR,
    NOWHERE,
    POSITIONS,
    READABLE,
    RUNS_BEFORE_WRITE,
    WRITE_POLICY_NOW,
    forget_from,
    is_node_start,
    is_readable,
    is_within,
    kept_depth,
    node_end,
    node_start,
    refresh_leaf,
    split,
)
from hicache_spec.pipeline import submit
from hicache_spec.state import CHAINS, LENGTH, RANKS
from hicache_spec.tree import evict, protected_depth, room, unprotect

# ---- copies to the host


@action(fairness="weak")
def take_a_copy_that_landed_somewhere(s: State) -> None:
    """A copy ends when the first rank has it."""
    require(any(s.copied[r] > 0 for r in RANKS), "a copy has landed")
    x = s.copies.pop(0)
    for r in RANKS:
        s.copied[r] = max(0, s.copied[r] - 1)
    finish_copy(s, x)


@action(fairness="weak")
def take_a_copy_by_the_first_rank(s: State) -> None:
    """A copy ends when rank 0 has it; the count of another rank is taken down all the same."""
    require(s.copied[0] > 0, "a copy has landed on rank 0")
    x = s.copies.pop(0)
    for r in RANKS:
        s.copied[r] -= 1
    finish_copy(s, x)


@action()
def take_a_copy_now_and_then(s: State) -> None:
    """Nobody promises that the end of a copy is ever looked at: it is done on the way to something else."""
    require(all(s.copied[r] > 0 for r in RANKS), "a copy has landed on every rank")
    x = s.copies.pop(0)
    for r in RANKS:
        s.copied[r] -= 1
    finish_copy(s, x)


def finish_the_lower_half(s: State, x: int) -> None:
    """The ack names a node, which after a split is the lower half of what was copied."""
    last = FIRST_OF[x] + s.copy_pages[x] - 1
    for p in POSITIONS:
        if is_within(x, s.copy_pages[x], p) and p >= node_start(s, CHAIN_OF[x], last):
            s.host[CHAIN_OF[x]][p] = READABLE
            s.locked[CHAIN_OF[x]][p] -= 1
    emit(s, ON_WRITTEN, CHAIN_OF[x], s.copy_pages[x])
    s.copy_pages[x] = 0


def finish_and_unlock_the_lower_half(s: State, x: int) -> None:
    """All that was copied is readable, and the lock of the lower half alone is undone."""
    last = FIRST_OF[x] + s.copy_pages[x] - 1
    for p in POSITIONS:
        if is_within(x, s.copy_pages[x], p):
            s.host[CHAIN_OF[x]][p] = READABLE
            if p >= node_start(s, CHAIN_OF[x], last):
                s.locked[CHAIN_OF[x]][p] -= 1
    emit(s, ON_WRITTEN, CHAIN_OF[x], s.copy_pages[x])
    s.copy_pages[x] = 0


def finish_and_tell_of_the_lower_half(s: State, x: int) -> None:
    """The event names the pages of the node that the ack names."""
    last = FIRST_OF[x] + s.copy_pages[x] - 1
    emit(s, ON_WRITTEN, CHAIN_OF[x], FIRST_OF[x] + s.copy_pages[x] - node_start(s, CHAIN_OF[x], last))
    for p in POSITIONS:
        if is_within(x, s.copy_pages[x], p):
            s.host[CHAIN_OF[x]][p] = READABLE
            s.locked[CHAIN_OF[x]][p] -= 1
    s.copy_pages[x] = 0


def write_a_child_before_its_parent(s: State, chain: int, p: int) -> bool:
    """A node is due whatever the one before it has."""
    return is_node_start(s, chain, p) and s.host[chain][p] == NOWHERE and s.runs[chain][p] >= RUNS_BEFORE_WRITE


def write_at_the_first_run(s: State, chain: int, p: int) -> bool:
    """A node is due as soon as it is there, whatever the policy."""
    return is_node_start(s, chain, p) and s.host[chain][p] == NOWHERE and (p == 0 or s.host[chain][p - 1] != NOWHERE)


def write_single_pages_only(s: State, chain: int, p: int) -> bool:
    """A node of more than a page is never written."""
    return is_due(s, chain, p) and node_end(s, chain, p) == p + 1


def copy_without_a_lock(s: State, chain: int, first: int, pages: int) -> None:
    """The device pages are not locked while they are copied, and need no unlocking."""
    begin_copy(s, chain, first, pages)
    for p in POSITIONS:
        if first <= p < first + pages:
            s.locked[chain][p] -= 1


def copy_and_show_at_once(s: State, chain: int, first: int, pages: int) -> None:
    """The host pages are readable as soon as they are taken."""
    begin_copy(s, chain, first, pages)
    for p in POSITIONS:
        if first <= p < first + pages:
            s.host[chain][p] = READABLE


def copy_without_room(s: State, chain: int, first: int, pages: int) -> None:
    """Host pages are taken whether they are free or not."""
    for r in RANKS:
        s.free[r] -= pages
    for p in POSITIONS:
        if first <= p < first + pages:
            s.host[chain][p] = ARRIVING
            s.locked[chain][p] += 1
    s.copy_pages[chain * LENGTH + first] = pages
    s.copies.append(chain * LENGTH + first)


def evict_as_much_as_is_copied(s: State, chain: int, first: int, pages: int) -> None:
    """As many pages are evicted as are copied, not as many as are missing."""
    if s.free[0] < pages:
        evict(s, pages)
    begin_copy(s, chain, first, pages)


def copy_on_the_first_rank(s: State, chain: int, first: int, pages: int) -> None:
    """Host pages are taken on rank 0 only: the other ranks do not write what is replicated."""
    begin_copy(s, chain, first, pages)
    for r in RANKS:
        if r > 0:
            s.free[r] += pages


# ---- device evictions


@action(chain=CHAINS)
def evict_locked_pages(s: State, chain: int) -> None:
    """A device page is evicted though it is being copied: that it has a host page is enough."""
    require(s.on_device[chain] > 0, "the chain has a device page")
    s.on_device[chain] -= 1
    s.device_free += 1
    refresh_leaf(s, chain)


@action(chain=CHAINS)
def evict_without_a_copy(s: State, chain: int) -> None:
    """A page that is not on the host is let go of, whatever hangs under it and whatever the policy."""
    require(s.on_device[chain] > 0, "the chain has a device page")
    require(not is_last_locked(s, chain), "nobody copies it")
    s.on_device[chain] -= 1
    s.device_free += 1
    if s.resident[chain] == s.on_device[chain] + 1 and not is_readable(s, chain, s.on_device[chain] + 1):
        forget_from(s, chain, s.on_device[chain])
    refresh_leaf(s, chain)


@action(chain=CHAINS)
def evict_and_lose_the_page(s: State, chain: int) -> None:
    """The page leaves the device, and is not given back to the pool."""
    require(s.on_device[chain] > 0, "the chain has a device page")
    require(not is_last_locked(s, chain), "nobody copies it")
    require(is_readable(s, chain, s.on_device[chain]), "it is on the host")
    s.on_device[chain] -= 1
    refresh_leaf(s, chain)


@action(chain=CHAINS)
def write_back_and_evict_at_once(s: State, chain: int) -> None:
    """The device pages are given back as soon as their copy has begun."""
    require(WRITE_POLICY_NOW == WRITE_BACK, "what is evicted is written back")
    require(s.on_device[chain] > 0, "the chain has a device page")
    require(not is_last_locked(s, chain), "nobody copies it")
    require(not is_readable(s, chain, s.on_device[chain]), "it is not on the host")
    require(last_node_pages(s, chain) <= room(s), "host pages for it can be had")
    pages = last_node_pages(s, chain)
    begin_copy(s, chain, s.on_device[chain] - pages, pages)
    s.on_device[chain] -= pages
    s.device_free += pages


def give_up_whatever_is_last(s: State, chain: int) -> bool:
    """Under write_back, too, the last page of a chain is let go of without a copy."""
    return s.resident[chain] == s.on_device[chain]


@action(chain=CHAINS)
def evict_without_looking_at_the_leaves(s: State, chain: int) -> None:
    """A chain whose last page leaves the device does not come into the set of host leaves."""
    require(s.on_device[chain] > 0, "the chain has a device page")
    require(not is_last_locked(s, chain), "nobody copies it")
    require(is_readable(s, chain, s.on_device[chain]), "it is on the host")
    s.on_device[chain] -= 1
    s.device_free += 1


# ---- loads


def load_whatever_is_asked_for(s: State, pages: int) -> bool:
    """The quota does not count."""
    return pages <= LOAD_QUOTA + LENGTH


def load_without_keeping(s: State, chain: int, p: int) -> None:
    """The host pages of a load may leave the host: the device has them."""


def load_without_a_lock(s: State, chain: int, depth: int) -> None:
    """The device pages of a load are not locked."""
    first = s.on_device[chain]
    begin_load(s, chain, depth)
    for p in POSITIONS:
        if first <= p < depth:
            s.locked[chain][p] -= 1


def load_without_taking_pages(s: State, chain: int, depth: int) -> None:
    """Loaded pages are not taken out of the device pool."""
    free = s.device_free
    take_device_pages(s, chain, depth)
    if len(s.loads) == 0:
        s.device_free = free


@action(fairness="weak")
def take_a_load_that_landed_somewhere(s: State) -> None:
    """A load ends when the first rank has it."""
    require(any(s.loaded[r] > 0 for r in RANKS), "a load has landed")
    x = s.loads.pop(0)
    for r in RANKS:
        s.loaded[r] = max(0, s.loaded[r] - 1)
    for p in POSITIONS:
        if is_within(x, s.load_pages[x], p):
            s.locked[CHAIN_OF[x]][p] -= 1
            s.kept[CHAIN_OF[x]][p] -= 1
    s.load_pages[x] = 0
    refresh_leaf(s, CHAIN_OF[x])


def evict_what_is_loaded(s: State, missing: int) -> None:
    """A page may leave the host if it is not above an anchor: who reads it, or has it on the device, does not count."""
    left = missing
    for chain in CHAINS:
        out = min(left, s.resident[chain] - protected_depth(s, chain))
        if out > 0:
            left -= out
            forget_from(s, chain, s.resident[chain] - out)
            refresh_leaf(s, chain)
            emit(s, ON_EVICTED, chain, out)
            for r in RANKS:
                s.free[r] += out


def evict_below_an_anchor(s: State, missing: int) -> None:
    """A page may leave the host if the device does not have it."""
    left = missing
    for chain in CHAINS:
        out = min(left, s.resident[chain] - max(s.on_device[chain], kept_depth(s, chain)))
        if out > 0:
            left -= out
            forget_from(s, chain, s.resident[chain] - out)
            refresh_leaf(s, chain)
            emit(s, ON_EVICTED, chain, out)
            for r in RANKS:
                s.free[r] += out


# ---- the tree


def run_in_the_last_node(s: State, chain: int, depth: int) -> None:
    """What is computed becomes a part of the chain's last node, whatever copy that has; where there is none, a node."""
    if s.resident[chain] == 0 or depth <= s.resident[chain]:
        run(s, chain, depth)
    else:
        take_device_pages(s, chain, depth)
        s.resident[chain] = depth
        refresh_leaf(s, chain)


# ---- beside the prefetch pipeline


def submit_below_the_device(s: State, request: int, chain: int) -> None:
    """Whatever the last known page is, an operation hangs under it."""
    submit(s, request, chain)


def decline_what_is_on_the_device(s: State, request: int, chain: int) -> None:
    """A chain of which the device has a page is declined, even if its last page can be read on the host."""
    if s.record[request] == NONE and s.on_device[chain] > 0:
        emit(s, ON_DECLINED, request, NO_ANCHOR, LENGTH - s.resident[chain])
    else:
        submit(s, request, chain)


def know_only_what_is_readable(s: State, op: int, pages: int) -> int:
    """A page whose copy is under way is not known, and gets the fetched page."""
    return sum(
        1 if s.base[op] <= p < s.base[op] + pages and s.host[s.chain[op]][p] == READABLE else 0 for p in POSITIONS
    )


def know_what_is_on_the_device(s: State, op: int, pages: int) -> int:
    """A page that the device has is known, and the fetched one is freed; the rest hangs under it all the same."""
    return min(pages, s.resident[s.chain[op]] - s.base[op])


def attach_at_the_end(s: State, op: int, pages: int) -> None:
    """What is not known hangs under the last known page, be that on the host or not."""
    chain = s.chain[op]
    known = s.resident[chain]
    for p in POSITIONS:
        if known <= p < known + pages:
            s.host[chain][p] = READABLE
    s.resident[chain] = known + pages
    split(s, chain, known)
    refresh_leaf(s, chain)


def unprotect_without_looking_at_the_leaves(s: State, op: int) -> None:
    """A chain whose anchor is no longer protected does not come into the set of leaves."""
    unprotect(s, op)


def attach_and_know_less(s: State, op: int, pages: int) -> None:
    """The tree takes the fetched pages over, and the last one cannot be found in it."""
    chain = s.chain[op]
    attach_below_the_anchor(s, op, pages)
    if pages > 0 and s.resident[chain] > s.on_device[chain]:
        s.resident[chain] -= 1
        refresh_leaf(s, chain)


# ---- liveness


@action(fairness="weak")
def put_split_copies_back(s: State) -> None:
    """A copy whose pages are in two nodes by now waits for the others, and for itself."""
    require(all(s.copied[r] > 0 for r in RANKS), "a copy has landed on every rank")
    x = s.copies.pop(0)
    if node_start(s, CHAIN_OF[x], FIRST_OF[x] + s.copy_pages[x] - 1) > FIRST_OF[x]:
        s.copies.append(x)
    else:
        for r in RANKS:
            s.copied[r] -= 1
        finish_copy(s, x)


@action(fairness="weak")
def put_split_loads_back(s: State) -> None:
    """A load whose pages are in two nodes by now waits for the others, and for itself."""
    require(all(s.loaded[r] > 0 for r in RANKS), "a load has landed on every rank")
    x = s.loads.pop(0)
    if node_start(s, CHAIN_OF[x], FIRST_OF[x] + s.load_pages[x] - 1) > FIRST_OF[x]:
        s.loads.append(x)
    else:
        for r in RANKS:
            s.loaded[r] -= 1
        finish_load(s, x)
