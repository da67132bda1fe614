"""Faulty parts of the system, for tests."""

from __future__ import annotations

from hicache_checks.engine.explore import explore
from hicache_checks.mutants.faulty_liveness import LivenessMutant
from hicache_checks.mutants.part_mutants import IN_PARTS
from hicache_checks.mutants.spec_mutants import SpecMutant
from hicache_spec import BoundSpec
from hicache_spec.parts import design_named


def faulty(mutant: SpecMutant | LivenessMutant) -> BoundSpec:
    """Its design with the fault, in the configuration in which it is looked for."""
    return BoundSpec(design_named(mutant.design).variant(mutant.name, "", mutant.replaces), mutant.bounds)


def mutant(name: str) -> SpecMutant:
    """The one of this name."""
    (found,) = [m for m in IN_PARTS if m.name == name]
    return found


def shortest(name: str, only: str) -> list[str]:
    """The labels of a shortest run by which a mutant breaks one property, others left aside."""
    spec = faulty(mutant(name))
    violation = explore(spec, only={only}).violation
    assert violation is not None
    return [spec.steps[number].label for number in violation.run]
