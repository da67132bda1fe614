"""Faults of what is beside the pages: sidecars, windows and states, and the slots of a node that is split."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hicache_impl.beside import Neighbours
from hicache_impl.cache import HiCache
from hicache_impl.controller import BackupJob, Controller, Filled
from hicache_impl.extra_pools import ExtraPool
from hicache_impl.mutants.mutant import ImplMutant, faulty_cache, faulty_controller
from hicache_impl.operation import Operation
from hicache_impl.runtime import Queue
from hicache_impl.trees.components import HOST
from hicache_impl.trees.node import Match, Node, Slots
from hicache_impl.trees.unified import UnifiedTree

DRAFT = {"name": "draft", "kind": "sidecar"}
PACKED = {"name": "index", "kind": "sidecar", "place": "packed"}
WINDOW = {"name": "window", "kind": "window", "window_pages": 2, "host_slots": 4, "device_slots": 6}
STATE = {"name": "state", "kind": "state", "host_slots": 3, "device_slots": 3}
SIDECARS: dict[str, Any] = {"pools": [DRAFT]}
PACKED_ONLY: dict[str, Any] = {"pools": [PACKED]}
STATES: dict[str, Any] = {"tree": "hi_mamba", "pools": [STATE]}
WINDOWS: dict[str, Any] = {"tree": "unified", "pools": [WINDOW]}
ALL: dict[str, Any] = {"tree": "unified", "pools": [DRAFT, WINDOW, STATE]}
"""What the model of a mutant keeps beside its pages: fields of a configuration."""

# Splits.


class SplitsTheStateUpwards(UnifiedTree):
    """P6. The state of a node goes to the upper half of a split, whose end is another."""

    def _split_slots(self, upper: Node, node: Node, at: int) -> None:
        super()._split_slots(upper, node, at)
        for place, slots in list(node.slots.items()):
            if place[0] == "state":
                upper.slots[place] = {len(upper) - 1: slot for slot in slots.values()}
                del node.slots[place]


class ForgetsTheSlotsAboveASplit(UnifiedTree):
    """P4. What is beside the pages of the upper half stays behind at a split."""

    def _split_slots(self, upper: Node, node: Node, at: int) -> None:
        super()._split_slots(upper, node, at)
        upper.slots.clear()


class HoldsTheLowerHalfOnly(UnifiedTree):
    """P32. A split while slots are being stored lets those of the upper half go."""

    def _split(self, node: Node, at: int) -> Node:
        upper = super()._split(node, at)
        self.held.pop(upper.id, None)
        upper.slots_ref = 0
        self._refresh(upper)
        return upper

    def release_slots(self, node: Node, pages: int) -> None:
        super().release_slots(node, min(pages, len(node)))


class ReleasesTheLowerHalfOnly(UnifiedTree):
    """P14. The answer to a backup releases the slots of the node, whatever it was when it was queued (W08)."""

    def release_slots(self, node: Node, pages: int) -> None:
        super().release_slots(node, min(pages, len(node)))


class StoresWhatASplitLeft(Controller):
    """P32. The backup stores the node as it is then, and answers for what it was (sglang <= 0.5.12)."""

    def _store_pages(self, job: BackupJob) -> int:
        node = job.node
        left = replace(job, hashes=node.hashes, host_pages=tuple(node.host or ()))
        return super()._store_pages(left)


# Sidecars.


class CountsBeforeTheSidecar(Controller):
    """P6. A page counts when its own bytes are in place, and its sidecar is never waited for (sglang <= 0.5.13)."""

    def _read_beside(self, op: Operation, pages: range) -> Filled:
        return Filled(len(pages))


class CountsWithoutTheSidecar(Controller):
    """P20. A page counts although its sidecar could not be read (sglang <= 0.5.16)."""

    def _read_beside(self, op: Operation, pages: range) -> Filled:
        super()._read_beside(op, pages)
        return Filled(len(pages))


class ReleasesPagesAlone(Controller):
    """P4. A page that is given up leaves its sidecar to nobody."""

    def release_slots_beside(self, op: Operation, pages: range) -> None:
        pass


class StoresPagesAlone(Controller):
    """P32. What is beside the pages is answered for and never stored (sglang <= 0.5.10)."""

    def _store_slots(self, job: BackupJob) -> Mapping[str, int]:
        return {}


class LeavesItsShardToTheFirstRank(Controller):
    """P32. Where the pages are the same on all ranks, nobody but the first stores anything (sglang <= 0.5.16)."""

    def _store_slots(self, job: BackupJob) -> Mapping[str, int]:
        return super()._store_slots(job) if self.config.stores_pages(self.rank) else {}


class LoadsPagesAlone(HiCache):
    """P6. Load-back hands out slots beside the pages and copies nothing into them (sglang <= 0.5.10)."""

    def _load_beside(self, match: Match, taken: Slots) -> Neighbours:
        self.tree.attach(match.host_node, "device", taken)
        return ()


class LoadsWithoutThePackedLayers(HiCache):
    """P6. Load-back copies the layers of the model, and not those that are packed behind them."""

    def _load_node(self, node: Node, device_pages: Sequence[int]) -> None:
        super()._load_node(node, device_pages)
        for page in device_pages:
            self.device.view(page)[self.config.layers :].zero_()


class KeepsTheSlotsOfEvictedPages(HiCache):
    """P4. Pages that leave the host take nothing along."""

    def _on_evict_host(self, node: Node) -> None:
        extra, self.extra = self.extra, {}
        super()._on_evict_host(node)
        self.extra = extra


class KeepsKnownSlots(HiCache):
    """P4. Slots that the tree had already are not given back."""

    def _free_host_slots(self, slots: Mapping[str, Sequence[int]]) -> None:
        if self._closed:
            super()._free_host_slots(slots)


class DrainsSlotsByItsOwnCount(HiCache):
    """P7. Slots return to a pool as many as this rank has, whatever the others have."""

    def _agree_lengths(self) -> list[int]:
        agreed = super()._agree_lengths()
        own = [queue.qsize() for queue, _ in self._control_queues()]
        queues = [queue for queue, _ in self._control_queues()]
        mine = set(map(id, self.controller.slot_release_queues.values()))
        return [own[i] if id(queue) in mine else agreed[i] for i, queue in enumerate(queues)]


class MixesUpTheReleaseQueues(HiCache):
    """P13. Each pool gets the slots of the next one's queue."""

    def _slot_queues(self) -> tuple[tuple[Queue, Callable[[list[Any]], None]], ...]:
        queues = super()._slot_queues()
        drains = [drain for _, drain in queues]
        return tuple((queue, drain) for (queue, _), drain in zip(queues, drains[1:] + drains[:1], strict=True))


