"""`hicheck explore`: breadth-first exploration of a design, one configuration after the other or side by side."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from hicache_checks.engine.array.columns import NUMPY
from hicache_checks.engine.counterexample import ToldStep, tell
from hicache_checks.engine.engines import EngineOptions, explore
from hicache_checks.engine.explore import BUILT_IN, Exploration
from hicache_checks.engine.graph_by_kernels import graph_by_kernels
from hicache_checks.engine.liveness import ToldLasso, check_liveness, tell_lasso
from hicache_checks.engine.native.build import NoCompiler
from hicache_checks.processes import MIB, Report, run_jobs
from hicache_checks.reporting import InputError, Outcome, Screen, Verdict, print_rows
from hicache_checks.reporting.lasso import print_lasso
from hicache_spec import Bounds, BoundSpec, SpecError
from hicache_spec.bounds import POLICY
from hicache_spec.designs.findings import UNREACHED
from hicache_spec.parts import ALL_BOUNDS, OWN_DESIGNS, design_named, must_reach
from hicache_spec.parts.grid import Grid


@dataclass(frozen=True)
class ExploreOptions:
    """What to explore, and how. None leaves a parameter at what the named bounds say; without named bounds, `custom`
    ones.

    `jobs` configurations are explored at a time, each with `threads` threads; by default all cores are used.
    `max_memory_mib` bounds the states and tables of each configuration. `only`: check just these properties, and look
    for no outcome.
    """

    design: str = "decide_at_drain"
    bounds: str | None = None
    requests: int | None = None
    ranks: int | None = None
    host_pages: int | None = None
    pages: int | None = None
    attempts: int | None = None
    threshold_pages: int | None = None
    policy: str | None = None
    churn: bool = False
    stops: bool = False
    max_states: int | None = None
    max_memory_mib: int | None = None
    jobs: int | None = None
    engine: str = "auto"
    threads: int | None = None
    device: str = NUMPY
    symmetry: bool = False
    liveness: bool = False
    only: tuple[str, ...] = ()

    def how(self, configurations: int) -> tuple[int, EngineOptions]:
        """How many configurations at a time, and how each is explored."""
        cores = os.cpu_count() or 1
        workers = min(configurations, self.jobs or max(1, cores // (self.threads or 1)))
        return workers, EngineOptions(
            engine=self.engine,
            threads=self.threads or max(1, cores // workers),
            device=self.device,
            symmetry=self.symmetry,
            max_states=self.max_states,
            max_bytes=None if self.max_memory_mib is None else self.max_memory_mib * MIB,
        )


@dataclass(frozen=True)
class Job:
    """One configuration of a design, to be explored in a process of its own."""

    design: str
    bounds: Bounds | Grid
    how: EngineOptions
    liveness: bool = False
    only: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Live:
    """A liveness property for one choice of its parameters; the lasso, told, if it is violated."""

    property: str
    section: str
    title: str
    label: str
    lasso: ToldLasso | None


@dataclass(frozen=True)
class Explored:
    """One configuration's exploration, its counterexample told, if there is one, and its liveness, if asked for."""

    bounds: Bounds | Grid
    result: Exploration
    told: tuple[ToldStep, ...]
    live: tuple[Live, ...] = ()

    @property
    def lassos(self) -> list[Live]:
        """The violated liveness properties."""
        return [found for found in self.live if found.lasso is not None]


def run(options: ExploreOptions, screen: Screen) -> Outcome:
    """Explore and report. Raises InputError for an unknown design, impossible bounds or options that do not go
    together."""
    check(options)
    configurations = configurations_of(options)
    start = time.perf_counter()
    try:
        workers, how = options.how(len(configurations))
        jobs = [Job(options.design, bounds, how, options.liveness, options.only or None) for bounds in configurations]
        explored = explore_all(jobs, workers, screen)
    except (SpecError, NoCompiler, MemoryError, ValueError) as refusal:
        raise InputError(str(refusal)) from None
    seconds = time.perf_counter() - start
    outcome = summarise(options, explored, seconds)
    report(options, explored, outcome, screen)
    return outcome


def check(options: ExploreOptions) -> None:
    """Raises InputError for an unknown name, and for what the engine would not heed."""
    try:
        design = design_named(options.design)
    except SpecError as refusal:
        raise InputError(str(refusal)) from None
    known = {*BUILT_IN, *(r.name for r in design.rules() if r.kind in ("invariant", "step"))}
    for name in options.only:
        if name not in known:
            raise InputError(f"no property {name!r} of states or steps; see SPEC.md §4 and §5")
    if options.engine == "object" and options.symmetry:
        raise InputError("--symmetry: the object engine has none; the engines array and native do")
    if options.engine == "object" and options.max_memory_mib is not None:
        raise InputError("--max-memory: the object engine does not measure it; use --max-states, or another engine")
    if options.engine != "array" and options.device != NUMPY:
        raise InputError(f"--device {options.device}: only the array engine has devices; say --engine array")


