"""One process: a cache of each tree on each store, one after the other, and what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import msgspec
import torch

from decoding.contents import Computed
from decoding.engine import L1, L2, L3, Engine
from decoding.model import FULL, PAGE_TOKENS, STATE, WINDOW, WINDOW_PAGES, Model, Shard
from decoding.reference import SYSTEM_PROMPTS, TURNS, Request, conversations
from hicache_impl import CacheConfig, HiCache, Layout, open_rank, open_storage, solo_groups
from hicache_impl.config import PoolLayout
from hicache_impl.controller import WorkerDied
from hicache_impl.metrics import DEVICE, HOST, NOWHERE
from hicache_impl.operation import IllegalTrigger
from hicache_impl.page_pool import PoolError
from hicache_impl.pool_spec import PoolSpec
from hicache_impl.ranks import Desync, GroupAborted, Groups
from hicache_impl.runtime import Runtime, Stalled, ThreadRuntime
from hicache_impl.storage import Storage, page_namespace
from hicache_impl.telemetry import Telemetry
from hicache_impl.trees.node import TreeError

DEVICE_PAGES = 32
HOST_PAGES = 56
# Conversations whose requests go away once while their pages are fetched, in each turn.
GONE = (2, 5, 7, 8)
LAYOUTS: dict[str, tuple[PoolLayout, PoolLayout]] = {
    "hiradix": ("page_first", "page_first"),
    "hi_mamba": ("page_first", "layer_first"),
    "unified": ("layer_first", "page_first"),
}
"""Of host and device."""
# What the cache raises when a rule of its own is broken.
FINDINGS = (PoolError, TreeError, WorkerDied, IllegalTrigger, Desync, GroupAborted, Stalled)


class Row(msgspec.Struct, kw_only=True):
    """What came of one tree on one store. `dropped_pages`: what device and host forgot."""

    tree: str
    store: str
    ranks: int
    again: bool
    requests: int = 0
    aborted: int = 0
    tokens: dict[str, int] = {}
    dropped_pages: dict[str, int] = {}
    wrong: list[str] = []


class Session(msgspec.Struct, kw_only=True, frozen=True):
    """What a process is to do. `stores`: a name for the table, and what open_storage takes, of each.

    `again`: an earlier process has left everything in the stores; so only the last turn of one conversation for each
    system prompt is asked, and what is found must come from there.
    """

    trees: tuple[str, ...]
    stores: tuple[tuple[str, str], ...]
    ranks: int = 1
    again: bool = False


class Place:
    """Where a session takes place: this rank's part of the model, and its groups.

    The rest is for tests: other stores, fields of the configuration that are not the usual ones, and `builds`, of which
    other parts a cache is made (keywords of open_rank).
    """

    def __init__(
        self,
        shard: Shard,
        new_groups: Callable[[], Groups] = solo_groups,
        open_store: Callable[[str], Storage] = open_storage,
        config: Mapping[str, Any] = MappingProxyType({}),
        builds: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.shard = shard
        self.new_groups = new_groups
        self.open_store = open_store
        self.config = config
        self.builds = builds
        self.runtime: Runtime = ThreadRuntime()


def run(session: Session, place: Place) -> list[Row]:
    """A row for each tree and store; the models for all trees share a store. ValueError: one that cannot be opened."""
    torch.set_num_threads(1)
    shards = [Shard(rank, session.ranks) for rank in range(session.ranks)]
    requests = {tree: conversations([Model(tree, shard) for shard in shards]) for tree in session.trees}
    rows: list[Row] = []
    for name, spec in session.stores:
        store = place.open_store(spec)
        for tree in session.trees:
            row = Row(tree=tree, store=name, ranks=session.ranks, again=session.again)
            _run_one(row, store, Model(tree, place.shard), requests[tree], place)
            rows.append(row)
        store.close()
    return sorted(rows, key=lambda row: session.trees.index(row.tree))


def _run_one(row: Row, store: Storage, model: Model, requests: Sequence[Request], place: Place) -> None:
    config = replace(config_of(model), **place.config)
    telemetry = Telemetry(config, place.shard.rank, place.runtime)
    cache = open_rank(config, store, place.new_groups(), place.runtime, telemetry=telemetry, **place.builds)
    engine = Engine(cache, model, () if row.again else GONE)
    try:
        for turn in range(TURNS):
            # People think before they go on; meanwhile what was said comes to the store, however slow it is.
            engine.run([request for request in requests if request.turn == turn and _is_asked(row, request)])
        contents = Computed(model, requests, config.namespace)
        row.wrong = [*engine.wrong, *contents.wrong_in(store, cache), *cache.audit(contents), *_left_over(cache)]
        cache.close()
    except FINDINGS as error:
        row.wrong = [*engine.wrong, f"{type(error).__name__}: {error}"]
    row.requests, row.aborted = engine.happened["finished"], engine.happened["aborted"]
    row.tokens = dict(engine.tokens)
    row.dropped_pages = _dropped(telemetry)
    row.wrong += _what_did_not_happen(row)


def config_of(model: Model) -> CacheConfig:
    """A cache that is too small for all the conversations, on the device and on the host."""
    shard = model.shard
    host_layout, device_layout = LAYOUTS[model.tree]
    pools = {
        WINDOW: PoolSpec(
            name=WINDOW,
            kind="window",
            window_pages=WINDOW_PAGES,
            layers=max(1, model.count(WINDOW)),
            layer_bytes=shard.page_bytes,
            host_slots=40,
            device_slots=32,
        ),
        STATE: PoolSpec(
            name=STATE,
            kind="state",
            layers=max(1, model.count(STATE)),
            layer_bytes=shard.state_bytes,
            host_slots=20,
            device_slots=14,
        ),
    }
    return CacheConfig(
        tree=model.tree,
        pools=tuple(pool for kind, pool in pools.items() if model.count(kind)),
        namespace=page_namespace(model=f"decode.{model.tree}", layout=f"{PAGE_TOKENS} tokens", dtype="float32"),
        layout=Layout(tp=shard.ranks),
        page_size=PAGE_TOKENS,
        layers=model.count(FULL),
        page_bytes=model.count(FULL) * shard.page_bytes,
        device_pages=DEVICE_PAGES,
        host_pages=HOST_PAGES,
        host_layout=host_layout,
        device_layout=device_layout,
        async_copies=True,
    )


def _is_asked(row: Row, request: Request) -> bool:
    """After a restart, only the last turn of the first conversation of each system prompt: they share nothing."""
    return not row.again or (request.turn == TURNS - 1 and request.conversation < SYSTEM_PROMPTS)


def _left_over(cache: HiCache) -> list[str]:
    """What requests have not given back."""
    left = {"pages": cache.device.allocator.pages - cache.device.allocator.available}
    left["pages"] -= cache.tree.device_pages_resident()
    for name, pool in cache.extra.items():
        used = pool.device.allocator.pages - pool.device.allocator.available
        left[name] = used - cache.tree.slots_resident[name, "device"]
    left["locks"] = sum(node.lock_ref for node in cache.tree.nodes())
    return [f"{count} {name} of the device are left over" for name, count in left.items() if count]


def _dropped(telemetry: Telemetry) -> dict[str, int]:
    dropped: Counter[str] = Counter({DEVICE: 0, HOST: 0})
    for (source, target, _), moved in telemetry.metrics.moved().items():
        if target == NOWHERE:
            dropped[source] += moved.pages
    return dict(dropped)


def _what_did_not_happen(row: Row) -> list[str]:
    """An example that never hits, drops or aborts shows nothing."""
    if row.again:
        missing = [f"no token came from {L3}"] if not row.tokens[L3] else []
        return missing + [f"after a restart, tokens came from {tier}" for tier in (L1, L2) if row.tokens[tier]]
    missing = [f"no token came from {tier}" for tier in (L1, L2, L3) if not row.tokens[tier]]
    missing += [f"no page was dropped by the {tier}" for tier, pages in row.dropped_pages.items() if not pages]
    return missing + ([] if row.aborted else ["no request was aborted"])
