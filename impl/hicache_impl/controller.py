"""The worker threads of one rank and the queues between them and the scheduler.

    prefetch_queue   scheduler -> query      hit_queue           query -> scheduler
    prefetch_buffer  scheduler -> IO         host_release_queue  IO and scheduler -> scheduler, page by page
    backup_queue     scheduler -> backup     ack_backup_queue    backup -> scheduler

Each queue has one consumer. A store that raises ends the operation or fails the page; it never ends a thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from hicache_impl import events
from hicache_impl.config import CacheConfig
from hicache_impl.events import Log
from hicache_impl.host_pool import HostPool
from hicache_impl.keys import chain_hashes
from hicache_impl.operation import Operation
from hicache_impl.ranks import Group
from hicache_impl.runtime import Queue, Runtime, Stalled, Thread, Waiter
from hicache_impl.storage import Storage, storage_key
from hicache_impl.trees.node import Node

WORKERS = ("query", "io", "backup")


class WorkerDied(Exception):
    """A worker thread of this rank ended by an exception of its own; the cache can only be closed."""


@dataclass(frozen=True, eq=False)
class BackupJob:
    """Pages to store. `hashes` and `host_pages` are copies, because the node may be split meanwhile."""

    node: Node
    hashes: tuple[bytes, ...]
    host_pages: tuple[int, ...]


@dataclass(frozen=True)
class BackupAck:
    """A job is done; `failed_pages` of it are not in the store."""

    job: BackupJob
    failed_pages: int


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
    ) -> None:
        self.config = config
        self.rank = rank
        self.host = host
        self.storage = storage
        self.group = group
        self.runtime = runtime
        self.log = log
        self.prefetch_queue = runtime.queue()
        self.hit_queue = runtime.queue()
        self.prefetch_buffer = runtime.queue()
        self.host_release_queue = runtime.queue()
        self.backup_queue = runtime.queue()
        self.ack_backup_queue = runtime.queue()
        # One writer a key: each kind of call belongs to one thread, and so does each queue from which items are taken.
        self.storage_errors: Counter[str] = Counter({"exists": 0, "get": 0, "put": 0})
        self._taken: Counter[int] = Counter()
        self.failure: BaseException | None = None
        self._closing = False
        self._threads: list[Thread] = []

    def start(self) -> None:
        """Start the three workers. Whatever the runtime raises: some are not started, and `close` ends the others."""
        for name, loop in zip(WORKERS, (self._query_loop, self._io_loop, self._backup_loop), strict=True):
            thread = self.runtime.thread(f"{name}-{self.rank}", self._guarded(name, loop))
            thread.start()
            self._threads.append(thread)

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
                    return
                self.failure = error
                self.log.emit(events.DIED, thread=name, error=repr(error))
                # A dead query thread would leave its peers waiting for it in every later collective.
                self.group.abort(f"the {name} thread of rank {self.rank} died: {error!r}")

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
        hit = self._ask_storage(hashes)
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
            try:
                found = int(self.storage.exists(batch))
                if not 0 <= found <= len(batch):
                    raise ValueError(f"a store said that {found} of {len(batch)} pages exist")
            except Exception:
                self.storage_errors["exists"] += 1
                return 0
            hit += found
            if found < len(batch):
                break
        return hit

    def _agree_hit(self, hit: int) -> int:
        """The hit that every rank has."""
        return self.group.all_min([hit])[0]

    # The IO thread.

    def _io_loop(self) -> None:
        for op in self._items(self.prefetch_buffer):
            self.runtime.gate("io.take", self.rank, op.id)
            self._fetch_pages(op)
            self._release_tail(op)

    def _fetch_pages(self, op: Operation) -> None:
        """Read page by page until all are counted, one fails, or the operation is terminated."""
        for page in range(op.granted_pages):
            self.runtime.gate("io.page", self.rank, op.id)
            if not op.start_page(page):
                return
            failure = self._read_page(op, page)
            if failure is not None:
                op.fail_page(page, failure)
                return
            if not op.count_page(page):
                return

    def _read_page(self, op: Operation, page: int) -> str | None:
        """Fill the pool page from the store; None, or why it is not filled: `miss` or `raised`."""
        host_page = op.host_pages[page]
        self.host.allocator.begin_write(host_page)
        try:
            return self._fill_page(op.hashes[page], host_page)
        finally:
            # Here and not later, so that a page freed under this thread can be told from one freed after it.
            self.runtime.gate("io.copied", self.rank, op.id)
            self.host.allocator.end_write(host_page)

    def _fill_page(self, page_hash: bytes, host_page: int) -> str | None:
        try:
            return None if _is_yes(self.storage.get(self._keys([page_hash]), [self.host.view(host_page)])) else "miss"
        except Exception:
            self.storage_errors["get"] += 1
            return "raised"

    def _release_tail(self, op: Operation) -> None:
        """Give up, page by page, what was granted but never counted; nobody counts any more."""
        for page in range(op.counted_pages, op.granted_pages):
            self.runtime.gate("io.release", self.rank, op.id)
            self._release_page(op, page)

    def _release_page(self, op: Operation, page: int) -> None:
        self.host_release_queue.put(op.release_page(page))

    # The backup thread.

    def _backup_loop(self) -> None:
        for job in self._items(self.backup_queue):
            self.runtime.gate("backup.take", self.rank)
            failed_pages = len(job.host_pages) if self._closing else self._store_pages(job)
            self.runtime.gate("backup.put", self.rank)
            self.ack_backup_queue.put(BackupAck(job, failed_pages))

    def _store_pages(self, job: BackupJob) -> int:
        """Put the pages; returns how many the store did not take."""
        pages: list[torch.Tensor] = [self.host.view(page) for page in job.host_pages]
        try:
            taken = self.storage.put(self._keys(job.hashes), pages)
            if len(taken) != len(pages):
                raise ValueError(f"a store gave {len(taken)} answers for {len(pages)} pages")
        except Exception:
            self.storage_errors["put"] += 1
            return len(pages)
        return len(pages) - sum(map(bool, taken))

    def _keys(self, hashes: Sequence[bytes]) -> list[str]:
        return [storage_key(page_hash, self.rank, self.config.ranks) for page_hash in hashes]


def _is_yes(answers: Sequence[bool]) -> bool:
    """Whether a store filled the one page that it was asked for; a short answer is a no."""
    return len(answers) == 1 and bool(answers[0])
