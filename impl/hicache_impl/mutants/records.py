"""Faults of the ledger: what an operation leaves behind, or does not hold while it lives."""

from __future__ import annotations

import contextlib
import queue

from hicache_impl.cache import HiCache, Submission
from hicache_impl.keys import PrefixKey
from hicache_impl.mutants.mutant import faulty_cache
from hicache_impl.operation import FETCHED, REVOKED, Operation


class RevokesWithoutUnprotecting(HiCache):
    """P14. The anchor of a revoked operation stays protected for ever."""

    def _unprotect_anchor(self, op: Operation) -> None:
        if op.state != REVOKED:
            super()._unprotect_anchor(op)


class PublishesWithoutUnprotecting(HiCache):
    """P14. The anchor of a fetched operation stays protected for ever."""

    def _unprotect_anchor(self, op: Operation) -> None:
        if op.state != FETCHED:
            super()._unprotect_anchor(op)


class UnprotectsTheRoot(HiCache):
    """P14. The end of an operation gives back a reference that it does not hold."""

    def _unprotect_anchor(self, op: Operation) -> None:
        self.tree.unprotect_host(self.tree.root)


class DoesNotProtectTheAnchor(HiCache):
    """P14. The node under which pages will hang may be evicted meanwhile (sglang 0.5.1)."""

    def _protect_anchor(self, op: Operation) -> None:
        pass

    def _unprotect_anchor(self, op: Operation) -> None:
        pass


class RevokesWithoutAccounting(HiCache):
    """P8. A revoked operation stays in the occupied pages, until the limiter declines everything."""

    def _vacate(self, op: Operation) -> None:
        if op.state != REVOKED:
            super()._vacate(op)


class PublishesWithoutAccounting(HiCache):
    """P8. A fetched operation stays in the occupied pages."""

    def _vacate(self, op: Operation) -> None:
        if op.state != FETCHED:
            super()._vacate(op)


class AccountsWhatItDeclines(HiCache):
    """P10. A declined submission leaves its span in the occupied pages."""

    def _decline(self, rid: str, attempt: int, reason: str, base: int, span: int) -> Submission:
        self.occupied_pages += span
        return super()._decline(rid, attempt, reason, base, span)


class KeepsAnEndedRecord(HiCache):
    """P2. The request still has its operation after the end."""

    def _forget(self, op: Operation) -> None:
        super()._forget(op)
        self.records[op.rid] = op


class ReusesAttempts(HiCache):
    """P11. Two operations of one request have the same attempt number."""

    def _forget(self, op: Operation) -> None:
        super()._forget(op)
        del self.attempts[op.rid]


class SubmitsOutOfOrder(HiCache):
    """P7. The last rank queues a new operation before one that waits already."""

    def submit(self, rid: str, key: PrefixKey) -> Submission:
        waiting = []
        if self.rank == self.groups.size - 1:
            with contextlib.suppress(queue.Empty):
                waiting.append(self.controller.prefetch_queue.get(timeout=0))
        answer = super().submit(rid, key)
        for op in waiting:
            self.controller.prefetch_queue.put(op)
        return answer


RECORDS = (
    faulty_cache("sched_revokes_without_unprotecting", RevokesWithoutUnprotecting),
    faulty_cache("sched_publishes_without_unprotecting", PublishesWithoutUnprotecting),
    faulty_cache("sched_unprotects_the_root", UnprotectsTheRoot),
    faulty_cache("sched_does_not_protect_the_anchor", DoesNotProtectTheAnchor, race="hold io.take while others ask"),
    faulty_cache("sched_revokes_without_accounting", RevokesWithoutAccounting),
    faulty_cache("sched_publishes_without_accounting", PublishesWithoutAccounting),
    faulty_cache("sched_accounts_what_it_declines", AccountsWhatItDeclines),
    faulty_cache("sched_keeps_an_ended_record", KeepsAnEndedRecord),
    faulty_cache("sched_reuses_attempts", ReusesAttempts),
    faulty_cache("sched_submits_out_of_order", SubmitsOutOfOrder, ranks=2, race="hold query.take, submit three"),
)
