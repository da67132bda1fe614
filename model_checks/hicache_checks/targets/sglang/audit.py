"""What is wrong with a rank of a release when nothing is on its way: pages, references, counts, bytes; one line each,
with the property first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from hicache_checks.targets.sglang.content import content
from hicache_checks.targets.sglang.tree import NodeSeen, maps_of

if TYPE_CHECKING:
    from hicache_checks.targets.sglang.rank import Rank
    from hicache_checks.targets.sglang.rank_model import RankModel

Written = Callable[[int], Sequence[object]]
BYTES = "bytes"
"""An audit that is made when it is asked for: what memory the tree's own indices keep."""
INDEX_BYTES = torch.int64.itemsize


def problems(rank: Rank) -> Iterator[str]:
    """Of the pools, the tree and the records."""
    nodes = list(rank.tree.nodes())
    yield from _records(rank)
    yield from _slots(rank, nodes)
    yield from _families(rank, nodes)
    for node in nodes:
        yield from _node(rank, node)
    yield from rank.states.problems(nodes)
    if rank.router is not None:
        rank.tell_router()
        if not rank.extras:
            yield from rank.router.problems(nodes, rank.page)
        elif rank.config.get("salted"):
            yield from rank.router.miscounted(nodes, rank.page)
    if BYTES in rank.audits:
        yield from _kept_bytes(rank, nodes)


def unwritten(rank: Rank) -> Iterator[str]:
    """Where all that is computed is written through, the device has nothing that the host has not."""
    for node in rank.tree.nodes() if rank.writes_through else ():
        if node.device is not None and node.host is None:
            name = list(pages_of(node.prefix, rank.page) or node.prefix)
            yield f"P32 the device has {name}, and nobody writes it through"
    if rank.writes_through:
        yield from rank.states.unwritten(list(rank.tree.nodes()))


def consumer_problems(rank: Rank) -> Iterator[str]:
    """Each of a controller's queues has one thread that reads from it, which does what only it does.

    Up to 0.5.18 there often are two from the first moment on, so that it is no part of `problems`.
    """
    for name, threads in Counter(rank.workers()).items():
        if threads > 1:
            yield f"P16 {threads} threads read from one queue in {name}"


def _kept_bytes(rank: Rank, nodes: Sequence[NodeSeen]) -> Iterator[str]:
    """A node that lives long must not keep the whole list that its slots were taken from."""
    for node in nodes:
        own = len(node.host or ()) * INDEX_BYTES
        if node.index_bytes > own:
            name = list(pages_of(node.prefix, rank.page) or node.prefix)
            yield f"P4 {name} needs {own} bytes for its host slots, and keeps {node.index_bytes}"


def _records(rank: Rank) -> Iterator[str]:
    occupied = getattr(rank.controller, "prefetch_tokens_occupied", 0)
    if occupied:
        yield f"P8 {occupied} tokens are occupied, and nothing is pending"
    for name, entries in maps_of(rank.cache).items():
        if entries:
            yield f"{'P11' if name.startswith('prefetch') else 'P2'} {name} has {entries} entries at rest"


def _slots(rank: Rank, nodes: Sequence[NodeSeen]) -> Iterator[str]:
    """Each slot is free, or held by one node."""
    page = rank.page
    free = [*map(int, free_host_slots(rank.host)), *rank.foreign]
    yield from counted(
        "host pages", free, [slot for node in nodes for slot in node.host or ()], range(rank.host.size), page
    )
    allocator = rank.parts.allocator
    held = [slot for node in nodes for slot in node.device or ()]
    available, size = int(allocator.available_size()), int(allocator.size)
    if len(set(held)) != len(held):
        yield "P13 a device page is held by two nodes"
    if available + len(held) != size:
        yield f"P4 {(size - available - len(held)) // page} device pages are neither free nor in the tree"


