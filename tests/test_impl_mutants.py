"""Each mutant of the implementation, in the shortest scenario that shows it; the reference passes the same scenario.

What catches a mutant is the type of the exception: what the adapter, the pools, the tree or the life cycle report by
themselves, or one of the three of mutant_case. No scenario depends on timing: threads rest, or are held at a gate.
"""

from __future__ import annotations

import pytest

from hicache_impl.mutants import CONTROL, MUTANTS, POOLS, ImplMutant
from mutant_case import play
from mutant_scenarios_copies import COPIES
from mutant_scenarios_founding import FOUNDING
from mutant_scenarios_pools import POOLS as POOL_SCENARIOS
from mutant_scenarios_scheduler import SCHEDULER
from mutant_scenarios_tiers import TIERS
from mutant_scenarios_workers import WORKERS

CASES = {**WORKERS, **SCHEDULER, **TIERS, **FOUNDING, **COPIES, **POOL_SCENARIOS}
ALL = (*MUTANTS, *CONTROL, *POOLS)


@pytest.mark.parametrize("mutant", ALL, ids=lambda m: m.name)
def test_the_reference_passes(mutant: ImplMutant) -> None:
    play(CASES[mutant.name], mutant.ranks, {})


@pytest.mark.parametrize("mutant", ALL, ids=lambda m: m.name)
def test_the_mutant_is_caught(mutant: ImplMutant) -> None:
    case = CASES[mutant.name]
    with pytest.raises(case.caught, match=case.text) as caught:
        play(case, mutant.ranks, mutant.builds)
    assert caught.type is case.caught


def test_every_mutant_has_its_scenario() -> None:
    assert sorted(m.name for m in ALL) == sorted(CASES)
    assert len(CASES) == sum(map(len, (WORKERS, SCHEDULER, TIERS, FOUNDING, COPIES, POOL_SCENARIOS)))
    assert {m.name.split("_")[0] for m in ALL} == {"sched", "query", "io", "backup", "copy", "store"}
    for mutant in ALL:
        assert mutant.summary.startswith("P"), "the property that it breaks, first"
        assert "\n" not in mutant.summary
