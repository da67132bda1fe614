"""L1: pages in device memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from hicache_impl.config import CacheConfig
from hicache_impl.tensor_pool import TensorPool

if TYPE_CHECKING:
    from hicache_impl.host_pool import HostPool


class DevicePool(TensorPool):
    """Device pages, where a request computes; only the scheduler touches them."""

    @classmethod
    def from_config(
        cls, config: CacheConfig, lock: Callable[[], AbstractContextManager[object]] = threading.Lock
    ) -> DevicePool:
        """`config.device_pages` pages on `config.device`."""
        return cls(
            config.device_pages,
            config.stored_layers,
            config.stored_bytes,
            device=config.device,
            layout=config.device_layout,
            lock=lock,
        )

    def load_from(self, host: HostPool, host_pages: Sequence[int], device_pages: Sequence[int]) -> None:
        """Load-back: copy host pages into device pages, one to one (errors: see copy_pages)."""
        self.copy_pages(host, host_pages, device_pages)
