"""What is on its way between device and host on one rank, and what becomes of it when it has landed.

With `async_copies` off, a copy has landed when it was begun, and nothing is ever on its way. With it, a node that is
being written keeps what it has on the device by a lock and what it has on the host by a protection, until the
schedulers of all ranks take the copy; only then is it queued for the backup. What is being loaded is kept in the same
way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hicache_impl import events
from hicache_impl.beside import Beside, Neighbours
from hicache_impl.controller import BackupAck, BackupJob, Controller, Filled
from hicache_impl.metrics import DEVICE, HOST, NOWHERE, STORAGE
from hicache_impl.runtime import Queue
from hicache_impl.storage import Storage
from hicache_impl.telemetry import Telemetry
from hicache_impl.tensor_pool import TensorPool
from hicache_impl.transfers import LOAD, WRITE, Copy, Part, StreamLane, WorkerLane, lane
from hicache_impl.trees.node import Node

Told = tuple[tuple[bytes, ...], bytes]
"""Hashes of consecutive pages, and the hash that the first of them is chained to."""


@dataclass(frozen=True, eq=False)
class WriteJob:
    """What is on its way to the host. `backup` has copies of what the node was, because it may be split meanwhile.

    `told`: its pages, if they are not on the host already. `leaving_pages`: so many device pages are to be forgotten
    when it has landed. `began_s` is of the runtime's clock.
    """

    backup: BackupJob
    told: Told | None
    leaving_pages: int
    began_s: float


@dataclass(frozen=True, eq=False)
class LoadJob:
    """What is on its way to the device, down to `node`, whose device values are locked meanwhile.

    `told`: the pages of each node that is loaded, `pages` in all; `parts`: the ids of these nodes; `beside`: what comes
    beside pages. `held`: the nodes whose host slots are read. Nodes with the number of pages that each had.
    """

    node: Node
    told: tuple[Told, ...]
    parts: tuple[tuple[int, int], ...]
    beside: Neighbours
    pages: int
    held: tuple[tuple[Node, int], ...]
    began_s: float


class Copies(Beside):
    """The lanes of one rank, and the steps at both ends of a copy. Same calls in the same order on every rank."""

    telemetry: Telemetry | None = None
    # What comes on a tier now is still on its way there, and is told later.
    _is_quiet = False

    def __init__(self, *parts: Any, **more: Any) -> None:
        super().__init__(*parts, **more)
        names = (WRITE, LOAD) if self.config.async_copies else ()
        self.lanes: dict[str, WorkerLane | StreamLane] = {
            name: lane(name, self.rank, self.runtime, self.config.device, self._lane_died) for name in names
        }
        self._parts: list[Part] = []

    def _begin(self) -> None:
        super()._begin()
        if self.telemetry is not None:
            self.telemetry.cleared()
            self._listen_to_the_tree()

    # --- lanes ---------------------------------------------------------------------------------------------------

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
        for job in self.lanes[WRITE].forget() if self.lanes else ():
            self.tree.unlock_device(job.backup.node)
            self._unprotect_backup(job.backup)
        for job in self.lanes[LOAD].forget() if self.lanes else ():
            self._let_go_loaded(job)
        return stuck

    def wait_layer(self, layer: int) -> None:
        """Return when this layer of all that was loaded back may be read on the device. WorkerDied."""
        if self.lanes:
            self.lanes[LOAD].wait_layer(layer)

    def wait_loaded(self) -> None:
        """`wait_layer` of all layers, also of the extra pools."""
        if self.lanes:
            self.lanes[LOAD].wait_layer(None)

    def _lane_died(self, name: str, error: BaseException) -> None:
        self.controller.failure = error
        self.log.emit(events.DIED, thread=name, error=repr(error))

    def _copy_queues(self) -> tuple[tuple[Queue, Callable[[list[Any]], None]], ...]:
        """What a tick takes of the copies, each with what is done with it."""
        drains = {WRITE: self._drain_writes, LOAD: self._drain_loads}
        return tuple((taken, drains[name]) for name, taken in self.lanes.items())  # type: ignore[misc]

    def _write_jobs(self) -> list[WriteJob]:
        """What is on its way to the host, in order."""
        return self.lanes[WRITE].jobs() if self.lanes else []

    def _load_jobs(self) -> list[LoadJob]:
        """What is on its way to the device, in order."""
        return self.lanes[LOAD].jobs() if self.lanes else []

    def _move(self, source: TensorPool, source_slots: Sequence[int], target: TensorPool, slots: Sequence[int]) -> None:
        """Copy at once, or as a part of the copy that is begun next."""
        if not self.lanes:
            target.copy_pages(source, source_slots, slots)
        elif slots:
            self._parts.append(Part(source, tuple(source_slots), target, tuple(slots)))

    def _send(self, name: str, job: Any) -> None:
        """Begin a copy of all parts that were moved since the last one."""
        parts, self._parts = self._parts, []
        self.lanes[name].begin(parts, job)

    # --- down ----------------------------------------------------------------------------------------------------

    def _begin_write(self, node: Node, host_pages: tuple[int, ...], *, evicts: bool) -> None:
        """The host pages belong to `node` from now on, with what is beside them; the bytes come, in order."""
        assert node.device is not None
        began_s = self.runtime.now()
        self._move(self.device, node.device, self.host, host_pages)
        self._is_quiet = bool(self.lanes)
        self.tree.set_host(node, host_pages)
        self.counters.written_pages += len(node)
        self.log.emit(events.WRITTEN, node=node.id, pages=len(node))
        backup = self._new_backup(node, host_pages)
        self._is_quiet = False
        told = backup.hashes, self._parent_hash(node)
        self._end_write(WriteJob(backup, told, len(node) if evicts else 0, began_s))

    def _begin_write_beside(self, node: Node, *, evicts: bool) -> None:
        """The same of what is beside pages that are on the host already."""
        began_s = self.runtime.now()
        self._is_quiet = bool(self.lanes)
        backup = self._new_backup(node, ())
        self._is_quiet = False
        self.log.emit(events.WRITTEN, node=node.id, pages=0)
        self._end_write(WriteJob(backup, None, len(node) if evicts else 0, began_s))

    def _end_write(self, job: WriteJob) -> None:
        self._protect_backup(job.backup)
        if self.lanes:
            self.tree.lock_device(job.backup.node)
            self._send(WRITE, job)
        else:
            self._tell_written(job)
            self._queue_backup(job.backup)

    def _drain_writes(self, copies: Sequence[Copy]) -> None:
        for copy in copies:
            self._drain_write(copy.job)

    def _drain_write(self, job: WriteJob) -> None:
        """The bytes are on the host of every rank. What kept them there, keeps them until they are backed up."""
        node = job.backup.node
        if job.told is not None:
            self._tell_landed(HOST, *job.told)
        self._tell_landed_beside(HOST, [(one.pool, one.page_hash) for one in job.backup.slots])
        self._tell_written(job)
        self._queue_backup(job.backup)
        self.tree.unlock_device(node)
        if job.leaving_pages and self.tree.device_order.oldest() is node:
            # Nobody has used it since, and nothing older can go.
            self._evict_one()

    def _queue_backup(self, job: BackupJob) -> None:
        """The bytes are on the host. The backup thread reads what is protected until its ack is drained.

        While no store is attached, the pages count as refused at once.
        """
        self.log.emit(events.COPIED, node=job.node.id, pages=len(job.host_pages))
        if self.storage is None:
            self.counters.unstored_pages += len(job.host_pages)
            self.counters.unstored_slots += len(job.slots)
            self.log.emit(events.STORED, node=job.node.id, pages=len(job.host_pages), failed=len(job.host_pages))
            self._unprotect_backup(job)
            return
        self.backups[job] = job.node
        self.controller.backup_queue.put(job)

    def _protect_backup(self, job: BackupJob) -> None:
        """From when it is written until it is backed up; the drain of the ack undoes it."""
        self.tree.protect_host(job.node)

    def _unprotect_backup(self, job: BackupJob) -> None:
        self.tree.unprotect_host(job.node)
        self._unhold(job)

    def _evict_one(self) -> int:
        """The device forgets the node that is to go first; returns pages."""
        evicted = self.tree.evict_device(1, self._on_evict_device)
        self.device.allocator.free(evicted)
        return len(evicted)

    def _on_evict_device(self, node: Node) -> None:
        super()._on_evict_device(node)
        self._tell_moved(DEVICE, NOWHERE, "evicted" if node.host is not None else "dropped", len(node))

    # --- up ------------------------------------------------------------------------------------------------------

    def _hold_path(self, node: Node) -> tuple[tuple[Node, int], ...]:
        """Keep the host slots of all nodes down to `node`; what `_release_path` is to be given."""
        held = tuple((step, len(step)) for step in self.tree.path(node)) if self.extra else ()
        for step, _ in held:
            self.tree.hold_slots(step)
        return held

    def _release_path(self, held: Sequence[tuple[Node, int]]) -> None:
        for step, pages in held:
            self.tree.release_slots(step, pages)

    def _end_load(self, node: Node, loaded: Sequence[Node], beside: Neighbours, began_s: float) -> None:
        """The nodes `loaded`, and what is beside them, are on their way, down to `node`."""
        pages = sum(map(len, loaded))
        parts = tuple((step.id, len(step)) for step in loaded)
        if not self.lanes:
            self._log_arrived(parts)
            self._tell_moved(HOST, DEVICE, "load_back", pages, began_s)
            self._tell_slots_moved(HOST, DEVICE, "load_back", beside)
        elif self._parts:
            told = tuple((tuple(step.hashes), self._parent_hash(step)) for step in loaded)
            job = LoadJob(node, told, parts, beside, pages, self._hold_path(node), began_s)
            self.tree.lock_device(node)
            if pages:
                self.tree.protect_host(node)
            self._send(LOAD, job)

    def _drain_loads(self, copies: Sequence[Copy]) -> None:
        for copy in copies:
            self._drain_load(copy.job)

    def _drain_load(self, job: LoadJob) -> None:
        """The bytes are on the device of every rank."""
        self._log_arrived(job.parts)
        for told in job.told:
            self._tell_landed(DEVICE, *told)
        self._tell_landed_beside(DEVICE, job.beside)
        self._tell_moved(HOST, DEVICE, "load_back", job.pages, job.began_s)
        self._tell_slots_moved(HOST, DEVICE, "load_back", job.beside)
        self._let_go_loaded(job)

    def _log_arrived(self, parts: Sequence[tuple[int, int]]) -> None:
        for node, pages in parts:
            self.log.emit(events.ARRIVED, node=node, pages=pages)

    def _let_go_loaded(self, job: LoadJob) -> None:
        if job.pages:
            self.tree.unprotect_host(job.node)
        self.tree.unlock_device(job.node)
        self._release_path(job.held)

    # --- telling -------------------------------------------------------------------------------------------------

    def tell(self, telemetry: Telemetry) -> None:
        """From now on, here is told what happens; the log tells the rest (see Telemetry.listening)."""
        self.telemetry = telemetry
        self.controller.on_slots_read = self._tell_read
        self._listen_to_the_tree()

    def _listen_to_the_tree(self) -> None:
        self.tree.on_change, self.tree.on_slots = self._tell_change, self._tell_slots

    def _new_controller(self, storage: Storage) -> Controller:
        controller = super()._new_controller(storage)
        controller.on_slots_read = None if self.telemetry is None else self._tell_read
        return controller

    def _tell_change(self, node: Node, parent: Node, tier: str, came: bool) -> None:
        """What is on its way is told when it has landed."""
        assert self.telemetry is not None
        if came and self._is_quiet:
            return
        tell = self.telemetry.stored if came else self.telemetry.removed
        tell(tier, node.hashes, self.tree.chain_parent(parent))

    def _tell_landed(self, tier: str, hashes: Sequence[bytes], parent: bytes) -> None:
        if self.telemetry is not None:
            self.telemetry.stored(tier, hashes, parent)

    def _tell_moved(self, source: str, target: str, reason: str, pages: int, began_s: float | None = None) -> None:
        if self.telemetry is not None and pages:
            seconds = None if began_s is None else self.runtime.now() - began_s
            self.telemetry.moved(source, target, reason, pages, seconds)

    # The same of what is beside the pages.

    def _tell_slots(self, pool: str, tier: str, hashes: tuple[bytes, ...], came: bool) -> None:
        """What is on its way is told when it has landed."""
        assert self.telemetry is not None
        if not came:
            self.telemetry.removed(tier, hashes, None, pool)
            self.telemetry.slots_moved(tier, NOWHERE, "evicted", {pool: len(hashes)})
        elif not self._is_quiet:
            self.telemetry.stored(tier, hashes, None, pool)

    def _tell_landed_beside(self, tier: str, beside: Neighbours) -> None:
        if self.telemetry is not None:
            for pool, hashes in _by_pool(beside).items():
                self.telemetry.stored(tier, hashes, None, pool)

    def _tell_slots_moved(self, source: str, target: str, reason: str, beside: Neighbours) -> None:
        if self.telemetry is not None:
            self.telemetry.slots_moved(source, target, reason, Counter(pool for pool, _ in beside))

    def _tell_written(self, job: WriteJob) -> None:
        policy, slots = self.config.write_policy, [(one.pool, one.page_hash) for one in job.backup.slots]
        self._tell_moved(DEVICE, HOST, policy, len(job.backup.host_pages), job.began_s)
        self._tell_slots_moved(DEVICE, HOST, policy, slots)

    def _tell_stored(self, ack: BackupAck) -> None:
        """Each rank tells of what all of a job has in the store now, and counts what it put there itself."""
        if self.telemetry is None:
            return
        if ack.job.hashes and not ack.failed_pages:
            self.telemetry.stored(STORAGE, ack.job.hashes, None)
        for pool, hashes in _by_pool([(one.pool, one.page_hash) for one in ack.job.slots]).items():
            failed = ack.failed_slots.get(pool, 0)
            if not failed:
                self.telemetry.stored(STORAGE, hashes, None, pool)
            mine = len(hashes) if self.extra[pool].is_stored_by(self.rank) else 0
            for reason, slots in (("stored", mine - failed), ("refused", failed)):
                if slots:
                    self.telemetry.slots_moved(HOST, STORAGE, reason, {pool: slots})

    def _tell_read(self, pool: str, filled: Filled) -> None:
        """By the IO thread."""
        assert self.telemetry is not None
        self.telemetry.slots_moved(STORAGE, HOST, filled.failure or "landed", {pool: filled.count})

    def _parent_hash(self, node: Node) -> bytes:
        assert node.parent is not None
        return self.tree.chain_parent(node.parent)


def _by_pool(beside: Neighbours) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    for pool, page_hash in beside:
        found.setdefault(pool, []).append(page_hash)
    return found
