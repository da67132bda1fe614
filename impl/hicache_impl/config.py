"""Configuration of one cache: sizes, thresholds and policy, the same on every rank."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from hicache_impl.layout import ONE_RANK, Layout, checked_layout
from hicache_impl.pool_spec import PoolSpec, checked_pools

Policy = Literal["best_effort", "wait_complete", "timeout"]
POLICIES: tuple[str, ...] = get_args(Policy)
WritePolicy = Literal["write_through", "write_through_selective", "write_back"]
WRITE_POLICIES: tuple[str, ...] = get_args(WritePolicy)
PoolLayout = Literal["page_first", "layer_first"]
POOL_LAYOUTS: tuple[str, ...] = get_args(PoolLayout)
READ_BATCH_BYTES = 8 * 2**20


@dataclass(frozen=True, kw_only=True)
class CacheConfig:
    """Sizes in pages, bytes or seconds as the last word of each name says.

    `page_size` is in tokens. `page_bytes` counts all layers of one page on one rank and is a multiple of `layers`.
    `limit_pages` is what the limiter compares occupied pages with (a submission is declined while
    occupied >= limit); 0 means `host_pages`, and reading the field then gives that number.

    `write_policy`: when pages go from the device to the host. `write_through`: as soon as they are computed;
    `write_through_selective`: when they were inserted `write_through_hits` times; `write_back`: when the device is to
    forget them. `async_copies`: copies between device and host end later than they begin. `load_back_pages_max`: so
    many pages may be on their way from the host to the device at a time; 0 means `device_pages`, as above.
    `host_layout`, `device_layout`: whether the pages or the layers of a pool come first in memory; what a page holds
    is the same.

    `read_batch_pages`: so many pages of an operation are read from storage by one call, or fewer, so that they are no
    more than READ_BATCH_BYTES; in between, a request that is gone is noticed.

    `tree` is the kind of tree (see `trees`), `pools` what the model keeps beside its pages, also given as the fields
    of each. `layout`: where the ranks are, also given as its fields. `replicated`: tensor-parallel ranks compute the
    same pages (as latent attention does), so the first of them alone stores these, for all; what is beside them is
    another matter (see PoolSpec).

    Raises ValueError with one line that names the field.
    """

    host_pages: int
    device_pages: int
    page_size: int = 1
    layers: int = 2
    page_bytes: int = 64
    threshold_pages: int = 1
    limit_pages: int = 0
    policy: Policy = "wait_complete"
    timeout_s_base: float = 1.0
    timeout_s_per_page: float = 0.1
    timeout_s_max: float = 10.0
    layout: Layout = ONE_RANK
    namespace: str = ""
    device: str = "cpu"
    query_batch_pages: int = 128
    read_batch_pages: int = 32
    tree: str = "hiradix"
    pools: tuple[PoolSpec, ...] = ()
    replicated: bool = False
    write_policy: WritePolicy = "write_through"
    write_through_hits: int = 2
    async_copies: bool = False
    load_back_pages_max: int = 0
    host_layout: PoolLayout = "page_first"
    device_layout: PoolLayout = "page_first"

    def __post_init__(self) -> None:
        if self.limit_pages == 0:
            object.__setattr__(self, "limit_pages", self.host_pages)
        if self.load_back_pages_max == 0:
            object.__setattr__(self, "load_back_pages_max", self.device_pages)
        for name in ("host_pages", "device_pages", "page_size", "layers", "page_bytes", "threshold_pages"):
            _check_count(name, getattr(self, name))
        for name in ("limit_pages", "query_batch_pages", "read_batch_pages"):
            _check_count(name, getattr(self, name))
        for name in ("write_through_hits", "load_back_pages_max"):
            _check_count(name, getattr(self, name))
        for name in ("timeout_s_base", "timeout_s_per_page", "timeout_s_max"):
            seconds = getattr(self, name)
            if not (math.isfinite(seconds) and seconds >= 0):
                raise ValueError(f"{name} must be a finite number of seconds >= 0, not {seconds!r}")
        if self.page_bytes % self.layers:
            raise ValueError(f"page_bytes ({self.page_bytes}) must be a multiple of layers ({self.layers})")
        _check_choice("policy", self.policy, POLICIES)
        _check_choice("write_policy", self.write_policy, WRITE_POLICIES)
        for name in ("host_layout", "device_layout"):
            _check_choice(name, getattr(self, name), POOL_LAYOUTS)
        for name in ("async_copies", "replicated"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be true or false, not {getattr(self, name)!r}")

        object.__setattr__(self, "layout", checked_layout(self.layout))
        object.__setattr__(self, "pools", checked_pools(self.tree, self.pools))

    @property
    def ranks(self) -> int:
        """Ranks that have one cache together: those of one replica."""
        return self.layout.ranks

    @property
    def layer_bytes(self) -> int:
        """Bytes of one layer of one page."""
        return self.page_bytes // self.layers

    @property
    def pages_a_read(self) -> int:
        """Pages that one call reads from storage."""
        return max(1, min(self.read_batch_pages, READ_BATCH_BYTES // self.stored_bytes))

    def shard(self, rank: int) -> str:
        """The name of what this rank has of each page: its bytes and their name in storage depend on it."""
        return self.layout.shard(rank, self.replicated)

    def stores_pages(self, rank: int) -> bool:
        """Is it this rank's matter to store its pages?"""
        return self.layout.is_writer(rank, self.replicated)

    @property
    def stored_layers(self) -> int:
        """Layers of a page with those of the sidecars that are packed behind them."""
        return self.layers + sum(pool.layers for pool in self.pools if pool.place == "packed")

    @property
    def stored_bytes(self) -> int:
        """Bytes of a page with the sidecars that are packed into it."""
        return self.stored_layers * self.layer_bytes

    def timeout_s(self, pages: int) -> float:
        """Seconds that a fetch of `pages` pages may take under the `timeout` policy."""
        return min(self.timeout_s_base + self.timeout_s_per_page * pages, self.timeout_s_max)


def _check_count(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be an integer >= 1, not {value!r}")


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, not {value!r}")
