"""Looking at one rank from outside: what can be observed at any time, and what must hold at quiescence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch

from hicache_impl.content import page_on_rank
from hicache_impl.tensor_pool import TensorPool
from hicache_impl.trees.components import DEVICE, HOST, TIERS

if TYPE_CHECKING:
    from hicache_impl.ledger import Ledger
    from hicache_impl.trees.node import Node

LOCKSTEP_KEYS = (
    "free_pages",
    "resident_pages",
    "evictable_pages",
    "occupied_pages",
    "host_refs",
    "device_free_pages",
    "device_resident_pages",
    "operations",
    "slots",
)
"""The keys of `observe` that are equal on all ranks whenever their schedulers have made the same calls."""


class Contents(Protocol):
    """What must be in a page, and beside it, on this rank: uint8 (layers, layer_bytes), on the CPU."""

    def page(self, page_hash: bytes) -> torch.Tensor:
        """The page with this hash."""
        ...

    def slot(self, pool: str, page_hash: bytes) -> torch.Tensor:
        """What is beside it in this pool."""
        ...


class Synthetic:
    """The bytes that stand for a model's, where there is none (see `content`)."""

    def __init__(self, cache: Ledger) -> None:
        self._cache = cache

    def page(self, page_hash: bytes) -> torch.Tensor:
        """See Contents."""
        return page_on_rank(self._cache.config, self._cache.rank, page_hash)

    def slot(self, pool: str, page_hash: bytes) -> torch.Tensor:
        """See Contents."""
        return self._cache.extra[pool].content(page_hash, self._cache.rank)


def observe(cache: Ledger) -> dict[str, Any]:
    """Counts in pages. Equal on all ranks: LOCKSTEP_KEYS. A rank's own, and moving while its threads work:
    `releasing_pages` (in the release queue), `live` ((request id, attempt) -> state), `counted` (-> pages that landed),
    `queues` (name -> length).
    """
    operations = {op.id: op for op in cache.records.values()}
    queues = cache.controller.queue_lengths()
    return {
        "free_pages": cache.host.allocator.available,
        "resident_pages": cache.tree.host_pages_resident(),
        "evictable_pages": cache.tree.evictable_host_pages(),
        "occupied_pages": cache.occupied_pages,
        "host_refs": sum(node.host_ref for node in cache.tree.protected.values()),
        "device_free_pages": cache.device.allocator.available,
        "device_resident_pages": cache.tree.device_pages_resident(),
        # Host pages that each live operation was granted (0: none yet).
        "operations": {op_id: op.granted_pages for op_id, op in operations.items()},
        # Of each extra pool: free and resident on host, free and resident on device.
        "slots": {name: _observe_pool(cache, name) for name in cache.extra},
        "releasing_pages": queues["release"],
        "live": {op_id: op.state for op_id, op in operations.items()},
        "counted": {op_id: op.counted_pages for op_id, op in operations.items()},
        "queues": queues,
    }


def _observe_pool(cache: Ledger, name: str) -> tuple[int, int, int, int]:
    pool, resident = cache.extra[name], cache.tree.slots_resident
    free = {tier: pool.on(tier).allocator.available for tier in TIERS}
    return free[HOST], resident[name, HOST], free[DEVICE], resident[name, DEVICE]


def audit(cache: Ledger, contents: Contents | None = None) -> list[str]:
    """One line for each thing that is wrong, by property. At quiescence only: no live operation, nothing queued.

    Locks that callers hold are theirs and no finding, nor are device pages that they own. `contents`: what a model has
    computed; None: Synthetic.
    """
    problems = [f"not quiescent: {name} queue holds {n}" for name, n in cache.controller.queue_lengths().items() if n]
    problems += [f"P2 {op} is still live" for op in cache.records.values()]
    problems += cache.tree.audit()
    unowned = unowned_host_pages(cache)
    if unowned:
        problems.append(f"P4 host pages {unowned} are neither free nor in the tree")
    in_tree = {page for node in cache.tree.nodes() for page in node.host or ()}
    if stray := in_tree - set(cache.host.allocator.allocated_pages()):
        problems.append(f"P13 host pages {sorted(stray)} are in the tree and free")
    if cache.host.allocator.writing:
        problems.append(f"P18 {cache.host.allocator.writing} host pages still have a writer")
    if cache.device.allocator.writing:
        problems.append(f"P18 {cache.device.allocator.writing} device pages still have a writer")
    if cache.occupied_pages:
        problems.append(f"P8 {cache.occupied_pages} pages are occupied and no operation is pending")
    host_refs = {node.id: node.host_ref for node in cache.tree.protected.values()}
    if host_refs:
        problems.append(f"P14 host references are left on nodes {host_refs}")
    for name in cache.extra:
        problems += audit_pool(cache, name)
    problems += audit_bytes(cache, contents or Synthetic(cache))
    if cache.controller.failure is not None:
        problems.append(f"P31 a worker died: {cache.controller.failure!r}")
    return problems


