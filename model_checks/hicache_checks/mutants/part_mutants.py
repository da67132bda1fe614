"""Mutants of the parts of the system, by the name of the design that they are put into."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hicache_checks.mutants.control_mutants import CONTROL_MUTANTS, STARVING_CONTROL
from hicache_checks.mutants.copying_mutants import COPYING_MUTANTS, COPYING_STARVING
from hicache_checks.mutants.faulty_liveness import LivenessMutant
from hicache_checks.mutants.pool_mutants import POOL_MUTANTS, STARVING_POOLS, TURNOVER_MUTANTS
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

_OF_OTHERS: Mapping[str, tuple[SpecMutant, ...]] = {
    "decide_at_drain+control": CONTROL_MUTANTS,
    "decide_at_drain+pools": POOL_MUTANTS,
    "decide_at_drain+control+pools+turnover": TURNOVER_MUTANTS,
}
_STARVING_OTHERS: Mapping[str, tuple[LivenessMutant, ...]] = {
    "decide_at_drain+control": STARVING_CONTROL,
    "decide_at_drain+pools": STARVING_POOLS,
}

IN_PARTS = tuple(
    replace(mutant, design=design)
    for design, mutants in (*PART_MUTANTS.items(), *_OF_OTHERS.items())
    for mutant in mutants
)
STARVING_IN_PARTS = tuple(
    replace(mutant, design=design)
    for design, mutants in (*STARVING_PARTS.items(), *_STARVING_OTHERS.items())
    for mutant in mutants
)
"""All of them but those of groups (`group_mutants.py`), each with its design."""
