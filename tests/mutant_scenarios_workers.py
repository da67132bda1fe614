"""Scenarios that show the faults of the query and IO threads and of the store; each is named for its mutant."""

from __future__ import annotations

from cache_scenario import Scenario, tokens
from hicache_impl.adapter import Disagreement
from hicache_impl.content import page_keys, page_on_rank
from hicache_impl.controller import WorkerDied
from hicache_impl.keys import PrefixKey, chain_hashes
from hicache_impl.page_pool import DoubleFree
from mutant_case import Audited, Cases, Unexpected, bad_page, expect, fetch_with_a_bad_page

WORKERS = Cases()

# The query thread.


@WORKERS.shows(Disagreement, "P7 observe", host_pages=4)
def query_skips_the_agreement(s: Scenario) -> None:
    bad_page(s, tokens(1, 3), 1, "exists")
    s.submit("a", tokens(1, 3))
    s.turn()
    expect(s.poll("a") == (True, "fetched", "complete", 1), "what both ranks have")


@WORKERS.shows(Unexpected, "P12 a hit that some rank does not have")
def query_agrees_on_the_highest(s: Scenario) -> None:
    bad_page(s, tokens(1, 3), 1, "exists")
    s.submit("a", tokens(1, 3))
    s.turn()
    asked = min(event.data["hit"] for rank in s.ranks for event in s.events("query_asked", rank=rank))
    expect(s.events("query_agreed")[0].data["hit"] <= asked, "P12 a hit that some rank does not have")
    s.poll("a")


@WORKERS.shows(WorkerDied, "exists of 2 pages fails")
def query_dies_of_a_raising_store(s: Scenario) -> None:
    s.reference.faults[0].raise_on("exists", times=1)
    s.submit("a", tokens(1, 2))
    s.turn()


@WORKERS.shows(Audited, "P21")
def query_restarts_the_chain_at_the_anchor(s: Scenario) -> None:
    s.fetch("a", tokens(1, 2))
    s.reference.store(tokens(2, 2))
    s.submit("b", [*tokens(1, 2), *tokens(2, 2)], stored=2)
    s.turn()
    s.poll("b")


@WORKERS.shows(Audited, "P21", namespace="adapter")
def query_forgets_the_namespace(s: Scenario) -> None:
    hashes = chain_hashes(PrefixKey.from_tokens(tokens(1, 2), 1))
    config = s.reference.config
    names = page_keys(config, 0, hashes)
    pages = [page_on_rank(config, 0, page_hash) for page_hash in hashes]
    s.reference.faults[0].inner.put_from(names, pages)
    s.submit("a", tokens(1, 2), stored=0)
    s.turn()
    s.poll("a")


# The IO thread.


@WORKERS.shows(Audited, "P6 wrong bytes")
def io_counts_before_the_copy(s: Scenario) -> None:
    fetch_with_a_bad_page(s)
    s.poll("a")


@WORKERS.shows(Audited, "P4 host pages", policy="best_effort")
def io_counts_after_termination(s: Scenario) -> None:
    s.runtime.hold("io.copied")
    s.submit("a", tokens(1, 2))
    s.turn()
    expect(s.poll("a") == (True, "fetched", "policy", 0), "nothing is counted yet")


@WORKERS.shows(Unexpected, "P5 a page is read after the end")
def io_starts_without_the_flag(s: Scenario) -> None:
    s.runtime.hold("io.page")
    s.submit("a", tokens(1, 2))
    s.turn()
    s.reference.abort("a")
    s.runtime.release("io.page")
    s.turn()
    expect(not s.events("io_started"), "P5 a page is read after the end")


@WORKERS.shows(Audited, "P2 .* is still live")
def io_waits_on_after_a_failed_page(s: Scenario) -> None:
    fetch_with_a_bad_page(s)
    s.poll("a")


@WORKERS.shows(Audited, "P6 wrong bytes")
def io_counts_a_failed_page(s: Scenario) -> None:
    fetch_with_a_bad_page(s)
    s.poll("a")


@WORKERS.shows(Audited, "P6 wrong bytes", read_batch_pages=2)
def io_counts_across_a_gap(s: Scenario) -> None:
    fetch_with_a_bad_page(s, pages=2, page=0)
    s.poll("a")


@WORKERS.shows(Audited, "P4 host pages", policy="best_effort", read_batch_pages=2)
def io_counts_a_batch_after_termination(s: Scenario) -> None:
    s.runtime.hold("io.copied")
    s.submit("a", tokens(1, 2))
    s.turn()
    s.poll("a")


@WORKERS.shows(Audited, "P4 host pages")
def io_drops_the_tail(s: Scenario) -> None:
    fetch_with_a_bad_page(s)
    s.poll("a")


@WORKERS.shows(DoubleFree, "page 1 is freed twice")
def io_releases_the_tail_twice(s: Scenario) -> None:
    fetch_with_a_bad_page(s)
    s.poll("a")
    s.turn()


@WORKERS.shows(Audited, "P13 host pages")
def io_releases_what_was_counted(s: Scenario) -> None:
    fetch_with_a_bad_page(s)
    s.poll("a")


@WORKERS.shows(WorkerDied, "get of 1 pages fails")
def io_dies_of_a_raising_store(s: Scenario) -> None:
    s.reference.faults[0].raise_on("get", times=1)
    s.submit("a", tokens(1, 2))
    s.turn()
    s.poll("a")


# The store.


@WORKERS.shows(Audited, "P6 wrong bytes", host_pages=2)
def store_keeps_no_copy(s: Scenario) -> None:
    s.reference.prefill(tokens(1, 2))
    s.turn()
    s.reference.evict_device(2)
    s.fetch("b", tokens(2, 2))
    s.submit("c", tokens(1, 2), stored=0)
    s.turn()
    s.poll("c")


@WORKERS.shows(Audited, "P6 wrong bytes", host_pages=2)
def store_writes_after_its_answer(s: Scenario) -> None:
    fetch_with_a_bad_page(s)
    s.poll("a")
    s.turn()
    s.fetch("b", tokens(2, 1))


@WORKERS.shows(Audited, "rank 1: P6 wrong bytes")
def store_keys_forget_the_rank(s: Scenario) -> None:
    s.fetch("a", tokens(1, 2))
