"""Scenarios that show the faults of the drain, the ledger, the poll, abort and stop; each is named for its mutant."""

from __future__ import annotations

from cache_scenario import Scenario, tokens
from hicache_impl.adapter import Disagreement
from hicache_impl.controller import WorkerDied
from hicache_impl.operation import IllegalTrigger
from hicache_impl.page_pool import DoubleFree, FreeUnderWriter
from hicache_impl.ranks import Desync
from hicache_impl.runtime import Stalled
from hicache_impl.trees.node import TreeError
from mutant_case import (
    Audited,
    Cases,
    Diverged,
    Unexpected,
    expect,
    fetch_with_a_bad_page,
    publish_what_is_known,
    two_for_one_room,
)

SCHEDULER = Cases()

# The drain.


@SCHEDULER.shows(Disagreement, "P7 observe")
def sched_drains_by_its_own_count(s: Scenario) -> None:
    s.runtime.hold("query.agreed", 1)
    s.submit("a", tokens(1, 2))
    s.turn()
    s.runtime.release("query.agreed", 1)
    s.turn()
    s.poll("a")


@SCHEDULER.shows(Disagreement, "P7 observe")
def sched_reclaims_by_its_own_count(s: Scenario) -> None:
    s.runtime.hold("io.page", 1)
    s.submit("a", tokens(1, 2))
    s.turn()
    s.reference.abort("a")
    s.turn()


@SCHEDULER.shows(Stalled, "nothing will come: .*scheduler-1 is parked")
def sched_drains_the_longest_queue(s: Scenario) -> None:
    s.runtime.hold("query.agreed", 1)
    s.submit("a", tokens(1, 2), stored=0)
    s.turn()


@SCHEDULER.shows(IllegalTrigger, "Can't trigger event allocate from state terminated")
def sched_decides_without_the_flag(s: Scenario) -> None:
    s.runtime.hold("query.agreed")
    s.submit("a", tokens(1, 2))
    s.reference.settle()
    s.reference.stop("a")
    s.runtime.release("query.agreed")
    s.turn()


@SCHEDULER.shows(Unexpected, "P11 the second attempt ends by itself")
def sched_finds_records_by_request_id(s: Scenario) -> None:
    s.runtime.hold("query.take")
    s.submit("a", tokens(1, 2))
    s.reference.abort("a")
    s.submit("a", tokens(2, 2))
    s.runtime.release("query.take")
    s.turn()
    s.poll("a")
    expect(s.ends()[1:] == [(("a", 2), "fetched", "complete")], "P11 the second attempt ends by itself")


@SCHEDULER.shows(Unexpected, "P9 granted below the threshold", threshold_pages=2)
def sched_grants_below_the_threshold(s: Scenario) -> None:
    s.submit("a", tokens(1, 3), stored=1)
    s.turn()
    expect(not s.events("allocated"), "P9 granted below the threshold")


@SCHEDULER.shows(WorkerDied, "IndexError")
def sched_grants_the_whole_span(s: Scenario) -> None:
    s.submit("a", tokens(1, 3), stored=2)
    s.turn()
    s.poll("a")


@SCHEDULER.shows(Unexpected, "P9 refused", host_pages=3, threshold_pages=2)
def sched_refuses_without_evicting(s: Scenario) -> None:
    two_for_one_room(s)
    for event in s.events("revoked"):
        expect(event.data["free"] + event.data["evictable"] < 2, "P9 refused")
    s.poll("a")


@SCHEDULER.shows(Unexpected, "P9 evicted for nothing", threshold_pages=3)
def sched_evicts_before_a_refusal(s: Scenario) -> None:
    s.reference.prefill(tokens(9, 1))
    s.turn()
    s.reference.evict_device(1)
    s.runtime.hold("io.take")
    s.submit("a", tokens(1, 3))
    s.submit("b", tokens(2, 3))
    s.turn()
    expect(not s.events("evicted"), "P9 evicted for nothing")
    s.reference.abort("a")


