"""Threaded reference implementation of the prefetch pipeline of a hierarchical KV cache.

    HiCache, open_rank        the scheduler's side of one rank; `open_rank` builds and starts it
    Reference                 all ranks as threads of one process, behind the adapter protocol
    CacheConfig, PrefixKey    sizes and policy; what a request asks for
    open_storage              stores: memory, file:DIRECTORY
    ThreadRuntime, GatedRuntime     the seam to threads, queues and clock; gated for tests
    Layout, thread_groups, process_groups, solo_groups     where the ranks are, and how they agree
    EventLog                  what a rank reports

Names are loaded when they are first used, so that what needs no tensors does not wait for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hicache_impl.adapter import Reference
    from hicache_impl.cache import HiCache, open_rank
    from hicache_impl.config import CacheConfig
    from hicache_impl.events import EventLog
    from hicache_impl.gated import GatedRuntime
    from hicache_impl.grid import process_groups, thread_groups
    from hicache_impl.keys import PrefixKey
    from hicache_impl.layout import Layout
    from hicache_impl.ranks import solo_groups
    from hicache_impl.runtime import ThreadRuntime
    from hicache_impl.storage import open_storage

_HOMES = {
    "Reference": "adapter",
    "HiCache": "cache",
    "open_rank": "cache",
    "CacheConfig": "config",
    "EventLog": "events",
    "GatedRuntime": "gated",
    "process_groups": "grid",
    "thread_groups": "grid",
    "PrefixKey": "keys",
    "Layout": "layout",
    "solo_groups": "ranks",
    "ThreadRuntime": "runtime",
    "open_storage": "storage",
}

__all__ = [
    "HiCache",
    "open_rank",
    "Reference",
    "CacheConfig",
    "PrefixKey",
    "open_storage",
    "ThreadRuntime",
    "GatedRuntime",
    "Layout",
    "thread_groups",
    "process_groups",
    "solo_groups",
    "EventLog",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
