"""Scenarios that show the faults of the tree and between the tiers; each is named for its mutant."""

from __future__ import annotations

from cache_scenario import Scenario, tokens
from hicache_impl.controller import WorkerDied
from hicache_impl.trees.node import TreeError
from mutant_case import Audited, Cases, Unexpected, expect

TIERS = Cases()

# The tree and the tiers.


@TIERS.shows(TreeError, "left the tree", host_pages=5)
def sched_evicts_protected_nodes(s: Scenario) -> None:
    s.fetch("old", tokens(9, 2))
    s.fetch("other", tokens(8, 2))
    s.runtime.hold("io.take")
    s.submit("child", [*tokens(9, 2), 1])
    expect(s.reference.submit("x", tokens(8, 2))["reason"] == "too_short", "it is used now, later than its elder")
    s.submit("b", tokens(2, 2))
    s.turn()
    s.runtime.release("io.take")
    s.turn()
    s.poll("child")
    s.poll("b")


@TIERS.shows(Audited, "P23")
def sched_evicts_inner_nodes(s: Scenario) -> None:
    s.reference.prefill(tokens(1, 2))
    s.turn()
    s.fetch("a", tokens(1, 3))
    s.fetch("b", tokens(2, 2))


@TIERS.shows(Audited, "P23", host_pages=3)
def sched_writes_a_child_before_its_parent(s: Scenario) -> None:
    s.runtime.hold("io.take")
    s.submit("a", tokens(9, 2))
    s.turn()
    s.reference.prefill(tokens(1, 2))
    s.reference.prefill(tokens(1, 3))
    s.reference.abort("a")


@TIERS.shows(Audited, "P6 wrong bytes in device pages")
def sched_loads_without_copying(s: Scenario) -> None:
    s.fetch("a", tokens(1, 2))
    s.reference.prefill(tokens(1, 2))


@TIERS.shows(Audited, "P14 host references are left")
def sched_acks_without_unprotecting(s: Scenario) -> None:
    s.reference.prefill(tokens(1, 2))


@TIERS.shows(Audited, "P6 wrong bytes", host_pages=2)
def sched_backs_up_unprotected_pages(s: Scenario) -> None:
    s.runtime.hold("backup.take")
    s.reference.prefill(tokens(1, 2))
    s.reference.evict_device(2)
    s.submit("b", tokens(2, 2))
    s.turn()
    s.poll("b")
    s.runtime.release("backup.take")
    s.turn()
    s.reference.submit("c", tokens(1, 2))
    s.turn()
    s.poll("c")


@TIERS.shows(Unexpected, "P32 acknowledged and not stored")
def backup_counts_refused_pages_as_stored(s: Scenario) -> None:
    s.reference.faults[0].miss("put", times=1)
    s.reference.prefill(tokens(1, 2))
    s.turn()
    failed = sum(event.data["failed"] for event in s.events("stored"))
    expect(failed == s.reference.faults[0].struck()["miss"], "P32 acknowledged and not stored")


@TIERS.shows(WorkerDied, "put of 2 pages fails")
def backup_dies_of_a_raising_store(s: Scenario) -> None:
    s.reference.faults[0].raise_on("put", times=1)
    s.reference.prefill(tokens(1, 2))
    s.turn()
