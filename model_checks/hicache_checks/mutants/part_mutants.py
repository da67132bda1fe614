"""Mutants of the parts of the system, by the name of the design that they are put into."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hicache_checks.mutants.carrying_mutants import CARRYING_MUTANTS
from hicache_checks.mutants.control_mutants import CONTROL_MUTANTS, STARVING_CONTROL
from hicache_checks.mutants.copying_mutants import COPYING_MUTANTS, STARVING_COPYING
from hicache_checks.mutants.depositing_mutants import DEPOSITING_MUTANTS
from hicache_checks.mutants.detaching_mutants import DETACHING_MUTANTS
from hicache_checks.mutants.faulty_liveness import LivenessMutant
from hicache_checks.mutants.group_mutants import GROUP_MUTANTS, STARVING_GROUPS
from hicache_checks.mutants.pool_mutants import POOL_MUTANTS, STARVING_POOLS, TURNOVER_MUTANTS
from hicache_checks.mutants.resetting_mutants import RESETTING_MUTANTS
from hicache_checks.mutants.spec_mutants import SpecMutant
from hicache_checks.mutants.storing_mutants import STARVING_STORING, STORING_MUTANTS

PART_MUTANTS: Mapping[str, tuple[SpecMutant, ...]] = {
    "decide_at_drain+copying": COPYING_MUTANTS,
    "decide_at_drain+copying+storing": STORING_MUTANTS,
    "decide_at_drain+control": CONTROL_MUTANTS,
    "decide_at_drain+copying+control+resetting": RESETTING_MUTANTS,
    "decide_at_drain+copying+storing+control+resetting+detaching": DETACHING_MUTANTS,
    "decide_at_drain+pools": POOL_MUTANTS,
    "decide_at_drain+control+pools+turnover": TURNOVER_MUTANTS,
    "decide_at_drain+copying+pools+carrying": CARRYING_MUTANTS,
    "decide_at_drain+copying+storing+pools+carrying+depositing": DEPOSITING_MUTANTS,
    "groups": GROUP_MUTANTS,
}

STARVING_PARTS: Mapping[str, tuple[LivenessMutant, ...]] = {
    "decide_at_drain+copying": STARVING_COPYING,
    "decide_at_drain+copying+storing": STARVING_STORING,
    "decide_at_drain+control": STARVING_CONTROL,
    "decide_at_drain+pools": STARVING_POOLS,
    "groups": STARVING_GROUPS,
}
"""Those that only liveness catches."""

IN_PARTS = tuple(replace(m, design=design) for design, mutants in PART_MUTANTS.items() for m in mutants)
STARVING_IN_PARTS = tuple(replace(m, design=design) for design, mutants in STARVING_PARTS.items() for m in mutants)
"""All of them, each with its design."""
