"""Page numbers of one pool: who owns which, with every misuse reported at the call that makes it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import NoReturn


class PoolError(Exception):
    """A caller broke the rules of a pool; the pool is as it was before the call."""


class DoubleFree(PoolError):
    """A page was freed that is free already, or twice in one call."""


class ForeignPage(PoolError):
    """A page number that this pool does not have."""


class FreeUnderWriter(PoolError):
    """A page was freed while a thread writes into it."""


class UnownedPage(PoolError):
    """A page was read or written while nobody owns it, or its writer marks do not pair up."""


class PageAllocator:
    """`pages` page numbers, 0 .. pages-1, handed out first in, first out, so that the same calls give the same pages.

    Safe from any thread: the scheduler allocates and frees, the IO thread marks what it writes. A call that raises
    changes nothing. `lock` makes the allocator's lock (the runtime's, where there is one).
    """

    def __init__(self, pages: int, lock: Callable[[], AbstractContextManager[object]] = threading.Lock) -> None:
        if pages < 1:
            raise ValueError(f"a pool has at least one page, not {pages}")
        self.pages = pages
        self._lock = lock()
        self.reset()

    def reset(self) -> None:
        """All pages are free and in their first order, whoever had them."""
        with self._lock:
            self._free: deque[int] = deque(range(self.pages))
            self._owned: set[int] = set()
            self._writing: set[int] = set()

    @property
    def available(self) -> int:
        """Free pages."""
        with self._lock:
            return len(self._free)

    @property
    def writing(self) -> int:
        """Pages between begin_write and end_write."""
        with self._lock:
            return len(self._writing)

    def allocated_pages(self) -> list[int]:
        """The pages that somebody owns, in ascending order."""
        with self._lock:
            return sorted(self._owned)

    def alloc(self, n: int) -> tuple[int, ...] | None:
        """n pages, or None and no change when fewer are free. ValueError: n < 0."""
        if n < 0:
            raise ValueError(f"a number of pages is >= 0, not {n}")
        with self._lock:
            if n > len(self._free):
                return None
            next_free = self._free.popleft
            taken = tuple([next_free() for _ in range(n)])
            self._owned.update(taken)
            return taken

    def free(self, pages: Sequence[int]) -> None:
        """Give pages back. All or none: ForeignPage, DoubleFree or FreeUnderWriter if any page is not to be freed."""
        with self._lock:
            given = set(pages)
            if len(given) < len(pages) or not given <= self._owned or not given.isdisjoint(self._writing):
                self._refuse_free(pages)
            self._owned -= given
            self._free.extend(pages)

    def begin_write(self, *pages: int) -> None:
        """From here to end_write these pages may not be freed. UnownedPage: one is free, or has a writer."""
        with self._lock:
            given = set(pages)
            if len(given) < len(pages) or not given <= self._owned or not given.isdisjoint(self._writing):
                self._refuse_write(pages)
            self._writing |= given

    def end_write(self, *pages: int) -> None:
        """The writer is done with these. UnownedPage: nobody was writing one of them."""
        with self._lock:
            given = set(pages)
            if len(given) < len(pages) or not given <= self._writing:
                self._refuse_end(pages)
            self._writing -= given

    def check_owned(self, pages: Sequence[int]) -> None:
        """UnownedPage or ForeignPage unless every page is allocated."""
        with self._lock:
            if self._owned.issuperset(pages):
                return
            for page in pages:
                self._check_known(page)
                if page not in self._owned:
                    raise UnownedPage(f"page {page} is used while it is free")

    # Pages are checked all together, which is quick; which of them is wrong is only asked when one is.

    def _refuse_free(self, pages: Sequence[int]) -> NoReturn:
        seen: set[int] = set()
        for page in pages:
            self._check_known(page)
            if page in seen or page not in self._owned:
                raise DoubleFree(f"page {page} is freed twice")
            if page in self._writing:
                raise FreeUnderWriter(f"page {page} is freed while it is being written")
            seen.add(page)
        raise AssertionError(f"nothing is wrong with {pages}")

    def _refuse_write(self, pages: Sequence[int]) -> NoReturn:
        begun: set[int] = set()
        for page in pages:
            self._check_known(page)
            if page not in self._owned:
                raise UnownedPage(f"page {page} is written while it is free")
            if page in self._writing or page in begun:
                raise UnownedPage(f"page {page} has two writers")
            begun.add(page)
        raise AssertionError(f"nothing is wrong with {pages}")

    def _refuse_end(self, pages: Sequence[int]) -> NoReturn:
        ended: set[int] = set()
        for page in pages:
            self._check_known(page)
            if page not in self._writing or page in ended:
                raise UnownedPage(f"page {page} ends a write that never began")
            ended.add(page)
        raise AssertionError(f"nothing is wrong with {pages}")

    def _check_known(self, page: int) -> None:
        if not 0 <= page < self.pages:
            raise ForeignPage(f"page {page} is not one of this pool's {self.pages} pages")
