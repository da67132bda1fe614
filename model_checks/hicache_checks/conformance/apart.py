"""What tells two releases apart: programs of a search as scenarios, which both of them play in the same schedules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from hicache_checks.conformance import scenario as scenarios
from hicache_checks.conformance.findings import Finding
from hicache_checks.conformance.program import Setup, Step
from hicache_checks.conformance.scenario import Scenario, System
from hicache_checks.conformance.search import SIMULATE, options_from, run_numbered
from hicache_checks.conformance.target import Target

Say = Callable[[Mapping[str, Any]], None]
Loaded = Callable[..., AbstractContextManager[tuple[Target, Callable[[int], object]]]]


def scenario_of(setup: Setup, steps: Sequence[Step], finding: Finding) -> Scenario:
    """A program, about the property that it shows."""
    system = System(
        setup.ranks,
        setup.policy,
        setup.host_pages,
        setup.threshold_pages,
        setup.limit_pages,
        [list(prompt) for prompt in setup.stored],
        dict(setup.more),
    )
    said = [[step.kind, *step.args] for step in steps]
    return Scenario(str(finding), [], [finding.property], [], [], said, system)


def programs_job(job: Mapping[str, Any], say: Say, loaded: Loaded) -> None:
    """The programs of the schedules with these `numbers` of a search that show something, as scenarios."""
    options = options_from(job["options"])
    with loaded(job, SIMULATE, say) as (target, running):
        for number in job["numbers"]:
            running(number)
            result, _ = run_numbered(target, options, number)
            if result.finding is not None:
                scenario = scenario_of(result.setup, result.steps, result.finding)
                say({"program": scenarios.to_document(scenario)})


def causes_job(job: Mapping[str, Any], say: Say, loaded: Loaded) -> None:
    """Play all schedules of each of some scenarios; what each is about, by cause."""
    with loaded(job, SIMULATE, say) as (target, running):
        for document in job["scenarios"]:
            found = scenarios.causes(target, scenarios.from_document(document), job["schedules"], running)
            say({"causes": {name: str(finding) for name, finding in found.items()}})
