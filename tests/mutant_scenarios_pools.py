"""Scenarios that show the faults of what is beside the pages; each is named for its mutant."""

from __future__ import annotations

from typing import Any

from cache_scenario import Scenario, tokens
from hicache_impl.adapter import Disagreement
from hicache_impl.keys import chain_hashes
from hicache_impl.mutants.pools import ALL, PACKED_ONLY, SIDECARS, STATES, WINDOWS
from hicache_impl.page_pool import DoubleFree, PoolError
from hicache_impl.trees.components import HOST
from mutant_case import Audited, Cases, Unexpected, expect, publish_what_is_known

POOLS = Cases()
ROOMY: dict[str, Any] = {"host_pages": 8, "device_pages": 12}


def lose(s: Scenario, pool: str, prompt: list[int], call: Any = "get") -> None:
    """The last rank can no longer read what is beside the last page of this prompt."""
    rank = s.ranks[-1]
    page_hash = chain_hashes(s.reference.key(prompt))[-1]
    lost = s.reference.caches[rank].extra[pool].key(page_hash, rank)
    s.reference.faults[rank].miss(call, where=lost.__eq__)


def stored_soundly(s: Scenario) -> None:
    """What is acknowledged is stored, and what is stored are the bytes."""
    s.runtime.release_all()
    for _ in range(4):
        s.turn()
    found = s.reference.audit_stores()
    expect(not found, "; ".join(found))


# Splits.


@POOLS.shows(Audited, "not its end|P6 wrong bytes in device slots", **ALL, **ROOMY)
def sched_splits_the_state_upwards(s: Scenario) -> None:
    s.reference.prefill(tokens(1, 4))
    s.reference.prefill([*tokens(1, 2), 7])


@POOLS.shows(Audited, "P4 host slots .* of draft", **ALL, **ROOMY)
def sched_forgets_the_slots_above_a_split(s: Scenario) -> None:
    s.reference.prefill(tokens(1, 4))
    s.reference.prefill([*tokens(1, 2), 7])


def store_while_a_node_is_split(s: Scenario) -> None:
    """Four pages are being stored, of which the last two have a window; a split comes between these two; then somebody
    else needs the room of the window."""
    s.runtime.hold("backup.take")
    s.reference.prefill(tokens(1, 4))
    s.reference.prefill([*tokens(1, 3), 7])
    for cache in s.reference.caches:
        pool = cache.extra["window"].host
        evicted = cache.tree.evict_slots("window", HOST, 4)
        pool.allocator.free(evicted)
        for slot in evicted:
            pool.view(slot).fill_(99)
    stored_soundly(s)


@POOLS.shows(Unexpected, "P30", **WINDOWS, **ROOMY)
def sched_holds_the_lower_half_only(s: Scenario) -> None:
    store_while_a_node_is_split(s)


@POOLS.shows(Unexpected, "P30", **WINDOWS, **ROOMY)
def sched_evicts_slots_that_are_read(s: Scenario) -> None:
    store_while_a_node_is_split(s)


@POOLS.shows(Audited, "P14 slots are still held", **WINDOWS, **ROOMY)
def sched_releases_the_lower_half_only(s: Scenario) -> None:
    s.runtime.hold("backup.take")
    s.reference.prefill(tokens(1, 4))
    s.reference.prefill([*tokens(1, 2), 7])


@POOLS.shows(Unexpected, "P32", **SIDECARS, **ROOMY)
def backup_stores_what_a_split_left(s: Scenario) -> None:
    s.runtime.hold("backup.take")
    s.reference.prefill(tokens(1, 4))
    s.reference.prefill([*tokens(1, 2), 7])
    stored_soundly(s)


# Sidecars.


@POOLS.shows(Audited, "P6 wrong bytes in host slots", **SIDECARS)
def io_counts_before_the_sidecar(s: Scenario) -> None:
    s.fetch("a", tokens(1, 2))


@POOLS.shows(Audited, "P6 wrong bytes in host slots", **SIDECARS)
def io_counts_without_the_sidecar(s: Scenario) -> None:
    lose(s, "draft", tokens(1, 2))
    s.fetch("a", tokens(1, 2))


@POOLS.shows(Audited, "P4 host slots", **SIDECARS)
def io_releases_pages_alone(s: Scenario) -> None:
    s.runtime.hold("io.take")
    s.submit("a", tokens(1, 2))
    s.turn()
    s.reference.abort("a")


