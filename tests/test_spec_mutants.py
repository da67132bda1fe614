"""Each faulty rule is caught by the property it is said to break, in the fewest steps; each property catches one."""

from __future__ import annotations

import pytest

from hicache_checks.engine.counterexample import tell
from hicache_checks.engine.explore import Exploration, explore
from hicache_checks.engine.graph import graph_by_objects
from hicache_checks.engine.liveness import check_liveness
from hicache_checks.mutants.design_mutants import DESIGN_MUTANTS, STARVING_DESIGNS
from hicache_checks.mutants.faulty_liveness import LivenessMutant
from hicache_checks.mutants.spec_mutants import SPEC_MUTANTS, SpecMutant
from hicache_spec import DESIGNS, BoundSpec

CANONICAL = DESIGNS["decide_at_drain"]

# Properties that are never the first to break: the others see their mutants a few steps earlier.
CAUGHT_ALONE = {"inv_rest_restores_the_pool": "io_drops_the_tail"}
CAUGHT_ALONE_OF_DESIGNS = {
    "progress_ack": dict.fromkeys(
        ("inv_ended_operations_hold_nothing", "inv_rest_restores_the_pool"), "sched_drops_the_tail"
    ),
    "attempts": {},
}
BASES = {"progress_ack": "decide_at_drain", "attempts": "progress_ack"}
"""What the designs with mutants of their own are variants of."""
UNSAFE = [pytest.param(name, m, id=m.name) for name, mutants in DESIGN_MUTANTS.items() for m in mutants]
STARVING = [pytest.param(name, m, id=m.name) for name, mutants in STARVING_DESIGNS.items() for m in mutants]


def spec_of(mutant: SpecMutant) -> BoundSpec:
    return BoundSpec(CANONICAL.variant(mutant.name, "", mutant.replaces), mutant.bounds)


def exploration_of(name: str, only: set[str] | None = None) -> Exploration:
    return explore(spec_of(next(m for m in SPEC_MUTANTS if m.name == name)), only=only)


@pytest.mark.heavy
@pytest.mark.parametrize("mutant", SPEC_MUTANTS, ids=lambda m: m.name)
def test_a_mutant_is_caught(mutant: SpecMutant) -> None:
    spec = spec_of(mutant)
    violation = explore(spec).violation
    assert violation is not None, "the mutant survived"
    assert (violation.property, len(violation.run)) == (mutant.caught_by, mutant.steps)
    assert len(tell(spec, violation.run)) == mutant.steps, "the counterexample is a run of the mutant"


@pytest.mark.heavy
@pytest.mark.parametrize("mutant", SPEC_MUTANTS, ids=lambda m: m.name)
def test_the_configuration_is_innocent(mutant: SpecMutant) -> None:
    """Without the fault, nothing breaks within the states that the mutant needed."""
    needed = explore(spec_of(mutant)).states
    assert explore(BoundSpec(CANONICAL, mutant.bounds), max_states=needed).violation is None


def test_every_property_catches_a_mutant() -> None:
    properties = {r.name for r in CANONICAL.rules() if r.kind in ("invariant", "step")}
    first = {m.caught_by for m in SPEC_MUTANTS}
    assert properties - first == set(CAUGHT_ALONE)
    for name, mutant in CAUGHT_ALONE.items():
        violation = exploration_of(mutant, only={name}).violation
        assert violation is not None
        assert violation.property == name


def test_names_are_unique_and_name_the_actor() -> None:
    names = [m.name for m in SPEC_MUTANTS]
    assert len(set(names)) == len(names) >= 12
    assert {name.split("_")[0] for name in names} == {"sched", "query", "io"}


# ---- the designs that bring properties of their own


def variant_of(design: str, mutant: SpecMutant | LivenessMutant) -> BoundSpec:
    return BoundSpec(DESIGNS[design].variant(mutant.name, "", mutant.replaces), mutant.bounds)


def own(design: str, *kinds: str) -> set[str]:
    """The properties that a design has and its base has not, or not in these words."""
    known = {r.function for r in DESIGNS[BASES[design]].rules()}
    return {r.name for r in DESIGNS[design].rules() if r.kind in kinds and r.function not in known}


@pytest.mark.heavy
@pytest.mark.parametrize(("design", "mutant"), UNSAFE)
def test_a_mutant_of_a_design_is_caught(design: str, mutant: SpecMutant) -> None:
    violation = explore(variant_of(design, mutant)).violation
    assert violation is not None, "the mutant survived"
    assert (violation.property, len(violation.run)) == (mutant.caught_by, mutant.steps)


@pytest.mark.heavy
@pytest.mark.parametrize(("design", "mutant"), UNSAFE)
def test_the_configuration_of_a_design_is_innocent(design: str, mutant: SpecMutant) -> None:
    needed = explore(variant_of(design, mutant)).states
    assert explore(BoundSpec(DESIGNS[design], mutant.bounds), max_states=needed).violation is None


@pytest.mark.heavy
@pytest.mark.parametrize(("design", "mutant"), STARVING)
def test_a_design_that_starves_somebody_is_caught_by_liveness_alone(design: str, mutant: LivenessMutant) -> None:
    spec = variant_of(design, mutant)
    assert explore(spec).violation is None
    lassos = {r.name: r.lasso for r in check_liveness(graph_by_objects(spec)) if r.lasso is not None}
    assert lassos.keys() == {mutant.caught_by}
    lasso = lassos[mutant.caught_by]
    assert (len(lasso.stem), len(lasso.loop)) == (mutant.stem, mutant.loop)


@pytest.mark.heavy
@pytest.mark.parametrize("design", list(BASES))
def test_every_property_of_a_design_catches_a_mutant(design: str) -> None:
    alone = CAUGHT_ALONE_OF_DESIGNS[design]
    assert own(design, "invariant", "step") - {m.caught_by for m in DESIGN_MUTANTS[design]} == alone.keys()
    assert own(design, "live") == {m.caught_by for m in STARVING_DESIGNS[design]}
    for name, fault in alone.items():
        mutant = next(m for m in DESIGN_MUTANTS[design] if m.name == fault)
        assert explore(variant_of(design, mutant), only={name}).violation is not None


def test_names_of_mutants_of_designs_are_unique_and_name_the_actor() -> None:
    names = [m.name for m in SPEC_MUTANTS]
    names += [m.name for registry in (DESIGN_MUTANTS, STARVING_DESIGNS) for ms in registry.values() for m in ms]
    assert len(set(names)) == len(names)
    assert {name.split("_")[0] for name in names} == {"sched", "query", "io", "sync"}
    assert DESIGN_MUTANTS.keys() == STARVING_DESIGNS.keys() == BASES.keys()
