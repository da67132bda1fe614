"""`hicheck bench simulation`: schedules a second of the reference, two ranks and 8 pages, beside the same with threads.

Each run is a new system (one that was flushed would do other things by the same choices) that two requests of 4 pages
come to, both fetched completely, down to its close. Simulated ones are the random walks of a search. Nobody is asked
for bytes or counts in the end; the monitor, where it is on, explains every event.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from random import Random
from typing import Any

from hicache_checks.conformance.judges import MakeJudge, Rest, judge_for
from hicache_checks.conformance.nobody import Nobody
from hicache_checks.conformance.program import Setup, Step
from hicache_checks.conformance.real_threads import RealPlace
from hicache_checks.conformance.schedule import place_for
from hicache_checks.conformance.search import STRATEGIES
from hicache_checks.conformance.session import Judge, Place, Session
from hicache_checks.conformance.target import opened
from hicache_checks.reporting import InputError, Outcome, Screen, Verdict, print_rows
from hicache_checks.simulation.choices import Seeded
from hicache_checks.simulation.isolation import TorchModes
from hicache_checks.simulation.standins.collectives import open_ranks
from hicache_checks.simulation.world import World

TARGET = "reference"
PROMPTS = ((1, 2, 3, 4), (5, 6, 7, 8))
SETUP = Setup(ranks=2, policy="wait_complete", host_pages=8, stored=PROMPTS)
REQUESTS = tuple(Step("submit", (rid, prompt)) for rid, prompt in zip("ab", PROMPTS, strict=True))
STEPS = (*REQUESTS, Step("settle"), Step("turn"), Step("settle"), Step("turn"))
WARM_UP = 10
WANTED_PER_S = {False: 500.0, True: 250.0}
"""Schedules a second of one core, by whether the monitor is on."""


@dataclass(frozen=True)
class SimulationOptions:
    """`seconds`: for each row."""

    seconds: float = 10.0


@dataclass(frozen=True)
class Row:
    """One measurement. `cpu_seconds`: of all threads of this process; `steps`: of a schedule, on average."""

    name: str
    is_simulated: bool
    has_monitor: bool
    runs: int
    seconds: float
    cpu_seconds: float
    steps: float | None

    @property
    def per_second(self) -> float:
        """Runs a second, by the clock."""
        return self.runs / self.seconds

    @property
    def per_cpu_second(self) -> float:
        """Runs a second of a core, whoever else uses it."""
        return self.runs / self.cpu_seconds

    @property
    def share(self) -> float | None:
        """Of what is wanted."""
        return self.per_cpu_second / WANTED_PER_S[self.has_monitor] if self.is_simulated else None


def run(options: SimulationOptions, screen: Screen) -> Outcome:
    """Measure and report. Fails only if the work is not done; how fast it is, is said. Raises InputError."""
    rows = [
        measured(TARGET, simulated, has_monitor, options.seconds, screen)
        for simulated in (True, False)
        for has_monitor in (False, True)
    ]
    screen.progress.clear()
    headers = ("run", "monitor", "runs", "runs/s", "runs/s of a core", "wanted", "steps")
    print_rows(screen.console, headers, [_cells(row) for row in rows], right=frozenset(range(2, 7)))
    keys = [
        {
            **asdict(row),
            "per_second": row.per_second,
            "per_cpu_second": row.per_cpu_second,
            "share_of_wanted": row.share,
        }
        for row in rows
    ]
    return Outcome(Verdict.PASS, {"target": TARGET, "ranks": SETUP.ranks, "pages": 8, "rows": keys})


def measured(of: str, is_simulated: bool, has_monitor: bool, seconds: float, screen: Screen) -> Row:
    """As many runs of a target as there is time for. Raises InputError when one does not do its work."""
    name = "simulated" if is_simulated else "real threads"
    screen.progress.update(f"measuring {of}, {name}{', with the monitor' * has_monitor}")
    with opened(of, simulate=is_simulated) as target:

        def one(seed: int) -> int:
            """The steps of a run."""
            if is_simulated:
                return simulated_run(target.build, seed, has_monitor, target.judge).steps
            threaded_run(target.build, has_monitor)
            return 0

        for seed in range(WARM_UP):
            one(seed)
        # As a worker of a search does: what is loaded, stays.
        gc.freeze()
        start, cpu_start, runs, steps = time.perf_counter(), time.process_time(), 0, 0
        while time.perf_counter() - start < seconds:
            steps += one(runs)
            runs += 1
        spent, cpu_spent = time.perf_counter() - start, time.process_time() - cpu_start
    return Row(name, is_simulated, has_monitor, runs, spent, cpu_spent, steps / runs if is_simulated else None)


def simulated_run(build: Callable[[], Any], seed: int, has_monitor: bool, judge: MakeJudge = judge_for) -> World:
    """One schedule, done."""
    choices = Seeded(seed)
    walks = STRATEGIES["walk"]
    world = World(choices, walks[seed % len(walks)](Random(seed)), modes=TorchModes())
    open_ranks(world, SETUP.ranks)
    world.run(lambda: do_the_work(build, has_monitor, partial(place_for, world), judge))
    if world.problem is not None or world.died:
        raise InputError(f"the run of seed {seed} is wrong: {world.problem or world.died}")
    return world


def threaded_run(build: Callable[[], Any], has_monitor: bool) -> None:
    """The same with real threads, which run as they like."""
    do_the_work(build, has_monitor, lambda target: RealPlace(target, True, False))


def do_the_work(
    build: Callable[[], Any], has_monitor: bool, place_of: Callable[[Any], Place], make_judge: MakeJudge = judge_for
) -> None:
    """A target from its reset to its close. Raises InputError when not both requests were fetched completely."""
    target = build()
    target.reset(SETUP.config())
    for prompt in SETUP.stored:
        target.store(prompt)
    judge: Judge = make_judge(target, SETUP, Rest(True)) if has_monitor else Nobody()
    session = Session(target, SETUP, judge, place_of(target), ())
    for step in STEPS:
        session.do(step)
    judge.finish()
    resident = target.observe()["resident_pages"]
    target.close()
    if resident != SETUP.host_pages:
        raise InputError(f"{resident} of {SETUP.host_pages} pages were fetched")


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.name,
        "on" if row.has_monitor else "off",
        f"{row.runs:,}",
        f"{row.per_second:,.0f}",
        f"{row.per_cpu_second:,.0f}",
        f"{WANTED_PER_S[row.has_monitor]:,.0f}" if row.is_simulated else "",
        "" if row.steps is None else f"{row.steps:,.0f}",
    )
