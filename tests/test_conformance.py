"""Hypothesis against the threads: every program that a caller can write is explained by the specification."""

from __future__ import annotations

from collections import Counter

import pytest

from hicache_checks.conformance.stateful import run_stateful
from hicache_impl.adapter import Reference

EXAMPLES = 334  # six machines: 2,004 programs in all
SHARE = 25

# What must have happened in the programs of every machine: a check of nothing is no check.
EVERYWHERE = (
    *("submitted", "declined: too_short", "declined: limited", "declined: pending", "skipped", "evicted", "reclaimed"),
    *("allocated", "allocated: shorter", "fetched: all", "fetched: stopped", "fetched: failed_page", "io_released"),
    *("revoked: below_threshold", "revoked: no_memory", "revoked: aborted", "revoked: stopped", "io_failed: miss"),
    *("io_failed: raised", "written", "stored", "loaded", "stopped"),
)
BY_POLICY = {"best_effort": ("fetched: policy",), "timeout": ("fetched: policy",), "wait_complete": ()}
MACHINES = [(ranks, policy) for ranks in (1, 2) for policy in BY_POLICY]


@pytest.mark.heavy
@pytest.mark.parametrize(("ranks", "policy"), MACHINES)
def test_the_reference_conforms(ranks: int, policy: str) -> None:
    run = run_stateful(Reference, ranks, policy, EXAMPLES)
    assert run.failure is None, run.failure
    missing = [name for name in (*EVERYWHERE, *BY_POLICY[policy]) if run.outcomes[name] == 0]
    assert not missing, f"the programs never led to {missing}"


@pytest.mark.heavy
def test_a_few_programs_answer_at_once() -> None:
    total: Counter[str] = Counter()
    for ranks, policy in ((1, "best_effort"), (2, "wait_complete")):
        run = run_stateful(Reference, ranks, policy, SHARE)
        assert run.failure is None, run.failure
        total.update(run.outcomes)
    assert {"submitted", "allocated", "fetched: all", "revoked: below_threshold", "revoked: aborted"} <= total.keys()


def test_the_same_programs_run_every_time() -> None:
    first, second = (run_stateful(Reference, 2, "wait_complete", 10) for _ in range(2))
    assert first.outcomes == second.outcomes
