"""Faults of the drain: how much it takes, and what it decides."""

from __future__ import annotations

from hicache_impl.cache import HiCache, Submission
from hicache_impl.drain import Decision
from hicache_impl.keys import PrefixKey
from hicache_impl.mutants.mutant import faulty_cache
from hicache_impl.operation import NO_MEMORY, STOP, Operation


def own_lengths(cache: HiCache) -> list[int]:
    """What this rank's queues hold now, whatever the others have."""
    return [queue.qsize() for queue, _ in cache._control_queues()]


class DrainsByItsOwnCount(HiCache):
    """P7. The ranks meet, and then each drains what it has itself."""

    def _agree_lengths(self) -> list[int]:
        super()._agree_lengths()
        return own_lengths(self)


class ReclaimsByItsOwnCount(HiCache):
    """P7. Hits and acks are drained by the agreed number, released pages by the own one."""

    def _agree_lengths(self) -> list[int]:
        hits, _, acks = super()._agree_lengths()
        return [hits, own_lengths(self)[1], acks]


class DrainsTheLongestQueue(HiCache):
    """P7. MAX and not MIN: a rank that has less waits in its scheduler for its own worker."""

    def _agree_lengths(self) -> list[int]:
        return self.groups.sched.all_max(own_lengths(self))


class DecidesWithoutTheFlag(HiCache):
    """P2. A hit of a terminated operation is judged like any other."""

    def _decide(self, op: Operation) -> Decision:
        if self.records.get(op.rid) is not op:
            return "skip"
        return "below_threshold" if op.hit_pages < self.config.threshold_pages else "grant"


class FindsRecordsByRequestId(HiCache):
    """P11. A hit of an earlier attempt that was terminated revokes the present one (sglang 0.5.18)."""

    def _drain_hit(self, op: Operation) -> None:
        present = self.records.get(op.rid)
        if present is not None and op.is_terminated:
            self._revoke(present, STOP, "drain")
        else:
            super()._drain_hit(op)


class GrantsBelowTheThreshold(HiCache):
    """P9. Whatever was hit is fetched, worth it or not."""

    def _decide(self, op: Operation) -> Decision:
        decision = super()._decide(op)
        return "grant" if decision == "below_threshold" and op.hit_pages else decision

    def _grant(self, op: Operation) -> None:
        pages = self._plan_grant(op)
        self._make_room(pages)
        host_pages = self.host.allocator.alloc(pages) if pages else None
        if host_pages is None:
            self._revoke(op, NO_MEMORY, "drain")
            return
        op.allocate(host_pages, evictable=self.tree.evictable_host_pages(), free=self.host.allocator.available)
        self.controller.prefetch_buffer.put(op)


class GrantsTheWholeSpan(HiCache):
    """P17. The grant is sized by the request, and the plan has no hash for the rest."""

    def _plan_grant(self, op: Operation) -> int:
        return min(op.span_pages, self._obtainable_pages())


class RefusesWithoutEvicting(HiCache):
    """P9. Only what is free can be granted."""

    def _plan_grant(self, op: Operation) -> int:
        return min(op.hit_pages, self.host.allocator.available)


class EvictsBeforeARefusal(HiCache):
    """P9. Room is made before it is known whether there is enough."""

    def _plan_grant(self, op: Operation) -> int:
        pages = super()._plan_grant(op)
        self._make_room(pages)
        return pages


class EvictsForEveryGrant(HiCache):
    """P9. As many pages are evicted as are granted, whatever is free."""

    def _make_room(self, pages: int) -> None:
        self.host.allocator.free(self.tree.evict_host(pages, self._on_evict_host))


class AllocatesAtSubmit(HiCache):
    """P9. Host pages are set aside for the whole span while the query is on its way (sglang <= 0.5.15)."""

    def submit(self, rid: str, key: PrefixKey) -> Submission:
        answer = super().submit(rid, key)
        if answer.op is not None:
            pages = min(answer.span_pages, self.host.allocator.available)
            self._set_aside()[answer.op] = self.host.allocator.alloc(pages) or ()
        return answer

    def _grant(self, op: Operation) -> None:
        self._give_up(op)
        super()._grant(op)

    def _forget(self, op: Operation) -> None:
        self._give_up(op)
        super()._forget(op)

    def _give_up(self, op: Operation) -> None:
        self.host.allocator.free(self._set_aside().pop(op, ()))

    def _set_aside(self) -> dict[Operation, tuple[int, ...]]:
        pages: dict[Operation, tuple[int, ...]] = self.__dict__.setdefault("set_aside", {})
        return pages


DRAIN = (
    faulty_cache(
        "sched_drains_by_its_own_count", DrainsByItsOwnCount, ranks=2, race="hold query.agreed on one rank, tick"
    ),
    faulty_cache(
        "sched_reclaims_by_its_own_count", ReclaimsByItsOwnCount, ranks=2, race="hold io.page on one rank, abort, tick"
    ),
    faulty_cache(
        "sched_drains_the_longest_queue", DrainsTheLongestQueue, ranks=2, race="hold query.agreed on one rank, tick"
    ),
    faulty_cache("sched_decides_without_the_flag", DecidesWithoutTheFlag, race="hold query.agreed, stop, release"),
    faulty_cache(
        "sched_finds_records_by_request_id",
        FindsRecordsByRequestId,
        race="hold query.take, submit, abort, submit the same id, release",
    ),
    faulty_cache("sched_grants_below_the_threshold", GrantsBelowTheThreshold),
    faulty_cache("sched_grants_the_whole_span", GrantsTheWholeSpan),
    faulty_cache("sched_refuses_without_evicting", RefusesWithoutEvicting),
    faulty_cache("sched_evicts_before_a_refusal", EvictsBeforeARefusal, race="hold io.take while others ask"),
    faulty_cache("sched_evicts_for_every_grant", EvictsForEveryGrant),
    faulty_cache("sched_allocates_at_submit", AllocatesAtSubmit, race="hold query.take, submit"),
)
