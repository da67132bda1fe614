"""What the host and the device pool have in common: one tensor of pages and the allocator of its page numbers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import torch

from hicache_impl.config import PoolLayout
from hicache_impl.page_pool import ForeignPage, PageAllocator
from hicache_impl.storage.pages import KnownPages, Runs, runs_of


class TensorPool:
    """`data`: uint8 (pages, layers, layer_bytes), or (layers, pages, layer_bytes) for the layout `layer_first`.

    `layer_bytes` is page_bytes // layers. `allocator`: who owns which page. ValueError: sizes that do not make whole
    layers, or that the device has no memory for.
    """

    def __init__(
        self,
        pages: int,
        layers: int,
        page_bytes: int,
        *,
        device: str = "cpu",
        pinned: bool = False,
        layout: PoolLayout = "page_first",
        lock: Callable[[], AbstractContextManager[object]] = threading.Lock,
    ) -> None:
        if layers < 1 or page_bytes < layers or page_bytes % layers:
            raise ValueError(f"page_bytes ({page_bytes}) must be a positive multiple of layers ({layers})")
        self.pages = pages
        self.layers = layers
        self.layout = layout
        self.allocator = PageAllocator(pages, lock)
        shape = (*((pages, layers) if layout == "page_first" else (layers, pages)), page_bytes // layers)
        try:
            self.data = torch.zeros(shape, dtype=torch.uint8, device=device, pin_memory=pinned)
        except (RuntimeError, MemoryError) as error:
            raise ValueError(f"no memory for {pages} pages of {page_bytes} bytes on {device}") from error
        self._kept: dict[int, tuple[torch.Tensor, Runs]] = {}
        self._by_page = self.data if layout == "page_first" else self.data.transpose(0, 1)

    def reset(self) -> None:
        """All pages are free and hold zeros, so that what an earlier life left cannot pass for what was read."""
        self.allocator.reset()
        self.data.zero_()

    def view(self, page: int) -> torch.Tensor:
        """The page itself, not a copy: uint8 (layers, layer_bytes), whatever the layout. ForeignPage: no such page."""
        if not 0 <= page < self.pages:
            raise ForeignPage(f"page {page} is not one of this pool's {self.pages} pages")
        return self._by_page[page]

    def views(self, pages: Sequence[int]) -> list[torch.Tensor]:
        """`view` of each, made once and kept. On the CPU, stores find their memory known (see KnownPages)."""
        kept = self._kept
        for page in pages:
            if page not in kept:
                view = self.view(page)
                kept[page] = (view, (None if view.is_cuda else runs_of(view)) or Runs([]))
        found = [kept[page] for page in pages]
        views = [view for view, _ in found]
        return views if self.data.is_cuda else KnownPages(views, [runs for _, runs in found])

    def copy_pages(self, source: TensorPool, source_pages: Sequence[int], pages: Sequence[int]) -> None:
        """Copy page by page and return when the bytes are in place.

        ValueError: lists of different length. UnownedPage: a page that nobody owns, on either side.
        """
        self.check_copy(source, source_pages, pages)
        for from_page, to_page in zip(source_pages, pages, strict=True):
            self._by_page[to_page].copy_(source._by_page[from_page], non_blocking=True)
        for pool in (source, self):
            if pool.data.is_cuda:
                # Only after this may the caller free the source or hand out the destination.
                torch.cuda.current_stream(pool.data.device).synchronize()

    def copy_layer(self, source: TensorPool, source_pages: Sequence[int], pages: Sequence[int], layer: int) -> None:
        """Copy one layer of each page. Where a pool is on a CUDA device, this only puts it into the current stream."""
        for from_page, to_page in zip(source_pages, pages, strict=True):
            self._by_page[to_page, layer].copy_(source._by_page[from_page, layer], non_blocking=True)

    def check_copy(self, source: TensorPool, source_pages: Sequence[int], pages: Sequence[int]) -> None:
        """May these pages be copied here? Errors as of `copy_pages`."""
        if len(source_pages) != len(pages):
            raise ValueError(f"{len(source_pages)} source pages for {len(pages)} destinations")
        source.allocator.check_owned(source_pages)
        self.allocator.check_owned(pages)
