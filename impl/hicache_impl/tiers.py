"""Between the tiers, by the scheduler: device -> host (write-through), host -> storage (queued), host -> device."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from hicache_impl import events
from hicache_impl.beside import Beside
from hicache_impl.controller import BackupJob, SlotToStore
from hicache_impl.extra_pools import free_slots
from hicache_impl.keys import PrefixKey
from hicache_impl.trees.components import DEVICE
from hicache_impl.trees.node import Inserted, Match, Node, Slots, TreeError


class Tiers(Beside):
    """Matching, inserting and moving pages. Every call takes the same decisions on every rank, without a collective."""

    def match(self, key: PrefixKey) -> Match:
        """The longest known prefix, device first, then host only."""
        return self.tree.match(key)

    def insert(self, key: PrefixKey, device_pages: Sequence[int], slots: Slots = MappingProxyType({})) -> Inserted:
        """Hang computed device pages, one for each page of `key`, into the tree and write them through.

        `slots` is what is beside them; of it, what the tree has already is freed. The caller frees `duplicate_pages`.
        Errors: see RadixTree.insert_device and RadixTree.attach.
        """
        inserted = self.tree.insert_device(key, device_pages)
        free_slots(self.extra, DEVICE, self.tree.attach(inserted.node, DEVICE, slots))
        self._write_through(inserted.node)
        return inserted

    def _write_through(self, node: Node) -> None:
        """Back up every node down to `node` that is not yet, as far as host pages can be had.

        Why it stops at the first that cannot: a backed-up node needs backed-up ancestors.
        """
        for step in self.tree.path(node):
            if step.host is None and not self._write_node(step):
                return
            self._write_late(step)

    def _write_late(self, node: Node) -> None:
        """Back up what was computed beside pages that are backed up, if there is room for it."""
        if self._is_short_beside(node) and self._has_room_beside(node):
            slots = self._write_beside(node)
            self.log.emit(events.WRITTEN, node=node.id, pages=0)
            self._queue_backup(node, (), slots)

    def _write_node(self, node: Node) -> bool:
        if self._obtainable_pages() < len(node) or not self._has_room_beside(node):
            return False
        self._make_room(len(node))
        host_pages = self.host.allocator.alloc(len(node))
        if host_pages is None or node.device is None:
            return False
        self.host.store_from(self.device, node.device, host_pages)
        self.tree.set_host(node, host_pages)
        self.counters.written_pages += len(node)
        self.log.emit(events.WRITTEN, node=node.id, pages=len(node))
        self._queue_backup(node, host_pages, self._write_beside(node))
        return True

    def _queue_backup(self, node: Node, host_pages: tuple[int, ...], slots: tuple[SlotToStore, ...] = ()) -> None:
        """The backup thread reads these host pages until its ack is drained; so long they are protected.

        While no store is attached, the pages count as refused at once.
        """
        if self.storage is None:
            self.counters.unstored_pages += len(host_pages)
            self.counters.unstored_slots += len(slots)
            self.log.emit(events.STORED, node=node.id, pages=len(host_pages), failed=len(host_pages))
            return
        job = BackupJob(node, tuple(node.hashes[: len(host_pages)]), host_pages, slots, len(node))
        self.tree.protect_host(node)
        if slots:
            self.tree.hold_slots(node)
        self.backups[job] = node
        self.controller.backup_queue.put(job)

    def load_back(self, match: Match) -> list[int] | None:
        """Copy the host-only part of a match to the device; its device pages, or None when that cannot be done.

        None: the match is out of date, or the device pages cannot be had. An empty list: there is no such part.
        """
        try:
            path = self.tree.path(match.host_node, match.device_node)
            nodes = [node for node in path if node.device is None]
            if sum(map(len, nodes)) != len(match.host_pages) or any(node.host is None for node in nodes):
                return None
            self.tree.lock_device(match.device_node)
        except TreeError:
            return None
        try:
            # Locked, because making room must not take away what the loaded part hangs from.
            device_pages = self.alloc_device(len(match.host_pages))
            slots = None if device_pages is None else self._take_device_slots(self._missing_on_device(match))
        finally:
            self.tree.unlock_device(match.device_node)
        if device_pages is None:
            return None
        if slots is None:
            self.free_device(device_pages)
            return None
        done = 0
        for node in nodes:
            pages = device_pages[done : done + len(node)]
            done += len(node)
            self._load_node(node, pages)
        self._load_beside(match, slots)
        return list(device_pages)

    def _load_node(self, node: Node, device_pages: Sequence[int]) -> None:
        assert node.host is not None
        self.device.load_from(self.host, node.host, device_pages)
        self.tree.set_device(node, device_pages)
        self.counters.loaded_pages += len(node)
        self.log.emit(events.LOADED, node=node.id, pages=len(node))

    def alloc_device(self, pages: int) -> tuple[int, ...] | None:
        """Device pages for the caller, evicting what may be; None when they cannot be had."""
        missing = pages - self.device.allocator.available
        if missing > 0:
            self.evict_device(missing)
        return self.device.allocator.alloc(pages)

    def free_device(self, pages: Sequence[int]) -> None:
        """Give device pages back that the caller owns. Errors: see PageAllocator.free."""
        self.device.allocator.free(pages)

    def evict_device(self, pages: int) -> int:
        """Drop at least `pages` device pages of nodes that nobody locks, as far as there are; returns how many."""
        evicted = self.tree.evict_device(pages, self._on_evict_device)
        self.device.allocator.free(evicted)
        return len(evicted)

    def lock(self, node: Node) -> None:
        """A running request uses the device values down to `node`."""
        self.tree.lock_device(node)

    def unlock(self, node: Node) -> None:
        """Undo one `lock`."""
        self.tree.unlock_device(node)
