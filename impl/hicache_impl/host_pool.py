"""L2: pages in host memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch

from hicache_impl.config import CacheConfig
from hicache_impl.tensor_pool import TensorPool

if TYPE_CHECKING:
    from hicache_impl.device_pool import DevicePool


class HostPool(TensorPool):
    """Host pages, written by the IO thread (from storage) and by the scheduler (write-through)."""

    @classmethod
    def from_config(
        cls, config: CacheConfig, lock: Callable[[], AbstractContextManager[object]] = threading.Lock
    ) -> HostPool:
        """`config.host_pages` pages; pinned only when the device is CUDA, because only then does pinning help."""
        pinned = torch.device(config.device).type == "cuda"
        layout, layers, size = config.host_layout, config.stored_layers, config.stored_bytes
        return cls(config.host_pages, layers, size, pinned=pinned, layout=layout, lock=lock)

    def store_from(self, device: DevicePool, device_pages: Sequence[int], host_pages: Sequence[int]) -> None:
        """Write-through: copy device pages into host pages, one to one (errors: see copy_pages)."""
        self.copy_pages(device, device_pages, host_pages)
