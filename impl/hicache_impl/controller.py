"""The worker threads of one rank and the queues between them and the scheduler.

    prefetch_queue   scheduler -> query      hit_queue           query -> scheduler
    prefetch_buffer  scheduler -> IO         host_release_queue  IO and scheduler -> scheduler, page by page
    backup_queue     scheduler -> backup     ack_backup_queue    backup -> scheduler

Each extra pool has a release queue of its own beside host_release_queue, slot by slot.
Each queue has one consumer. A store that raises ends the operation or fails the page; it never ends a thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import torch

from hicache_impl import events
from hicache_impl.config import CacheConfig
from hicache_impl.content import page_keys
from hicache_impl.events import Log
from hicache_impl.extra_pools import ExtraPool
from hicache_impl.host_pool import HostPool
from hicache_impl.keys import chain_hashes
from hicache_impl.operation import Operation
from hicache_impl.ranks import Group
from hicache_impl.runtime import Queue, Runtime, Stalled, Thread, Waiter
from hicache_impl.storage import Storage
from hicache_impl.trees.node import Node

WORKERS = ("query", "io", "backup")


class WorkerDied(Exception):
    """A worker thread of this rank ended by an exception of its own; the cache can only be closed."""


@dataclass(frozen=True)
class SlotToStore:
    """A host slot of an extra pool, and the hash of the page that it is beside."""

    pool: str
    page_hash: bytes
    slot: int


@dataclass(frozen=True, eq=False)
class BackupJob:
    """Pages to store. `hashes` and `host_pages` are copies, because the node may be split meanwhile.

    `slots` are what is beside them in extra pools, or beside pages that are stored already. They are held (see
    RadixTree.hold_slots) for the `node_pages` pages that the node had.
    """

    node: Node
    hashes: tuple[bytes, ...]
    host_pages: tuple[int, ...]
    slots: tuple[SlotToStore, ...] = ()
    node_pages: int = 0


@dataclass(frozen=True)
class BackupAck:
    """A job is done; `failed_pages` of its pages and, by pool, `failed_slots` of its slots are not in the store."""

    job: BackupJob
    failed_pages: int
    failed_slots: Mapping[str, int]


@dataclass(frozen=True)
class Filled:
    """What a read came to: how many places were filled, from the first, and why the next was not (None: all were)."""

    count: int
    failure: Literal["miss", "raised"] | None = None


class _Close:
    """The last item of a queue."""


@dataclass(frozen=True, eq=False)
class _Fence:
    """An item that the worker answers when it has done everything that was queued before."""

    passed: Waiter


class Controller:
    """Queues and threads of one rank. The scheduler puts and drains; it never waits here."""

    def __init__(
        self,
        config: CacheConfig,
        rank: int,
        host: HostPool,
        storage: Storage,
        group: Group,
        runtime: Runtime,
        log: Log,
        extra: Mapping[str, ExtraPool] = MappingProxyType({}),
    ) -> None:
        self.config = config
        self.rank = rank
        self.host = host
        self.storage = storage
        self.group = group
        self.runtime = runtime
        self.log = log
        self.extra = extra
        self.prefetch_queue = runtime.queue()
        self.hit_queue = runtime.queue()
        self.prefetch_buffer = runtime.queue()
        self.host_release_queue = runtime.queue()
        self.backup_queue = runtime.queue()
        self.ack_backup_queue = runtime.queue()
        self.slot_release_queues = {name: runtime.queue() for name in extra}
        # One writer a key: each kind of call belongs to one thread, and so does each queue from which items are taken.
        self.storage_errors: Counter[str] = Counter({"exists": 0, "get": 0, "put": 0})
        self._taken: Counter[int] = Counter()
        self.failure: BaseException | None = None
        # Told by the IO thread, if anybody wants to know.
        self.on_slots_read: Callable[[str, Filled], None] | None = None
        self._closing = False
        self._threads: list[Thread] = []

    def start(self) -> None:
        """Start the three workers. Whatever the runtime raises: some are not started, and `close` ends the others."""
        for name, loop in zip(WORKERS, (self._query_loop, self._io_loop, self._backup_loop), strict=True):
            thread = self.runtime.thread(f"{name}-{self.rank}", self._guarded(name, loop))
            thread.start()
            self._threads.append(thread)

    def started(self) -> Sequence[str]:
        """The workers that `start` has started."""
        return WORKERS[: len(self._threads)]

    def check_alive(self) -> None:
        """WorkerDied if a worker ended by an exception."""
        if self.failure is not None:
            raise WorkerDied(f"a worker of rank {self.rank} died: {self.failure!r}") from self.failure

    def queue_lengths(self) -> dict[str, int]:
        """Items in every queue now."""
        return {
            "prefetch": self.prefetch_queue.qsize(),
            "hit": self.hit_queue.qsize(),
            "buffer": self.prefetch_buffer.qsize(),
            "release": self.host_release_queue.qsize(),
            "backup": self.backup_queue.qsize(),
            "ack_backup": self.ack_backup_queue.qsize(),
            **{f"release {name}": queue.qsize() for name, queue in self.slot_release_queues.items()},
        }

    def close(self, timeout_s: float) -> list[str]:
        """End the workers within about `timeout_s`; returns the names of those that did not end. May be called twice.

        What is still queued is passed through without touching the store, because a peer may wait for this rank in a
        collective of the query group; when that does not come to an end, the group is aborted.
        """
        if not self._closing:
            self._closing = True
            for queue in (self.prefetch_queue, self.prefetch_buffer, self.backup_queue):
                queue.put(_Close())
        for _ in range(2):
            for thread in self._threads:
                thread.join(timeout_s / (2 * len(self._threads)))
            if not any(thread.is_alive() for thread in self._threads):
                break
            self.group.abort(f"rank {self.rank} closes")
        return [name for name, thread in zip(WORKERS, self._threads, strict=False) if thread.is_alive()]

    def settle(self, timeout_s: float) -> None:
        """Return when each worker has done what is queued; at once after `close`. Stalled: for `timeout_s` seconds no
        worker has come to anything else, however much is queued."""
        if self._closing:
            return
        fences = [_Fence(self.runtime.event()) for _ in self._threads]
        for queue, fence in zip((self.prefetch_queue, self.prefetch_buffer, self.backup_queue), fences, strict=False):
            queue.put(fence)
        taken = dict(self._taken)
        while not all(fence.passed.wait(timeout_s) for fence in fences):
            self.check_alive()
            before, taken = taken, dict(self._taken)
            if taken == before:
                raise Stalled(f"the workers of rank {self.rank} did nothing for {timeout_s:g} s and do not rest")

    def _items(self, queue: Queue) -> Iterator[Any]:
        """What the scheduler put, until the queue is closed."""
        while not isinstance(item := queue.get(), _Close):
            self._taken[id(queue)] += 1
            if isinstance(item, _Fence):
                item.passed.set()
            else:
                yield item

    def _guarded(self, name: str, loop: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                loop()
            except BaseException as error:
                if self._closing:
                    # Peers may be gone already; nobody waits for this thread's work any more.
                    self.log.emit(events.THREAD_ENDED, thread=name)
                    return
                self.failure = error
                self.log.emit(events.DIED, thread=name, error=repr(error))
                # A dead query thread would leave its peers waiting for it in every later collective.
                self.group.abort(f"the {name} thread of rank {self.rank} died: {error!r}")
            else:
                self.log.emit(events.THREAD_ENDED, thread=name)

        return run

    # The query thread.

    def _query_loop(self) -> None:
        for op in self._items(self.prefetch_queue):
            self.runtime.gate("query.take", self.rank, op.id)
            self._query(op)

    def _query(self, op: Operation) -> None:
        """Ask the store, agree with the other ranks, tell the scheduler."""
        wanted = op.take_for_query() and not self._closing
        self.runtime.gate("query.ask", self.rank, op.id)
        hashes = chain_hashes(op.key, op.parent_hash) if wanted else ()
        hit = self._agree_ends(op, hashes) if self.extra else self._ask_storage(hashes)
        self.log.emit(events.QUERY_ASKED, op.id, hit=hit)
        self.runtime.gate("query.asked", self.rank, op.id)
        hit = self._agree_hit(hit)
        op.agree_hit(hashes[:hit])
        self.runtime.gate("query.agreed", self.rank, op.id)
        self.log.emit(events.QUERY_PUT, op.id)
        self._hand_over(op)

    def _hand_over(self, op: Operation) -> None:
        """Whatever was hit: what it is worth, the scheduler decides."""
        self.hit_queue.put(op)

    def _ask_storage(self, hashes: Sequence[bytes]) -> int:
        """Pages from the first that the store says it has; a store that raises or answers nonsense has none."""
        hit = 0
        for start in range(0, len(hashes), self.config.query_batch_pages):
            batch = self._keys(hashes[start : start + self.config.query_batch_pages])
            found = self._count_stored(batch)
            if found is None:
                return 0
            hit += found
            if found < len(batch):
                break
        return hit

    def _agree_ends(self, op: Operation, hashes: Sequence[bytes]) -> int:
        """Where all pools have on all ranks what a prefix needs; returns the last such end.

        Why a flag for each end, and not a number for each pool: what serves at the last end of one rank need not serve
        at a shorter end of another.
        """
        serves = self._ends_here(op, hashes)
        flags = [int(end < len(serves) and serves[end]) for end in range(1, op.span_pages + 1)]
        op.ends = tuple(end for end, flag in enumerate(self.group.all_min(flags), 1) if flag)
        return max(op.ends, default=0)

    def _ends_here(self, op: Operation, hashes: Sequence[bytes]) -> list[bool]:
        """For each number of pages 0 .. the hit of the pages: does the store have what such a prefix needs?"""
        hashes = hashes[: self._ask_storage(hashes)]
        serves = [True] * (len(hashes) + 1)
        for pool in self.extra.values():
            # What is beside known pages is asked for too, unless it comes and goes with them.
            known = [True] * len(op.before) if pool.component.beside_pages else self._are_stored(pool, op.before)
            ends = pool.component.serves([*known, *self._are_stored(pool, hashes)])[len(known) :]
            serves = [so_far and here for so_far, here in zip(serves, ends, strict=True)]
        return serves

    def _are_stored(self, pool: ExtraPool, hashes: Sequence[bytes]) -> list[bool]:
        """For each page, whether the store says that it has what is beside it in this pool; False if it raises."""
        keys = [pool.key(page_hash, self.rank) for page_hash in hashes]
        present: list[bool] = []
        while len(present) < len(keys):
            batch = keys[len(present) : len(present) + self.config.query_batch_pages]
            found = self._count_stored(batch)
            if found is None:
                return [False] * len(keys)
            # The answer ends at the first that is missing.
            present += [True] * found + [False] * (found < len(batch))
        return present

    def _count_stored(self, batch: Sequence[str]) -> int | None:
        """How many from the first; None if the store raises or answers nonsense."""
        try:
            found = int(self.storage.exists(batch))
            if not 0 <= found <= len(batch):
                raise ValueError(f"a store said that {found} of {len(batch)} pages exist")
        except Exception:
            self.storage_errors["exists"] += 1
            return None
        return found

    def _agree_hit(self, hit: int) -> int:
        """The hit that every rank has."""
        return self.group.all_min([hit])[0]

    # The IO thread.

    def _io_loop(self) -> None:
        for op in self._items(self.prefetch_buffer):
            self.runtime.gate("io.take", self.rank, op.id)
            if all(pool.component.beside_pages for pool in self.extra.values()):
                self._fetch_pages(op)
            else:
                self._fetch_whole(op)
            self._release_tail(op)

    def _fetch_pages(self, op: Operation) -> None:
        """Read batch by batch until all pages are counted, one fails, or the operation is terminated."""
        for batch in self._batches(op):
            self.runtime.gate("io.page", self.rank, op.id)
            if not op.start_page(batch[0]):
                return
            filled = self._read_pages(op, batch)
            if filled.count and not op.count_pages(batch[: filled.count]):
                return
            if filled.failure is not None:
                if not filled.count or op.start_page(batch[filled.count]):
                    op.fail_page(batch[filled.count], filled.failure)
                return

    def _fetch_whole(self, op: Operation) -> None:
        """Read all pages, then what else the end of the prefix needs; all count together, or none.

        For models with windows or states, where a part of what was granted serves nobody.
        """
        self.runtime.gate("io.page", self.rank, op.id)
        if not op.start_page(0):
            return
        failure = self._read_whole(op)
        if failure is None:
            op.count_pages(range(op.granted_pages))
        else:
            op.fail_page(0, failure)

    def _read_whole(self, op: Operation) -> str | None:
        """Until it is terminated; None, or why something is missing."""
        for batch in self._batches(op):
            if batch[0]:
                if op.is_terminated:
                    return None
                self.runtime.gate("io.page", self.rank, op.id)
            if failure := self._read_pages(op, batch).failure:
                return failure
        for pool in self.extra.values():
            if pool.component.beside_pages or op.is_terminated:
                continue
            if failure := self._read_slots(op, pool, op.slots.get(pool.name, {})).failure:
                return failure
        return None

    def _batches(self, op: Operation) -> Iterator[range]:
        """The granted pages, as many at a time as are read together."""
        size, granted = self.config.pages_a_read, op.granted_pages
        return (range(first, min(first + size, granted)) for first in range(0, granted, size))

    def _read_pages(self, op: Operation, pages: range) -> Filled:
        """Fill the pool pages, and what is beside them, from the store."""
        host_pages = op.host_pages[pages.start : pages.stop]
        self.host.allocator.begin_write(*host_pages)
        try:
            filled = self._get(self._keys([op.hashes[page] for page in pages]), self.host.views(host_pages))
        finally:
            # Here and not later, so that a page freed under this thread can be told from one freed after it.
            self.runtime.gate("io.copied", self.rank, op.id)
            self.host.allocator.end_write(*host_pages)
        beside = self._read_beside(op, pages[: filled.count])
        return filled if beside.failure is None else beside

    def _read_beside(self, op: Operation, pages: range) -> Filled:
        """A page counts only when its sidecars are there too."""
        filled = Filled(len(pages))
        for name, pool in self.extra.items():
            if pool.component.beside_pages:
                positions = range(op.base_pages + pages.start, op.base_pages + pages.start + filled.count)
                read = self._read_slots(op, pool, {position: op.slots[name][position] for position in positions})
                filled = filled if read.failure is None else read
        return filled

    def _read_slots(self, op: Operation, pool: ExtraPool, slots: Mapping[int, int]) -> Filled:
        """Fill host slots, given by position."""
        keys = [pool.key(op.hash_at(position), self.rank) for position in slots]
        pool.host.allocator.begin_write(*slots.values())
        try:
            filled = self._get(keys, pool.host.views(list(slots.values())))
        finally:
            self.runtime.gate("io.beside", self.rank, op.id)
            pool.host.allocator.end_write(*slots.values())
        if self.on_slots_read is not None and slots:
            self.on_slots_read(pool.name, filled)
        return filled

    def _get(self, keys: Sequence[str], into: Sequence[torch.Tensor]) -> Filled:
        """A store that raises or gives more answers than it was asked for has filled nothing."""
        if not keys:
            return Filled(0)
        try:
            answers = self.storage.get_into(keys, into)
        except Exception:
            self.storage_errors["get"] += 1
            return Filled(0, "raised")
        if len(answers) > len(keys):
            return Filled(0, "miss")
        count = next((index for index, is_filled in enumerate(answers) if not is_filled), len(answers))
        return Filled(count, None if count == len(keys) else "miss")

    def _release_tail(self, op: Operation) -> None:
        """Give up, page by page, what was granted but never counted; nobody counts any more."""
        for page in range(op.counted_pages, op.granted_pages):
            self.runtime.gate("io.release", self.rank, op.id)
            self._release_page(op, page)
        if op.counted_pages < op.granted_pages:
            self.release_slots_of_end(op)

    def _release_page(self, op: Operation, page: int) -> None:
        self.host_release_queue.put(op.release_page(page))
        self.release_slots_beside(op, range(page, page + 1))

    def release_slots_beside(self, op: Operation, pages: range) -> None:
        """Give up what is beside these pages of the operation, each pool by its own queue."""
        for name, pool in self.extra.items():
            if pool.component.beside_pages:
                for page in pages:
                    self.slot_release_queues[name].put(op.slots[name][op.base_pages + page])

    def release_slots_of_end(self, op: Operation) -> None:
        """Give up what only the end of all granted pages needs. Whoever gives up the last page does this, too."""
        for name, slots in op.slots.items():
            if not self.extra[name].component.beside_pages:
                for slot in slots.values():
                    self.slot_release_queues[name].put(slot)

    # The backup thread.

    def _backup_loop(self) -> None:
        for job in self._items(self.backup_queue):
            self.runtime.gate("backup.take", self.rank)
            failed_pages = len(job.host_pages) if self._closing else self._store_pages(job)
            failed_slots = self._store_slots(job)
            self.runtime.gate("backup.put", self.rank)
            self.log.emit(events.BACKED_UP, pages=len(job.host_pages), failed=failed_pages)
            self.ack_backup_queue.put(BackupAck(job, failed_pages, failed_slots))

    def _store_pages(self, job: BackupJob) -> int:
        """Put the pages, if that is this rank's matter; returns how many the store did not take."""
        if not self.config.stores_pages(self.rank):
            return 0
        return self._put(self._keys(job.hashes), self.host.views(job.host_pages)).count(False)

    def _store_slots(self, job: BackupJob) -> Mapping[str, int]:
        """Put what is beside the pages, as far as it is this rank's matter; returns, by pool, how many the store did
        not take."""
        mine = [one for one in job.slots if self.extra[one.pool].is_stored_by(self.rank)]
        if self._closing:
            return Counter(one.pool for one in mine)
        keys = [self.extra[one.pool].key(one.page_hash, self.rank) for one in mine]
        taken = self._put(keys, [self.extra[one.pool].host.view(one.slot) for one in mine])
        return Counter(one.pool for one, is_taken in zip(mine, taken, strict=True) if not is_taken)

    def _put(self, keys: Sequence[str], pages: Sequence[torch.Tensor]) -> list[bool]:
        """Which of them the store took; nothing is asked of it for nothing."""
        if not keys:
            return []
        try:
            taken = self.storage.put_from(keys, pages)
            if len(taken) != len(pages):
                raise ValueError(f"a store gave {len(taken)} answers for {len(pages)} pages")
        except Exception:
            self.storage_errors["put"] += 1
            return [False] * len(pages)
        return [bool(is_taken) for is_taken in taken]

    def _keys(self, hashes: Sequence[bytes]) -> list[str]:
        return page_keys(self.config, self.rank, hashes)
