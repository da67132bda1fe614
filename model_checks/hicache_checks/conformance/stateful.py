"""Run the state machine against a target: every policy, one rank and two."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, Phase, Verbosity, settings
from hypothesis.errors import FlakyFailure
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from hicache_checks.conformance.adapter import TestableAdapter
from hicache_checks.conformance.findings import Broken
from hicache_checks.conformance.machine import machine_for
from hicache_spec.bounds import POLICY

STEPS = 30
RANKS = (1, 2)


@dataclass(frozen=True)
class StatefulRun:
    """What the examples showed. `failure` is None, or the finding with the shortest program that Hypothesis found."""

    ranks: int
    policy: str
    examples: int
    seconds: float
    outcomes: Counter[str]
    failure: str | None


def run_stateful(
    build: Callable[[], TestableAdapter],
    ranks: int,
    policy: str,
    examples: int,
    steps: int = STEPS,
    shrink: bool = True,
    make: Callable[[Callable[[], Any], int, str], type[RuleBasedStateMachine]] = machine_for,
) -> StatefulRun:
    """Run `examples` programs of at most `steps` calls, always the same ones. `shrink`: make a failing one small.

    `make`: which machine, `machine_for` with gates or `simulated_machine_for`.
    """
    machine: Any = make(build, ranks, policy)
    start = time.perf_counter()
    failure = None
    try:
        with _whatever_is_imported():
            run_state_machine_as_test(
                machine,
                settings=settings(
                    max_examples=examples,
                    stateful_step_count=steps,
                    deadline=None,
                    derandomize=True,
                    database=None,
                    verbosity=Verbosity.quiet,
                    phases=[Phase.generate, *([Phase.shrink] if shrink else [])],
                    suppress_health_check=list(HealthCheck),
                    report_multiple_bugs=False,
                ),
            )
    except Broken as broken:
        failure = "\n".join([str(broken), *getattr(broken, "__notes__", ())])
    except FlakyFailure as group:
        # Real threads: the same program broke the second time in another way, or not at all.
        seen = [str(error) for error in group.exceptions if isinstance(error, Broken)]
        failure = "\n".join(
            [*seen, "not every time: the outcome depends on the timing of threads", *getattr(group, "__notes__", ())]
        )
    return StatefulRun(ranks, policy, examples, time.perf_counter() - start, machine.seen, failure)


@contextmanager
def _whatever_is_imported() -> Iterator[None]:
    """Hypothesis tries constants that it finds in the modules that are imported; here the programs are the same ones
    whatever those are. Versions that do not do it need nothing."""
    if not hasattr(providers, "_get_local_constants"):
        yield
        return
    found, nothing = providers._get_local_constants, Constants()
    providers._get_local_constants = lambda: nothing
    providers.CONSTANTS_CACHE.cache.clear()
    try:
        yield
    finally:
        providers._get_local_constants = found
        providers.CONSTANTS_CACHE.cache.clear()


def run_every_policy(
    build: Callable[[], TestableAdapter], examples: int, progress: Callable[[str], None]
) -> Sequence[StatefulRun]:
    """The machine under each policy on each number of ranks, `examples` each."""
    runs = []
    for ranks in RANKS:
        for policy in POLICY.members:
            progress(f"stateful: {ranks} rank(s), {policy}, {examples} examples")
            runs.append(run_stateful(build, ranks, policy, examples))
    return runs