def audit_bytes(cache: Ledger, contents: Contents) -> list[str]:
    """P6, P30: what is in the tree, on host and on device, holds the bytes that its hash says."""
    problems: list[str] = []
    for node in cache.tree.nodes():
        for pool, pages, tier in ((cache.host, node.host, HOST), (cache.device, node.device, DEVICE)):
            problems += check_bytes(cache, node.hashes, pages or (), pool, f"{tier} pages of {node}", contents)
    for name, extra in cache.extra.items():
        for tier in TIERS:
            wrong = [
                slot
                for slot, page_hash in _slots_in_tree(cache, name, tier).items()
                if not torch.equal(extra.on(tier).view(slot).cpu(), contents.slot(name, page_hash))
            ]
            if wrong:
                problems.append(f"P6 wrong bytes in {tier} slots {sorted(wrong)} of {name}")
    return problems


def audit_pool(cache: Ledger, name: str) -> list[str]:
    """P4, P13, P18 of one extra pool: every slot is free or in the tree."""
    pool, problems = cache.extra[name], []
    for tier in TIERS:
        allocator = pool.on(tier).allocator
        in_tree = _slots_in_tree(cache, name, tier)
        if tier == HOST and (unowned := unowned_slots(cache, name)):
            problems.append(f"P4 host slots {unowned} of {name} are neither free nor in the tree")
        if stray := in_tree.keys() - set(allocator.allocated_pages()):
            problems.append(f"P13 {tier} slots {sorted(stray)} of {name} are in the tree and free")
        if allocator.writing:
            problems.append(f"P18 {allocator.writing} {tier} slots of {name} still have a writer")
    if held := sorted(cache.tree.held):
        problems.append(f"P14 slots are still held of nodes {held}")
    return problems


def _slots_in_tree(cache: Ledger, name: str, tier: str) -> dict[int, bytes]:
    """The slots of this pool that the tree has on this tier, each with the hash of its page."""
    return {
        slot: node.hashes[position]
        for node in cache.tree.nodes()
        for position, slot in node.slots_of(name, tier).items()
    }


def unowned_slots(cache: Ledger, name: str) -> list[int]:
    """Host slots of this pool that are allocated and not in the tree."""
    in_tree = _slots_in_tree(cache, name, HOST)
    return [slot for slot in cache.extra[name].host.allocator.allocated_pages() if slot not in in_tree]


def check_bytes(
    cache: Ledger,
    hashes: Sequence[bytes],
    pages: Sequence[int],
    pool: TensorPool,
    where: str,
    contents: Contents | None = None,
) -> list[str]:
    """At most one line, with the positions of the pages that do not hold what their hashes say; counts the pages."""
    cache.counters.pages_verified += len(pages)
    expected = contents or Synthetic(cache)
    wrong = [
        index
        for index, (page_hash, page) in enumerate(zip(hashes, pages, strict=False))
        if not torch.equal(pool.view(page).cpu(), expected.page(page_hash))
    ]
    return [f"P6 wrong bytes in {where}, at {wrong}"] if wrong else []


def check_slots(cache: Ledger, hashes: Sequence[bytes], node: Node) -> list[str]:
    """One line a pool of which a prefix with these hashes, that ends in `node`, lacks a slot on the device or has wrong
    bytes there."""
    problems: list[str] = []
    for name, slots in cache.tree.slots_along(node, DEVICE).items():
        pool = cache.extra[name]
        wrong = [
            at
            for at in pool.component.needed(0, len(hashes))
            if at not in slots
            or not torch.equal(pool.device.view(slots[at]).cpu(), pool.content(hashes[at], cache.rank))
        ]
        if wrong:
            problems.append(f"P6 wrong bytes in {name}, beside pages {wrong}")
    return problems


def unowned_host_pages(cache: Ledger) -> list[int]:
    """Host pages that are allocated and not in the tree."""
    in_tree = {page for node in cache.tree.nodes() for page in node.host or ()}
    return [page for page in cache.host.allocator.allocated_pages() if page not in in_tree]
