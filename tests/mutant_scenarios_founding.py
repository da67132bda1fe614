"""Scenarios that show what could have gone wrong with the revoke queue's removal; each is named for its mutant."""

from __future__ import annotations

from cache_scenario import Scenario, tokens
from hicache_impl.adapter import Disagreement
from hicache_impl.page_pool import DoubleFree
from mutant_case import Cases, Unexpected, expect

FOUNDING = Cases()


@FOUNDING.shows(Unexpected, "P3 the answer is taken")
def sched_slices_the_counts_at_the_old_index(s: Scenario) -> None:
    s.submit("a", tokens(1, 2), stored=0)
    s.turn()
    expect(s.ends() == [(("a", 1), "revoked", "below_threshold")], "P3 the answer is taken")


@FOUNDING.shows(Disagreement, "P7 observe")
def sched_revokes_before_the_count_is_agreed(s: Scenario) -> None:
    s.runtime.hold("query.agreed", 1)
    s.submit("a", tokens(1, 2), stored=0)
    s.turn()


@FOUNDING.shows(DoubleFree, "is freed twice")
def sched_clears_all_queues_but_one(s: Scenario) -> None:
    s.submit("a", tokens(1, 2))
    s.turn()
    s.reference.abort("a")
    expect(s.reference.flush(), "it begins again")
    s.turn()


@FOUNDING.shows(Unexpected, "P3 the answer is taken")
def sched_drains_the_queues_of_the_first_store(s: Scenario) -> None:
    expect(s.reference.detach() and s.reference.attach(), "the store comes back")
    s.submit("a", tokens(1, 2), stored=0)
    s.turn()
    expect(s.ends() == [(("a", 1), "revoked", "below_threshold")], "P3 the answer is taken")