@POOLS.shows(Unexpected, "P32", **SIDECARS)
def backup_stores_pages_alone(s: Scenario) -> None:
    s.reference.prefill(tokens(1, 2))
    stored_soundly(s)


@POOLS.shows(Unexpected, "rank 1: P32", **SIDECARS, replicated=True)
def backup_leaves_its_shard_to_the_first_rank(s: Scenario) -> None:
    s.reference.prefill(tokens(1, 2))
    stored_soundly(s)


@POOLS.shows(Audited, "P6 wrong bytes in device slots", **SIDECARS)
def sched_loads_pages_alone(s: Scenario) -> None:
    s.fetch("a", tokens(1, 2))
    s.reference.prefill(tokens(1, 2))


@POOLS.shows(Audited, "P6 wrong bytes in device pages", **PACKED_ONLY)
def sched_loads_without_the_packed_layers(s: Scenario) -> None:
    s.fetch("a", tokens(1, 2))
    s.reference.prefill(tokens(1, 2))


@POOLS.shows(PoolError, "3 host slots of draft were to be had", **SIDECARS)
def sched_keeps_the_slots_of_evicted_pages(s: Scenario) -> None:
    s.fetch("a", tokens(1, 2))
    s.fetch("b", tokens(2, 3))


@POOLS.shows(Audited, "P4 host slots", **ALL)
def sched_keeps_known_slots(s: Scenario) -> None:
    publish_what_is_known(s)


@POOLS.shows(Disagreement, "P7 observe", **SIDECARS)
def sched_drains_slots_by_its_own_count(s: Scenario) -> None:
    s.runtime.hold("io.page", 1)
    s.submit("a", tokens(1, 2))
    s.turn()
    s.reference.abort("a")
    s.reference.tick()
    s.reference.observe()


@POOLS.shows(DoubleFree, "is freed twice", **ALL)
def sched_mixes_up_the_release_queues(s: Scenario) -> None:
    s.fetch("other", tokens(2, 1))
    s.runtime.hold("io.take")
    s.submit("a", tokens(1, 3))
    s.turn()
    s.reference.abort("a")
    s.runtime.release_all()
    s.turn()


# Windows and states.


@POOLS.shows(Audited, "P6 wrong bytes in host slots", **STATES)
def io_counts_before_the_state(s: Scenario) -> None:
    lose(s, "state", tokens(1, 2))
    s.fetch("a", tokens(1, 2))


@POOLS.shows(Audited, "P6 wrong bytes in host slots", **STATES)
def io_counts_without_the_state(s: Scenario) -> None:
    lose(s, "state", tokens(1, 2))
    s.fetch("a", tokens(1, 2))


@POOLS.shows(Audited, "P4 host slots", **STATES)
def io_keeps_the_state_of_a_failed_read(s: Scenario) -> None:
    lose(s, "state", tokens(1, 2))
    s.fetch("a", tokens(1, 2))


@POOLS.shows(Audited, "P6 wrong bytes in host slots", **WINDOWS)
def io_reads_the_window_one_page_early(s: Scenario) -> None:
    for pages in (1, 2, 3):
        s.reference.store(tokens(1, pages))
    s.fetch("a", tokens(1, 3))


@POOLS.shows(Unexpected, "P6 wrong bytes in state", **ALL)
def sched_matches_without_the_state(s: Scenario) -> None:
    s.reference.prefill(tokens(1, 3))
    s.turn()
    found = s.reference.prefill(tokens(1, 2))
    expect(not found.wrong, "; ".join(found.wrong))


@POOLS.shows(PoolError, "were to be had, and then were not", **STATES, **ROOMY)
def sched_grants_without_room_for_the_state(s: Scenario) -> None:
    s.runtime.hold("io.take")
    for name, rid in enumerate("abcd", 1):
        s.submit(rid, tokens(name, 1))
    s.turn()
    expect(s.ends() == [(("d", 1), "revoked", "below_threshold")], "there are three states")
    s.runtime.release_all()
    s.turn()
    s.reference.poll("abc")


@POOLS.shows(Audited, "P4 host slots", **ALL)
def sched_aborts_and_keeps_the_slots(s: Scenario) -> None:
    s.submit("a", tokens(1, 2))
    s.turn()
    s.reference.abort("a")


@POOLS.shows(Audited, "P4 host slots", **ALL)
def sched_resets_the_pages_only(s: Scenario) -> None:
    s.fetch("a", tokens(1, 2))
    expect(s.reference.flush(), "nothing holds it up")
