"""What can catch a faulty variant: exploration, liveness and refinement if it is one of the specification, simulation
and real threads if it is one of an implementation."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from hicache_checks.conformance.campaign import CRASHED
from hicache_checks.conformance.findings import HARNESS, Finding
from hicache_checks.conformance.time_to_find import Hunt
from hicache_checks.conformance.workers import work
from hicache_checks.engine.engines import EngineOptions, explore
from hicache_checks.engine.explore import Progress
from hicache_checks.engine.graph_by_kernels import graph_by_kernels, reachable_graph
from hicache_checks.engine.liveness import check_liveness
from hicache_checks.engine.refine import BudgetSpent, Comparison
from hicache_checks.implementations import MUTANTS, load
from hicache_checks.processes import Report, run_jobs
from hicache_checks.reporting import counted
from hicache_spec import Bounds, BoundSpec, SpecError
from hicache_spec.designs import DECIDE_AT_DRAIN
from hicache_spec.observations import EVENTS, TOLD, default_polls, observation, outcome
from hicache_spec.parts import OWN_DESIGNS, design_named
from hicache_spec.watched import watched

CANONICAL = ("specification", "liveness")
SPECIFICATION = (*CANONICAL, "parts", "parts_liveness")
IMPLEMENTATION = ("reference", "control", "pools")
CAUGHT, SURVIVED, APART, BROKEN = "caught", "survived", "does not apply", "error"
NO_REFINEMENT = "no refinement of decide_at_drain"
NO_EVENT = "what it leaves behind is in no event that is compared, and nobody there wants it"
FEWER_RUNS = "it ends in a deadlock: there are fewer runs, and each is one of the canonical design"
NEVER_HAPPENS = "refinement is about what happens, and here something never does"
SURVIVORS: dict[str, dict[str, str]] = {
    "refinement": {
        "sched_revokes_without_unprotecting": NO_EVENT,
        "sched_revokes_without_accounting": NO_EVENT,
        "sched_never_reclaims": NO_EVENT,
        "sched_reclaims_by_its_own_count": NO_EVENT,
        "sched_evicts_before_a_refusal": NO_EVENT,
        "sched_evicts_protected_pages": NO_EVENT,
        "sched_marks_the_first_rank_only": NO_EVENT,
        "io_releases_the_tail_twice": NO_EVENT,
        "io_drops_the_tail": NO_EVENT,
        "io_counts_after_termination": NO_EVENT,
        "sched_drains_by_its_own_count": FEWER_RUNS,
        "sched_needs_termination_everywhere": FEWER_RUNS,
        "sched_puts_low_answers_back": NEVER_HAPPENS,
        "sched_puts_skipped_answers_back": NEVER_HAPPENS,
        "sched_puts_refused_answers_back": NEVER_HAPPENS,
        "sched_puts_released_pages_back": NEVER_HAPPENS,
        "sched_polls_in_vain": NEVER_HAPPENS,
        "query_asks_again_after_a_miss": NEVER_HAPPENS,
    }
}
"""By stage and mutant: why it cannot be caught there. Whoever survives without being listed fails the run."""
BASE = "reference"
MUTANTS_A_WORKER = 8
STATES_MAX = 200_000
PAIRS_MAX = 400_000
OBJECTS = EngineOptions(engine="object")
ARRAYS = EngineOptions(engine="array")


@dataclass(frozen=True)
class Mutant:
    """A faulty variant. `of`: the group that it is registered in; `ranks`: on how many it may show, in turns.

    `race`: what must coincide for it to show; None: it shows in plain calls, or always.
    """

    of: str
    name: str
    ranks: tuple[int, ...] = ()
    race: str | None = None


@dataclass(frozen=True)
class Cell:
    """What a stage makes of a mutant. `by`: the property, or why there is no answer; `amount` of `unit`: how far it
    had to look."""

    outcome: str
    by: str
    amount: int
    unit: str
    seconds: float


Catches = Mapping[Mutant, Cell]
Show = Callable[[str], None]


@dataclass(frozen=True)
class Budget:
    """`seconds` for each mutant in each stage; `jobs` processes at a time."""

    seconds: float
    jobs: int


@dataclass(frozen=True)
class Stage:
    """`applies_to`: groups of mutants."""

    name: str
    applies_to: tuple[str, ...]
    run: Callable[[Sequence[Mutant], Budget, Show], Catches]


def known_mutants() -> list[Mutant]:
    """All that are registered."""
    specification = [Mutant(of, mutant.name) for of in SPECIFICATION for mutant in load(MUTANTS, of)]
    implementation = [
        Mutant(of, mutant.name, (1, 2) if mutant.ranks == 1 else (mutant.ranks,), mutant.race)
        for of in IMPLEMENTATION
        for mutant in load(MUTANTS, of)
    ]
    return [*specification, *implementation]


def why_it_survives(stage: str, mutant: Mutant) -> str | None:
    """The listed reason; None: there is none."""
    if stage == "threads" and mutant.race is not None:
        return f"threads that run as they like do not {mutant.race}"
    return SURVIVORS.get(stage, {}).get(mutant.name)


# ---- of the specification


class _TimeIsUp(Exception):
    pass


@dataclass(frozen=True)
class _Job:
    stage: str
    of: str
    name: str
    seconds_max: float


def _by_engine(stage: str, mutants: Sequence[Mutant], budget: Budget, show: Show) -> Catches:
    jobs = [_Job(stage, mutant.of, mutant.name, budget.seconds) for mutant in mutants]
    cells = run_jobs(_look_at_rules, jobs, min(budget.jobs, len(jobs)), show) if jobs else []
    return dict(zip(mutants, cells, strict=True))


def _look_at_rules(job: _Job, report: Report) -> Cell:
    (mutant,) = (mutant for mutant in load(MUTANTS, job.of) if mutant.name == job.name)
    start = time.monotonic()

    def note(states: int) -> None:
        seconds = time.monotonic() - start
        report(f"mutant {job.name}", Progress(states, 0, 0, seconds))
        if seconds > job.seconds_max:
            raise _TimeIsUp

    note(0)
    try:
        by, amount, unit = RULES[job.stage](mutant, note)
    except (_TimeIsUp, BudgetSpent):
        return Cell(SURVIVED, "undecided: a budget ran out", 0, "step", time.monotonic() - start)
    except SpecError as error:
        # Not every faulty rule can be watched, nor every value be packed.
        return Cell(APART, str(error).partition("\n")[0], 0, "step", time.monotonic() - start)
    return Cell(CAUGHT if amount else SURVIVED, by, amount, unit, time.monotonic() - start)


Answer = tuple[str, int, str]
"""The property, and the steps of the shortest run that breaks it; 0: nothing is violated."""


def _explored(mutant: Any, note: Callable[[int], None]) -> Answer:
    # Some faults of designs of their own take from an empty queue, which the plain engine refuses.
    how = ARRAYS if mutant.design in OWN_DESIGNS else OBJECTS
    violation = explore(_faulty(mutant), how, lambda progress: note(progress.states)).violation
    return ("", 0, "step") if violation is None else (violation.property, len(violation.run), "step")


def _starved(mutant: Any, note: Callable[[int], None]) -> Answer:
    for found in check_liveness(graph_by_kernels(_faulty(mutant), progress=note)):
        if found.lasso is not None:
            return found.name, len(found.lasso.stem) + len(found.lasso.loop), "lasso step"
    return "", 0, "step"


def _refined(mutant: Any, note: Callable[[int], None]) -> Answer:
    bounds = mutant.bounds
    polls = default_polls(bounds)
    designs = (DECIDE_AT_DRAIN.variant(mutant.name, "", mutant.replaces), DECIDE_AT_DRAIN)
    left, right = (
        reachable_graph(BoundSpec(watched(design, bounds, polls), bounds), TOLD, STATES_MAX, note) for design in designs
    )
    if not (left.complete and right.complete):
        raise BudgetSpent
    comparison = Comparison(left, right, observation(EVENTS.name, bounds, polls), outcome)
    difference = comparison.decide(PAIRS_MAX, note).difference
    return ("", 0, "step") if difference is None else (NO_REFINEMENT, len(difference.edges), "step")


RULES: dict[str, Callable[[Any, Callable[[int], None]], Answer]] = {
    "exploration": _explored,
    "liveness": _starved,
    "refinement": _refined,
}


def _faulty(mutant: Any) -> BoundSpec:
    bounds: Bounds = mutant.bounds
    return BoundSpec(design_named(mutant.design).variant(mutant.name, "", mutant.replaces), bounds)


# ---- of an implementation


def _by_worker(finder: str, mutants: Sequence[Mutant], budget: Budget, show: Show) -> Catches:
    """Each worker takes some mutants from the same list, for a start takes seconds."""
    hunting = Hunting(finder, budget.seconds, show)
    left = [mutants[place : place + MUTANTS_A_WORKER] for place in range(0, len(mutants), MUTANTS_A_WORKER)]
    with ThreadPoolExecutor(budget.jobs) as pool:
        for future in [pool.submit(hunting.look_at, some) for some in left]:
            future.result()
    return hunting.cells


class Hunting:
    """Mutants in workers. `cells`: what became of each so far."""

    def __init__(self, finder: str, seconds_max: float, show: Show) -> None:
        self.cells: dict[Mutant, Cell] = {}
        self._finder = finder
        self._seconds_max = seconds_max
        self._show = show
        self._lock = threading.Lock()

    def look_at(self, mutants: Sequence[Mutant]) -> None:
        """One worker for all of them, and another one for the rest when a mutant ends it. Raises InputError."""
        while mutants:
            sought = [{"target": f"{BASE}+{m.name}", "hunt": asdict(Hunt(m.ranks, self._seconds_max))} for m in mutants]
            started = time.monotonic()
            job = {"do": "find", "target": BASE, "finder": self._finder, "sought": sought}
            crash = work(job, partial(self._hear, mutants))
            if crash is None:
                return
            number = crash.number or 0
            seconds = time.monotonic() - started
            self._note(mutants[number], Cell(CAUGHT, f"{CRASHED}: it {crash.how}", 0, "schedule", seconds))
            mutants = mutants[number + 1 :]

    def _hear(self, mutants: Sequence[Mutant], said: Mapping[str, Any]) -> None:
        mutant = mutants[said["number"]]
        if "found" in said:
            self._note(mutant, _cell_of(said["found"]))
        else:
            self._show(f"mutant {mutant.name}: {counted(said['schedules'], 'schedule')}")

    def _note(self, mutant: Mutant, cell: Cell) -> None:
        with self._lock:
            self.cells[mutant] = cell


def _cell_of(found: Mapping[str, Any]) -> Cell:
    finding = None if found["finding"] is None else Finding(**found["finding"])
    if finding is None:
        outcome, by = SURVIVED, found["note"]
    elif finding.kind == HARNESS:
        outcome, by = BROKEN, str(finding)
    else:
        outcome, by = CAUGHT, finding.property
    return Cell(outcome, by, found["schedules"], "schedule", found["seconds"])


STAGES = {
    stage.name: stage
    for stage in (
        Stage("exploration", ("specification", "parts"), partial(_by_engine, "exploration")),
        Stage("liveness", ("liveness", "parts_liveness"), partial(_by_engine, "liveness")),
        Stage("refinement", CANONICAL, partial(_by_engine, "refinement")),
        Stage("simulation", IMPLEMENTATION, partial(_by_worker, "mixed")),
        Stage("threads", IMPLEMENTATION, partial(_by_worker, "threads")),
    )
}