def bounds_named_by(options: ExploreOptions) -> str:
    """The name of the bounds that are meant; a design of its own has its own. Raises InputError for another's."""
    own = options.design if options.design in OWN_DESIGNS else None
    name = options.bounds or own or "tiny"
    if (name in OWN_DESIGNS) != (own is not None):
        raise InputError(f"the bounds {name} are not those of the design {options.design}")
    return name


def configurations_of(options: ExploreOptions) -> tuple[Any, ...]:
    """The configurations that the options ask for: `Bounds`, or a `Grid` for groups. Raises InputError for impossible
    ones."""
    name = bounds_named_by(options)
    given = {
        "requests": options.requests,
        "ranks": options.ranks,
        "host_pages": options.host_pages,
        "chain_pages": options.pages,
        "attempts": options.attempts,
        "threshold_pages": options.threshold_pages,
        "policy": None if options.policy is None else POLICY.members.index(options.policy),
        "churn": options.churn or None,
        "stops": options.stops or None,
    }
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    try:
        if options.bounds is not None or options.design in OWN_DESIGNS or not changes:
            return tuple(replace(b, **changes) for b in ALL_BOUNDS[name])
        pages = changes.get("chain_pages", Bounds.chain_pages)
        resident = (0, 1) if pages > 1 else (0,)
        shape = {"name": "custom", "resident_pages": resident, "stored_pages": (pages,) * len(resident)}
        return (Bounds(**{**shape, **changes}),)
    except ValueError as error:
        raise InputError(str(error)) from None
    except TypeError:
        raise InputError(f"the bounds {name} do not have all of {', '.join(changes)}") from None


def explore_all(jobs: Sequence[Job], workers: int, screen: Screen) -> list[Explored]:
    """Explore every configuration, `workers` at a time. Raises what `explore` and `check_liveness` raise."""
    return run_jobs(explore_one, jobs, workers, screen.progress.update)


def explore_one(job: Job, report: Report) -> Explored:
    """Explore one configuration; decide liveness too, if the job asks for it and the rest holds."""
    spec = BoundSpec(design_named(job.design), job.bounds)
    result = explore(spec, job.how, lambda progress: report(job.bounds.name, progress), job.only)
    told = tuple(tell(spec, result.violation.run)) if result.violation else ()
    if not job.liveness or result.violation or not result.complete:
        return Explored(job.bounds, result, told)
    return Explored(job.bounds, result, told, tuple(live_results(spec)))


def live_results(spec: BoundSpec) -> Iterator[Live]:
    """Each liveness property for each value of its parameters, with a lasso if it is violated."""
    for found in check_liveness(graph_by_kernels(spec)):
        lasso = None if found.lasso is None else tell_lasso(spec, found.lasso)
        yield Live(found.name, found.section, found.title, found.label, lasso)


def summarise(options: ExploreOptions, explored: Sequence[Explored], seconds: float) -> Outcome:
    """The verdict and the JSON keys. In a named bound every `sometimes` must be reached by some configuration."""
    reached = {name for e in explored for name in e.result.reached}
    name = bounds_named_by(options)
    declared = [] if options.only else must_reach(design_named(options.design), name)
    missing = [name for name in declared if name not in reached and name not in UNREACHED.get(options.design, {})]
    violated = [e for e in explored if e.result.violation is not None]
    starved = [e for e in explored if e.lassos]
    cut = [e for e in explored if not e.result.complete and e.result.violation is None]
    named = not options.only and all(e.bounds in ALL_BOUNDS[name] for e in explored)
    if violated or starved:
        verdict = Verdict.FAIL
    elif cut:
        verdict = Verdict.UNKNOWN
    else:
        verdict = Verdict.FAIL if missing and named else Verdict.PASS
    keys = {
        "design": options.design,
        "bounds": name if named else "custom",
        "engine": options.engine,
        "symmetry": options.symmetry,
        "configurations": [
            {
                "name": e.bounds.name,
                "states": e.result.states,
                "transitions": e.result.transitions,
                "depth": e.result.depth,
                "complete": e.result.complete,
                "seconds": round(e.result.seconds, 3),
                "engine": e.result.engine,
                "build_seconds": round(e.result.build_seconds, 3),
                "bytes_peak": e.result.bytes_peak,
                "note": e.result.note,
                "bounds": asdict(e.bounds),
            }
            for e in explored
        ],
        "states": sum(e.result.states for e in explored),
        "transitions": sum(e.result.transitions for e in explored),
        "depth": max(e.result.depth for e in explored),
        "violations": [_violation(e) for e in violated],
        "liveness": [_liveness(e, found) for e in explored for found in e.live],
        "sometimes_reached": sorted(reached),
        "sometimes_missing": missing,
        "seconds": round(seconds, 3),
    }
    return Outcome(verdict, keys)


