"""Between the tiers, by the scheduler: device -> host (see config.WritePolicy), host -> storage, host -> device."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from hicache_impl import events
from hicache_impl.copies import Copies
from hicache_impl.extra_pools import ExtraPool, free_slots
from hicache_impl.keys import PrefixKey
from hicache_impl.transfers import WRITE
from hicache_impl.trees.components import DEVICE
from hicache_impl.trees.node import Inserted, Match, Node, Slots, TreeError


class Tiers(Copies):
    """Matching, inserting and moving pages. Every call takes the same decisions on every rank, without a collective."""

    def match(self, key: PrefixKey) -> Match:
        """The longest known prefix, device first, then host only."""
        return self.tree.match(key)

    def insert(self, key: PrefixKey, device_pages: Sequence[int], slots: Slots = MappingProxyType({})) -> Inserted:
        """Hang computed device pages, one for each page of `key`, into the tree, and write what the policy says.

        `slots` is what is beside them; of it, what the tree has already is freed. The caller frees `duplicate_pages`.
        Errors: see RadixTree.insert_device and RadixTree.attach.
        """
        inserted = self.tree.insert_device(key, device_pages)
        free_slots(self.extra, DEVICE, self.tree.attach(inserted.node, DEVICE, slots))
        for step in self.tree.path(inserted.node):
            step.hits += 1
        if self.config.write_policy != "write_back":
            self._write_through(inserted.node)
        return inserted

    # --- down ----------------------------------------------------------------------------------------------------

    def _write_through(self, node: Node) -> None:
        """Back up every node down to `node` that is not yet, as far as they are worth it and host pages can be had.

        Why it stops at the first that cannot: a backed-up node needs backed-up ancestors.
        """
        for step in self.tree.path(node):
            if step.host is None and not (self._is_worth_writing(step) and self._write_node(step)):
                return
            self._write_late(step)

    def _is_worth_writing(self, node: Node) -> bool:
        return self.config.write_policy == "write_through" or node.hits >= self.config.write_through_hits

    def _write_late(self, node: Node, *, evicts: bool = False) -> bool:
        """Back up what was computed beside pages that are backed up, if there is room for it."""
        if not (self._is_short_beside(node) and self._has_room_beside(node)):
            return False
        self._begin_write_beside(node, evicts=evicts)
        return True

    def _write_node(self, node: Node, *, evicts: bool = False) -> bool:
        if self._obtainable_pages() < len(node) or not self._has_room_beside(node):
            return False
        self._make_room(len(node))
        host_pages = self.host.allocator.alloc(len(node))
        if host_pages is None or node.device is None:
            return False
        self._begin_write(node, host_pages, evicts=evicts)
        return True

    # --- up ------------------------------------------------------------------------------------------------------

    def load_back(self, match: Match) -> list[int] | None:
        """Copy the host-only part of a match to the device; its device pages, or None when that cannot be done.

        They may be read when `wait_layer` has returned for the layer. None: the match is out of date, more than
        `load_back_pages_max` pages would be on their way, or the device pages cannot be had. An empty list: there is no
        such part.
        """
        began_s = self.runtime.now()
        try:
            path = self.tree.path(match.host_node, match.device_node)
            nodes = [node for node in path if node.device is None]
            if sum(map(len, nodes)) != len(match.host_pages) or any(node.host is None for node in nodes):
                return None
            if len(match.host_pages) > self._loadable_pages():
                return None
            self.tree.lock_device(match.device_node)
        except TreeError:
            return None
        device_pages, slots = self._take_to_load(match)
        if device_pages is None:
            return None
        if slots is None:
            self.free_device(device_pages)
            return None
        done = 0
        self._is_quiet = bool(self.lanes)
        for node in nodes:
            pages = device_pages[done : done + len(node)]
            done += len(node)
            self._load_node(node, pages)
        beside = self._load_beside(match, slots)
        self._is_quiet = False
        self._end_load(match.host_node, nodes, beside, began_s)
        return list(device_pages)

    def _take_to_load(self, match: Match) -> tuple[tuple[int, ...] | None, dict[str, dict[int, int]] | None]:
        """Device pages for the host part, and slots for what is missing beside the whole; None for what cannot be had.

        The device part is locked, and unlocked by this. Why all is locked and protected: making room must not take away
        what the part hangs from; nor, where it writes back and so makes room on the host, the part itself.
        """
        held = self._protect_to_load(match)
        try:
            device_pages = self.alloc_device(len(match.host_pages))
            slots = None if device_pages is None else self._take_slots_to_load(match)
        finally:
            self.tree.unlock_device(match.device_node)
            self._unprotect_to_load(match, held)
        return device_pages, slots

    def _protect_to_load(self, match: Match) -> tuple[tuple[Node, int], ...]:
        if match.host_pages:
            self.tree.protect_host(match.host_node)
        return self._hold_path(match.host_node)

    def _unprotect_to_load(self, match: Match, held: Sequence[tuple[Node, int]]) -> None:
        if match.host_pages:
            self.tree.unprotect_host(match.host_node)
        self._release_path(held)

    def _loadable_pages(self) -> int:
        """Pages that may be on their way to the device besides those that are."""
        return self.config.load_back_pages_max - sum(job.pages for job in self._load_jobs())

    def _load_node(self, node: Node, device_pages: Sequence[int]) -> None:
        if node.host is None:
            raise TreeError(f"{node} has no host value to load")
        self._move(self.host, node.host, self.device, device_pages)
        self.tree.set_device(node, device_pages)
        self.counters.loaded_pages += len(node)
        self.log.emit(events.LOADED, node=node.id, pages=len(node))

    # --- the device ----------------------------------------------------------------------------------------------

    def alloc_device(self, pages: int) -> tuple[int, ...] | None:
        """Device pages for the caller, evicting what may be; None when they cannot be had.

        What has to be written before it is evicted is waited for: all ranks wait for the same copies.
        """
        self._evict_missing(pages)
        while self._is_writing_back() and self.device.allocator.available < pages:
            self._drain_writes([self.lanes[WRITE].get()])
            self._evict_missing(pages)
        return self.device.allocator.alloc(pages)

    def _evict_missing(self, pages: int) -> None:
        missing = pages - self.device.allocator.available
        if missing > 0:
            self.evict_device(missing)

    def free_device(self, pages: Sequence[int]) -> None:
        """Give device pages back that the caller owns. Errors: see PageAllocator.free."""
        self.device.allocator.free(pages)

    def alloc_device_slots(self, pool: str, slots: int) -> tuple[int, ...] | None:
        """Device slots of an extra pool for the caller, evicting what may be; None when they cannot be had now.

        The model fills them, and hands them to `insert` or gives them back. KeyError: there is no such pool.
        """
        return self._take_slots_of(self.extra[pool], slots)

    def free_device_slots(self, pool: str, slots: Sequence[int]) -> None:
        """Give device slots back that the caller owns. Errors: see PageAllocator.free; KeyError as above."""
        self.extra[pool].device.allocator.free(slots)

    def evict_device(self, pages: int) -> int:
        """Drop at least `pages` device pages of nodes that nobody locks, as far as there are; returns how many.

        By the policy `write_back`, what is not on the host is written first, and only dropped at once when the host has
        no room for it. What is being written counts towards `pages`, is dropped when it has landed, and not returned.
        """
        if self.config.write_policy == "write_back":
            return self._evict_writing_back(pages)
        evicted = self.tree.evict_device(pages, self._on_evict_device)
        self.device.allocator.free(evicted)
        return len(evicted)

    def _evict_writing_back(self, pages: int) -> int:
        evicted = 0
        leaving = sum(job.leaving_pages for job in self._write_jobs())
        while evicted + leaving < pages and (node := self.tree.device_order.oldest()) is not None:
            if self._write_back(node):
                leaving += len(node) if node.lock_ref else 0
                continue
            evicted += self._evict_one()
        return evicted

    def _evict_device_slots(self, pool: ExtraPool, slots: int) -> None:
        """Drop at least so many device slots, as far as there are; what the host lacks of them is written first.

        Why: without them no prefix ends there any more, though its pages are on the device. What is on its way to the
        host stays until it has landed.
        """
        order, missing = self.tree.slot_orders[pool.name, DEVICE], slots
        while missing > 0 and (node := order.oldest()) is not None:
            may_write = node.host is not None or self.config.write_policy == "write_back"
            if may_write and self._write_back(node, evicts=False) and node.lock_ref:
                continue
            dropped = self.tree.evict_slots(pool.name, DEVICE, 1)
            pool.device.allocator.free(dropped)
            missing -= len(dropped)

    def _write_back(self, node: Node, *, evicts: bool = True) -> bool:
        """Write what the host lacks of `node`, and of the pages above it; False: nothing, or there is no room for all.

        `evicts`: the device forgets the node when it is written.
        """
        if node.host is not None:
            return self._write_late(node, evicts=evicts)
        steps = [step for step in self.tree.path(node) if step.host is None]
        if sum(map(len, steps)) > self._obtainable_pages():
            return False
        return all(self._write_node(step, evicts=evicts and step is node) for step in steps)

    def _is_writing_back(self) -> bool:
        return any(job.leaving_pages for job in self._write_jobs())

    def lock(self, node: Node) -> None:
        """A running request uses the device values down to `node`."""
        self.tree.lock_device(node)

    def unlock(self, node: Node) -> None:
        """Undo one `lock`."""
        self.tree.unlock_device(node)
