"""A whole trace through the cache, several times over: requests a second, hits by tier, and what memory it takes.

Registered as the entry point `trace_speed` of the group `hicheck.benchmarks`. It is the replay of a workload without
its checks, in a process of its own, because memory is what a process has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from hicache_impl.cache import HiCache, Poll, open_rank
from hicache_impl.config import CacheConfig
from hicache_impl.disruptions import StorageBreaker
from hicache_impl.ranks import SoloGroup, solo_groups
from hicache_impl.replay import Replay, _Waiting
from hicache_impl.runtime import ThreadRuntime
from hicache_impl.speed.stores import opened
from hicache_impl.traces import BLOCK_TOKENS, Request, read_trace
from hicache_impl.workload_rank import peak_rss_bytes

PAGE_BYTES = 4096
HOST_PAGES, DEVICE_PAGES = 8192, 2048
WINDOW = 8
STALL_S = 120.0


def measure_trace(
    trace: str, requests: int | None, store: str, replays: int, tell: Callable[[str], object]
) -> dict[str, Any]:
    """Replay the first `requests` (None: all) of the trace at this path on one cache, `replays` times.

    Keys: `requests`, `seconds` and `hit_tokens` (by tier) and `computed_tokens` of each replay, `resident_bytes` after
    each (memory of this process alone: a map of a file is not), `peak_bytes` (with it), `store`, `page_bytes`,
    `host_pages`, `device_pages`. ValueError, one line: no such trace or store, or the store cannot be had.
    """
    # Before a process is started for it.
    read_trace(trace, 1)
    tell(f"replaying {Path(trace).name} {replays} times on {store}")
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        measured: dict[str, Any] = process.submit(_measure, trace, requests, store, replays).result()
    return measured


def _measure(trace: str, requests: int | None, store: str, replays: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    given = read_trace(trace, requests).requests
    with ExitStack() as stack:
        found = opened(store, 4 << 30, stack)
        if isinstance(found, str):
            raise ValueError(f"{store}: {found}")
        config = CacheConfig(
            host_pages=HOST_PAGES, device_pages=DEVICE_PAGES, page_size=BLOCK_TOKENS, page_bytes=PAGE_BYTES
        )
        storage = found.open(checksums=True)
        stack.callback(storage.close)
        cache = open_rank(config, storage, solo_groups(), ThreadRuntime())
        stack.callback(cache.close)
        played = [_replayed(cache, given) for _ in range(replays)]
    names = ("seconds", "hit_tokens", "computed_tokens", "resident_bytes")
    return {
        "requests": len(given),
        **{name: [one[name] for one in played] for name in names},
        "peak_bytes": peak_rss_bytes(),
        "store": store,
        "page_bytes": PAGE_BYTES,
        "host_pages": HOST_PAGES,
        "device_pages": DEVICE_PAGES,
    }


class _Unchecked(Replay):
    def _verify(self, waiting: _Waiting, poll: Poll) -> None:
        self.fetched_pages += poll.pages


def _replayed(cache: HiCache, requests: tuple[Request, ...]) -> Mapping[str, Any]:
    assert cache.storage is not None
    replay = _Unchecked(
        cache,
        requests,
        SoloGroup("replay"),
        window=WINDOW,
        plan=lambda index: None,
        breaker=StorageBreaker(None, "", cache.storage, 0, len(requests), 0),
        speed=None,
        on_turn=lambda over: None,
        stall_s=STALL_S,
    )
    began_s = cache.runtime.now()
    replay.run()
    cache.quiesce()
    seconds = cache.runtime.now() - began_s
    if replay.problems:
        raise RuntimeError(replay.problems[0])
    return {
        "seconds": seconds,
        "hit_tokens": {tier: pages * BLOCK_TOKENS for tier, pages in replay.hit_pages.items()},
        "computed_tokens": replay.computed_pages * BLOCK_TOKENS,
        "resident_bytes": _resident_bytes(),
    }


def _resident_bytes() -> int:
    """Memory that this process has for itself alone; elsewhere than on Linux, the most that it ever had."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    return peak_rss_bytes()
