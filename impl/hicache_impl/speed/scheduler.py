"""What the scheduler's calls cost: ticks with much in flight, a large tree, a large pool.

Registered as the entry point `scheduler_cost` of the group `hicheck.benchmarks`. Plain threads, one rank, no log.
"""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from hicache_impl.cache import HiCache, open_rank
from hicache_impl.config import CacheConfig
from hicache_impl.keys import PrefixKey, chain_hashes
from hicache_impl.page_pool import PageAllocator
from hicache_impl.ranks import solo_groups
from hicache_impl.runtime import ThreadRuntime
from hicache_impl.storage.memory import MemoryStorage
from hicache_impl.trees.core import RadixTree
from hicache_impl.trees.hiradix import HiRadixTree

FINISHED = 8
"""So many operations are answered by the store before each of the ticks that have something to do."""
TICKS = 30
CALLS = 2000
NODE_PAGES = 2
TURNS = 8
"""Nodes of a conversation, one below the other."""
ALLOCATED_TOGETHER = 64
WAIT_S = 60.0


def measure_scheduler(
    pending: Sequence[int], nodes: Sequence[int], pages: int, page_tokens: int, tell: Callable[[str], object]
) -> list[dict[str, Any]]:
    """A row for each kind of work and each size: `work`, `size`, `us` (median microseconds of one call).

    `pending`: operations in flight; `nodes`: of a tree; `pages`: to be allocated. `tell` gets a line now and then.
    """
    rows: list[dict[str, Any]] = []
    for count in pending:
        tell(f"ticks with {count:,} operations in flight")
        rows += _ticks(count, page_tokens)
    for count in nodes:
        tell(f"a tree of {count:,} nodes")
        rows += _tree(count, page_tokens)
    tell(f"{pages:,} page allocations")
    return rows + _allocations(pages)


# Ticks.


class _StuckStorage(MemoryStorage):
    """Has every page, and gives none out until `go_on` is set."""

    def __init__(self) -> None:
        super().__init__(checksums=False)
        self.go_on = threading.Event()

    def exists(self, keys: Sequence[str]) -> int:
        return len(keys)

    def get_into(self, keys: Sequence[str], into: Sequence[torch.Tensor]) -> list[bool]:
        self.go_on.wait()
        return [False] * len(keys)


def _ticks(pending: int, page_tokens: int) -> list[dict[str, Any]]:
    host_pages = 2 * pending + FINISHED * (TICKS + 1)
    config = CacheConfig(
        host_pages=host_pages, device_pages=1, page_size=page_tokens, limit_pages=2 * host_pages, threshold_pages=1
    )
    store = _StuckStorage()
    cache = open_rank(config, store, solo_groups(), ThreadRuntime())
    # Each operation hangs below a node of its own, so that as many nodes are protected.
    for number in range(pending):
        _publish(cache, _key(number, 1, page_tokens))
        cache.submit(f"p{number}", _key(number, 2, page_tokens))
    _settle_queries(cache)
    cache.tick()
    idle = [_timed(cache.tick) for _ in range(TICKS)]
    busy = [_busy_tick(cache, pending + number * FINISHED, page_tokens) for number in range(TICKS)]
    _check_in_flight(cache, pending)
    store.go_on.set()
    cache.close()
    return [_row("tick, nothing finished", pending, idle), _row(f"tick, {FINISHED} finished", pending, busy)]


def _check_in_flight(cache: HiCache, pending: int) -> None:
    granted = sum(op.has_memory for op in cache.records.values())
    if granted != pending:
        raise RuntimeError(f"{granted} operations are in flight, not {pending}")


def _publish(cache: HiCache, key: PrefixKey) -> None:
    pages = cache.host.allocator.alloc(len(key))
    assert pages is not None
    cache.tree.insert_host(cache.tree.root, key.pages, chain_hashes(key), pages)


def _busy_tick(cache: HiCache, first: int, page_tokens: int) -> float:
    rids = [f"f{number}" for number in range(first, first + FINISHED)]
    for number, rid in enumerate(rids, first):
        cache.submit(rid, _key(number, 1, page_tokens))
    _settle_queries(cache)
    seconds = _timed(cache.tick)
    for rid in rids:
        cache.abort(rid)
    return seconds


def _settle_queries(cache: HiCache) -> None:
    """Until the store has been asked for all that was submitted; the reading thread is stuck, and stays so."""
    wanted = sum(not op.has_memory for op in cache.records.values())
    until_s = time.monotonic() + WAIT_S
    while cache.controller.hit_queue.qsize() < wanted:
        if time.monotonic() > until_s:
            raise RuntimeError("the query thread does not come to an end")
        time.sleep(0.001)


# The tree.


def _tree(nodes: int, page_tokens: int) -> list[dict[str, Any]]:
    tree = HiRadixTree()
    conversations = max(1, nodes // TURNS)
    for number in range(conversations):
        for turn in range(1, TURNS + 1):
            _insert(tree, _key(number, turn * NODE_PAGES, page_tokens))
    choices = random.Random(nodes)
    known = [_key(choices.randrange(conversations), TURNS * NODE_PAGES, page_tokens) for _ in range(CALLS)]
    longer = choices.sample(range(conversations), min(CALLS, conversations))
    new = [_key(number, (TURNS + 1) * NODE_PAGES, page_tokens) for number in longer]
    match = [_timed(lambda key=key: tree.match(key)) for key in known]  # type: ignore[misc]
    insert = [_timed(lambda key=key: _insert(tree, key)) for key in new]  # type: ignore[misc]
    evict = [_timed(lambda: tree.evict_device(NODE_PAGES, lambda node: None)) for _ in range(min(CALLS, conversations))]
    return [
        _row("match a conversation", nodes, match),
        _row("insert a turn", nodes, insert),
        _row("evict a node", nodes, evict),
    ]


def _insert(tree: RadixTree, key: PrefixKey) -> None:
    tree.insert_device(key, range(len(key)))


# Pools.


def _allocations(pages: int) -> list[dict[str, Any]]:
    pool = PageAllocator(pages)
    began_s = time.perf_counter()
    for _ in range(pages):
        pool.alloc(1)
    one = (time.perf_counter() - began_s) / pages
    pool.free(range(pages))
    began_s = time.perf_counter()
    for _ in range(pages // ALLOCATED_TOGETHER):
        pool.alloc(ALLOCATED_TOGETHER)
    together = (time.perf_counter() - began_s) / (pages // ALLOCATED_TOGETHER * ALLOCATED_TOGETHER)
    return [
        _row("allocate a page", pages, [one]),
        _row(f"allocate a page of {ALLOCATED_TOGETHER}", pages, [together]),
    ]


def _key(number: int, pages: int, page_tokens: int) -> PrefixKey:
    """The first pages of conversation `number`: each begins with a page of its own, and no two have one in common."""
    first = number * (TURNS + 1) * NODE_PAGES * page_tokens
    return PrefixKey.from_tokens(range(first, first + pages * page_tokens), page_tokens)


def _timed(call: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    call()
    return time.perf_counter() - began_s


def _row(work: str, size: int, seconds: Sequence[float]) -> dict[str, Any]:
    return {"work": work, "size": size, "us": statistics.median(seconds) * 1e6}
