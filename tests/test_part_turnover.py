"""§12.7 Extra pools and control together: what a detach and a reset do with slots that are on their way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import part_tables
from hicache_checks.engine.engines import EngineOptions
from hicache_checks.engine.engines import explore as compiled
from hicache_checks.engine.explore import explore
from hicache_checks.engine.graph_by_kernels import graph_by_kernels
from hicache_checks.engine.liveness import check_liveness
from hicache_checks.mutants.pool_mutants import POOL_MUTANTS, STARVING_POOLS, TURNOVER_MUTANTS
from hicache_checks.mutants.spec_mutants import SpecMutant
from hicache_spec import Bounds, BoundSpec
from hicache_spec.parts import PART_BOUNDS, design_named, must_reach
from hicache_spec.parts.control import CONTROL_SOLO
from hicache_spec.parts.pool_bounds import POOL_SIDECARS
from hicache_spec.parts.turnover import BOUNDS, TURNOVER, TURNOVER_MIXED, TURNOVER_SIDECAR
from test_part_control import SIZES as SIZES_OF_CONTROL
from test_part_pools import SIZES as SIZES_OF_POOLS
from test_part_pools import configurations
from test_spec_page import assert_stands

NAME = "control+pools+turnover"
BENEATH = design_named("decide_at_drain+control+pools")
DESIGN = design_named(f"decide_at_drain+{NAME}")

# configuration: distinct states, transitions, depth
SIZES = {
    "turnover_sidecar": (4_854, 14_566, 32),
    "turnover_state": (11_607, 35_550, 32),
    "turnover_mixed": (14_060, 40_348, 36),
}
CAUGHT_ALONE = {
    "inv_stopped_ranks_hold_the_same_slots": "sched_reclaims_slots_by_its_own_count_before_a_detach",
    "inv_rest_restores_every_pool": "sched_drops_the_slots_that_are_left",
}
NAMES_FIRST = {m.caught_by: m.name for m in reversed(TURNOVER_MUTANTS)} | CAUGHT_ALONE
"""For each property, the first faulty rule that it catches."""


def faulty(mutant: SpecMutant) -> BoundSpec:
    return BoundSpec(DESIGN.variant(mutant.name, "", mutant.replaces), mutant.bounds)


def test_the_bounds_are_named_for_what_is_joined() -> None:
    assert PART_BOUNDS[NAME] == BOUNDS
    assert DESIGN.fields().keys() == BENEATH.fields().keys(), "no state of its own"


@pytest.mark.heavy
@pytest.mark.parametrize("bounds", BOUNDS, ids=lambda b: b.name)
def test_both_hold_and_their_size_is_pinned(bounds: Bounds) -> None:
    result = compiled(BoundSpec(DESIGN, bounds), EngineOptions("array"))
    assert result.violation is None
    assert result.complete
    assert (result.states, result.transitions, result.depth) == SIZES[bounds.name]


@pytest.mark.heavy
def test_their_bounds_reach_every_outcome() -> None:
    reached = {name for b in BOUNDS for name in compiled(BoundSpec(DESIGN, b), EngineOptions("array")).reached}
    wanted = {r.name for r in part_tables.own_rules(TURNOVER, "sometimes", beneath=BENEATH)}
    assert len(wanted) == 5
    assert wanted == set(must_reach(DESIGN, NAME)) <= reached


@pytest.mark.parametrize("engine", ["object", "array", "native"])
def test_the_engines_agree(engine: str) -> None:
    result = compiled(BoundSpec(DESIGN, TURNOVER_SIDECAR), EngineOptions(engine))
    assert (result.states, result.transitions, result.depth) == SIZES["turnover_sidecar"]
    assert result.violation is None


@pytest.mark.heavy
def test_ranks_stay_interchangeable() -> None:
    result = compiled(BoundSpec(DESIGN, TURNOVER_MIXED), EngineOptions("array", symmetry=True))
    assert result.violation is None
    assert result.states < SIZES["turnover_mixed"][0]


@pytest.mark.heavy
@pytest.mark.parametrize(("bounds", "sizes"), [(CONTROL_SOLO, SIZES_OF_CONTROL), (POOL_SIDECARS, SIZES_OF_POOLS)])
def test_where_one_part_is_switched_off_the_other_is_the_same(
    bounds: Bounds, sizes: dict[str, tuple[int, int, int]]
) -> None:
    result = compiled(BoundSpec(DESIGN, bounds), EngineOptions("array"))
    assert result.violation is None
    assert (result.states, result.transitions, result.depth) == sizes[bounds.name]


@pytest.mark.heavy
@pytest.mark.parametrize("bounds", BOUNDS, ids=lambda b: b.name)
def test_what_is_promised_happens_in_the_end(bounds: Bounds) -> None:
    results = check_liveness(graph_by_kernels(BoundSpec(DESIGN, bounds)))
    assert {r.name for r in results} == {r.name for r in DESIGN.rules() if r.kind == "live"}
    assert not [r.label for r in results if r.lasso is not None]


@pytest.mark.heavy
@pytest.mark.parametrize("mutant", TURNOVER_MUTANTS, ids=lambda m: m.name)
def test_a_mutant_is_caught(mutant: SpecMutant) -> None:
    violation = explore(faulty(mutant)).violation
    assert violation is not None, "the mutant survived"
    assert (violation.property, len(violation.run)) == (mutant.caught_by, mutant.steps)


@pytest.mark.heavy
def test_every_property_that_is_new_or_restated_catches_a_mutant() -> None:
    own = {r.name for r in part_tables.own_rules(TURNOVER, "invariant", "step", beneath=BENEATH)}
    assert own - {m.caught_by for m in TURNOVER_MUTANTS} == CAUGHT_ALONE.keys()
    for name, fault in CAUGHT_ALONE.items():
        (mutant,) = [m for m in TURNOVER_MUTANTS if m.name == fault]
        assert explore(faulty(mutant), only={name}).violation is not None


def test_names_of_mutants_are_unique() -> None:
    names = [m.name for m in (*POOL_MUTANTS, *STARVING_POOLS, *TURNOVER_MUTANTS)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    "expected",
    [
        lambda: configurations(BOUNDS, SIZES),
        lambda: part_tables.replaced(TURNOVER),
        lambda: part_tables.outcomes(TURNOVER, BENEATH),
    ],
    ids=["configurations", "replaced", "outcomes"],
)
def test_a_table_says_what_the_code_says(expected: Callable[[], Any]) -> None:
    assert_stands("12.7", expected())


def test_the_table_of_properties_says_what_the_code_says() -> None:
    kinds = [part_tables.properties(TURNOVER, kind, NAMES_FIRST, BENEATH) for kind in ("invariant", "step")]
    assert_stands("12.7", part_tables.together(kinds))
