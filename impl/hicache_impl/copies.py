"""What is on its way between device and host on one rank, and what becomes of it when it has landed.

With `async_copies` off, a copy has landed when it was begun, and nothing is ever on its way. With it, a node that is
being written keeps its device pages by a lock and its host pages by a protection, until the schedulers of all ranks
take the copy; only then is it queued for the backup. A node that is being loaded is kept in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hicache_impl import events
from hicache_impl.beside import Beside
from hicache_impl.controller import BackupJob
from hicache_impl.metrics import DEVICE, HOST, NOWHERE
from hicache_impl.runtime import Queue
from hicache_impl.telemetry import Telemetry
from hicache_impl.transfers import LOAD, WRITE, Copy, StreamLane, WorkerLane, lane
from hicache_impl.trees.node import Node, TreeError


@dataclass(frozen=True, eq=False)
class WriteJob:
    """Pages on their way to the host. `backup` has copies of what the node was, because it may be split meanwhile.

    `evicts`: the device pages are to be forgotten when they are written. `parent`: the hash that the first page is
    chained to. `began_s` is of the runtime's clock.
    """

    backup: BackupJob
    parent: bytes
    device_pages: tuple[int, ...]
    evicts: bool
    began_s: float


@dataclass(frozen=True, eq=False)
class LoadJob:
    """Pages on their way to the device."""

    node: Node
    hashes: tuple[bytes, ...]
    parent: bytes
    began_s: float


class Copies(Beside):
    """The lanes of one rank, and the steps at both ends of a copy. Same calls in the same order on every rank."""

    telemetry: Telemetry | None = None
    _coming: Node | None = None

    def __init__(self, *parts: Any, **more: Any) -> None:
        super().__init__(*parts, **more)
        names = (WRITE, LOAD) if self.config.async_copies else ()
        self.lanes: dict[str, WorkerLane | StreamLane] = {
            name: lane(name, self.rank, self.runtime, self.config.device, self._lane_died) for name in names
        }

    def _begin(self) -> None:
        super()._begin()
        if self.telemetry is not None:
            self.telemetry.cleared()
            self.tree.on_change = self._tell_change

    def tell(self, telemetry: Telemetry) -> None:
        """From now on, here is told what happens; the log tells the rest (see Telemetry.listening)."""
        self.telemetry = telemetry
        self.tree.on_change = self._tell_change

    def _tell_change(self, node: Node, parent: Node, tier: str, came: bool) -> None:
        """What is on its way is told when it has landed."""
        assert self.telemetry is not None
        if came and node is self._coming:
            return
        tell = self.telemetry.stored if came else self.telemetry.removed
        tell(tier, node.hashes, self.tree.chain_parent(parent))

    def _tell_landed(self, tier: str, hashes: Sequence[bytes], parent: bytes) -> None:
        if self.telemetry is not None:
            self.telemetry.stored(tier, hashes, parent)

    def _tell_moved(self, source: str, target: str, reason: str, pages: int, began_s: float | None = None) -> None:
        if self.telemetry is not None:
            seconds = None if began_s is None else self.runtime.now() - began_s
            self.telemetry.moved(source, target, reason, pages, seconds)

    def open_lanes(self) -> None:
        """Before the first copy."""
        for opened in self.lanes.values():
            opened.open()

    def copies_under_way(self) -> int:
        """Copies that were begun and not taken by all ranks."""
        return sum(map(len, self.lanes.values()))

    def settle_copies(self, timeout_s: float) -> None:
        """Return when every copy has landed here. Stalled: one does not within `timeout_s`."""
        for settled in self.lanes.values():
            settled.settle(timeout_s)

    def close_lanes(self, timeout_s: float) -> list[str]:
        """End the lanes; whatever was under way is given up. Returns the names of those that do not end."""
        stuck = [name for name, closed in self.lanes.items() if not closed.close(timeout_s)]
        for name, closed in self.lanes.items():
            for job in closed.forget():
                self._let_go(job.backup.node if name == WRITE else job.node)
                if name == WRITE:
                    self._unhold(job.backup)
        return stuck

    def wait_layer(self, layer: int) -> None:
        """Return when this layer of all that was loaded back may be read on the device. WorkerDied."""
        if LOAD in self.lanes:
            self.lanes[LOAD].wait_layer(layer)

    def wait_loaded(self) -> None:
        """`wait_layer` of all layers."""
        for layer in range(self.config.stored_layers):
            self.wait_layer(layer)

    def _lane_died(self, name: str, error: BaseException) -> None:
        self.controller.failure = error
        self.log.emit(events.DIED, thread=name, error=repr(error))

    def _copy_queues(self) -> tuple[tuple[Queue, Callable[[list[Any]], None]], ...]:
        """What a tick takes of the copies, each with what is done with it."""
        drains = {WRITE: self._drain_writes, LOAD: self._drain_loads}
        return tuple((taken, drains[name]) for name, taken in self.lanes.items())  # type: ignore[misc]

    def _write_jobs(self) -> list[WriteJob]:
        """What is on its way to the host, in order."""
        return self.lanes[WRITE].jobs() if WRITE in self.lanes else []

    # Down.

    def _begin_write(self, node: Node, host_pages: tuple[int, ...], *, evicts: bool) -> None:
        """The host pages belong to `node` from now on; its bytes come, in order."""
        assert node.device is not None
        device_pages, began_s = tuple(node.device), self.runtime.now()
        if WRITE not in self.lanes:
            self.host.store_from(self.device, device_pages, host_pages)
        else:
            self._coming = node
        self.tree.set_host(node, host_pages)
        self._coming = None
        job = WriteJob(self._new_backup(node, host_pages), self._parent_hash(node), device_pages, evicts, began_s)
        self.counters.written_pages += len(node)
        self.log.emit(events.WRITTEN, node=node.id, pages=len(node))
        if WRITE not in self.lanes:
            self._tell_moved(DEVICE, HOST, self.config.write_policy, len(node), job.began_s)
            self._queue_backup(job.backup)
            return
        self._keep(node)
        self.lanes[WRITE].begin(self.device, device_pages, self.host, host_pages, job)

    def _drain_writes(self, copies: Sequence[Copy]) -> None:
        for copy in copies:
            self._drain_write(copy.job)

    def _drain_write(self, job: WriteJob) -> None:
        """The bytes are on the host of every rank."""
        node = job.backup.node
        self._tell_landed(HOST, job.backup.hashes, job.parent)
        self._tell_moved(DEVICE, HOST, self.config.write_policy, len(job.device_pages), job.began_s)
        self._queue_backup(job.backup)
        self._let_go(node)
        if job.evicts and self.tree.device_order.oldest() is node:
            # Nobody has used it since, and nothing older can go.
            self._evict_one()

    def _queue_backup(self, job: BackupJob) -> None:
        """The backup thread reads these host pages until its ack is drained; so long they are protected.

        While no store is attached, the pages count as refused at once.
        """
        pages = len(job.host_pages)
        if self.storage is None:
            self.counters.unstored_pages += pages
            self.counters.unstored_slots += len(job.slots)
            self._unhold(job)
            self.log.emit(events.STORED, node=job.node.id, pages=pages, failed=pages)
            return
        self.tree.protect_host(job.node)
        self.backups[job] = job.node
        self.controller.backup_queue.put(job)

    def _evict_one(self) -> int:
        """The device forgets the node that is to go first; returns pages."""
        evicted = self.tree.evict_device(1, self._on_evict_device)
        self.device.allocator.free(evicted)
        return len(evicted)

    def _on_evict_device(self, node: Node) -> None:
        super()._on_evict_device(node)
        self._tell_moved(DEVICE, NOWHERE, "evicted" if node.host is not None else "dropped", len(node))

    # Up.

    def _begin_load(self, node: Node, device_pages: Sequence[int]) -> None:
        """The device pages belong to `node` from now on; its bytes come, layer by layer, in order."""
        if node.host is None:
            raise TreeError(f"{node} has no host value to load")
        job = LoadJob(node, tuple(node.hashes), self._parent_hash(node), began_s=self.runtime.now())
        if LOAD not in self.lanes:
            self.device.load_from(self.host, node.host, device_pages)
            self.tree.set_device(node, device_pages)
            self._tell_moved(HOST, DEVICE, "load_back", len(node), job.began_s)
            return
        host_pages = tuple(node.host)
        self._coming = node
        self.tree.set_device(node, device_pages)
        self._coming = None
        self._keep(node)
        self.lanes[LOAD].begin(self.host, host_pages, self.device, device_pages, job)

    def _drain_loads(self, copies: Sequence[Copy]) -> None:
        for copy in copies:
            self._drain_load(copy.job)

    def _drain_load(self, job: LoadJob) -> None:
        """The bytes are on the device of every rank."""
        self._tell_landed(DEVICE, job.hashes, job.parent)
        self._tell_moved(HOST, DEVICE, "load_back", len(job.hashes), job.began_s)
        self._let_go(job.node)

    # Both.

    def _parent_hash(self, node: Node) -> bytes:
        assert node.parent is not None
        return self.tree.chain_parent(node.parent)

    def _keep(self, node: Node) -> None:
        """While it is copied, neither its device nor its host pages may be given to others."""
        self.tree.lock_device(node)
        self.tree.protect_host(node)

    def _let_go(self, node: Node) -> None:
        self.tree.unprotect_host(node)
        self.tree.unlock_device(node)
