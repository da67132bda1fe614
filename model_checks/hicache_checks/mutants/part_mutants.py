"""Mutants of the parts that are joined to the canonical design, by the name of the joined design."""

from __future__ import annotations

from collections.abc import Mapping

from hicache_checks.mutants.copying_mutants import COPYING_MUTANTS, COPYING_STARVING
from hicache_checks.mutants.faulty_liveness import LivenessMutant
from hicache_checks.mutants.resetting_mutants import RESETTING_MUTANTS
from hicache_checks.mutants.spec_mutants import SpecMutant
from hicache_checks.mutants.storing_mutants import STORING_MUTANTS, STORING_STARVING

PART_MUTANTS: Mapping[str, tuple[SpecMutant, ...]] = {
    "decide_at_drain+copying": COPYING_MUTANTS,
    "decide_at_drain+copying+storing": STORING_MUTANTS,
    "decide_at_drain+copying+control+resetting": RESETTING_MUTANTS,
}

STARVING_PARTS: Mapping[str, tuple[LivenessMutant, ...]] = {
    "decide_at_drain+copying": COPYING_STARVING,
    "decide_at_drain+copying+storing": STORING_STARVING,
    "decide_at_drain+copying+control+resetting": (),
}
