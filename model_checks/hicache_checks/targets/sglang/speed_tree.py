"""What the calls of a release's scheduler cost: its tree, its host pool, its ticks. The work is that of ours."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from hicache_checks.targets.sglang.rank import Rank

FINISHED, TICKS = 8, 30
CALLS, EVICTIONS, TURNS, NODE_PAGES = 2000, 100, 8, 2
ALLOCATED_TOGETHER = 64
NEVER = 1 << 30
ONE_BY_ONE_MAX = 20_000
WAIT_S = 60.0


def tree_rows(rank: Rank, nodes: int) -> list[dict[str, Any]]:
    """Matching, inserting and evicting in a tree of so many nodes, with nothing written to the host."""
    if hasattr(rank.cache, "write_through_threshold"):
        rank.cache.write_through_threshold = NEVER
    conversations = max(1, nodes // TURNS)
    slots: dict[int, torch.Tensor] = {}
    for number in range(conversations):
        for turn in range(1, TURNS + 1):
            _inserting(rank, slots, number, turn)()
    choices = random.Random(nodes)
    known = [_prompt(choices.randrange(conversations), TURNS * NODE_PAGES) for _ in range(CALLS)]
    longer = choices.sample(range(conversations), min(CALLS, conversations))
    match = [_timed(_matching(rank, prompt)) for prompt in known]
    insert = [_timed(_inserting(rank, slots, number, TURNS + 1)) for number in longer]
    evict = [_timed(lambda: rank.evict(NODE_PAGES * rank.page)) for _ in range(min(EVICTIONS, conversations))]
    return [
        _row("match a conversation", nodes, match),
        _row("insert a turn", nodes, insert),
        _row("evict a node", nodes, evict),
    ]


def pages_of_tree(nodes: int) -> int:
    """So many pages of the device it takes."""
    return (nodes + 2 * CALLS) * NODE_PAGES


def allocation_rows(rank: Rank, pages: int) -> list[dict[str, Any]]:
    """Pages of the host pool, one by one and many together; the pool is empty, and is left so."""
    one = _allocating(rank, min(pages, ONE_BY_ONE_MAX), 1)
    return [
        _row("allocate a page", pages, [one]),
        _row(f"allocate a page of {ALLOCATED_TOGETHER}", pages, [_allocating(rank, pages, ALLOCATED_TOGETHER)]),
    ]


def tick_rows(rank: Rank, pending: int) -> list[dict[str, Any]]:
    """Ticks while so many operations wait for a store that is stuck."""
    for number in range(pending):
        prompt = _prompt(number, 1)
        rank.put(prompt)
        rank.submit(f"p{number}", prompt)
    _settle(rank, pending)
    rank.shelf.break_("get", "stall")
    rank.tick()
    idle = [_timed(rank.tick) for _ in range(TICKS)]
    busy = []
    for number in range(TICKS):
        first = pending + number * FINISHED
        for one in range(first, first + FINISHED):
            rank.put(_prompt(one, 1))
            rank.submit(f"p{one}", _prompt(one, 1))
        _settle(rank, FINISHED)
        busy.append(_timed(rank.tick))
    rank.shelf.heal()
    return [_row("tick, nothing finished", pending, idle), _row(f"tick, {FINISHED} finished", pending, busy)]


def _settle(rank: Rank, wanted: int) -> None:
    """Until the store has been asked for all of them."""
    until_s = time.monotonic() + WAIT_S
    while rank.controller.prefetch_hit_queue.qsize() < wanted:
        if time.monotonic() > until_s:
            raise TimeoutError("the thread that asks the store does not come to an end")
        time.sleep(0.001)


def _prompt(number: int, pages: int) -> Sequence[int]:
    first = number * (TURNS + 1) * NODE_PAGES
    return range(first, first + pages)


def _matching(rank: Rank, prompt: Sequence[int]) -> Callable[[], object]:
    ids = rank.tokens(prompt)
    return lambda: rank.match(ids)


def _inserting(rank: Rank, slots: dict[int, torch.Tensor], number: int, turn: int) -> Callable[[], object]:
    """The last node of a conversation; what is before it is there, in these slots. As when a turn was computed."""
    prompt = _prompt(number, turn * NODE_PAGES)
    ids = rank.tokens(prompt)
    new = rank.parts.allocator.alloc(NODE_PAGES * rank.page).to(torch.int64)
    known = slots.get(number, new[:0])
    slots[number] = torch.cat([known, new])
    request = rank.request("insert", prompt)
    request.mamba_pool_idx = None
    key = rank.key(ids)
    return lambda: rank._insert(request, key, slots[number], len(known), False)


def _allocating(rank: Rank, pages: int, together: int) -> float:
    """Seconds a page."""
    began_s = time.perf_counter()
    taken = [rank.host.alloc(together * rank.page) for _ in range(pages // together)]
    seconds = time.perf_counter() - began_s
    rank.host.free(torch.cat(taken))
    return seconds / (pages // together * together)


def _timed(call: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    call()
    return time.perf_counter() - began_s


def _row(work: str, size: int, seconds: Sequence[float]) -> dict[str, Any]:
    return {"work": work, "size": size, "us": statistics.median(seconds) * 1e6}
