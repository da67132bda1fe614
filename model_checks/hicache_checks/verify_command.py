"""`hicheck verify`: the main job.

Of the specification: the canonical design, its liveness, the claim that it replaced another one unnoticed, what the
other designs violate, and that faulty rules are caught. Of the implementation: the threaded reference under a state
machine and under simulation, and a workload on two ranks.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from hicache_checks import workload_command
from hicache_checks.conformance.stateful import RANKS, run_every_policy
from hicache_checks.conformance.target import fetch
from hicache_checks.implementations import TARGETS, load
from hicache_checks.rank_layout import RankLayout
from hicache_checks.reporting import InputError, Outcome, Screen, Verdict, VerifyRow, counted, print_verify_summary
from hicache_checks.verify_claim import claim
from hicache_checks.verify_designs import designs
from hicache_checks.verify_mutants import faults
from hicache_checks.verify_parts import parts as parts_of_the_system
from hicache_checks.verify_simulation import simulation
from hicache_checks.verify_specification import Part, specification
from hicache_checks.verify_target import named_target
from hicache_spec.bounds import POLICY

EXAMPLES_EACH = 40
WORKLOAD_REQUESTS = 300
WORKLOAD_RANKS = 2
NOT_COVERED = ("target", "published SGLang releases and forks: --target sglang==VERSION")


@dataclass(frozen=True)
class VerifyOptions:
    """`workload` is the path of a request trace, None for a synthetic one. `target`: a system to search besides."""

    workload: str | None = None
    target: str | None = None


def run(options: VerifyOptions, screen: Screen) -> Outcome:
    """Run every part and print the summary. Raises InputError, before any work, for a trace that is not there."""
    if options.workload is not None and not Path(options.workload).is_file():
        raise InputError(f"{options.workload}: no such file")
    if options.target is not None:
        fetch(options.target, tell=screen.progress.update)
    parts = [
        *specification(screen),
        claim(screen),
        designs(screen),
        *parts_of_the_system(screen),
        faults(screen),
        implementation(screen),
        simulation(screen),
        workload(options, screen),
        *([named_target(options.target, screen)] if options.target is not None else []),
    ]
    screen.progress.clear()
    rows = [part.row for part in parts]
    if options.target is None:
        what, why = NOT_COVERED
        rows.append(VerifyRow(what, "", "", None, f"not asked for: {why}"))
    print_verify_summary(screen.console, rows)
    for part in parts:
        for line in part.details:
            screen.say(line)
    verdict = Verdict.worst([part.verdict for part in parts])
    screen.say(f"verdict: {verdict.value}")
    keys = [{"part": part.row.what, "verdict": part.verdict.value, **part.keys} for part in parts]
    return Outcome(verdict, {"parts": keys, "not_covered": [NOT_COVERED[0]] if options.target is None else []})


def implementation(screen: Screen) -> Part:
    """The threaded reference under the state machine: every call explained by the specification, nothing left over."""
    target = load(TARGETS, "reference.gated")
    start = time.perf_counter()
    runs = run_every_policy(target, EXAMPLES_EACH, screen.progress.update)
    failures = [r for r in runs if r.failure is not None]
    outcomes: Counter[str] = Counter()
    for r in runs:
        outcomes.update(r.outcomes)
    examples = sum(r.examples for r in runs)
    row = VerifyRow(
        "implementation",
        f"reference, real threads, {' and '.join(map(str, RANKS))} ranks, {len(POLICY.members)} policies",
        counted(examples, "program"),
        time.perf_counter() - start,
        counted(len(failures), "finding") if failures else "every event explained by the specification",
        Verdict.FAIL if failures else Verdict.PASS,
    )
    details = [line for r in failures for line in (f"{r.policy}, {r.ranks} rank(s):", r.failure or "")]
    return Part(row, {"examples": examples, "outcomes": dict(outcomes), "findings": len(failures)}, details)


def workload(options: VerifyOptions, screen: Screen) -> Part:
    """A trace through gloo processes with file storage, the monitor on their merged logs."""
    with tempfile.TemporaryDirectory(prefix="hicheck-store-") as folder:
        given = workload_command.WorkloadOptions(
            trace=options.workload,
            synthetic=options.workload is None,
            requests=WORKLOAD_REQUESTS,
            layout=RankLayout(tp=WORKLOAD_RANKS),
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
        f"{name}, {keys['requests']} requests, {WORKLOAD_RANKS} gloo ranks, file storage",
        f"{keys['events_explained']:,} events",
        _seconds(outcome),
        says,
        outcome.verdict,
    )
    return Part(row, dict(keys), [f"violation: {v}" for v in violations])


def _seconds(outcome: Outcome) -> float:
    seconds = outcome.keys["seconds"]
    assert isinstance(seconds, (int, float))
    return float(seconds)
