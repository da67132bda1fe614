"""Faults of the poll: when it ends an operation, and what it publishes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hicache_impl.cache import HiCache, Poll, _Verdict
from hicache_impl.mutants.drain import DrainsByItsOwnCount
from hicache_impl.mutants.mutant import faulty_cache, faulty_operation, faulty_tree
from hicache_impl.operation import FETCHED, Operation
from hicache_impl.trees.hiradix import HiRadixTree
from hicache_impl.trees.node import Node, Published


class CompletesWithoutAPlan(Operation):
    """P1. None of none is all: an operation without a verdict is complete (sglang 0.5.1)."""

    @property
    def is_complete(self) -> bool:
        with self.lock:
            return self.counted_pages == self.granted_pages


class DecidesByItsOwnFlags(HiCache):
    """P7. The ranks meet, and then each goes by what it knows itself: a failed page ends the wait on one of them."""

    def _agree_verdicts(self, ops: Sequence[Operation]) -> list[_Verdict]:
        super()._agree_verdicts(ops)
        return [_Verdict(not self._is_ready(op), op.is_terminated, not op.is_complete) for op in ops]


class CompletesWhenOneRankHas(HiCache):
    """P7. MIN and not MAX: one complete rank ends the wait, while others still count."""

    def _agree_verdicts(self, ops: Sequence[Operation]) -> list[_Verdict]:
        flags = [(not self._is_ready(op), op.is_terminated, not op.is_complete) for op in ops]
        agreed = self.groups.sched.all_min([int(flag) for op_flags in flags for flag in op_flags])
        return [_Verdict(*map(bool, agreed[i : i + 3])) for i in range(0, len(agreed), 3)]


class NeedsTerminationEverywhere(HiCache):
    """P2. A failed page on one rank does not end the wait of the others (sglang 0.5.1)."""

    def _agree_verdicts(self, ops: Sequence[Operation]) -> list[_Verdict]:
        verdicts = super()._agree_verdicts(ops)
        everywhere = self.groups.sched.all_min([int(op.is_terminated) for op in ops])
        return [replace(verdict, terminated=bool(flag)) for verdict, flag in zip(verdicts, everywhere, strict=True)]


class SkipsThePollWithoutARecord(DrainsByItsOwnCount):
    """P7. A rank that holds no record makes no collective; drains by own count make it the only one."""

    def _agree_verdicts(self, ops: Sequence[Operation]) -> list[_Verdict]:
        return super()._agree_verdicts(ops) if ops else []


class IgnoresTheClock(HiCache):
    """P5. The timeout policy waits for ever."""

    def _is_late(self, op: Operation) -> bool:
        return False


class PublishesTheLongestPrefix(HiCache):
    """P6. MAX and not MIN over what landed: some rank publishes pages that it never filled."""

    def _agree_counted(self, counted: list[int]) -> list[int]:
        return self.groups.sched.all_max(counted) if counted else []


class PublishesItsOwnCount(HiCache):
    """P7. The ranks meet, and then each publishes what landed on itself."""

    def _agree_counted(self, counted: list[int]) -> list[int]:
        super()._agree_counted(counted)
        return counted


class FreesUnagreedPagesAtOnce(HiCache):
    """P7. Pages that landed here alone are freed at once, so that the pools of the ranks differ."""

    def _release_unagreed(self, op: Operation, agreed: int, counted: int) -> None:
        self.host.allocator.free(op.host_pages[agreed:counted])


class KeepsUnagreedPages(HiCache):
    """P4. Pages that landed here alone are given back by nobody."""

    def _release_unagreed(self, op: Operation, agreed: int, counted: int) -> None:
        if op.state != FETCHED:
            super()._release_unagreed(op, agreed, counted)


class ReleasesThePageBeingWritten(HiCache):
    """P18. A policy stop gives back the page that the IO thread is filling, which the IO thread does too."""

    def _release_unagreed(self, op: Operation, agreed: int, counted: int) -> None:
        super()._release_unagreed(op, agreed, min(counted + 1, op.granted_pages))


class KeepsKnownPages(HiRadixTree):
    """P4. Pages that were in the tree already are not given back."""

    def insert_host(
        self, anchor: Node, pages_key: tuple[bytes, ...], hashes: Sequence[bytes], host_pages: Sequence[int]
    ) -> Published:
        published = super().insert_host(anchor, pages_key, hashes, host_pages)
        return replace(published, known_pages=[])


class FreesKnownPagesTwice(HiCache):
    """P13. Pages that were in the tree already are freed, and put on the release queue."""

    def _publish(self, op: Operation, agreed: int, counted: int, reason: str) -> Poll:
        poll = super()._publish(op, agreed, counted, reason)
        in_tree = {page for node in self.tree.nodes() for page in node.host or ()}
        self._release_pages([page for page in op.host_pages[:agreed] if page not in in_tree])
        return poll


POLL = (
    faulty_operation("sched_completes_without_a_plan", CompletesWithoutAPlan, race="hold query.take, poll"),
    faulty_cache("sched_decides_by_its_own_flags", DecidesByItsOwnFlags, ranks=2),
    faulty_cache(
        "sched_completes_when_one_rank_has", CompletesWhenOneRankHas, ranks=2, race="hold io.page on one rank, poll"
    ),
    faulty_cache("sched_needs_termination_everywhere", NeedsTerminationEverywhere, ranks=2),
    faulty_cache(
        "sched_skips_the_poll_without_a_record",
        SkipsThePollWithoutARecord,
        ranks=2,
        race="hold query.agreed on one rank, tick, poll",
    ),
    faulty_cache("sched_ignores_the_clock", IgnoresTheClock, race="hold io.page, advance, poll (timeout)"),
    faulty_cache("sched_publishes_the_longest_prefix", PublishesTheLongestPrefix, ranks=2),
    faulty_cache("sched_publishes_its_own_count", PublishesItsOwnCount, ranks=2),
    faulty_cache("sched_frees_unagreed_pages_at_once", FreesUnagreedPagesAtOnce, ranks=2),
    faulty_cache("sched_keeps_unagreed_pages", KeepsUnagreedPages, ranks=2),
    faulty_cache(
        "sched_releases_the_page_being_written",
        ReleasesThePageBeingWritten,
        race="hold io.copied, poll (best_effort), tick",
    ),
    faulty_tree("sched_keeps_known_pages", KeepsKnownPages, race="hold io.page, prefill the same pages, release"),
    faulty_cache(
        "sched_frees_known_pages_twice", FreesKnownPagesTwice, race="hold io.page, prefill the same pages, release"
    ),
)
