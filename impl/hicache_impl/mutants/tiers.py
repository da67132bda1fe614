"""Faults of the tree and between the tiers: evicting, writing through, backing up, loading back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hicache_impl import events
from hicache_impl.cache import HiCache
from hicache_impl.controller import BackupAck, BackupJob, Controller
from hicache_impl.mutants.mutant import faulty_cache, faulty_controller, faulty_tree
from hicache_impl.trees.hiradix import HiRadixTree
from hicache_impl.trees.node import Node


class EvictsProtectedNodes(HiRadixTree):
    """P14. Host eviction drops the references of whatever it may come across."""

    def evict_host(self, n: int, on_evict: Callable[[Node], None]) -> list[int]:
        for node in list(self.protected.values()):
            while node is not self.root and node.host_ref:
                self.unprotect_host(node)
        return super().evict_host(n, on_evict)


class EvictsInnerNodes(HiRadixTree):
    """P23. Host copies of nodes on device go first, with children on host or not."""

    def evict_host(self, n: int, on_evict: Callable[[Node], None]) -> list[int]:
        out: list[int] = []
        for node in list(self.nodes()):
            if len(out) < n and node.device is not None and node.host is not None and not node.host_ref:
                on_evict(node)
                out += node.host
                self._set_values(node, node.device, None)
        return out + super().evict_host(n - len(out), on_evict)


class BacksUpAnyNode(HiRadixTree):
    """P23. A node takes host pages whatever its parent has."""

    def set_host(self, node: Node, pages: Sequence[int]) -> None:
        self._set_values(node, node.device, list(pages))


class WritesAChildBeforeItsParent(HiCache):
    """P23. Write-through goes on below a node that could not be backed up."""

    tree_class = BacksUpAnyNode

    def _write_through(self, node: Node) -> None:
        for step in self.tree.path(node):
            if step.host is None:
                self._write_node(step)


class LoadsWithoutCopying(HiCache):
    """P6. Load-back hands out device pages and copies nothing into them."""

    def _load_node(self, node: Node, device_pages: Sequence[int]) -> None:
        self.tree.set_device(node, device_pages)
        self.log.emit(events.LOADED, node=node.id, pages=len(node))


class AcksWithoutUnprotecting(HiCache):
    """P14. A node that was backed up stays protected for ever."""

    def _drain_ack(self, ack: BackupAck) -> None:
        job = ack.job
        del self.backups[job]
        self.log.emit(events.STORED, node=job.node.id, pages=len(job.host_pages), failed=ack.failed_pages)


class BacksUpUnprotectedPages(AcksWithoutUnprotecting):
    """P32. Host pages may be evicted and reused while the backup thread has yet to read them."""

    def _protect_backup(self, job: BackupJob) -> None:
        """Nobody knows that they are read."""

    def _unprotect_backup(self, job: BackupJob) -> None:
        self._unhold(job)


class CountsRefusedPagesAsStored(Controller):
    """P32. What the store refuses is acknowledged all the same."""

    def _store_pages(self, job: BackupJob) -> int:
        super()._store_pages(job)
        return 0


class BackupDiesOfARaisingStore(Controller):
    """P31. `put` is not guarded (sglang <= 0.5.21)."""

    def _store_pages(self, job: BackupJob) -> int:
        taken = self.storage.put_from(self._keys(job.hashes), [self.host.view(page) for page in job.host_pages])
        return len(job.host_pages) - sum(taken)


TIERS = (
    faulty_tree("sched_evicts_protected_nodes", EvictsProtectedNodes, race="hold io.take while others ask"),
    faulty_tree("sched_evicts_inner_nodes", EvictsInnerNodes),
    faulty_cache(
        "sched_writes_a_child_before_its_parent",
        WritesAChildBeforeItsParent,
        race="hold io.take to fill the pool, prefill, prefill longer",
    ),
    faulty_cache("sched_loads_without_copying", LoadsWithoutCopying),
    faulty_cache("sched_acks_without_unprotecting", AcksWithoutUnprotecting),
    faulty_cache(
        "sched_backs_up_unprotected_pages",
        BacksUpUnprotectedPages,
        race="hold backup.take, prefill, evict_device, fetch another, release",
    ),
    faulty_controller("backup_counts_refused_pages_as_stored", CountsRefusedPagesAsStored),
    faulty_controller("backup_dies_of_a_raising_store", BackupDiesOfARaisingStore),
)
