"""Each faulty rule is caught by the property it is said to break, in the fewest steps; each property catches one."""

from __future__ import annotations

import pytest

from hicache_checks.engine.counterexample import tell
from hicache_checks.engine.explore import Exploration, explore
from hicache_checks.mutants.spec_mutants import SPEC_MUTANTS, SpecMutant
from hicache_spec import DESIGNS, BoundSpec

CANONICAL = DESIGNS["decide_at_drain"]

# Properties that are never the first to break: the others see their mutants a few steps earlier.
CAUGHT_ALONE = {"inv_rest_restores_the_pool": "io_drops_the_tail"}


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
