"""Faults of what is on its way between device and host, under simulation: random programs and orders find each.

`tests/test_impl_mutants.py` has a scenario for each; here nothing is pinned but the number of ranks.
"""

from __future__ import annotations

import pytest

from hicache_checks.conformance.search import SearchOptions, run_numbered
from hicache_checks.conformance.target import opened
from hicache_impl.mutants.copies import COPIES
from hicache_impl.mutants.mutant import ImplMutant

# One was found in the 786th; the others in the first 350.
SCHEDULES_MAX = 5000

# What is reported first; of races, any of these.
CAUGHT_BY: dict[str, tuple[str, ...]] = {
    "copy_tells_before_it_lands": ("P30", "P6"),
    "sched_backs_up_before_it_lands": ("P30", "P6"),
    "sched_unlocks_what_is_written": ("P31 threads_survive: the write thread died: UnownedPage", "P30", "P6"),
    "sched_loads_without_a_lock": ("FreeUnderWriter",),
    "sched_backs_up_what_a_split_left": ("sched_take_copy (§10.2)",),
    "sched_takes_copies_by_its_own_count": ("P7", "observed_state"),
    "sched_writes_back_without_copying": ("P6", "P30"),
    "sched_loads_what_making_room_takes": ("TreeError",),
    "sched_tells_of_a_copy_twice": ("P29",),
}


@pytest.mark.heavy
@pytest.mark.parametrize("mutant", COPIES, ids=lambda mutant: mutant.name)
def test_a_mutant_is_caught(mutant: ImplMutant) -> None:
    with opened(f"reference+{mutant.name}", simulate=True) as target:
        for number in range(SCHEDULES_MAX):
            result, _ = run_numbered(target, SearchOptions(max(mutant.ranks, 1 + number % 2)), number)
            if result.finding is not None:
                first = str(result.finding)
                assert any(name in first for name in CAUGHT_BY[mutant.name]), first
                return
    pytest.fail(f"the mutant survived {SCHEDULES_MAX} schedules")


def test_every_mutant_has_its_row() -> None:
    assert CAUGHT_BY.keys() == {mutant.name for mutant in COPIES}