# Windows and states.


class CountsBeforeTheState(Controller):
    """P6. Pages count one by one, and what the end of the prefix needs is read when they are published (B09)."""

    def _fetch_whole(self, op: Operation) -> None:
        self._fetch_pages(op)
        if op.is_complete:
            for pool in self.extra.values():
                if not pool.component.beside_pages:
                    self.runtime.gate("io.page", self.rank, op.id)
                    self._read_slots(op, pool, op.slots.get(pool.name, {}))


class CountsWithoutTheState(Controller):
    """P20. A state that cannot be read ends nothing: the pages are published as if it were there."""

    def _read_slots(self, op: Operation, pool: ExtraPool, slots: Mapping[int, int]) -> Filled:
        super()._read_slots(op, pool, slots)
        return Filled(len(slots))


class KeepsTheStateOfAFailedRead(Controller):
    """P4. What the end of a prefix needs stays with an operation that did not get there."""

    def release_slots_of_end(self, op: Operation) -> None:
        pass


class ReadsTheWindowOnePageEarly(Controller):
    """P6. A window is filled from the pages before its own (sglang <= 0.5.20 places them so)."""

    def _read_slots(self, op: Operation, pool: ExtraPool, slots: Mapping[int, int]) -> Filled:
        first = op.base_pages - len(op.before)
        early = 1 if pool.spec.kind == "window" else 0
        for position, slot in slots.items():
            read = super()._read_slots(op, pool, {max(first, position - early): slot})
            if read.failure is not None:
                return read
        return Filled(len(slots))


class MatchesWithoutTheState(UnifiedTree):
    """P20. A match goes as deep as there are pages."""

    def _served(self, pages: tuple[bytes, ...], tier: str | None = None) -> int:
        return sum(taken for node, taken in self._along(pages) if tier is None or node.device is not None)


class GrantsWithoutRoomForTheState(HiCache):
    """P9. Pages are granted before it is known whether there is room for what is beside them."""

    def _clamp(self, op: Operation) -> None:
        pass


class EvictsSlotsThatAreRead(UnifiedTree):
    """P32. The slots of a node go, also while they are being stored."""

    def evictable_slots(self, component: str) -> int:
        return self.slots_resident[component, HOST]

    def evict_slots(self, component: str, tier: str, n: int) -> list[int]:
        out = super().evict_slots(component, tier, n)
        for node in list(self.held.values()):
            if tier == HOST and len(out) < n:
                out += self._drop_slots(node, component, tier)
        return out


