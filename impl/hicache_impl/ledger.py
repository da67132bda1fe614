"""What the scheduler of one rank keeps: records, host memory, references and counts; and the one way out for an op.

Only the scheduler's thread comes here. Ranks make the same calls in the same order, so everything in a ledger but the
page numbers is equal on all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from hicache_impl import events
from hicache_impl.config import CacheConfig
from hicache_impl.controller import BackupJob, Controller
from hicache_impl.device_pool import DevicePool
from hicache_impl.events import Log
from hicache_impl.extra_pools import ExtraPool, free_slots
from hicache_impl.host_pool import HostPool
from hicache_impl.operation import Operation, RevokedBy
from hicache_impl.ranks import Groups
from hicache_impl.runtime import Runtime
from hicache_impl.storage import Storage
from hicache_impl.trees.components import HOST
from hicache_impl.trees.core import RadixTree
from hicache_impl.trees.node import Node


@dataclass(frozen=True)
class Pools:
    """The pools of one rank: of pages, and of what is beside them."""

    host: HostPool
    device: DevicePool
    extra: Mapping[str, ExtraPool] = field(default_factory=dict)


def _counter() -> Counter[str]:
    return Counter()


@dataclass
class Counters:
    """What happened so far. Operations by final state and reason; the rest in pages, slots of extra pools, or times.

    `passed_terminated` counts operations. `hit_pages` by tier: what `prefill` found on device and on host, and what
    prefetches published that was not known before.
    """

    fetched: Counter[str] = field(default_factory=_counter)
    revoked: Counter[str] = field(default_factory=_counter)
    declined: Counter[str] = field(default_factory=_counter)
    hit_pages: Counter[str] = field(default_factory=_counter)
    skipped: int = 0
    shortened: int = 0
    passed_terminated: int = 0
    known_pages: int = 0
    reclaimed_pages: int = 0
    evicted_pages: int = 0
    written_pages: int = 0
    stored_pages: int = 0
    unstored_pages: int = 0
    loaded_pages: int = 0
    reclaimed_slots: int = 0
    evicted_slots: int = 0
    written_slots: int = 0
    stored_slots: int = 0
    unstored_slots: int = 0
    loaded_slots: int = 0
    pages_verified: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Plain dictionaries and numbers."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: dict(value) if isinstance(value, Counter) else value for name, value in values.items()}


class Ledger:
    """The state of one rank's scheduler, with the steps that keep it balanced.

    `attempts` remembers the last attempt of every request id ever seen: two operations never share (id, attempt).
    """

    def __init__(
        self,
        config: CacheConfig,
        rank: int,
        tree: RadixTree,
        pools: Pools,
        storage: Storage,
        groups: Groups,
        runtime: Runtime,
        log: Log,
        controller_class: type[Controller] = Controller,
    ) -> None:
        self.config = config
        self.rank = rank
        self.tree = tree
        self.host = pools.host
        self.device = pools.device
        self.extra = pools.extra
        # None while it is detached.
        self.storage: Storage | None = storage
        self.groups = groups
        self.runtime = runtime
        self.log = log
        self._controller_class = controller_class
        self.controller = self._new_controller(storage)
        self._begin()

    def _new_controller(self, storage: Storage) -> Controller:
        """New queues, and threads that are not yet started, on `storage`."""
        return self._controller_class(
            self.config, self.rank, self.host, storage, self.groups.query, self.runtime, self.log, self.extra
        )

    def _begin(self) -> None:
        """Nothing has been asked for and nothing has happened."""
        self.records: dict[str, Operation] = {}
        self.attempts: dict[str, int] = {}
        self.backups: dict[BackupJob, Node] = {}
        self.occupied_pages = 0
        # What operations that have ended give back on every rank, and what no tick has taken yet: pages, slots by pool.
        self.owed_pages = 0
        self.owed_slots: Counter[str] = Counter()
        self.counters = Counters()

    def _protect_anchor(self, op: Operation) -> None:
        """The node under which the pages will hang keeps its host value, and so do those above it."""
        self.tree.protect_host(op.anchor)

    def _unprotect_anchor(self, op: Operation) -> None:
        self.tree.unprotect_host(op.anchor)

    def _occupy(self, op: Operation) -> None:
        self.occupied_pages += op.span_pages

    def _vacate(self, op: Operation) -> None:
        self.occupied_pages -= op.span_pages

    def _forget(self, op: Operation) -> None:
        """Nothing of the operation stays but pages that are on their way to the release queue."""
        del self.records[op.rid]
        self._unprotect_anchor(op)
        self._vacate(op)

    def _leave(self, op: Operation) -> None:
        """The operation reached a final state."""
        self.counters.passed_terminated += op.is_terminated
        self._forget(op)

    def _owe(self, op: Operation, agreed: int) -> None:
        """It ends with `agreed` pages: all else that it was granted comes back, by the IO thread or the scheduler."""
        self.owed_pages += op.granted_pages - agreed
        for name, slots in op.slots.items():
            if self.extra[name].component.beside_pages:
                self.owed_slots[name] += op.granted_pages - agreed
            elif agreed < op.granted_pages:
                self.owed_slots[name] += len(slots)

    def _revoke(self, op: Operation, reason: str, by: RevokedBy) -> None:
        """any state without memory, or an aborted operation -> revoked."""
        op.revoke(reason, by, evictable=self.tree.evictable_host_pages(), free=self.host.allocator.available)
        self.counters.revoked[reason] += 1
        self._leave(op)

    def _obtainable_pages(self) -> int:
        """Host pages that are free or that an eviction would free."""
        return self.host.allocator.available + self.tree.evictable_host_pages()

    def _make_room(self, pages: int) -> None:
        """Evict host pages until `pages` are free; the caller asked first whether that many can be had."""
        missing = pages - self.host.allocator.available
        if missing > 0:
            self.host.allocator.free(self.tree.evict_host(missing, self._on_evict_host))

    def _on_evict_host(self, node: Node) -> None:
        self.log.emit(events.EVICTED, node=node.id, pages=len(node))
        self.counters.evicted_pages += len(node)
        self._free_on_host({name: list(node.slots_of(name, HOST).values()) for name in self.extra})

    def _free_on_host(self, slots: Mapping[str, Sequence[int]]) -> None:
        """Give host slots of the extra pools back, by pool: the same number on every rank."""
        free_slots(self.extra, HOST, slots)
        for name, given in slots.items():
            self._log_slots(events.SLOTS_FREED, name, len(given))

    def _log_slots(self, kind: str, pool: str, slots: int) -> None:
        """So many slots of the host were taken or given back, and so many are free now."""
        if slots:
            self.log.emit(kind, pool=pool, slots=slots, free=self.extra[pool].host.allocator.available)

    def _release_pages(self, pages: Sequence[int]) -> None:
        """Put pages on the release queue, from where all ranks take the same number at a time."""
        for page in pages:
            self.controller.host_release_queue.put(page)