@SCHEDULER.shows(Unexpected, "P9 evicted for nothing")
def sched_evicts_for_every_grant(s: Scenario) -> None:
    two_for_one_room(s)
    expect(not s.events("evicted"), "P9 evicted for nothing")
    s.poll("a")


@SCHEDULER.shows(Unexpected, "P9 no memory before the hit is known")
def sched_allocates_at_submit(s: Scenario) -> None:
    s.runtime.hold("query.take")
    s.submit("a", tokens(1, 3), stored=0)
    expect(s.free() == 4, "P9 no memory before the hit is known")


# The ledger.


@SCHEDULER.shows(Audited, "P14 host references are left")
def sched_revokes_without_unprotecting(s: Scenario) -> None:
    s.submit("a", tokens(1, 2), stored=0)


@SCHEDULER.shows(Audited, "P14 host references are left")
def sched_publishes_without_unprotecting(s: Scenario) -> None:
    s.fetch("a", tokens(1, 2))


@SCHEDULER.shows(TreeError, "is not protected")
def sched_unprotects_the_root(s: Scenario) -> None:
    s.fetch("a", tokens(1, 2))
    s.submit("b", tokens(1, 3), stored=0)
    s.turn()


@SCHEDULER.shows(TreeError, "left the tree")
def sched_does_not_protect_the_anchor(s: Scenario) -> None:
    s.fetch("old", tokens(9, 2))
    s.runtime.hold("io.take")
    s.submit("child", [*tokens(9, 2), 1])
    s.submit("b", tokens(2, 2))
    s.turn()
    s.runtime.release("io.take")
    s.turn()
    s.poll("child")
    s.poll("b")


@SCHEDULER.shows(Audited, "P8 2 pages are occupied")
def sched_revokes_without_accounting(s: Scenario) -> None:
    s.submit("a", tokens(1, 2), stored=0)


@SCHEDULER.shows(Audited, "P8 2 pages are occupied")
def sched_publishes_without_accounting(s: Scenario) -> None:
    s.fetch("a", tokens(1, 2))


@SCHEDULER.shows(Audited, "P8 2 pages are occupied")
def sched_accounts_what_it_declines(s: Scenario) -> None:
    s.submit("a", tokens(1, 2), stored=0)
    expect(s.reference.submit("a", tokens(1, 2))["reason"] == "pending", "it waits already")


@SCHEDULER.shows(Audited, "P2 .* is still live")
def sched_keeps_an_ended_record(s: Scenario) -> None:
    s.submit("a", tokens(1, 2), stored=0)


@SCHEDULER.shows(Unexpected, "P11 an attempt number is used once")
def sched_reuses_attempts(s: Scenario) -> None:
    s.submit("a", tokens(1, 2))
    s.reference.abort("a")
    expect(s.submit("a", tokens(1, 2)) == 2, "P11 an attempt number is used once")
    s.reference.abort("a")


@SCHEDULER.shows(Diverged, "P7")
def sched_submits_out_of_order(s: Scenario) -> None:
    s.runtime.hold("query.take")
    for name in (1, 2, 3):
        s.submit(f"r{name}", tokens(name, 1), stored=0)
        s.reference.settle()


# The poll.


@SCHEDULER.shows(Unexpected, "P1 ended before its verdict")
def sched_completes_without_a_plan(s: Scenario) -> None:
    s.runtime.hold("query.take")
    s.submit("a", tokens(1, 2), stored=0)
    expect(s.poll("a")[0] is False, "P1 ended before its verdict")


@SCHEDULER.shows(Desync, "P7 poll: some rank waits")
def sched_decides_by_its_own_flags(s: Scenario) -> None:
    s.runtime.hold("io.page", 0)
    fetch_with_a_bad_page(s)
    s.poll("a")


@SCHEDULER.shows(Audited, "rank 1: P4 host pages")
def sched_completes_when_one_rank_has(s: Scenario) -> None:
    s.runtime.hold("io.page", 1)
    s.submit("a", tokens(1, 2))
    s.turn()
    s.poll("a")
    s.runtime.release("io.page", 1)
    s.turn()
    s.poll("a")


