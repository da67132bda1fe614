"""Faults of the IO thread: what it reads, counts and gives up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from hicache_impl import events
from hicache_impl.controller import Controller, Filled
from hicache_impl.mutants.mutant import faulty_controller, faulty_operation
from hicache_impl.operation import Operation


class CountsBeforeTheCopy(Operation):
    """P6. A page counts from the moment its read starts (sglang 0.5.1)."""

    def start_page(self, page: int) -> bool:
        return super().start_page(page) and super().count_pages(range(page, page + 1))

    def count_pages(self, pages: range) -> bool:
        return not self.is_terminated


class CountsAfterTermination(Operation):
    """P4. A page that lands after the count was frozen counts, so that nobody gives it up."""

    def count_pages(self, pages: range) -> bool:
        with self.lock:
            self.counted_pages += len(pages)
            for page in pages:
                self._emit(events.IO_LANDED, page=page)
            return True


class StartsWithoutTheFlag(Operation):
    """P5. The next page is read although the operation is terminated."""

    def start_page(self, page: int) -> bool:
        with self.lock:
            self._emit(events.IO_STARTED, page=page)
            return True


class WaitsOnAfterAFailure(Operation):
    """P2. A failed page stops the reading and does not terminate the operation (sglang 0.5.1)."""

    def fail_page(self, page: int, reason: str) -> None:
        with self.lock:
            self._emit(events.IO_FAILED, page=page, reason=reason)


class CountsAFailedPage(Controller):
    """P6. A page that the store does not deliver counts as landed."""

    def _read_pages(self, op: Operation, pages: range) -> Filled:
        super()._read_pages(op, pages)
        return Filled(len(pages))


class DropsTheTail(Controller):
    """P4. What was granted and never read is not given back."""

    def _release_tail(self, op: Operation) -> None:
        pass


class ReleasesTheTailTwice(Controller):
    """P13. Every page of the tail is given back two times."""

    def _release_page(self, op: Operation, page: int) -> None:
        super()._release_page(op, page)
        super()._release_page(op, page)


class ReleasesWhatWasCounted(Controller):
    """P13. When a read ended early, the landed pages are given back with the tail, and published too."""

    def _release_tail(self, op: Operation) -> None:
        if op.counted_pages < op.granted_pages:
            for page in range(op.granted_pages):
                self._release_page(op, page)


class DiesOfARaisingStore(Controller):
    """P31. `get` is not guarded (sglang <= 0.5.21)."""

    def _get(self, keys: Sequence[str], into: Sequence[torch.Tensor]) -> Filled:
        count = sum(self.storage.get_into(keys, into))
        return Filled(count, None if count == len(keys) else "miss")


class CountsAcrossAGap(Controller):
    """P6. Of pages that are read together, as many count as the store has delivered, whichever these are."""

    def _get(self, keys: Sequence[str], into: Sequence[torch.Tensor]) -> Filled:
        count = sum(self.storage.get_into(keys, into))
        return Filled(count, None if count == len(keys) else "miss")


class CountsABatchAfterTermination(Operation):
    """P4. Of pages that are read together, all but the first count although the count was frozen."""

    def count_pages(self, pages: range) -> bool:
        counts = super().count_pages(pages)
        self.counted_pages += 0 if counts else len(pages) - 1
        return counts


BY_TWO = {"settings": {"read_batch_pages": 2}}

BATCHES = tuple(
    replace(mutant, builds={**mutant.builds, **BY_TWO})
    for mutant in (
        faulty_controller("io_counts_across_a_gap", CountsAcrossAGap),
        faulty_operation(
            "io_counts_a_batch_after_termination", CountsABatchAfterTermination, race="hold io.copied, poll, release"
        ),
    )
)

IO = (
    faulty_operation("io_counts_before_the_copy", CountsBeforeTheCopy),
    faulty_operation(
        "io_counts_after_termination", CountsAfterTermination, race="hold io.copied, poll (best_effort), release"
    ),
    faulty_operation("io_starts_without_the_flag", StartsWithoutTheFlag, race="hold io.page, abort, release"),
    faulty_operation("io_waits_on_after_a_failed_page", WaitsOnAfterAFailure),
    faulty_controller("io_counts_a_failed_page", CountsAFailedPage),
    faulty_controller("io_drops_the_tail", DropsTheTail),
    faulty_controller("io_releases_the_tail_twice", ReleasesTheTailTwice),
    faulty_controller("io_releases_what_was_counted", ReleasesWhatWasCounted),
    faulty_controller("io_dies_of_a_raising_store", DiesOfARaisingStore),
)
