"""What `hicheck verify` says of the specification: its properties, its liveness, the designs, the mutants."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hicache_checks.engine.engines import EngineOptions, explore
from hicache_checks.engine.graph_by_kernels import reachable_graph
from hicache_checks.engine.liveness import check_liveness
from hicache_checks.explore_command import (
    Explored,
    ExploreOptions,
    Job,
    explore_all,
    explore_one,
    summarise,
)
from hicache_checks.implementations import MUTANTS, load
from hicache_checks.processes import Report, run_jobs, workers_for
from hicache_checks.reporting import Screen, Verdict, VerifyRow
from hicache_spec import DESIGNS, Bounds, BoundSpec
from hicache_spec.bounds import AGAIN, PRESSURE, SMALL, SOLO_CHURN, TRIO_PRESSURE
from hicache_spec.designs.findings import AGAIN_WITH_ROOM, NEVER_HAPPENS, findings_of

CANONICAL = "decide_at_drain"
DESIGN_BOUNDS = (SOLO_CHURN, AGAIN, AGAIN_WITH_ROOM, PRESSURE)
ARRAYS = EngineOptions(engine="array")


@dataclass(frozen=True)
class Part:
    """One part of the job: its row of the summary, its verdict, and its keys of the JSON document."""

    row: VerifyRow
    verdict: Verdict
    keys: dict[str, Any]
    details: list[str] = field(default_factory=list)


def specification(screen: Screen) -> list[Part]:
    """The canonical design: every property at `small` and at `medium`, every outcome, and liveness at `small`."""
    start = time.perf_counter()
    jobs = [Job(CANONICAL, bounds, ARRAYS, liveness=True) for bounds in SMALL]
    explored = explore_all(jobs, workers_for(len(jobs)), screen)
    seconds = time.perf_counter() - start
    trio = Job(CANONICAL, TRIO_PRESSURE, EngineOptions(threads=workers_for(16)))
    screen.progress.update(f"exploring {TRIO_PRESSURE.name}")
    medium = explore_one(trio, lambda name, p: screen.progress.update(f"exploring {name}: {p.states:,} states"))
    return [
        _safety("small", explored, seconds),
        _medium(medium, time.perf_counter() - start - seconds),
        _live(explored),
    ]


def _safety(bounds: str, explored: list[Explored], seconds: float) -> Part:
    outcome = summarise(ExploreOptions(CANONICAL, bounds), explored, seconds)
    kinds = Counter(rule.kind for rule in DESIGNS[CANONICAL].rules())
    missing, violations = outcome.keys["sometimes_missing"], outcome.keys["violations"]
    assert isinstance(missing, list)
    assert isinstance(violations, list)
    says = f"{kinds['invariant'] + kinds['step']} properties hold, {kinds['sometimes']} outcomes reached"
    if violations:
        says = "; ".join(f"{v['property']} violated in {len(v['steps'])} steps" for v in violations)
    elif missing:
        says = f"outcomes never reached: {', '.join(missing)}"
    what = f"{CANONICAL}, {bounds}: {len(explored)} configurations, up to 2 requests x 2 ranks"
    row = VerifyRow("specification", what, f"{outcome.keys['states']:,} states", seconds, says, outcome.verdict)
    return Part(row, outcome.verdict, dict(outcome.keys))


def _medium(found: Explored, seconds: float) -> Part:
    result = found.result
    kinds = Counter(rule.kind for rule in DESIGNS[CANONICAL].rules())
    says = f"{kinds['invariant'] + kinds['step']} properties hold ({result.engine} engine)"
    verdict = Verdict.PASS if result.complete else Verdict.UNKNOWN
    if result.violation is not None:
        says, verdict = f"{result.violation.property} violated in {len(result.violation.run)} steps", Verdict.FAIL
    bounds = f"{CANONICAL}, medium: 3 requests x 2 ranks"
    row = VerifyRow("specification", bounds, f"{result.states:,} states", seconds, says, verdict)
    keys = {"states": result.states, "transitions": result.transitions, "depth": result.depth, "engine": result.engine}
    return Part(row, verdict, {**keys, "note": result.note}, [result.note] if result.note else [])


def _live(explored: list[Explored]) -> Part:
    decided = [found for e in explored for found in e.live]
    lost = sorted({found.label for e in explored for found in e.lassos})
    names = {found.property for found in decided}
    verdict = Verdict.FAIL if lost else Verdict.PASS if decided else Verdict.UNKNOWN
    says = f"violated: {', '.join(lost)}" if lost else f"{len(names)} properties hold, {len(decided)} cases decided"
    states = sum(e.result.states for e in explored if e.live)
    row = VerifyRow("liveness", f"{CANONICAL}, small, weak fairness", f"{states:,} states", None, says, verdict)
    return Part(row, verdict, {"properties": sorted(names), "cases": len(decided), "violated": lost})


# ---- the designs


@dataclass(frozen=True)
class DesignJob:
    """One design in one configuration."""

    design: str
    bounds: Bounds


@dataclass(frozen=True)
class DesignFound:
    """How soon each violated property breaks there, in steps, and which liveness is lost (None: not asked)."""

    job: DesignJob
    states: int
    first: dict[str, int]
    lost: frozenset[str] | None


def look_at_design(job: DesignJob, report: Report) -> DesignFound:
    """Explore a design to its end, whatever it violates."""
    spec = BoundSpec(DESIGNS[job.design], job.bounds)
    result = explore(spec, EngineOptions(engine="object", stop=False), lambda p: report(job.design, p))
    lost = None
    if job.bounds == AGAIN_WITH_ROOM:
        lost = frozenset(found.name for found in check_liveness(reachable_graph(spec)) if found.lasso is not None)
    return DesignFound(job, result.states, result.first, lost)


def designs(screen: Screen) -> Part:
    """Every other design violates what it is pinned to violate, in as many steps, and nothing else."""
    start = time.perf_counter()
    others = [name for name in DESIGNS if name != CANONICAL]
    jobs = [DesignJob(name, bounds) for name in others for bounds in DESIGN_BOUNDS]
    found = run_jobs(look_at_design, jobs, workers_for(len(jobs)), screen.progress.update)
    table = {name: _violated([f for f in found if f.job.design == name]) for name in others}
    wrong = [line for name in others for line in _unexpected(name, [f for f in found if f.job.design == name])]
    pinned = sum(len(list(findings_of(name))) + len(NEVER_HAPPENS.get(name, ())) for name in others)
    verdict = Verdict.FAIL if wrong else Verdict.PASS
    says = f"{pinned} violations as pinned, nothing else" if not wrong else f"{len(wrong)} not as pinned"
    states = sum(f.states for f in found)
    bounds = f"{len(others)} released designs, {len(DESIGN_BOUNDS)} configurations"
    row = VerifyRow("designs", bounds, f"{states:,} states", time.perf_counter() - start, says, verdict)
    return Part(row, verdict, {"violated": table, "unexpected": wrong}, [*wrong, *design_table(table)])


def _violated(found: list[DesignFound]) -> dict[str, int | None]:
    """Each violated property with the fewest steps over the configurations; a lost liveness property with None."""
    first: dict[str, int | None] = {}
    for f in found:
        for name, steps in f.first.items():
            first[name] = min(steps, first.get(name) or steps)
        first |= dict.fromkeys(f.lost or ())
    return first


def _unexpected(design: str, found: list[DesignFound]) -> list[str]:
    """Where the pinned findings and what was found differ, a line each."""
    lines = []
    pinned = {f.property for f in findings_of(design)}
    for f in found:
        lines += [f"{design}: {name} violated in {f.job.bounds.name}" for name in f.first.keys() - pinned]
        if f.lost is not None and f.lost != frozenset(NEVER_HAPPENS.get(design, ())):
            lines.append(f"{design}: liveness lost in {f.job.bounds.name}: {', '.join(sorted(f.lost)) or 'none'}")
    for finding in findings_of(design):
        seen = next((f.first.get(finding.property) for f in found if f.job.bounds == finding.bounds), None)
        if seen != finding.steps:
            lines.append(f"{design}: {finding.property} in {seen} steps in {finding.bounds.name}, not {finding.steps}")
    return lines


def design_table(violated: dict[str, dict[str, int | None]]) -> list[str]:
    """Property x design: in how many steps it is violated; `ever`: a run that never gets there; `-`: it holds."""
    names = {name: None for found in violated.values() for name in found}
    width = max(map(len, names), default=0)
    lines = [f"{'property':<{width}}  " + "  ".join(violated)]
    for name in names:
        cells = []
        for design, found in violated.items():
            says = "-" if name not in found else "lasso" if found[name] is None else f"{found[name]} steps"
            cells.append(f"{says:<{len(design)}}")
        lines.append(f"{name:<{width}}  {'  '.join(cells)}".rstrip())
    total = sum(r.kind in ("invariant", "step", "live") for r in DESIGNS[CANONICAL].rules())
    lines.append(f"- holds there; of the {total} properties, the others hold in all of them")
    return lines


# ---- the mutants


def faults(screen: Screen) -> Part:
    """Every faulty rule of the specification is caught by the property that it breaks, in the pinned number of
    steps."""
    start = time.perf_counter()
    unsafe, starving = load(MUTANTS, "specification"), load(MUTANTS, "liveness")
    details = []
    for mutant in unsafe:
        screen.progress.update(f"mutant {mutant.name}")
        violation = explore(_faulty(mutant), EngineOptions(engine="object")).violation
        if violation is None or (violation.property, len(violation.run)) != (mutant.caught_by, mutant.steps):
            details.append(f"mutant {mutant.name}: not {mutant.caught_by} in {mutant.steps} steps but {violation}")
    for mutant in starving:
        screen.progress.update(f"mutant {mutant.name}")
        results = check_liveness(reachable_graph(_faulty(mutant)))
        lassos = [(r.name, len(r.lasso.stem), len(r.lasso.loop)) for r in results if r.lasso is not None]
        if (mutant.caught_by, mutant.stem, mutant.loop) not in lassos:
            details.append(f"mutant {mutant.name}: not {mutant.caught_by}, but {lassos}")
    known = len(unsafe) + len(starving)
    verdict = Verdict.FAIL if details or not (unsafe and starving) else Verdict.PASS
    says = f"{known - len(details)} of {known} caught as pinned, {len(starving)} of them by liveness alone"
    row = VerifyRow("mutants", "of the specification", f"{known} mutants", time.perf_counter() - start, says, verdict)
    return Part(row, verdict, {"total": known, "caught": known - len(details)}, details)


def _faulty(mutant: Any) -> BoundSpec:
    return BoundSpec(DESIGNS[CANONICAL].variant(mutant.name, "", mutant.replaces), mutant.bounds)