@SCHEDULER.shows(Audited, "P2 .* is still live")
def sched_needs_termination_everywhere(s: Scenario) -> None:
    fetch_with_a_bad_page(s)
    s.poll("a")


@SCHEDULER.shows(Desync, "P7 poll: some rank waits")
def sched_skips_the_poll_without_a_record(s: Scenario) -> None:
    s.runtime.hold("query.agreed", 1)
    s.submit("a", tokens(1, 2), stored=0)
    s.reference.settle()
    s.reference.tick()
    expect(s.reference.poll(["a"])["a"]["ready"] is False, "the hit is known on one rank")


@SCHEDULER.shows(Unexpected, "P5 nobody waits that long", policy="timeout")
def sched_ignores_the_clock(s: Scenario) -> None:
    s.runtime.hold("io.page")
    s.submit("a", tokens(1, 2))
    s.turn()
    s.runtime.advance(60)
    expect(s.poll("a")[0], "P5 nobody waits that long")


@SCHEDULER.shows(Audited, "rank 1: P6 wrong bytes")
def sched_publishes_the_longest_prefix(s: Scenario) -> None:
    fetch_with_a_bad_page(s)
    s.poll("a")


@SCHEDULER.shows(Disagreement, "P7 poll")
def sched_publishes_its_own_count(s: Scenario) -> None:
    fetch_with_a_bad_page(s)
    s.poll("a")


@SCHEDULER.shows(Disagreement, "P7 observe")
def sched_frees_unagreed_pages_at_once(s: Scenario) -> None:
    fetch_with_a_bad_page(s)
    s.poll("a")


@SCHEDULER.shows(Audited, "rank 0: P4 host pages")
def sched_keeps_unagreed_pages(s: Scenario) -> None:
    fetch_with_a_bad_page(s)
    s.poll("a")


@SCHEDULER.shows(FreeUnderWriter, "page 0 is freed while it is being written", policy="best_effort")
def sched_releases_the_page_being_written(s: Scenario) -> None:
    s.runtime.hold("io.copied")
    s.submit("a", tokens(1, 2))
    s.turn()
    s.poll("a")
    s.turn()


@SCHEDULER.shows(Audited, "P4 host pages")
def sched_keeps_known_pages(s: Scenario) -> None:
    publish_what_is_known(s)


@SCHEDULER.shows(DoubleFree, "page 0 is freed twice")
def sched_frees_known_pages_twice(s: Scenario) -> None:
    publish_what_is_known(s)


# Abort and stop.


@SCHEDULER.shows(FreeUnderWriter, "page 0 is freed while it is being written")
def sched_aborts_and_releases_every_page(s: Scenario) -> None:
    s.runtime.hold("io.copied")
    s.submit("a", tokens(1, 2))
    s.turn()
    s.reference.abort("a")
    s.turn()


@SCHEDULER.shows(Audited, "P4 host pages")
def sched_aborts_and_keeps_what_landed(s: Scenario) -> None:
    s.submit("a", tokens(1, 2))
    s.turn()
    s.reference.abort("a")


@SCHEDULER.shows(Unexpected, "P2 an abort publishes nothing")
def sched_aborts_and_publishes(s: Scenario) -> None:
    s.submit("a", tokens(1, 2))
    s.turn()
    s.reference.abort("a")
    expect(s.ends() == [(("a", 1), "revoked", "aborted")], "P2 an abort publishes nothing")


@SCHEDULER.shows(Audited, "P2 .* is still live")
def sched_sets_the_flag_only(s: Scenario) -> None:
    s.submit("a", tokens(1, 2))
    s.turn()
    s.reference.abort("a")


@SCHEDULER.shows(Diverged, "P7")
def sched_marks_the_first_rank_only(s: Scenario) -> None:
    s.submit("a", tokens(1, 2))
    s.turn()
    s.reference.stop("a")
    s.poll("a")
