"""Scenarios that show the faults of what is on its way between device and host; each is named for its mutant."""

from __future__ import annotations

from cache_scenario import Scenario, tokens
from hicache_impl.adapter import Disagreement
from hicache_impl.controller import WorkerDied
from hicache_impl.kv_events import told_pages
from hicache_impl.page_pool import FreeUnderWriter
from hicache_impl.trees.node import TreeError
from mutant_case import Audited, Cases, Unexpected, expect

COPIES = Cases()


def stored_after_the_copy(s: Scenario, gate: str) -> None:
    """What the store has of a prompt when its copy to the host was late."""
    s.runtime.hold(gate)
    s.reference.prefill(tokens(1, 2))
    s.turn()
    s.runtime.release_all()
    s.reference.quiesce()
    expect(not s.reference.audit_stores(), "P30 the store has the bytes")


@COPIES.shows(Unexpected, "P30 the store has the bytes", async_copies=True)
def copy_tells_before_it_lands(s: Scenario) -> None:
    stored_after_the_copy(s, "write.layer")


@COPIES.shows(Unexpected, "P30 the store has the bytes", async_copies=True)
def sched_backs_up_before_it_lands(s: Scenario) -> None:
    stored_after_the_copy(s, "write.take")


@COPIES.shows(WorkerDied, "is used while it is free", async_copies=True, host_pages=8)
def sched_unlocks_what_is_written(s: Scenario) -> None:
    s.runtime.hold("write.take")
    s.reference.prefill(tokens(1, 4))
    s.turn()
    s.reference.evict_device(4)


@COPIES.shows(FreeUnderWriter, "is freed while it is being written", async_copies=True)
def sched_loads_without_a_lock(s: Scenario) -> None:
    s.fetch("a", tokens(1, 2))
    s.runtime.hold("load.take")
    cache = s.reference.caches[0]
    expect(cache.load_back(cache.match(s.reference.key(tokens(1, 2)))), "it is loaded")
    s.reference.evict_device(2)


@COPIES.shows(Unexpected, "P28 the upper half is stored", async_copies=True, host_pages=8)
def sched_backs_up_what_a_split_left(s: Scenario) -> None:
    s.runtime.hold("write.take")
    s.reference.prefill(tokens(1, 4))
    s.reference.prefill(tokens(1, 2))
    s.runtime.release_all()
    s.reference.quiesce()
    stored = s.reference.caches[0].storage
    expect(
        stored is not None and stored.exists(s.reference.storage_keys(tokens(1, 2), 0)), "P28 the upper half is stored"
    )


@COPIES.shows(Disagreement, "P7 evict_device", async_copies=True)
def sched_takes_copies_by_its_own_count(s: Scenario) -> None:
    s.runtime.hold("write.take", 1)
    s.reference.prefill(tokens(1, 2))
    s.turn()
    s.reference.evict_device(2)


@COPIES.shows(Audited, "P6 wrong bytes in host pages", write_policy="write_back")
def sched_writes_back_without_copying(s: Scenario) -> None:
    s.reference.prefill(tokens(1, 2))
    s.reference.evict_device(2)


@COPIES.shows(TreeError, "left the tree", write_policy="write_back", device_pages=4)
def sched_loads_what_making_room_takes(s: Scenario) -> None:
    s.fetch("a", tokens(1, 4))
    s.reference.prefill(tokens(2, 4))
    expect(s.reference.prefill(tokens(1, 4)).host_pages == 4, "it is loaded")


@COPIES.shows(ValueError, "P29 2 pages are told stored on the host a second time", async_copies=True)
def sched_tells_of_a_copy_twice(s: Scenario) -> None:
    s.reference.prefill(tokens(1, 2))
    s.turn()
    expect(told_pages([]) == {"device": set(), "host": set(), "storage": set()}, "nobody is told before")
