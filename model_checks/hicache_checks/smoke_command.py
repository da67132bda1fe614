"""`hicheck smoke MODULE:FACTORY`: whether an adapter is usable, step by step, each with a reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from hicache_checks.conformance.campaign import finding_of
from hicache_checks.conformance.search import SIMULATE, THREADS
from hicache_checks.conformance.smoke import FAIL, NEEDED, OK, SKIP, STEPS, Tried
from hicache_checks.conformance.workers import Allowed, work
from hicache_checks.reporting import InputError, Outcome, Screen, Verdict, print_rows, printable

LOADS = "loads"


@dataclass(frozen=True)
class SmokeOptions:
    """What the user asked for. `stall_seconds`: how long the target may be silent."""

    target: str
    stall_seconds: float = 60.0


def run(options: SmokeOptions, screen: Screen) -> Outcome:
    """Try, report. An adapter that fails a step is an error."""
    tried = _all_steps(options, screen)
    screen.progress.clear()
    print_rows(screen.console, [], [[t.step, t.status, printable(t.reason)] for t in tried])
    verdict = Verdict.ERROR if any(t.status == FAIL for t in tried) else Verdict.PASS
    screen.say(f"{options.target} is {'' if verdict is Verdict.PASS else 'not '}usable")
    return Outcome(verdict, {"target": options.target, "steps": [asdict(t) for t in tried]})


def _all_steps(options: SmokeOptions, screen: Screen) -> list[Tried]:
    """Called as it is first; then under simulation, if there is something to simulate."""
    screen.progress.update(f"trying {options.target}")
    try:
        tried = [Tried(LOADS, OK), *_steps(options, THREADS)]
        if any(t.status == FAIL and t.step in NEEDED for t in tried):
            return [*tried, *(Tried(step, SKIP, "there is nothing to simulate") for step in STEPS[SIMULATE])]
        return [*tried, *_steps(options, SIMULATE)]
    except InputError as error:
        return [Tried(LOADS, FAIL, str(error))]


def _steps(options: SmokeOptions, mode: str) -> list[Tried]:
    tried: list[Tried] = []

    def hear(said: Mapping[str, Any]) -> None:
        tried.append(Tried(**said))

    job = {"do": "smoke", "target": options.target, "mode": mode}
    crash = work(job, hear, Allowed(silence_s=options.stall_seconds))
    if crash is not None:
        finding = finding_of(crash)
        tried.append(Tried(STEPS[mode][len(tried)], FAIL, f"{finding.message}, in {finding.place}"))
    return tried
