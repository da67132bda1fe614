"""What `hicheck verify` says of the parts of the system beyond prefetch, each alone and in the pairs that interact."""

from __future__ import annotations

import time
from collections.abc import Sequence

from hicache_checks.engine.engines import EngineOptions
from hicache_checks.explore_command import Explored, ExploreOptions, Job, explore_all, summarise
from hicache_checks.processes import workers_for
from hicache_checks.reporting import Screen, Verdict, VerifyRow, counted
from hicache_checks.verify_specification import CUT, Part, says_violation
from hicache_spec.parts import PART_BOUNDS, design_named, design_of, must_reach

ONE_THREAD = EngineOptions(threads=1)
"""Configurations are explored side by side."""


def parts(screen: Screen) -> list[Part]:
    """A row for each named set of configurations: every property, every outcome of the part, and liveness."""
    start = time.perf_counter()
    jobs = [Job(design_of(name), b, ONE_THREAD, liveness=True) for name, bounds in PART_BOUNDS.items() for b in bounds]
    explored = explore_all(jobs, workers_for(len(jobs)), screen)
    seconds = time.perf_counter() - start
    rows, first = [], 0
    for name, bounds in PART_BOUNDS.items():
        mine = explored[first : first + len(bounds)]
        rows.append(judge_part(name, mine, seconds if first == 0 else None))
        first += len(bounds)
    return rows


def judge_part(name: str, explored: Sequence[Explored], seconds: float | None) -> Part:
    """Every property holds in every configuration, liveness is decided in all of them, and the outcomes are reached."""
    design = design_of(name)
    outcome = summarise(ExploreOptions(design, name), explored, seconds or 0.0)
    violations = [says_violation(e.result.violation) for e in explored if e.result.violation is not None]
    lost = sorted({found.label for e in explored for found in e.lassos})
    missing = outcome.keys["sometimes_missing"]
    assert isinstance(missing, list)
    if violations or lost:
        says = "; ".join([*violations, *(f"{label} violated" for label in lost)])
    elif outcome.verdict is Verdict.UNKNOWN:
        says = CUT
    elif missing:
        says = f"outcomes never reached: {', '.join(missing)}"
    else:
        safe = sum(rule.kind in ("invariant", "step") for rule in design_named(design).rules())
        reached = len(must_reach(design_named(design), name))
        decided = set.intersection(*({found.property for found in e.live} for e in explored))
        says = f"{safe} properties hold, {reached} outcomes reached, {len(decided)} of liveness hold"
    what = f"{design}: {counted(len(explored), 'configuration')}"
    row = VerifyRow("part", what, f"{outcome.keys['states']:,} states", seconds, says, outcome.verdict)
    return Part(row, dict(outcome.keys))
