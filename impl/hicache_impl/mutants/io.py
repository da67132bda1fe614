"""Faults of the IO thread: what it reads, counts and gives up."""

from __future__ import annotations

from hicache_impl import events
from hicache_impl.controller import Controller
from hicache_impl.mutants.mutant import faulty_controller, faulty_operation
from hicache_impl.operation import Operation


class CountsBeforeTheCopy(Operation):
    """P6. A page counts from the moment its read starts (sglang 0.5.1)."""

    def start_page(self, page: int) -> bool:
        return super().start_page(page) and super().count_page(page)

    def count_page(self, page: int) -> bool:
        return not self.is_terminated


class CountsAfterTermination(Operation):
    """P4. A page that lands after the count was frozen counts, so that nobody gives it up."""

    def count_page(self, page: int) -> bool:
        with self.lock:
            self.counted_pages += 1
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

    def _read_page(self, op: Operation, page: int) -> str | None:
        super()._read_page(op, page)
        return None


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

    def _fill_page(self, page_hash: bytes, host_page: int) -> str | None:
        answers = self.storage.get_into(self._keys([page_hash]), [self.host.view(host_page)])
        return None if answers == [True] else "miss"


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
