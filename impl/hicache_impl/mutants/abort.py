"""Faults of abort and stop."""

from __future__ import annotations

from hicache_impl.cache import HiCache
from hicache_impl.mutants.mutant import faulty_cache
from hicache_impl.operation import ABORT, REVOKED, Operation


class AbortsAndReleasesEveryPage(HiCache):
    """P18. Abort gives back all granted pages, also the one being written and those of the IO thread's tail."""

    def _release_unagreed(self, op: Operation, agreed: int, counted: int) -> None:
        super()._release_unagreed(op, agreed, op.granted_pages if op.state == REVOKED else counted)


class AbortsAndKeepsWhatLanded(HiCache):
    """P4. Abort leaves the landed pages to nobody (sglang 0.5.1)."""

    def _release_unagreed(self, op: Operation, agreed: int, counted: int) -> None:
        if op.state != REVOKED:
            super()._release_unagreed(op, agreed, counted)


class AbortsAndPublishes(HiCache):
    """P2. Abort publishes what landed, as a poll would."""

    def abort(self, rid: str) -> bool:
        op = self.records.get(rid)
        if op is None or not op.has_memory:
            return super().abort(rid)
        counted = op.mark(ABORT)
        self._publish(op, self._agree_counted([counted])[0], counted, ABORT)
        return True


class SetsTheFlagOnly(HiCache):
    """P8. Abort stops the reading and leaves the record, its references and its pages (sglang 0.5.8)."""

    def abort(self, rid: str) -> bool:
        op = self.records.get(rid)
        if op is None:
            return False
        op.mark(ABORT)
        return True


class MarksTheFirstRankOnly(HiCache):
    """P7. A stop is known on one rank alone."""

    def stop(self, rid: str) -> bool:
        if self.rank == 0:
            return super().stop(rid)
        op = self.records.get(rid)
        if op is None or op.stop_asked:
            return False
        op.stop_asked = True
        return True


ABORTS = (
    faulty_cache(
        "sched_aborts_and_releases_every_page", AbortsAndReleasesEveryPage, race="hold io.copied, abort, tick"
    ),
    faulty_cache("sched_aborts_and_keeps_what_landed", AbortsAndKeepsWhatLanded),
    faulty_cache("sched_aborts_and_publishes", AbortsAndPublishes),
    faulty_cache("sched_sets_the_flag_only", SetsTheFlagOnly),
    faulty_cache("sched_marks_the_first_rank_only", MarksTheFirstRankOnly, ranks=2),
)
