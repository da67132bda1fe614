"""What could have gone wrong when the revoke queue was removed: its count, its queue, and who decides when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hicache_impl.cache import HiCache
from hicache_impl.controller import Controller
from hicache_impl.mutants.mutant import faulty_cache
from hicache_impl.runtime import Queue
from hicache_impl.storage import Storage


class SlicesTheCountsAtTheOldIndex(HiCache):
    """P3. The agreed counts are read as if the first were still that of the revokes: each queue has its successor's."""

    def _agree_lengths(self) -> list[int]:
        return [*super()._agree_lengths()[1:], 0]


class RevokesBeforeTheCountIsAgreed(HiCache):
    """P7. Each rank revokes what it sees in its own hit queue, before the ranks agree on how much to take."""

    def _agree_lengths(self) -> list[int]:
        hits = self.controller.hit_queue
        for op in [hits.get() for _ in range(hits.qsize())]:
            if self._decide(op) == "below_threshold":
                self._drain_hit(op)
            else:
                hits.put(op)
        return super()._agree_lengths()


class ClearsAllQueuesButOne(HiCache):
    """P15. A reset throws away what is in the queues instead of draining them, and keeps that of the released pages."""

    def quiesce(self, timeout_s: float = 60) -> None:
        self.controller.settle(timeout_s)

    def _new_controller(self, storage: Storage) -> Controller:
        old = getattr(self, "controller", None)
        new = super()._new_controller(storage)
        if old is not None:
            new.host_release_queue = old.host_release_queue
        return new


class DrainsTheQueuesOfTheFirstStore(HiCache):
    """P3. The scheduler looks its queues up once, and after an attach it still drains those of the store before."""

    def _control_queues(self) -> tuple[tuple[Queue, Callable[[list[Any]], None]], ...]:
        queues: tuple[tuple[Queue, Callable[[list[Any]], None]], ...] = self.__dict__.setdefault(
            "first_queues", super()._control_queues()
        )
        return queues


FOUNDING = (
    faulty_cache("sched_slices_the_counts_at_the_old_index", SlicesTheCountsAtTheOldIndex),
    faulty_cache(
        "sched_revokes_before_the_count_is_agreed",
        RevokesBeforeTheCountIsAgreed,
        ranks=2,
        race="hold query.agreed on one rank, tick",
    ),
)
FOUNDING_CONTROL = (
    faulty_cache("sched_clears_all_queues_but_one", ClearsAllQueuesButOne),
    faulty_cache("sched_drains_the_queues_of_the_first_store", DrainsTheQueuesOfTheFirstStore),
)
