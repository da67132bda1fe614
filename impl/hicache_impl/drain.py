"""The drain: what the scheduler decides about each hit, reclaimed page and ack, in queue order, on every rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from queue import Empty
from typing import Any, Literal

from hicache_impl import events
from hicache_impl.beside import Beside
from hicache_impl.controller import BackupAck
from hicache_impl.operation import BELOW_THRESHOLD, NO_MEMORY, STOP, Operation
from hicache_impl.page_pool import PoolError
from hicache_impl.runtime import Queue, Stalled

HANDED_DOWN_S = 60.0
"""Seconds that a rank waits for what other ranks of its pipeline have already."""
Decision = Literal["skip", "stopped", "below_threshold", "grant"]


class Drain(Beside):
    """The scheduler's side of the queues that workers fill."""

    def tick(self) -> None:
        """Drain what every rank has: hits, released pages, backup acks, released slots, in this order. One collective.

        To be called on every turn of the scheduler's loop, whether there is a batch to run or not.
        """
        self.controller.check_alive()
        for (queue, drain), count in zip(self._control_queues(), self._agree_lengths(), strict=True):
            drain([self._next(queue) for _ in range(count)])

    def _next(self, queue: Queue) -> Any:
        """The next item. A rank that is told how many may have to wait until its own worker puts it."""
        if not self.groups.sched.is_told:
            return queue.get()
        try:
            return queue.get(timeout=HANDED_DOWN_S)
        except Empty:
            self.controller.check_alive()
            raise Stalled(
                f"rank {self.rank} was told of more than its workers brought in {HANDED_DOWN_S:g} s"
            ) from None

    def _control_queues(self) -> tuple[tuple[Queue, Callable[[list[Any]], None]], ...]:
        """What a tick drains, in this order, each with what is done with the items."""
        return (
            (self.controller.hit_queue, self._drain_hits),
            (self.controller.host_release_queue, self._drain_releases),
            (self.controller.ack_backup_queue, self._drain_acks),
            *self._slot_queues(),
        )

    def _agree_lengths(self) -> list[int]:
        """Why MIN: a rank whose threads are ahead must not change its pools before the others can."""
        lengths = [queue.qsize() for queue, _ in self._control_queues()]
        if self.groups.sched.tells:
            owed = self._owed()
            lengths = [
                min(length, owed.get(queue, length))
                for (queue, _), length in zip(self._control_queues(), lengths, strict=True)
            ]
        return self.groups.sched.first_min(lengths)

    def _owed(self) -> dict[Queue, int]:
        """By release queue, how much comes to it on every rank without anybody's doing.

        Why not all that is in it here: what is given up for an operation that has not ended may have landed on another
        rank, which gives it up only when all agree on the end.
        """
        slot_queues = self.controller.slot_release_queues
        return {
            self.controller.host_release_queue: self.owed_pages,
            **{queue: self.owed_slots[name] for name, queue in slot_queues.items()},
        }

    def _kept_back(self) -> int:
        """How much lies in release queues that no tick takes, because its operation has not ended."""
        if not self.groups.sched.tells:
            return 0
        return sum(max(0, queue.qsize() - owed) for queue, owed in self._owed().items())

    def _drain_hits(self, ops: Sequence[Operation]) -> None:
        for op in ops:
            self._drain_hit(op)

    def _drain_hit(self, op: Operation) -> None:
        decision = self._decide(op)
        if decision == "grant" and self.extra:
            self._clamp(op)
            decision = self._decide(op)
        if decision == "skip":
            self.log.emit(events.SKIPPED, op.id)
            self.counters.skipped += 1
        elif decision == "stopped":
            self._revoke(op, STOP, "drain")
        elif decision == "below_threshold":
            self._revoke(op, BELOW_THRESHOLD, "drain")
        else:
            self._grant(op)

    def _decide(self, op: Operation) -> Decision:
        """What to do with a hit. An operation is known by its attempt: an older one of the same request is skipped."""
        if self.records.get(op.rid) is not op:
            return "skip"
        if op.is_terminated:
            return "stopped"
        if op.hit_pages < self.config.threshold_pages:
            return "below_threshold"
        return "grant"

    def _grant(self, op: Operation) -> None:
        """Exactly the hit; else as much of it as can be had; else nothing.

        Why nothing is evicted before it is known to be enough: a refused operation leaves no trace.
        """
        pages = self._plan_grant(op)
        if pages < self.config.threshold_pages:
            self._revoke(op, NO_MEMORY, "drain")
            return
        self._make_room(pages)
        host_pages = self.host.allocator.alloc(pages)
        if host_pages is None:
            raise PoolError(f"{pages} pages were to be had for {op.id}, and then were not")
        self.counters.shortened += pages < op.hit_pages
        slots = self._grant_slots(op, pages)
        evictable, free = self.tree.evictable_host_pages(), self.host.allocator.available
        op.allocate(host_pages, evictable=evictable, free=free, slots=slots)
        self.controller.prefetch_buffer.put(op)

    def _plan_grant(self, op: Operation) -> int:
        """Pages to grant: sized by the hit, never by the request."""
        return min(op.hit_pages, self._obtainable_pages())

    def _drain_releases(self, pages: Sequence[int]) -> None:
        if not pages:
            return
        self.host.allocator.free(pages)
        self.owed_pages -= len(pages)
        self.counters.reclaimed_pages += len(pages)
        self.log.emit(events.RECLAIMED, pages=len(pages))

    def _drain_acks(self, acks: Sequence[BackupAck]) -> None:
        for ack in acks:
            self._drain_ack(ack)

    def _drain_ack(self, ack: BackupAck) -> None:
        job = ack.job
        self.tree.unprotect_host(self.backups.pop(job))
        # What is another rank's matter to store counts there.
        mine = len(job.host_pages) if self.config.stores_pages(self.rank) else 0
        self.counters.stored_pages += mine - ack.failed_pages
        self.counters.unstored_pages += ack.failed_pages
        self._unhold(job)
        slots = sum(self.extra[one.pool].is_stored_by(self.rank) for one in job.slots)
        failed_slots = sum(ack.failed_slots.values())
        self.counters.stored_slots += slots - failed_slots
        self.counters.unstored_slots += failed_slots
        self.log.emit(events.STORED, node=job.node.id, pages=len(job.host_pages), failed=ack.failed_pages)
