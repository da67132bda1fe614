"""`hicheck verify`: the main job. Explores the specification, checks the reference, replays a workload."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hicache_checks import workload_command
from hicache_checks.conformance.stateful import run_every_policy
from hicache_checks.engine.explore import explore
from hicache_checks.explore_command import ExploreOptions, configurations_of, explore_all, summarise
from hicache_checks.implementations import MUTANTS, TARGETS, load
from hicache_checks.reporting import InputError, Outcome, Screen, Verdict, VerifyRow, print_verify_summary
from hicache_spec import DESIGNS, BoundSpec
from hicache_spec.bounds import TINY

CANONICAL = "decide_at_drain"
EXAMPLES_EACH = 40
WORKLOAD_REQUESTS = 300
NOT_COVERED = (
    ("engine", "compiled exploration, symmetry, refinement between designs"),
    ("liveness", "declared in the specification, not decided"),
    ("simulation", "every interleaving of the threads; here they run as they like, or are held at gates"),
    ("releases", "published SGLang releases and forks"),
)


@dataclass(frozen=True)
class VerifyOptions:
    """`workload` is the path of a request trace, None for a synthetic one."""

    workload: str | None = None


@dataclass(frozen=True)
class Part:
    """One part of the job: its row of the summary, its verdict, and its keys of the JSON document."""

    row: VerifyRow
    verdict: Verdict
    keys: dict[str, Any]
    details: list[str] = field(default_factory=list)


def run(options: VerifyOptions, screen: Screen) -> Outcome:
    """Run every part and print the summary. Raises InputError, before any work, for a trace that is not there."""
    if options.workload is not None and not Path(options.workload).is_file():
        raise InputError(f"{options.workload}: no such file")
    parts = [
        specification(screen),
        *designs(screen),
        mutants(screen),
        implementation(screen),
        workload(options, screen),
    ]
    screen.progress.clear()
    rows = [part.row for part in parts]
    rows += [VerifyRow(what, "", "", None, f"not covered yet: {why}") for what, why in NOT_COVERED]
    print_verify_summary(screen.console, rows)
    for part in parts:
        for line in part.details:
            screen.say(line)
    verdict = Verdict.worst([part.verdict for part in parts])
    screen.say(f"verdict: {verdict.value}")
    keys = {part.row.what: {"verdict": part.verdict.value, **part.keys} for part in parts}
    return Outcome(verdict, {"parts": keys, "not_covered": [what for what, _ in NOT_COVERED]})


def specification(screen: Screen) -> Part:
    """Explore the canonical design at `small`: every property holds, every outcome is reached."""
    options = ExploreOptions(CANONICAL, "small")
    start = time.perf_counter()
    explored = explore_all(CANONICAL, configurations_of(options), None, None, screen)
    outcome = summarise(options, explored, time.perf_counter() - start)
    kinds = Counter(rule.kind for rule in DESIGNS[CANONICAL].rules())
    missing, violations = outcome.keys["sometimes_missing"], outcome.keys["violations"]
    assert isinstance(missing, list)
    assert isinstance(violations, list)
    says = f"{kinds['invariant'] + kinds['step']} properties hold, {kinds['sometimes']} outcomes reached"
    if violations:
        says = "; ".join(f"{v['property']} violated in {len(v['steps'])} steps" for v in violations)
    elif missing:
        says = f"outcomes never reached: {', '.join(missing)}"
    bounds = f"{CANONICAL}, small: {len(explored)} configurations, up to 2 requests x 2 ranks"
    row = VerifyRow(
        "specification", bounds, f"{outcome.keys['states']:,} states", _seconds(outcome), says, outcome.verdict
    )
    return Part(row, outcome.verdict, dict(outcome.keys))


def designs(screen: Screen) -> list[Part]:
    """Every other design violates what it is pinned to violate."""
    parts = []
    for name, design in DESIGNS.items():
        if name == CANONICAL:
            continue
        screen.progress.update(f"exploring {name}")
        start = time.perf_counter()
        found: dict[str, int] = {}
        states = 0
        for bounds in TINY:
            result = explore(BoundSpec(design, bounds))
            states += result.states
            if result.violation is not None:
                steps = len(result.violation.run)
                found[result.violation.property] = min(steps, found.get(result.violation.property, steps))
        as_pinned = set(found) == set(design.violates)
        says = "; ".join(f"{p} violated in {n} steps" for p, n in found.items()) or "nothing is violated"
        says += " (as pinned)" if as_pinned else f" (pinned: {', '.join(design.violates)})"
        verdict = Verdict.PASS if as_pinned else Verdict.FAIL
        seconds = time.perf_counter() - start
        row = VerifyRow("designs", f"{name}, tiny", f"{states:,} states", seconds, says, verdict)
        parts.append(Part(row, verdict, {"design": name, "violated": found}))
    return parts


def mutants(screen: Screen) -> Part:
    """Every faulty rule of the specification is caught by the property that it breaks, in the pinned number of
    steps."""
    start = time.perf_counter()
    known = load(MUTANTS, "specification")
    details = []
    for mutant in known:
        screen.progress.update(f"mutant {mutant.name}")
        variant = DESIGNS[CANONICAL].variant(mutant.name, "", mutant.replaces)
        violation = explore(BoundSpec(variant, mutant.bounds)).violation
        if violation is None or (violation.property, len(violation.run)) != (mutant.caught_by, mutant.steps):
            details.append(f"mutant {mutant.name}: not {mutant.caught_by} in {mutant.steps} steps but {violation}")
    caught = len(known) - len(details)
    verdict = Verdict.FAIL if details or not known else Verdict.PASS
    says = f"{caught} of {len(known)} caught, each by the property that it breaks"
    seconds = time.perf_counter() - start
    row = VerifyRow("mutants", "of the specification", f"{len(known)} mutants", seconds, says, verdict)
    return Part(row, verdict, {"total": len(known), "caught": caught}, details)


def implementation(screen: Screen) -> Part:
    """The threaded reference under the state machine: every call explained by the specification, nothing left over."""
    target = load(TARGETS, "reference")
    start = time.perf_counter()
    runs = run_every_policy(target, EXAMPLES_EACH, screen.progress.update)
    failures = [r for r in runs if r.failure is not None]
    outcomes: Counter[str] = Counter()
    for r in runs:
        outcomes.update(r.outcomes)
    examples = sum(r.examples for r in runs)
    verdict = Verdict.FAIL if failures else Verdict.PASS
    row = VerifyRow(
        "implementation",
        "reference, real threads, 1 and 2 ranks, 3 policies",
        f"{examples} programs",
        time.perf_counter() - start,
        f"{len(failures)} findings" if failures else "every event explained by the specification",
        verdict,
    )
    details = [line for r in failures for line in (f"{r.policy}, {r.ranks} rank(s):", r.failure or "")]
    return Part(row, verdict, {"examples": examples, "outcomes": dict(outcomes), "findings": len(failures)}, details)


def workload(options: VerifyOptions, screen: Screen) -> Part:
    """A trace through two gloo processes with file storage, the monitor on their merged logs."""
    with tempfile.TemporaryDirectory(prefix="hicheck-store-") as folder:
        given = workload_command.WorkloadOptions(
            trace=options.workload,
            synthetic=options.workload is None,
            requests=WORKLOAD_REQUESTS,
            ranks=2,
            storage=f"file:{folder}",
            policy="wait_complete",
            abort_rate=0.05,
            stop_rate=0.05,
            page_bytes=4096,
            host_pages=256,
            device_pages=192,
            speed=None,
            seed=0,
            fault=None,
        )
        outcome = workload_command.replay(given, screen)
    keys = outcome.keys
    name = options.workload or "synthetic"
    violations = keys["violations"]
    assert isinstance(violations, list)
    says = f"{keys['pages_verified']:,} pages verified, {keys['pages_left']} left over, {len(violations)} violations"
    row = VerifyRow(
        "workload",
        f"{name}, {keys['requests']} requests, 2 gloo ranks, file storage",
        f"{keys['events_explained']:,} events",
        _seconds(outcome),
        says,
        outcome.verdict,
    )
    return Part(row, outcome.verdict, dict(keys), [f"violation: {v}" for v in violations])


def _seconds(outcome: Outcome) -> float:
    seconds = outcome.keys["seconds"]
    assert isinstance(seconds, (int, float))
    return float(seconds)
