"""A schedule that is told while it is judged: how any run of it, however it was found, becomes a story."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from hicache_checks.conformance.findings import Finding
from hicache_checks.conformance.judges import Judging, MakeJudge, Rest, call_judge_for, has_events
from hicache_checks.conformance.program import Setup
from hicache_checks.conformance.real_threads import run_real
from hicache_checks.conformance.scenario import Scenario
from hicache_checks.conformance.schedule import Result, run_schedule, run_script
from hicache_checks.conformance.story import system_of
from hicache_checks.conformance.target import Target
from hicache_checks.conformance.telling import Storyteller
from hicache_checks.conformance.telling_calls import CallTeller
from hicache_checks.reporting.story import CALLER, FINDING, Row, Story
from hicache_checks.simulation.choices import Choices


class Teller(Judging, Protocol):
    """A judge that can say what happened."""

    def story(self, finding: Finding | None) -> Story:
        """Everything so far, and what is wrong."""


def tell_schedule(target: Target, ranks: int, policy: str, choices: Choices, steps_max: int) -> tuple[Result, Story]:
    """Run a schedule with the switches that `choices` say, and tell it."""
    return _told(
        target.profile,
        lambda judge: run_schedule(target.build, ranks, policy, choices, steps_max=steps_max, judge=judge),
    )


def tell_real(target: Target, ranks: int, policy: str, choices: Choices, steps_max: int) -> tuple[Result, Story]:
    """The same with real threads."""
    return _told(target.profile, lambda judge: run_real(target.build, ranks, policy, choices, steps_max, judge))


def tell_script(target: Target, scenario: Scenario, choices: Choices) -> Story:
    """The story of a scenario."""
    program = (scenario.setup, scenario.program, choices)
    _, story = _told(target.profile, lambda judge: run_script(target.build, *program, judge=judge))
    return story


def _told(profile: str, run: Callable[[MakeJudge], Result]) -> tuple[Result, Story]:
    tellers: list[Teller] = []

    def judge(target: Any, setup: Setup, rest: Rest) -> Judging:
        if has_events(target, profile):
            tellers.append(Storyteller(target, setup, profile))
        else:
            tellers.append(CallTeller(target, setup, lambda seen: call_judge_for(seen, setup, rest, profile)))
        return tellers[0]

    result = run(judge)
    if tellers:
        return result, tellers[0].story(result.finding)
    # It was wrong before there was anything to judge.
    finding = result.finding
    rows = [] if finding is None else [Row(FINDING, [], CALLER, "", [finding.property, finding.message], [])]
    return result, Story(system_of(result.setup), rows, [], [])
