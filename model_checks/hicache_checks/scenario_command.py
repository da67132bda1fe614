"""`hicheck scenario`: public bugs, each as a short story, on the releases that have them and on those that do not."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from hicache_checks.conformance import scenario as scenarios
from hicache_checks.conformance.findings import Finding
from hicache_checks.conformance.scenario import Scenario
from hicache_checks.conformance.target import fetch
from hicache_checks.conformance.workers import work
from hicache_checks.reporting import (
    InputError,
    Outcome,
    Screen,
    Story,
    Verdict,
    counted,
    print_rows,
    print_story,
    printable,
)

SHOWN, NOT_SHOWN = "shown", "not shown"


@dataclass(frozen=True)
class ScenarioOptions:
    """`name`: of one, or a file; None: all. `target`: another than those that the scenario names."""

    name: str | None = None
    target: str | None = None
    schedules: int | None = None


@dataclass(frozen=True)
class Tried:
    """A scenario on a target. `expected`: is it to be shown there? None: nobody says. `why`: it could not be run."""

    scenario: str
    target: str
    expected: bool | None
    schedules: int = 0
    finding: Finding | None = None
    story: Story | None = None
    others: Mapping[str, int] | None = None
    why: str = ""

    @property
    def is_right(self) -> bool:
        """Is it as expected?"""
        return not self.why and (self.expected is None or self.expected == (self.finding is not None))


def run(options: ScenarioOptions, screen: Screen) -> Outcome:
    """Play, and report. Raises InputError."""
    started = time.monotonic()
    chosen = scenarios.names() if options.name is None else [options.name]
    if not chosen:
        raise InputError("there are no scenarios")
    read = {name: scenarios.read(name) for name in chosen}
    tried: list[Tried] = []
    for name, scenario in read.items():
        for target, expected in _targets(scenario, options.target):
            screen.progress.update(f"{name} on {target}, {len(tried)} done")
            tried.append(_try(name, scenario, target, expected, options.schedules, screen.progress.update))
    screen.progress.clear()
    verdict = verdict_of(tried, options.target is not None)
    _print(read, tried, options, screen, time.monotonic() - started, verdict)
    return Outcome(verdict, {"scenarios": [_keys(t) for t in tried]})


def verdict_of(tried: Sequence[Tried], is_asked: bool) -> Verdict:
    """On a target that the user names, what is shown fails; on those that a scenario names, what is not as it says."""
    if any(t.why for t in tried):
        return Verdict.ERROR
    failed = [t for t in tried if (t.finding is not None if is_asked else not t.is_right)]
    return Verdict.FAIL if failed else Verdict.PASS


def _targets(scenario: Scenario, target: str | None) -> list[tuple[str, bool | None]]:
    if target is not None:
        return [(target, None)]
    return [*((name, True) for name in scenario.affected), *((name, False) for name in scenario.repaired)]


def _try(
    name: str,
    scenario: Scenario,
    target: str,
    expected: bool | None,
    schedules: int | None,
    tell: Callable[[str], object],
) -> Tried:
    said: list[Mapping[str, Any]] = []
    job = {
        "do": "scenario",
        "target": target,
        "scenario": scenarios.to_document(scenario),
        "schedules": schedules or scenario.schedules,
    }
    try:
        fetch(target, tell=tell)
        crash = work(job, said.append)
    except InputError as error:
        return Tried(name, target, expected, why=str(error))
    if crash is not None:
        return Tried(name, target, expected, why=f"the process {crash.how}")
    (played,) = said
    finding = None if played["finding"] is None else Finding(**played["finding"])
    story = None if played["story"] is None else msgspec.convert(played["story"], Story)
    return Tried(name, target, expected, played["schedules"], finding, story, played["others"])


def _print(
    read: Mapping[str, Scenario],
    tried: Sequence[Tried],
    options: ScenarioOptions,
    screen: Screen,
    seconds: float,
    verdict: Verdict,
) -> None:
    for t in tried:
        if t.story is not None and options.name is not None:
            screen.say(printable(f"{t.scenario} on {t.target}: {read[t.scenario].title}"))
            print_story(screen, t.story)
    rows = [[t.scenario, t.target, _said(t), _judged(t)] for t in tried]
    print_rows(
        screen.console, ["scenario", "target", "what happens", ""], [[printable(c) for c in row] for row in rows]
    )
    right = sum(t.is_right for t in tried)
    screen.say(
        f"{counted(len(read), 'scenario')}, {right} of {len(tried)} as they say; {seconds:.0f} s; {verdict.value}"
    )


def _said(t: Tried) -> str:
    if t.why:
        return t.why
    besides = "" if not t.others else f"; besides: {next(iter(t.others))}"
    if t.finding is None:
        return f"nothing of it in {counted(t.schedules, 'schedule')}{besides}"
    return f"{t.finding}, in schedule {t.schedules}"


def _judged(t: Tried) -> str:
    if t.why:
        return "not run"
    what = NOT_SHOWN if t.finding is None else SHOWN
    return what if t.is_right else f"{what}: not as it says"


def _keys(t: Tried) -> dict[str, Any]:
    return {
        "scenario": t.scenario,
        "target": t.target,
        "expected": t.expected,
        "shown": t.finding is not None,
        "finding": None if t.finding is None else str(t.finding),
        "schedules": t.schedules,
        "others": dict(t.others or {}),
        "why": t.why,
    }
