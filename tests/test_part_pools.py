"""§12 Extra pools: sidecars and states are looked up, granted, read, published and given back with the pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

import part_tables
import spec_tables
from hicache_checks.engine.engines import EngineOptions
from hicache_checks.engine.engines import explore as compiled
from hicache_checks.engine.explore import explore
from hicache_checks.engine.graph import graph_by_objects
from hicache_checks.engine.graph_by_kernels import graph_by_kernels
from hicache_checks.engine.liveness import check_liveness
from hicache_checks.mutants.faulty_liveness import LivenessMutant
from hicache_checks.mutants.pool_mutants import POOL_MUTANTS, STARVING_POOLS
from hicache_checks.mutants.spec_mutants import SPEC_MUTANTS, SpecMutant
from hicache_spec import Bounds, BoundSpec
from hicache_spec.bounds import AGAIN, LIMITER, POOL_KIND, SOLO_CHURN, STATE, ExtraPool
from hicache_spec.parts import PART_BOUNDS, design_named, must_reach
from hicache_spec.parts.pool_bounds import BOUNDS, POOL_PAIR, POOL_SIDECARS, POOL_STATE
from hicache_spec.parts.pools import POOLS
from spec_tables import Table, code
from test_explore import CANONICAL, COUNTS
from test_spec_page import assert_stands

DESIGN = CANONICAL.joined(POOLS)

# configuration: distinct states, transitions, depth
SIZES = {
    "pool_sidecar": (2_216, 7_908, 28),
    "pool_sidecars": (519, 1_698, 22),
    "pool_state": (3_080, 10_259, 24),
    "pool_optional": (3_634, 11_927, 23),
    "pool_mixed": (10_407, 39_426, 33),
    "pool_pair": (84_434, 391_328, 39),
    "pool_known": (8_764, 35_694, 28),
    "pool_scarce": (13_514, 51_392, 36),
    "pool_writes": (16_224, 55_385, 27),
    "pool_best_effort": (6_791, 23_595, 32),
}
SWITCHES = ("aborts", "stops", "churn", "writes", "detaches", "resets")
CAUGHT_ALONE = {"inv_rest_restores_every_pool": "io_drops_a_slot"}
"""Properties that are never the first to break: the others see their mutants a few steps earlier."""
NAMES_FIRST = {m.caught_by: m.name for m in STARVING_POOLS}
NAMES_FIRST |= {m.caught_by: m.name for m in reversed(POOL_MUTANTS)} | CAUGHT_ALONE
"""For each property, the first faulty rule that it catches."""


def faulty(mutant: SpecMutant | LivenessMutant) -> BoundSpec:
    return BoundSpec(DESIGN.variant(mutant.name, "", mutant.replaces), mutant.bounds)


def mutant(name: str) -> SpecMutant:
    (found,) = [m for m in POOL_MUTANTS if m.name == name]
    return found


def configurations(members: Sequence[Bounds], sizes: Mapping[str, tuple[int, int, int]]) -> Table:
    """Configurations with pools, and their pinned sizes."""
    return Table(
        (
            *("configuration", "requests x attempts", "ranks", "host pages", "chains", "pools", "policy", "may happen"),
            *("states", "transitions", "depth"),
        ),
        tuple((code(b.name), *setting(b), *(f"{n:,}" for n in sizes[b.name])) for b in members),
    )


def setting(b: Bounds) -> tuple[str, ...]:
    """The sizes and switches of a configuration."""
    sizes = spec_tables.setting(b)
    happens = ", ".join(name for name in SWITCHES if getattr(b, name))
    return (*sizes[:4], "; ".join(said(pool, b.churn) for pool in b.pools), sizes[-2], happens)


def said(pool: ExtraPool, churn: bool) -> str:
    """The kind of a pool, its slots and, where storage is steady, the depths of each chain that storage has."""
    kind = f"{POOL_KIND.members[pool.kind]} x {pool.slots}"
    return kind if churn else f"{kind} ({' / '.join(' '.join(map(str, depths)) for depths in pool.stored)})"


def shortest(name: str, only: str) -> list[str]:
    """The labels of a shortest run by which a mutant breaks one property, others left aside."""
    spec = faulty(mutant(name))
    violation = explore(spec, only={only}).violation
    assert violation is not None
    return [spec.steps[number].label for number in violation.run]


# ---- it holds


@pytest.mark.heavy
@pytest.mark.parametrize("bounds", BOUNDS, ids=lambda b: b.name)
def test_the_pools_hold_and_their_size_is_pinned(bounds: Bounds) -> None:
    result = compiled(BoundSpec(DESIGN, bounds), EngineOptions("array"))
    assert result.violation is None
    assert result.complete
    assert (result.states, result.transitions, result.depth) == SIZES[bounds.name]


@pytest.mark.heavy
def test_their_bounds_reach_every_outcome_that_they_bring() -> None:
    reached = {name for b in BOUNDS for name in compiled(BoundSpec(DESIGN, b), EngineOptions("array")).reached}
    wanted = {r.name for r in part_tables.own_rules(POOLS, "sometimes")}
    assert len(wanted) > 20
    assert wanted <= reached
    assert set(must_reach(DESIGN, POOLS.name)) == wanted


@pytest.mark.parametrize("engine", ["object", "array", "native"])
def test_the_engines_agree(engine: str) -> None:
    result = compiled(BoundSpec(DESIGN, POOL_SIDECARS), EngineOptions(engine))
    assert (result.states, result.transitions, result.depth) == SIZES["pool_sidecars"]
    assert result.violation is None


@pytest.mark.heavy
def test_requests_and_ranks_stay_interchangeable() -> None:
    result = compiled(BoundSpec(DESIGN, POOL_PAIR), EngineOptions("array", symmetry=True))
    assert result.states == 21_701
    assert "checked on 21,701 of 21,701 states" in result.note


@pytest.mark.parametrize("bounds", [SOLO_CHURN, AGAIN, LIMITER], ids=lambda b: b.name)
def test_without_pools_the_canonical_design_is_the_same(bounds: Bounds) -> None:
    result = explore(BoundSpec(DESIGN, bounds))
    assert result.violation is None
    assert (result.states, result.transitions, result.depth) == COUNTS[bounds.name]


@pytest.mark.heavy
@pytest.mark.parametrize("bounds", BOUNDS, ids=lambda b: b.name)
def test_what_is_promised_happens_in_the_end(bounds: Bounds) -> None:
    results = check_liveness(graph_by_kernels(BoundSpec(DESIGN, bounds)))
    assert {r.name for r in results} == {r.name for r in DESIGN.rules() if r.kind == "live"}
    assert not [r.label for r in results if r.lasso is not None]


# ---- it can fail


@pytest.mark.heavy
@pytest.mark.parametrize("mutant", POOL_MUTANTS, ids=lambda m: m.name)
def test_a_mutant_is_caught(mutant: SpecMutant) -> None:
    violation = explore(faulty(mutant)).violation
    assert violation is not None, "the mutant survived"
    assert (violation.property, len(violation.run)) == (mutant.caught_by, mutant.steps)


@pytest.mark.heavy
@pytest.mark.parametrize("bounds", {m.bounds.name: m.bounds for m in POOL_MUTANTS}.values(), ids=lambda b: b.name)
def test_the_configurations_of_the_mutants_are_innocent(bounds: Bounds) -> None:
    assert compiled(BoundSpec(DESIGN, bounds), EngineOptions("array")).violation is None


@pytest.mark.heavy
@pytest.mark.parametrize("mutant", STARVING_POOLS, ids=lambda m: m.name)
def test_what_goes_on_for_ever_is_caught_by_liveness_alone(mutant: LivenessMutant) -> None:
    spec = faulty(mutant)
    assert explore(spec).violation is None
    lassos = {r.name: r.lasso for r in check_liveness(graph_by_objects(spec)) if r.lasso is not None}
    assert lassos.keys() == {mutant.caught_by}
    lasso = lassos[mutant.caught_by]
    assert (len(lasso.stem), len(lasso.loop)) == (mutant.stem, mutant.loop)


def test_every_property_that_they_bring_or_restate_catches_a_mutant() -> None:
    own = {r.name for r in part_tables.own_rules(POOLS, "invariant", "step")}
    assert len(own) >= 20
    assert own - {m.caught_by for m in POOL_MUTANTS} == CAUGHT_ALONE.keys()
    assert {r.name for r in part_tables.own_rules(POOLS, "live")} <= {m.caught_by for m in STARVING_POOLS}
    for name, fault in CAUGHT_ALONE.items():
        assert shortest(fault, name)


def test_names_of_mutants_are_unique_and_name_the_actor() -> None:
    names = [m.name for m in (*SPEC_MUTANTS, *POOL_MUTANTS, *STARVING_POOLS)]
    assert len(set(names)) == len(names)
    assert {name.split("_")[0] for name in names} == {"sched", "query", "io"}


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
    joined = design_named("decide_at_drain+pools")
    assert set(joined.fields()) - set(CANONICAL.fields()) == set(part_tables.own_variables(POOLS))
    assert PART_BOUNDS[POOLS.name] == BOUNDS
    assert {b.name for b in BOUNDS} == SIZES.keys()


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ("12", lambda: configurations(BOUNDS, SIZES)),
        ("12.1", lambda: part_tables.variables(POOLS)),
        ("12.1", lambda: part_tables.replaced(POOLS)),
        ("12.2", lambda: part_tables.actions(POOLS)),
        ("12.2", lambda: part_tables.events(POOLS)),
        ("12.3", lambda: part_tables.properties(POOLS, "invariant", NAMES_FIRST)),
        ("12.4", lambda: part_tables.properties(POOLS, "step", NAMES_FIRST)),
        ("12.5", lambda: part_tables.outcomes(POOLS)),
        ("12.6", lambda: part_tables.properties(POOLS, "live", NAMES_FIRST)),
    ],
    ids=lambda value: f"section {value}" if isinstance(value, str) else "",
)
def test_a_table_says_what_the_code_says(section: str, expected: Callable[[], Any]) -> None:
    table = expected()
    assert table.rows, "nothing was compared"
    assert_stands(section, table)