def counted(what: str, free: list[int], held: list[int], all_: Iterable[int], page: int) -> Iterator[str]:
    """Which of these slots are there twice, or not at all; `page`: how many make one of `what`."""
    count = Counter(free) + Counter(held)
    twice = sorted({slot // page for slot, times in count.items() if times > 1})
    lost = sorted({slot // page for slot in all_ if not count[slot]})
    if twice:
        yield f"P13 {what} {twice} are there twice, among {len(free) // page} free and {len(held) // page} held"
    if lost:
        yield f"P4 {what} {lost} are neither free nor in the tree"


def free_host_slots(pool: Any) -> Iterable[Any]:
    """Of a host pool, those that are free, and those that were let go of."""
    yield from pool.free_slots
    for released in getattr(pool, "release_slots", ()):
        yield from released


def _families(rank: Rank, nodes: Sequence[NodeSeen]) -> Iterator[str]:
    """Parents and children: whether host copies hang together, and whose can go."""
    by_prefix = {(extra_of(node), node.prefix): node for node in nodes}
    parents = {id(node): by_prefix.get((extra_of(node), node.prefix[: node.start])) for node in nodes}
    followed = {id(parents[id(node)]) for node in nodes if node.host}
    leaves = rank.tree.evictable_host_leaves()
    for node in nodes:
        parent, name = parents[id(node)], list(pages_of(node.prefix, rank.page) or node.prefix)
        if node.host and parent is not None and not parent.host and rank.writes_through:
            yield f"P23 {name} has a host copy, and what it follows has none"
        is_leaf = bool(node.host) and node.device is None and id(node) not in followed
        if leaves is not None and is_leaf != (node.raw in leaves):
            said = "is missing from" if is_leaf else "must not be among"
            yield f"P24 {name} {said} the leaves that the host can evict"


def _node(rank: Rank, node: NodeSeen) -> Iterator[str]:
    pages, place = pages_of(node.prefix, rank.page), node.start // rank.page
    if pages is None or node.length % rank.page:
        yield f"P17 a node ends within a page: {list(node.prefix)}"
        return
    name = list(pages)
    if node.device_refs:
        yield f"P14 {node.device_refs} hold on to the device pages of {name} at rest"
    if node.host_refs:
        yield f"P14 {node.host_refs} hold on to the host pages of {name} at rest"
    if extra_of(node) is None and node.hashes is not None and list(node.hashes) != rank.keys(pages)[place:]:
        yield f"P21 the hashes of {name} are not those of its chain"
    written = written_as(pages, extra_of(node))
    for end in range(place + 1, len(pages) + 1):
        if node.host is not None:
            slot = node.host[(end - 1 - place) * rank.page]
            yield from _other_bytes(rank, "host", rank.host_page(slot), written(end))
            yield from rank.indices.wrong_on_host(written(end), slot)
    if node.device is not None:
        yield from wrong_device_pages(rank, written, node.device, place)


def _other_bytes(rank: RankModel, tier: str, page: torch.Tensor, prefix: Sequence[object]) -> Iterator[str]:
    """What is wrong if a page does not hold the bytes of the last page of its prefix."""
    if has_bytes(rank, prefix, page):
        return
    if any(has_bytes(rank, theirs, page) for theirs in of_others(rank, prefix)):
        yield f"P19 the {tier} page of {list(prefix)} holds what was computed for somebody else"
    else:
        yield f"P6 the {tier} page of {list(prefix)} holds other bytes"


def of_others(rank: RankModel, prefix: Sequence[object]) -> Iterator[Sequence[object]]:
    """The same prefix, as others have it: adapters, tenants, and whoever shares the store."""
    tokens = [token for token in prefix if isinstance(token, int)]
    for owner in (None, *rank.extras, *rank.strangers.names):
        yield written_as(tokens, owner)(len(tokens))


def pages_of(ids: Sequence[int], page: int) -> tuple[int, ...] | None:
    """The harness's prompt for token ids; None: they are no whole pages."""
    pages = tuple(last // page for last in ids[page - 1 :: page])
    return pages if len(ids) == len(pages) * page else None


def has_bytes(rank: RankModel, prefix: Sequence[object], page: torch.Tensor) -> bool:
    """Does a page, as host pools hold it, have the bytes of the last page of a prefix?"""
    return torch.equal(page, content(prefix, rank.number, page))


def written_as(pages: Sequence[int], extra: str | None) -> Written:
    """What the bytes of the last page of so long a prefix depend on; `extra`: adapter or tenant."""
    return lambda length: pages[:length] if extra is None else (extra, *pages[:length])


def extra_of(node: NodeSeen) -> str | None:
    """The adapter or tenant that a node belongs to."""
    extra: str | None = getattr(node.raw.key, "extra_key", None)
    return extra or getattr(node.raw.key, "cache_salt", None)


def wrong_device_pages(rank: RankModel, written: Written, slots: Sequence[int], known: int = 0) -> Iterator[str]:
    """Those of the device pages in these slots, of a prompt without its first `known`, that hold other bytes: one line
    each, with the property first."""
    for place in range(known, known + len(slots) // rank.page):
        start = (place - known) * rank.page
        own = torch.tensor(slots[start : start + rank.page])
        yield from _other_bytes(rank, "device", _device_page(rank, own), written(place + 1))
        yield from rank.indices.wrong_on_device(written(place + 1), own)


def write_device_page(rank: RankModel, prefix: Sequence[object], slots: torch.Tensor) -> None:
    """The model's answer for the last page of a prefix."""
    page = content(prefix, rank.number, _device_page(rank, slots))
    for kind, buffer in enumerate(_buffers(rank.parts.device)):
        for layer, rows in enumerate(buffer):
            rows[slots] = page[kind, layer]
    rank.indices.write(prefix, slots)


def _device_page(rank: RankModel, slots: torch.Tensor) -> torch.Tensor:
    """As host pools hold it: keys and values, layers, tokens, heads, dimensions."""
    return torch.stack([torch.stack([rows[slots] for rows in buffer]) for buffer in _buffers(rank.parts.device)])


def _buffers(device: Any) -> Sequence[Sequence[torch.Tensor]]:
    """Keys and values of each layer, or both in one."""
    return (device.k_buffer, device.v_buffer) if hasattr(device, "k_buffer") else (device.kv_buffer,)
