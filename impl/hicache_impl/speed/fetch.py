"""How fast pages come from storage to the host: through the whole pipeline, from each store, and by bare copies.

Registered as the entry point `fetch` of the group `hicheck.benchmarks`. One cache, one host pool and one set of pages
for all: a lane attaches its own store. Plain threads, one rank, no log.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType

import torch

from hicache_impl.cache import HiCache, open_rank
from hicache_impl.config import CacheConfig
from hicache_impl.content import page_keys
from hicache_impl.ranks import solo_groups
from hicache_impl.runtime import ThreadRuntime
from hicache_impl.speed.shape import PAGE_TOKENS, Shape, shape_for
from hicache_impl.speed.stores import EXTRA_COPIES, StoreFor, opened
from hicache_impl.storage import Storage
from hicache_impl.storage.memory import MemoryStorage

POLL_S = 0.0005
"""A scheduler looks after its requests about so often."""
WAIT_S = 120.0
WINDOW = 4
"""Operations that are in flight at a time: the store is asked for one while the other is read."""
FILL_PAGES = 64
COPY = "copy"
ROUND_BYTES = 256 << 20


class WrongBytes(Exception):
    """What was fetched is not what was stored, so how fast it was is of no interest."""


@dataclass(frozen=True)
class Lane:
    """A way for pages to come. `checksums`: None where it has no such choice."""

    store: str
    checksums: bool | None


@dataclass(frozen=True)
class Round:
    """What all pages together took: seconds, seconds of processors, and how many of these the reading thread had."""

    seconds: float
    cpu_seconds: float
    reader_seconds: float


class Fetch:
    """The lanes of pages of one size. `unavailable`: stores that cannot be had here, each with the reason.

    A context manager. ValueError: pages of such a size cannot be had.
    """

    def __init__(self, stores: Sequence[str], page_bytes: int, round_bytes: int = ROUND_BYTES) -> None:
        self.shape: Shape = shape_for(page_bytes, round_bytes)
        self.unavailable: dict[str, str] = {}
        self.extra_copies = EXTRA_COPIES
        self.lanes = [Lane(COPY, None)]
        self._stack = ExitStack()
        self._storages: dict[Lane, Storage] = {}
        self._threads_before = torch.get_num_threads()
        # The pages of a rank are read by one thread; so what it is compared with has one, too.
        torch.set_num_threads(1)
        self._stack.callback(torch.set_num_threads, self._threads_before)
        self._pages = self.shape.contents()
        self._keys = self.shape.keys()
        self._cache = self._open_cache()
        self._stack.callback(self._close_cache)
        self._names = page_keys(self._cache.config, 0, self.shape.hashes())
        for name in stores:
            self._open(name)

    def __enter__(self) -> Fetch:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let go of everything; may be called twice."""
        self._stack.close()

    def round(self, lane: Lane) -> Round:
        """Measure one."""
        if lane.store == COPY:
            return self._copy()
        self._cache.attach_storage(self._storages[lane])
        try:
            return self._fetch()
        finally:
            self._forget()
            self._cache.detach_storage()

    def check(self, lane: Lane) -> None:
        """A round that is not measured. WrongBytes: it brought others than were stored."""
        if lane.store == COPY:
            self._copy()
            return
        self._cache.host.data.zero_()
        self._cache.attach_storage(self._storages[lane])
        try:
            self._fetch()
            self._check_bytes(lane)
        finally:
            self._forget()
            self._cache.detach_storage()

    def _open_cache(self) -> HiCache:
        config = CacheConfig(
            host_pages=self.shape.pages,
            device_pages=1,
            page_bytes=self.shape.page_bytes,
            page_size=PAGE_TOKENS,
            limit_pages=2 * self.shape.pages,
            read_batch_pages=128,
        )
        cache = open_rank(config, MemoryStorage(), solo_groups(), ThreadRuntime())
        cache.detach_storage()
        return cache

    def _close_cache(self) -> None:
        self._cache.close()
        for storage in self._storages.values():
            storage.close()

    def _open(self, name: str) -> None:
        found = opened(name, self.shape.total_bytes, self._stack)
        if isinstance(found, str):
            self.unavailable[name] = found
            return
        is_filled = False
        for checksums in (True, False):
            lane = Lane(name, checksums)
            storage = self._storages[lane] = found.open(checksums)
            if not (is_filled and found.is_shared):
                self._fill(lane, storage, found)
            is_filled = True
        self.lanes += [Lane(name, False), Lane(name, True)]

    def _fill(self, lane: Lane, storage: Storage, found: StoreFor) -> None:
        for first in range(0, len(self._names), FILL_PAGES):
            names = self._names[first : first + FILL_PAGES]
            if not all(storage.put_from(names, list(self._pages[first : first + FILL_PAGES]))):
                raise WrongBytes(f"{lane.store} does not take {self.shape.total_bytes >> 20} MiB")

    def _copy(self) -> Round:
        host = self._cache.host
        pairs = list(zip(host.views(range(host.pages)), self._pages.view(host.data.shape), strict=True))
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        for into, page in pairs:
            into.copy_(page)
        cpu_s = time.process_time() - began_cpu_s
        return Round(time.perf_counter() - began_s, cpu_s, cpu_s)

    def _fetch(self) -> Round:
        """Submit the operations, WINDOW of them in flight at a time, and tick and poll until the last has ended."""
        cache = self._cache
        until_s = time.monotonic() + WAIT_S
        reader = _clock_of(f"io-{cache.rank}")
        began_s, began_cpu_s, began_reader_s = time.perf_counter(), time.process_time(), time.clock_gettime(reader)
        coming = enumerate(self._keys)
        waiting: set[str] = set()
        pages = 0
        while True:
            for number, key in itertools.islice(coming, WINDOW - len(waiting)):
                cache.submit(f"r{number}", key)
                waiting.add(f"r{number}")
            if not waiting:
                break
            time.sleep(POLL_S)
            cache.tick()
            ready = {rid: poll for rid, poll in cache.poll(waiting).items() if poll.ready}
            waiting -= ready.keys()
            pages += sum(poll.pages for poll in ready.values())
            if time.monotonic() > until_s:
                raise WrongBytes(f"{len(waiting)} operations do not end")
        seconds, cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
        reader_s = time.clock_gettime(reader) - began_reader_s
        if pages != self.shape.pages:
            raise WrongBytes(f"{pages} of {self.shape.pages} pages came")
        return Round(seconds, cpu_s, reader_s)

    def _check_bytes(self, lane: Lane) -> None:
        for number, key in enumerate(self._keys):
            first = number * self.shape.operation_pages
            pages = self._cache.match(key).host_pages
            for view, page in zip(self._cache.host.views(pages), self._pages[first:], strict=False):
                if not torch.equal(view.flatten(), page):
                    raise WrongBytes(f"{lane.store} brought other bytes than were stored")

    def _forget(self) -> None:
        """The host is empty again."""
        self._cache._make_room(self.shape.pages)


def _clock_of(name: str) -> int:
    """The clock of the processor time of a thread of this process."""
    (ident,) = (thread.ident for thread in threading.enumerate() if thread.name == name)
    assert ident is not None
    return time.pthread_getcpuclockid(ident)


def open_fetch(stores: Sequence[str], page_bytes: int, round_bytes: int = ROUND_BYTES) -> Fetch:
    """See Fetch."""
    return Fetch(stores, page_bytes, round_bytes)
