"""What `hicheck verify` says of the designs that were released: each violates what it is known to violate, no more."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hicache_checks.engine.engines import EngineOptions, explore
from hicache_checks.explore_command import live_results
from hicache_checks.processes import Report, run_jobs, workers_for
from hicache_checks.reporting import Screen, Verdict, VerifyRow, aligned, counted
from hicache_checks.verify_specification import Part
from hicache_spec import DESIGNS, Bounds, BoundSpec
from hicache_spec.bounds import AGAIN, PRESSURE, SOLO_CHURN
from hicache_spec.designs import DECIDE_AT_DRAIN
from hicache_spec.designs.findings import AGAIN_WITH_ROOM, LIMITED_AGAIN, NEVER_HAPPENS, findings_of

OTHERS = tuple(name for name in DESIGNS if name != DECIDE_AT_DRAIN.name)
DESIGN_BOUNDS = (SOLO_CHURN, AGAIN, AGAIN_WITH_ROOM, PRESSURE, LIMITED_AGAIN)
JUDGING = ("invariant", "step", "live")
TO_THE_END = EngineOptions(engine="array", stop=False)


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


def designs(screen: Screen) -> Part:
    """Every other design violates what it is pinned to violate, in as many steps, and nothing else."""
    start = time.perf_counter()
    jobs = [DesignJob(name, bounds) for name in OTHERS for bounds in DESIGN_BOUNDS]
    found = run_jobs(look_at_design, jobs, workers_for(len(jobs)), screen.progress.update)
    return judge_designs(found, time.perf_counter() - start)


def look_at_design(job: DesignJob, report: Report) -> DesignFound:
    """Explore a design to its end, whatever it violates; decide its liveness where that is pinned."""
    spec = BoundSpec(DESIGNS[job.design], job.bounds)
    result = explore(spec, TO_THE_END, lambda p: report(job.design, p))
    lost = None
    if job.bounds == AGAIN_WITH_ROOM:
        lost = frozenset(found.property for found in live_results(spec) if found.lasso is not None)
    return DesignFound(job, result.states, result.first, lost)


def judge_designs(found: Sequence[DesignFound], seconds: float) -> Part:
    """The table of what is violated, after a line for each difference from what is pinned."""
    by_design = {name: [f for f in found if f.job.design == name] for name in OTHERS}
    table = {name: violated(of_design) for name, of_design in by_design.items()}
    wrong = [line for name, of_design in by_design.items() for line in unexpected(name, of_design)]
    pinned = sum(len(list(findings_of(name))) + len(NEVER_HAPPENS.get(name, ())) for name in OTHERS)
    row = VerifyRow(
        "designs",
        f"{len(OTHERS)} other designs, {len(DESIGN_BOUNDS)} configurations",
        f"{sum(f.states for f in found):,} states",
        seconds,
        f"{len(wrong)} not as pinned" if wrong else f"{pinned} violations as pinned, nothing else",
        Verdict.FAIL if wrong else Verdict.PASS,
    )
    return Part(row, {"violated": table, "unexpected": wrong}, [*wrong, *design_table(table)])


def violated(found: Sequence[DesignFound]) -> dict[str, int | None]:
    """Each violated property with the fewest steps over the configurations; a lost liveness property with None."""
    names = dict.fromkeys(name for f in found for name in f.first)
    fewest = {name: min(f.first[name] for f in found if name in f.first) for name in names}
    return {**fewest, **{name: None for f in found for name in sorted(f.lost or ())}}


def unexpected(design: str, found: Sequence[DesignFound]) -> Iterator[str]:
    """Where the pinned findings and what was found differ, a line each."""
    pinned = {finding.property for finding in findings_of(design)}
    never = frozenset(NEVER_HAPPENS.get(design, ()))
    for f in found:
        where = f"in {f.job.bounds.name}"
        for name in sorted(f.first.keys() - pinned):
            yield f"{design}: {name}, {where}: {_in_steps(f.first[name])}; pinned: holds"
        if f.lost is not None:
            yield from (f"{design}: {name}, {where}: lasso; pinned: holds" for name in sorted(f.lost - never))
            yield from (f"{design}: {name}, {where}: holds; pinned: lasso" for name in sorted(never - f.lost))
    for finding in findings_of(design):
        steps = next((f.first.get(finding.property) for f in found if f.job.bounds == finding.bounds), None)
        if steps != finding.steps:
            says = f"{_in_steps(steps)}; pinned: {_in_steps(finding.steps)}"
            yield f"{design}: {finding.property}, in {finding.bounds.name}: {says}"


def _in_steps(steps: int | None) -> str:
    return "holds" if steps is None else f"violated in {counted(steps, 'step')}"


def design_table(table: Mapping[str, Mapping[str, int | None]]) -> list[str]:
    """Property x design: in how many steps it is violated; `lasso`: by a run that goes on for ever; `-`: it holds;
    empty: the design has no such property. First those that some design violates."""
    has = {name: {r.name for r in DESIGNS[name].rules() if r.kind in JUDGING} for name in table}
    known = dict.fromkeys(r.name for d in DESIGNS.values() for r in d.rules() if r.kind in JUDGING)
    names = dict.fromkeys([*(name for found in table.values() for name in found), *known])
    rows = [(name, *(_cell(table[design], has[design], name) for design in table)) for name in names]
    return [*aligned(("property", *table), rows), "-: it holds there. Empty: the design has no such property."]


def _cell(found: Mapping[str, int | None], has: Collection[str], name: str) -> str:
    if name not in found:
        return "-" if name in has else ""
    steps = found[name]
    return "lasso" if steps is None else counted(steps, "step")