class AbortsAndKeepsTheSlots(HiCache):
    """P4. An abort gives back the pages that landed, and not what is beside them."""

    def _release_slots(self, op: Operation, agreed: int, counted: int) -> None:
        pass


# Control.


class ResetsThePagesOnly(HiCache):
    """P15. A reset forgets the tree and the pages, and leaves the extra pools as they are."""

    def _reset_pools(self) -> None:
        self.host.reset()
        self.device.reset()


def _of(model: Mapping[str, Any], mutant: ImplMutant) -> ImplMutant:
    """The mutant as the cache of a model."""
    return replace(mutant, builds={**mutant.builds, "settings": model})


def _tree(name: str, part: type[UnifiedTree], race: str | None = None) -> ImplMutant:
    cache = type(f"{part.__name__}Cache", (HiCache,), {"tree_class": part})
    return ImplMutant(name, {"cache_class": cache}, (part.__doc__ or "").strip(), race=race)


POOLS = (
    _of(ALL, _tree("sched_splits_the_state_upwards", SplitsTheStateUpwards)),
    _of(ALL, _tree("sched_forgets_the_slots_above_a_split", ForgetsTheSlotsAboveASplit)),
    _of(
        WINDOWS,
        _tree("sched_holds_the_lower_half_only", HoldsTheLowerHalfOnly, race="hold backup.take, split, fill the pool"),
    ),
    _of(WINDOWS, _tree("sched_releases_the_lower_half_only", ReleasesTheLowerHalfOnly, race="hold backup.take, split")),
    _of(SIDECARS, faulty_controller("backup_stores_what_a_split_left", StoresWhatASplitLeft, race="hold backup.take")),
    _of(SIDECARS, faulty_controller("io_counts_before_the_sidecar", CountsBeforeTheSidecar)),
    _of(SIDECARS, faulty_controller("io_counts_without_the_sidecar", CountsWithoutTheSidecar)),
    _of(SIDECARS, faulty_controller("io_releases_pages_alone", ReleasesPagesAlone)),
    _of(SIDECARS, faulty_controller("backup_stores_pages_alone", StoresPagesAlone)),
    _of(
        {**SIDECARS, "replicated": True},
        faulty_controller("backup_leaves_its_shard_to_the_first_rank", LeavesItsShardToTheFirstRank, ranks=2),
    ),
    _of(SIDECARS, faulty_cache("sched_loads_pages_alone", LoadsPagesAlone)),
    _of(PACKED_ONLY, faulty_cache("sched_loads_without_the_packed_layers", LoadsWithoutThePackedLayers)),
    _of(SIDECARS, faulty_cache("sched_keeps_the_slots_of_evicted_pages", KeepsTheSlotsOfEvictedPages)),
    _of(ALL, faulty_cache("sched_keeps_known_slots", KeepsKnownSlots)),
    _of(
        SIDECARS,
        faulty_cache(
            "sched_drains_slots_by_its_own_count",
            DrainsSlotsByItsOwnCount,
            ranks=2,
            race="hold io.page on one rank, abort, tick",
        ),
    ),
    _of(ALL, faulty_cache("sched_mixes_up_the_release_queues", MixesUpTheReleaseQueues)),
    _of(STATES, faulty_controller("io_counts_before_the_state", CountsBeforeTheState, race="hold io.page, poll")),
    _of(STATES, faulty_controller("io_counts_without_the_state", CountsWithoutTheState)),
    _of(STATES, faulty_controller("io_keeps_the_state_of_a_failed_read", KeepsTheStateOfAFailedRead)),
    _of(WINDOWS, faulty_controller("io_reads_the_window_one_page_early", ReadsTheWindowOnePageEarly)),
    _of(ALL, _tree("sched_matches_without_the_state", MatchesWithoutTheState)),
    _of(STATES, faulty_cache("sched_grants_without_room_for_the_state", GrantsWithoutRoomForTheState)),
    _of(WINDOWS, _tree("sched_evicts_slots_that_are_read", EvictsSlotsThatAreRead, race="hold backup.take")),
    _of(ALL, faulty_cache("sched_aborts_and_keeps_the_slots", AbortsAndKeepsTheSlots)),
)
POOLS_CONTROL = (_of(ALL, faulty_cache("sched_resets_the_pages_only", ResetsThePagesOnly)),)
