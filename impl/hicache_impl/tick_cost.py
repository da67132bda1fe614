"""What a tick costs: the reference, and the older design with one queue, one hand-over and one agreed count more.

Plain threads and no log. Variants take turns in short rounds, so that a slow moment of the machine meets all of them.
Registered as the entry point `tick_cost` of the group `hicheck.benchmarks`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

from hicache_impl.cache import HiCache, open_rank
from hicache_impl.config import CacheConfig
from hicache_impl.content import page_keys, page_on_rank
from hicache_impl.controller import Controller
from hicache_impl.grid import thread_groups
from hicache_impl.keys import PrefixKey, chain_hashes
from hicache_impl.layout import Layout
from hicache_impl.runtime import ThreadRuntime
from hicache_impl.storage.memory import MemoryStorage
from hicache_impl.variants.revoke_queue import RevokingCache, RevokingController

VARIANTS: dict[str, tuple[type[HiCache], type[Controller]]] = {
    "reference": (HiCache, Controller),
    "reference:revoke_queue": (RevokingCache, RevokingController),
}
RANKS = (1, 2)
TICKS_A_ROUND = {"idle": 200, "revoke": 20, "grant": 20}
"""What a tick meets: nothing; only operations that hit nothing; only operations whose whole span is hit, and fits."""
SPAN_PAGES = 2
TIMEOUT_S = 60.0


def measure_tick_cost(rounds: int = 10, operations: int = 8) -> list[dict[str, Any]]:
    """A row for each number of thread ranks, each kind of tick and each variant, as rank 0 sees it.

    Keys: `ranks`, `tick` (see TICKS_A_ROUND), `variant`, `agreed_counts` (length of the agreement vector), `operations`
    (drained by each tick), `ticks` (measured), `us_min` and `us_median` (microseconds of one tick).
    """
    rows = []
    for ranks in RANKS:
        benches = {name: _Bench(*parts, ranks, operations) for name, parts in VARIANTS.items()}
        for tick, ticks in TICKS_A_ROUND.items():
            seconds: dict[str, list[float]] = {name: [] for name in benches}
            for _ in range(rounds):
                for name, bench in benches.items():
                    seconds[name] += bench.round(tick, ticks)
            rows += [
                {
                    "ranks": ranks,
                    "tick": tick,
                    "variant": name,
                    "agreed_counts": bench.agreed_counts,
                    "operations": 0 if tick == "idle" else operations,
                    "ticks": len(seconds[name]),
                    "us_min": min(seconds[name]) * 1e6,
                    "us_median": statistics.median(seconds[name]) * 1e6,
                }
                for name, bench in benches.items()
            ]
        for bench in benches.values():
            bench.close()
    return rows


class _Bench:
    """The ranks of one variant; `operations` prompts are in the store, and as many are not."""

    def __init__(
        self, cache_class: type[HiCache], controller_class: type[Controller], ranks: int, operations: int
    ) -> None:
        pages = operations * SPAN_PAGES
        config = CacheConfig(host_pages=pages, device_pages=1, limit_pages=2 * pages, layout=Layout(tp=ranks))
        self._runtime = ThreadRuntime()
        self._keys = {
            "idle": [],
            "revoke": [_key(-1 - number) for number in range(operations)],
            "grant": [_key(number) for number in range(operations)],
        }
        store = MemoryStorage()
        for key in self._keys["grant"]:
            _fill(store, key, config)
        groups = thread_groups(config.layout, self._runtime)
        self._caches = [
            open_rank(config, store, own, self._runtime, cache_class=cache_class, controller_class=controller_class)
            for own in groups
        ]

    @property
    def agreed_counts(self) -> int:
        return len(self._caches[0]._control_queues())

    def round(self, tick: str, ticks: int) -> list[float]:
        """Seconds of each tick on rank 0."""
        seconds: list[float] = self._on_all(lambda cache: [_time_tick(cache, self._keys[tick]) for _ in range(ticks)])[
            0
        ]
        return seconds

    def close(self) -> None:
        self._on_all(lambda cache: cache.close())

    def _on_all(self, call: Callable[[HiCache], Any]) -> dict[int, Any]:
        """By rank. Stalled: a rank failed; its thread has printed why."""
        answers = self._runtime.queue()

        def answer(cache: HiCache) -> None:
            answers.put((cache.rank, call(cache)))

        for cache in self._caches:
            self._runtime.thread(f"scheduler-{cache.rank}", partial(answer, cache)).start()
        return dict(self._runtime.collect(answers, TIMEOUT_S) for _ in self._caches)


def _time_tick(cache: HiCache, keys: list[PrefixKey]) -> float:
    """The tick that drains these operations, all of which are answered on every rank before it begins."""
    rids = [f"r{number}" for number in range(len(keys))]
    for rid, key in zip(rids, keys, strict=True):
        cache.submit(rid, key)
    cache.controller.settle(TIMEOUT_S)
    cache.groups.sched.barrier()
    start_s = cache.runtime.now()
    cache.tick()
    seconds = cache.runtime.now() - start_s
    for rid in rids:
        cache.abort(rid)
    if keys:
        cache.quiesce(TIMEOUT_S)
    return seconds


def _key(number: int) -> PrefixKey:
    return PrefixKey.from_tokens(range(number * SPAN_PAGES, (number + 1) * SPAN_PAGES), 1)


def _fill(store: MemoryStorage, key: PrefixKey, config: CacheConfig) -> None:
    """Every rank finds its pages of the key."""
    hashes = chain_hashes(key)
    for rank in range(config.ranks):
        pages = [page_on_rank(config, rank, page_hash) for page_hash in hashes]
        store.put_from(page_keys(config, rank, hashes), pages)
