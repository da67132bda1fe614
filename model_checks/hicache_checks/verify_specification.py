"""What `hicheck verify` says of the canonical design: its properties, its outcomes, its liveness."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hicache_checks.engine.engines import EngineOptions
from hicache_checks.engine.explore import Violation
from hicache_checks.explore_command import Explored, ExploreOptions, Job, explore_all, explore_one, summarise
from hicache_checks.processes import workers_for
from hicache_checks.reporting import Screen, Verdict, VerifyRow, counted
from hicache_spec.bounds import SMALL, TRIO_PRESSURE
from hicache_spec.designs import DECIDE_AT_DRAIN

CANONICAL = DECIDE_AT_DRAIN.name
KINDS = Counter(rule.kind for rule in DECIDE_AT_DRAIN.rules())
ARRAYS = EngineOptions(engine="array")
THREADS_MAX = 16
SAFETY = KINDS["invariant"] + KINDS["step"]
CUT = "unknown: cut by a budget"


@dataclass(frozen=True)
class Part:
    """One part of the job: its row of the summary, its keys of the JSON document, and lines to go below the summary."""

    row: VerifyRow
    keys: dict[str, Any]
    details: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> Verdict:
        """That of the row: a part is always judged."""
        assert self.row.verdict is not None
        return self.row.verdict


def specification(screen: Screen) -> list[Part]:
    """At `small` every property, every outcome and liveness; then every property in `trio_pressure`, which is all that
    `medium` adds."""
    start = time.perf_counter()
    jobs = [Job(CANONICAL, bounds, ARRAYS, liveness=True) for bounds in SMALL]
    explored = explore_all(jobs, workers_for(len(jobs)), screen)
    seconds = time.perf_counter() - start
    screen.progress.update(f"exploring {TRIO_PRESSURE.name}")
    job = Job(CANONICAL, TRIO_PRESSURE, EngineOptions(threads=workers_for(THREADS_MAX)))
    trio = explore_one(job, lambda name, p: screen.progress.update(f"exploring {name}: {p.states:,} states"))
    return [
        judge_small(explored, seconds),
        judge_trio(trio, time.perf_counter() - start - seconds),
        judge_liveness(explored),
    ]


def judge_small(explored: Sequence[Explored], seconds: float) -> Part:
    """Every property holds, and every outcome is reached by some configuration."""
    outcome = summarise(ExploreOptions(CANONICAL, "small"), explored, seconds)
    missing = outcome.keys["sometimes_missing"]
    assert isinstance(missing, list)
    violations = [says_violation(e.result.violation) for e in explored if e.result.violation is not None]
    if violations:
        says = "; ".join(violations)
    elif outcome.verdict is Verdict.UNKNOWN:
        says = CUT
    elif any(e.lassos for e in explored):
        says = "liveness is violated"
    elif missing:
        says = f"outcomes never reached: {', '.join(missing)}"
    else:
        says = f"{SAFETY} properties hold, {KINDS['sometimes']} outcomes reached"
    sizes = f"up to {max(b.requests for b in SMALL)} requests x {max(b.ranks for b in SMALL)} ranks"
    what = f"{CANONICAL}, small: {len(explored)} configurations, {sizes}"
    row = VerifyRow("specification", what, f"{outcome.keys['states']:,} states", seconds, says, outcome.verdict)
    return Part(row, dict(outcome.keys))


def judge_trio(explored: Explored, seconds: float) -> Part:
    """Every property holds in this configuration; outcomes are not looked for."""
    b, result = explored.bounds, explored.result
    if result.violation is not None:
        says, verdict = says_violation(result.violation), Verdict.FAIL
    elif result.complete:
        says, verdict = f"{SAFETY} properties hold ({result.engine} engine)", Verdict.PASS
    else:
        says, verdict = CUT, Verdict.UNKNOWN
    what = f"{CANONICAL}, of medium {b.name}: {b.requests} requests x {b.ranks} ranks"
    row = VerifyRow("specification", what, f"{result.states:,} states", seconds, says, verdict)
    keys = {"states": result.states, "transitions": result.transitions, "depth": result.depth, "engine": result.engine}
    return Part(row, {**keys, "note": result.note}, [result.note] if result.note else [])


def judge_liveness(explored: Sequence[Explored]) -> Part:
    """Every liveness property holds in every configuration; where a property of states or steps is violated, or a
    budget ran out, liveness is not decided."""
    decided = [found for e in explored for found in e.live]
    lost = sorted({found.label for e in explored for found in e.lassos})
    names = sorted({found.property for found in decided})
    undecided = [e.bounds.name for e in explored if not e.live]
    if lost:
        says, verdict = f"violated: {', '.join(lost)}", Verdict.FAIL
    elif decided and not undecided:
        says, verdict = f"{len(names)} properties hold, {len(decided)} cases decided", Verdict.PASS
    else:
        says, verdict = f"unknown: not decided in {', '.join(undecided)}", Verdict.UNKNOWN
    states = sum(e.result.states for e in explored if e.live)
    row = VerifyRow("liveness", f"{CANONICAL}, small, weak fairness", f"{states:,} states", None, says, verdict)
    return Part(row, {"properties": names, "cases": len(decided), "violated": lost, "undecided": undecided})


def says_violation(violation: Violation) -> str:
    """A violation in words, such as `inv_pages_conserved violated in 3 steps`."""
    return f"{violation.property} violated in {counted(len(violation.run), 'step')}"
