"""Faults of what is on its way between device and host: told too early, not kept, half forgotten, told twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hicache_impl.beside import Neighbours
from hicache_impl.cache import HiCache
from hicache_impl.config import CacheConfig
from hicache_impl.controller import BackupJob
from hicache_impl.copies import LoadJob, WriteJob
from hicache_impl.kv_events import Listener
from hicache_impl.mutants.mutant import ImplMutant
from hicache_impl.runtime import Runtime
from hicache_impl.telemetry import Telemetry
from hicache_impl.transfers import WRITE, WorkerLane
from hicache_impl.trees.node import Match, Node


class _HastyLane(WorkerLane):
    """What is taken has landed."""

    def _run(self) -> None:
        while (copy := self._queue.get()) is not None:
            self.runtime.gate(f"{self.name}.take", self.rank)
            copy.landed.set()
            self._copy(copy)


class TellsBeforeItLands(HiCache):
    """P6. A copy to the host counts as landed when its thread begins with it."""

    def __init__(self, *parts: Any, **more: Any) -> None:
        super().__init__(*parts, **more)
        self.lanes[WRITE] = _HastyLane(WRITE, self.rank, self.runtime, self._lane_died)


class BacksUpBeforeItLands(HiCache):
    """P32. The backup is queued when the copy to the host begins, and may read what is not there."""

    def _end_write(self, job: WriteJob) -> None:
        super()._end_write(job)
        super()._queue_backup(job.backup)

    def _queue_backup(self, job: BackupJob) -> None:
        """It is queued already."""


class UnlocksWhatIsWritten(HiCache):
    """P6. The device may give pages to others while they are being copied to the host."""

    def _end_write(self, job: WriteJob) -> None:
        super()._end_write(job)
        self.tree.unlock_device(job.backup.node)

    def _drain_write(self, job: WriteJob) -> None:
        self._queue_backup(job.backup)


class LoadsWithoutALock(HiCache):
    """P18. The device may give pages to others while they are being filled from the host."""

    def _end_load(self, node: Node, loaded: Sequence[Node], beside: Neighbours, began_s: float) -> None:
        super()._end_load(node, loaded, beside, began_s)
        if loaded:
            self.tree.unlock_device(node)

    def _drain_load(self, job: LoadJob) -> None:
        self._log_arrived(job.parts)
        if job.pages:
            self.tree.unprotect_host(job.node)
        self._release_path(job.held)


class BacksUpWhatASplitLeft(HiCache):
    """P28. A node that was split while it was copied is backed up as it is then: its lower half."""

    def _drain_write(self, job: WriteJob) -> None:
        node = job.backup.node
        self._queue_backup(BackupJob(node, tuple(node.hashes), tuple(node.host or ())))
        self.tree.unlock_device(node)


class TakesCopiesByItsOwnCount(HiCache):
    """P7. Each rank takes the copies that have landed there, whatever the others have."""

    def _agree_lengths(self) -> list[int]:
        agreed = super()._agree_lengths()
        own = [taken.qsize() for taken in self.lanes.values()]
        return [*agreed[: len(agreed) - len(own)], *own]


class WritesBackWithoutCopying(HiCache):
    """P6. The device forgets what has host pages, whether or not anything was written there."""

    def _begin_write(self, node: Node, host_pages: tuple[int, ...], *, evicts: bool) -> None:
        kept = self.host.view(host_pages[-1]).clone()
        super()._begin_write(node, host_pages, evicts=evicts)
        if evicts:
            self.host.view(host_pages[-1]).copy_(kept)


class LoadsWhatMakingRoomTakes(HiCache):
    """P14. What is to be loaded is not protected while room is made for it on the device."""

    def _protect_to_load(self, match: Match) -> tuple[tuple[Node, int], ...]:
        return ()

    def _unprotect_to_load(self, match: Match, held: Sequence[tuple[Node, int]]) -> None:
        """There is nothing to undo."""


class TellsOfACopyTwice(HiCache):
    """P29. A page is told stored when its copy begins, and when it has landed."""

    def _tell_change(self, node: Node, parent: Node, tier: str, came: bool) -> None:
        self._is_quiet = False
        super()._tell_change(node, parent, tier, came)


def _listened(config: CacheConfig, rank: int, runtime: Runtime) -> Telemetry:
    """Somebody listens, and refuses what cannot be."""
    return Telemetry(config, rank, runtime, take=Listener().take)


def _faulty_copies(
    name: str, part: type[HiCache], ranks: int = 1, race: str | None = None, more: Any = (), **settings: Any
) -> ImplMutant:
    """The fault shows while copies are under way."""
    builds = {"cache_class": part, "settings": {"async_copies": True, **settings}, **dict(more)}
    return ImplMutant(name, builds, (part.__doc__ or "").strip(), ranks, race)


COPIES = (
    _faulty_copies("copy_tells_before_it_lands", TellsBeforeItLands, race="hold write.layer, prefill, tick, evict"),
    _faulty_copies("sched_backs_up_before_it_lands", BacksUpBeforeItLands, race="hold write.take, prefill"),
    _faulty_copies("sched_unlocks_what_is_written", UnlocksWhatIsWritten, race="hold write.take, prefill, evict"),
    _faulty_copies("sched_loads_without_a_lock", LoadsWithoutALock, race="hold load.take, load back, evict"),
    _faulty_copies("sched_backs_up_what_a_split_left", BacksUpWhatASplitLeft, race="hold write.take, prefill, split"),
    _faulty_copies(
        "sched_takes_copies_by_its_own_count", TakesCopiesByItsOwnCount, ranks=2, race="hold write.take on one rank"
    ),
    _faulty_copies(
        "sched_writes_back_without_copying", WritesBackWithoutCopying, async_copies=False, write_policy="write_back"
    ),
    _faulty_copies("sched_loads_what_making_room_takes", LoadsWhatMakingRoomTakes, write_policy="write_back"),
    _faulty_copies("sched_tells_of_a_copy_twice", TellsOfACopyTwice, more={"telemetry": _listened}),
)
