"""§12 Extra pools: sidecars and states are looked up, granted, read, published and given back with the pages."""

from __future__ import annotations

from dataclasses import replace

import pytest

from faulty_parts import faulty, mutant, shortest
from hicache_checks.engine.explore import explore
from hicache_spec.bounds import STATE, ExtraPool
from hicache_spec.parts import PART_BOUNDS, design_named
from hicache_spec.parts.pool_bounds import BOUNDS, POOL_STATE
from hicache_spec.parts.pools import POOLS
from test_explore import CANONICAL

DESIGN = CANONICAL.joined(POOLS)

# ---- it holds


# ---- it can fail


# ---- what would follow, if the first property to break did not stand in the way


def test_one_number_a_rank_agrees_on_a_prefix_that_a_rank_has_not() -> None:
    """MIN of the ranks' longest prefixes: a rank that has a longer one need not have a state for the shorter one."""
    run = shortest("query_agrees_on_one_number_a_rank", "step_hit_is_everywhere")
    assert run[-3:] == [
        "query_ask_storage(rank=0, hit=1, offer=1)",
        "query_ask_storage(rank=1, hit=2, offer=2)",
        "query_agree()",
    ]


@pytest.mark.parametrize("name", ["query_agrees_on_one_number_a_rank", "query_forgets_the_clamp"])
def test_a_hit_that_is_too_long_is_fetched_in_vain_and_breaks_nothing_else(name: str) -> None:
    """The read fails on the rank that has not got it, so nothing is published: only the agreement can be judged."""
    spec = faulty(mutant(name))
    others = {p.rule.name for p in (*spec.invariants, *spec.step_properties)} - {mutant(name).caught_by}
    assert explore(spec, only=others).violation is None


# ---- bounds


@pytest.mark.parametrize(
    ("pool", "message"),
    [
        (ExtraPool(7, 1, ((1,),)), "the kind of a pool must be one of sidecar, state, optional_state"),
        (ExtraPool(STATE, 1, ((1,), (1,))), "is said for each chain"),
        (ExtraPool(STATE, 1, ((3,),)), r"lies at the stored pages, 1\.\.2"),
    ],
)
def test_impossible_pools_are_refused_in_one_line(pool: ExtraPool, message: str) -> None:
    with pytest.raises(ValueError, match=message) as refusal:
        replace(POOL_STATE, pools=(pool,))
    assert "\n" not in str(refusal.value)


def test_what_is_resident_has_to_fit_a_pool() -> None:
    with pytest.raises(ValueError, match="what is resident needs 1 slots of a pool that has 0"):
        replace(POOL_STATE, resident_pages=(1,), pools=(ExtraPool(STATE, 0, ((1,),)),))


# ---- names and tables


def test_a_name_joins_the_pools() -> None:
    assert design_named("decide_at_drain+pools").shape is POOLS.shape
    assert PART_BOUNDS[POOLS.name] == BOUNDS
