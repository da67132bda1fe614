"""The scheduler's side of extra pools: what is granted, published, written, loaded and given back beside the pages.

Every step is a function of what all ranks know, as all of the scheduler's are. Nothing here is published ahead of its
bytes: slots are hung into the tree together with the pages that they belong to, and these have landed everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from hicache_impl import events
from hicache_impl.controller import BackupJob, SlotToStore
from hicache_impl.extra_pools import ExtraPool, free_slots
from hicache_impl.ledger import Ledger
from hicache_impl.operation import PAGES, Operation, Shortage
from hicache_impl.page_pool import PoolError
from hicache_impl.runtime import Queue
from hicache_impl.tensor_pool import TensorPool
from hicache_impl.trees.components import DEVICE, HOST
from hicache_impl.trees.node import Match, Node, Slots

Neighbours = Sequence[tuple[str, bytes]]
"""Pools, and the hashes of the pages beside which something is in them."""


class Beside(Ledger):
    """Slots of extra pools. Where there are none, every call does nothing."""

    # --- what an operation gets, and what becomes of it ----------------------------------------------------------

    def _clamp(self, op: Operation) -> None:
        """Shorten the hit to the last end that all pools have room for: all of them grant it, or none grants any."""
        ends = range(op.hit_pages, 0, -1) if op.ends is None else reversed(op.ends)
        longer: Shortage | None = None
        for end in (*(end for end in ends if end <= op.hit_pages), 0):
            shortage = self._shortage(op, end) if end else None
            if shortage is None:
                break
            longer = shortage
        if longer is not None:
            op.clamp(end, longer)

    def _shortage(self, op: Operation, pages: int) -> Shortage | None:
        """What some pool has not, and cannot make, room for, of this many pages of the hit. Nothing is evicted yet.

        With sidecars alone the pages may still be shortened (see `_plan_grant`); a window or a state is of no use then.
        """
        start, end = op.base_pages, op.base_pages + pages
        wanted = {name: len(pool.component.needed(start, end)) for name, pool in self.extra.items()}
        is_whole = any(not pool.component.beside_pages for pool in self.extra.values())
        short = self._shortage_beside(wanted)
        if short is None and is_whole and pages > self._obtainable_pages():
            short = Shortage(PAGES, pages, self.host.allocator.available, self.tree.evictable_host_pages())
        return short

    def _have_host_room(self, wanted: Mapping[str, int]) -> bool:
        """Whether each pool has, or can make, room on the host for so many slots, if the pages are to be had that the
        sidecars among them are beside."""
        return self._shortage_beside(wanted) is None

    def _shortage_beside(self, wanted: Mapping[str, int]) -> Shortage | None:
        found = (self._shortage_of(self.extra[name], slots) for name, slots in wanted.items())
        return next((shortage for shortage in found if shortage is not None), None)

    def _shortage_of(self, pool: ExtraPool, slots: int) -> Shortage | None:
        free = pool.host.allocator.available
        if pool.component.beside_pages:
            # A page that is evicted takes its sidecar along, so only what is free may differ.
            is_short, evictable = free < min(slots, self.host.allocator.available), 0
        else:
            evictable = self.tree.evictable_slots(pool.name)
            is_short = slots > free + evictable
        return Shortage(pool.name, slots, free, evictable) if is_short else None

    def _grant_slots(self, op: Operation, pages: int) -> dict[str, dict[int, int]]:
        """What `pages` granted pages need beside them. PoolError: it was to be had, and then was not."""
        start, end = op.base_pages, op.base_pages + pages
        return {
            name: self._take_host_slots(pool, pool.component.needed(start, end)) for name, pool in self.extra.items()
        }

    def _take_host_slots(self, pool: ExtraPool, positions: Iterable[int]) -> dict[int, int]:
        places = list(positions)
        missing = len(places) - pool.host.allocator.available
        if missing > 0 and not pool.component.beside_pages:
            evicted = self.tree.evict_slots(pool.name, HOST, missing)
            self.counters.evicted_slots += len(evicted)
            pool.host.allocator.free(evicted)
            self._log_slots(events.SLOTS_FREED, pool.name, len(evicted))
        slots = pool.host.allocator.alloc(len(places))
        if slots is None:
            raise PoolError(f"{len(places)} host slots of {pool.name} were to be had, and then were not")
        self._log_slots(events.SLOTS_TAKEN, pool.name, len(slots))
        return dict(zip(places, slots, strict=True))

    def _publish_slots(self, op: Operation, node: Node, agreed: int) -> None:
        """Hang what is beside the published pages into the tree; what it has already goes back at once."""
        end = op.base_pages + agreed
        slots = {
            name: {position: slot for position, slot in given.items() if position < end}
            for name, given in op.slots.items()
            if self.extra[name].component.beside_pages or agreed == op.granted_pages
        }
        self._free_host_slots(self.tree.attach(node, HOST, slots))

    def _free_host_slots(self, slots: Mapping[str, Sequence[int]]) -> None:
        """At once, because it is the same on every rank."""
        self._free_on_host(slots)

    def _release_slots(self, op: Operation, agreed: int, counted: int) -> None:
        """What landed here but not everywhere, by the queues: what is beside those pages, and, if all pages landed and
        not all are published, what the end of all needs."""
        self.controller.release_slots_beside(op, range(agreed, counted))
        if op.granted_pages and agreed < counted == op.granted_pages:
            self.controller.release_slots_of_end(op)

    def _slot_queues(self) -> tuple[tuple[Queue, Callable[[list[Any]], None]], ...]:
        """What a tick drains of each pool, by a count of its own, with what is done with it."""
        queues = self.controller.slot_release_queues
        return tuple((queue, partial(self._drain_slots, name)) for name, queue in queues.items())

    def _drain_slots(self, pool: str, slots: Sequence[int]) -> None:
        self._free_on_host({pool: slots})
        self.owed_slots[pool] -= len(slots)
        self.counters.reclaimed_slots += len(slots)

    def _move(self, source: TensorPool, source_slots: Sequence[int], target: TensorPool, slots: Sequence[int]) -> None:
        """Copy between the tiers, one to one."""
        target.copy_pages(source, source_slots, slots)

    # --- down ----------------------------------------------------------------------------------------------------

    def _has_room_beside(self, node: Node) -> bool:
        """Whether all pools have room on the host for what is beside this node's pages on the device."""
        return self._have_host_room({name: len(node.slots_of(name, DEVICE)) for name in self.extra})

    def _write_beside(self, node: Node) -> tuple[SlotToStore, ...]:
        """Copy to the host what is beside this node's pages on the device and not on the host, and hold it there.

        The node is backed up. The caller asked whether there is room.
        """
        start = sum(map(len, self.tree.path(node))) - len(node)
        stored: list[SlotToStore] = []
        for name, pool in self.extra.items():
            on_host = node.slots_of(name, HOST)
            missing = {at: slot for at, slot in node.slots_of(name, DEVICE).items() if at not in on_host}
            taken = self._take_host_slots(pool, missing)
            self._move(pool.device, list(missing.values()), pool.host, list(taken.values()))
            self.tree.attach(node, HOST, {name: {start + at: slot for at, slot in taken.items()}})
            stored += [SlotToStore(name, node.hashes[at], slot) for at, slot in taken.items()]
        self.counters.written_slots += len(stored)
        return tuple(stored)

    def _new_backup(self, node: Node, host_pages: tuple[int, ...]) -> BackupJob:
        """What is to be stored of a node that is backed up in these pages, or, without pages, what is beside them."""
        slots = self._write_beside(node)
        if slots:
            self.tree.hold_slots(node)
        return BackupJob(node, tuple(node.hashes[: len(host_pages)]), host_pages, slots, len(node))

    def _unhold(self, job: BackupJob) -> None:
        """Nobody reads the slots of this job any more."""
        if job.slots:
            self.tree.release_slots(job.node, job.node_pages)

    def _is_short_beside(self, node: Node) -> bool:
        """Whether a backed-up node has something beside its pages on the device alone."""
        return any(node.slots_of(name, DEVICE).keys() - node.slots_of(name, HOST).keys() for name in self.extra)

    # --- up ------------------------------------------------------------------------------------------------------

    def _take_slots_to_load(self, match: Match) -> dict[str, dict[int, int]] | None:
        """Device slots for what the whole match needs there and has on the host only; None: they cannot be had, or the
        match is out of date. The caller holds what is on the host, because making room on the device may write back,
        which makes room on the host."""
        on_device = self.tree.slots_along(match.host_node, DEVICE)
        on_host = self.tree.slots_along(match.host_node, HOST)
        start, end = len(match.device_pages), len(match.device_pages) + len(match.host_pages)
        missing = {
            name: [at for at in pool.component.needed(start, end) if at not in on_device[name]]
            for name, pool in self.extra.items()
        }
        if any(at not in on_host[name] for name, positions in missing.items() for at in positions):
            return None
        return self._take_device_slots(missing)

    def _take_device_slots(self, wanted: Mapping[str, Sequence[int]]) -> dict[str, dict[int, int]] | None:
        """Device slots for these positions of each pool, evicting what may be: all of them, or None."""
        taken: dict[str, dict[int, int]] = {}
        for name, positions in wanted.items():
            slots = self._take_slots_of(self.extra[name], len(positions))
            if slots is None:
                free_slots(self.extra, DEVICE, {pool: list(given.values()) for pool, given in taken.items()})
                return None
            taken[name] = dict(zip(positions, slots, strict=True))
        return taken

    def _take_slots_of(self, pool: ExtraPool, slots: int) -> tuple[int, ...] | None:
        missing = slots - pool.device.allocator.available
        if missing > 0 and not pool.component.beside_pages:
            self._evict_device_slots(pool, missing)
        return pool.device.allocator.alloc(slots)

    def _evict_device_slots(self, pool: ExtraPool, slots: int) -> None:
        """Drop at least so many device slots, as far as there are."""
        pool.device.allocator.free(self.tree.evict_slots(pool.name, DEVICE, slots))

    def _load_beside(self, match: Match, taken: Slots) -> Neighbours:
        """Copy what the match needs from the host into these device slots, and return what that is; its pages are on
        the device by now."""
        on_host = self.tree.slots_along(match.host_node, HOST)
        for name, slots in taken.items():
            pool = self.extra[name]
            self._move(pool.host, [on_host[name][at] for at in slots], pool.device, list(slots.values()))
        self.tree.attach(match.host_node, DEVICE, taken)
        self.counters.loaded_slots += sum(map(len, taken.values()))
        hashes = [page_hash for step in self.tree.path(match.host_node) for page_hash in step.hashes]
        return tuple((name, hashes[at]) for name, slots in taken.items() for at in slots)

    def compute_beside(self, hashes: Sequence[bytes], done: int, node: Node) -> dict[str, dict[int, int]]:
        """The model's part: what a prefix with these hashes needs beside it, and is not on the device down to `node`.

        The pages before `done` are there. A pool that has no room gets nothing: then no prefix ends there.
        """
        there = self.tree.slots_along(node, DEVICE)
        computed: dict[str, dict[int, int]] = {}
        for name, pool in self.extra.items():
            positions = [at for at in pool.component.needed(done, len(hashes)) if at not in there[name]]
            taken = self._take_device_slots({name: positions})
            for at, slot in (taken or {}).get(name, {}).items():
                pool.device.view(slot).copy_(pool.content(hashes[at], self.rank))
                computed.setdefault(name, {})[at] = slot
        return computed

    # --- evicting ------------------------------------------------------------------------------------------------

    def _on_evict_device(self, node: Node) -> None:
        """The pages take along what is beside them."""
        free_slots(self.extra, DEVICE, {name: list(node.slots_of(name, DEVICE).values()) for name in self.extra})
