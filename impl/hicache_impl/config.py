"""Configuration of one cache: sizes, thresholds and policy, the same on every rank."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from hicache_impl.pool_spec import PoolSpec, checked_pools

Policy = Literal["best_effort", "wait_complete", "timeout"]
POLICIES: tuple[str, ...] = get_args(Policy)


@dataclass(frozen=True, kw_only=True)
class CacheConfig:
    """Sizes in pages, bytes or seconds as the last word of each name says.

    `page_size` is in tokens. `page_bytes` counts all layers of one page on one rank and is a multiple of `layers`.
    `limit_pages` is what the limiter compares occupied pages with (a submission is declined while
    occupied >= limit); 0 means `host_pages`, and reading the field then gives that number.
    `tree` is the kind of tree (see `trees`), `pools` what the model keeps beside its pages, also given as the fields
    of each. Raises ValueError with one line that names the field.
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
    ranks: int = 1
    namespace: str = ""
    device: str = "cpu"
    query_batch_pages: int = 128
    tree: str = "hiradix"
    pools: tuple[PoolSpec, ...] = ()

    def __post_init__(self) -> None:
        if self.limit_pages == 0:
            object.__setattr__(self, "limit_pages", self.host_pages)
        for name in ("host_pages", "device_pages", "page_size", "layers", "page_bytes", "threshold_pages"):
            _check_count(name, getattr(self, name))
        for name in ("limit_pages", "ranks", "query_batch_pages"):
            _check_count(name, getattr(self, name))
        for name in ("timeout_s_base", "timeout_s_per_page", "timeout_s_max"):
            seconds = getattr(self, name)
            if not (math.isfinite(seconds) and seconds >= 0):
                raise ValueError(f"{name} must be a finite number of seconds >= 0, not {seconds!r}")
        if self.page_bytes % self.layers:
            raise ValueError(f"page_bytes ({self.page_bytes}) must be a multiple of layers ({self.layers})")
        if self.policy not in POLICIES:
            raise ValueError(f"policy must be one of {', '.join(POLICIES)}, not {self.policy!r}")

        object.__setattr__(self, "pools", checked_pools(self.tree, self.pools))

    @property
    def layer_bytes(self) -> int:
        """Bytes of one layer of one page."""
        return self.page_bytes // self.layers

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
