"""The Hypothesis machine on simulated targets: the reference conforms; faults are found and made small."""

from __future__ import annotations

from collections import Counter

import pytest

from hicache_checks.conformance.simulated_machine import simulated_machine_for
from hicache_checks.conformance.stateful import StatefulRun, run_stateful
from hicache_checks.conformance.target import opened
from hicache_spec.bounds import POLICY

EXAMPLES = 40
TO_FIND = 600


def run(target: str, ranks: int, policy: str, examples: int) -> StatefulRun:
    with opened(target, simulate=True) as opened_target:
        return run_stateful(opened_target.build, ranks, policy, examples, steps=20, make=simulated_machine_for)


@pytest.mark.heavy
def test_the_reference_conforms() -> None:
    outcomes: Counter[str] = Counter()
    for ranks in (1, 2):
        for policy in POLICY.members:
            done = run("reference", ranks, policy, EXAMPLES)
            assert done.failure is None
            outcomes += done.outcomes
    assert outcomes["submitted"] > EXAMPLES
    assert {"fetched: all", "revoked: stopped", "revoked: below_threshold", "stored", "loaded"} <= outcomes.keys()


@pytest.mark.heavy
def test_a_run_is_the_same_every_time() -> None:
    assert run("reference", 2, "timeout", 10).outcomes == run("reference", 2, "timeout", 10).outcomes


@pytest.mark.heavy
def test_a_fault_is_found() -> None:
    with opened("reference+sched_frees_known_pages_twice", simulate=True) as target:
        done = run_stateful(target.build, 1, "wait_complete", TO_FIND, 20, shrink=False, make=simulated_machine_for)
    assert done.failure is not None
    assert "DoubleFree" in done.failure


@pytest.mark.slow
def test_it_is_made_small() -> None:
    done = run("reference+io_counts_after_termination", 1, "wait_complete", TO_FIND)
    assert done.failure is not None
    assert "io_land_page (§3.7.2)" in done.failure
    calls = [line for line in done.failure.splitlines() if line.startswith("    ")]
    assert 0 < len(calls) <= 5