def _violation(e: Explored) -> dict[str, object]:
    violation = e.result.violation
    assert violation is not None
    return {
        "configuration": e.bounds.name,
        "property": violation.property,
        "section": violation.section,
        "title": violation.title,
        "detail": violation.detail,
        "steps": [asdict(step) for step in e.told],
    }


def _liveness(e: Explored, found: Live) -> dict[str, object]:
    lasso = found.lasso
    return {
        "configuration": e.bounds.name,
        "property": found.property,
        "label": found.label,
        "holds": lasso is None,
        "stem": [] if lasso is None else [asdict(step) for step in lasso.stem],
        "loop": [] if lasso is None else [asdict(step) for step in lasso.loop],
    }


def report(options: ExploreOptions, explored: Sequence[Explored], outcome: Outcome, screen: Screen) -> None:
    """The table of configurations, what was not reached, and each counterexample."""
    screen.progress.clear()
    headers = ("configuration", "ranks", "requests", "states", "transitions", "depth", "seconds", "")
    rows = [
        (
            e.bounds.name,
            str(e.bounds.ranks),
            f"{e.bounds.requests}x{e.bounds.attempts}" if e.bounds.attempts > 1 else str(e.bounds.requests),
            f"{e.result.states:,}",
            f"{e.result.transitions:,}",
            str(e.result.depth),
            f"{e.result.seconds:.1f}",
            _says(e),
        )
        for e in explored
    ]
    print_rows(screen.console, headers, rows, right=frozenset({1, 2, 3, 4, 5, 6}))
    for note in sorted({e.result.note for e in explored if e.result.note and not options.symmetry}):
        screen.say(note)
    for e in explored:
        if e.result.violation is not None:
            report_counterexample(e, screen)
        for found in e.lassos:
            assert found.lasso is not None
            headline = f"{found.label} (§{found.section}) is violated, in {e.bounds.name}:"
            print_lasso(screen, headline, found.title, found.lasso.stem, found.lasso.loop)
    keys = outcome.keys
    missing = keys["sometimes_missing"]
    assert isinstance(missing, list)
    screen.say(
        f"{options.design}: {keys['states']:,} states, {keys['transitions']:,} transitions in {keys['seconds']:.1f} s; "
        f"{_properties(options)}; {outcome.verdict.value}"
    )
    if missing and outcome.verdict is not Verdict.UNKNOWN and not keys["violations"]:
        screen.say(f"not reached here: {', '.join(missing)}")


def report_counterexample(e: Explored, screen: Screen) -> None:
    """One counterexample as a table: step, actor, action, what changed."""
    violation = e.result.violation
    assert violation is not None
    screen.say("")
    screen.say(f"{violation.property} (§{violation.section}) is violated in {len(e.told)} steps, in {e.bounds.name}:")
    screen.say(f"  {violation.title}{' ' + violation.detail if violation.detail else ''}")
    rows = [
        (str(s.number) if i == 0 else "", s.actor if i == 0 else "", s.action if i == 0 else "", change)
        for s in e.told
        for i, change in enumerate(s.changes or ("",))
    ]
    print_rows(screen.console, ("step", "actor", "action", "what changed"), rows, right=frozenset({0}))
    screen.say("")


def _says(e: Explored) -> str:
    result = e.result
    if result.violation is not None:
        return f"{result.violation.property} violated in {len(result.violation.run)} steps"
    if e.lassos:
        return f"{', '.join(sorted({found.property for found in e.lassos}))} violated"
    if not result.complete:
        return "unknown: cut by a budget"
    return f"holds; {result.note}" if result.note.startswith("symmetry") else "holds"


def _properties(options: ExploreOptions) -> str:
    if options.only:
        return f"only {', '.join(options.only)}"
    design = design_named(options.design)
    invariants, steps, lives = (sum(r.kind == kind for r in design.rules()) for kind in ("invariant", "step", "live"))
    outcomes = len(must_reach(design, bounds_named_by(options)))
    live = "liveness properties" if options.liveness else "liveness properties: see --liveness"
    return f"{invariants} invariants, {steps} step properties, {outcomes} outcomes to reach, {lives} {live}"
