"""One schedule: a program on a simulated target, with every switch chosen, judged from its first call to its close."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Any

from hicache_checks.conformance.findings import HARNESS, Broken, Finding
from hicache_checks.conformance.judges import Judging, MakeJudge, Rest, built, judge_for
from hicache_checks.conformance.program import STEPS_MAX, Setup, Step, Variants, draw_setup, menu_for
from hicache_checks.conformance.scenario_session import ScenarioSession
from hicache_checks.conformance.session import SLIPS, Judge, Session, asked, first_line
from hicache_checks.simulation.choices import Choices
from hicache_checks.simulation.isolation import TorchModes
from hicache_checks.simulation.standins.collectives import open_ranks
from hicache_checks.simulation.tasks import Task
from hicache_checks.simulation.world import (
    DESYNC,
    LIVELOCK,
    Died,
    Limits,
    NotSimulated,
    Problem,
    Strategy,
    TaskStruck,
    World,
)

PROPERTY_OF = {DESYNC: "P7 lockstep", LIVELOCK: "P22 progress"}
LIMITS = Limits()
DEADLOCKED = "P2 live_submitted_operations_end"
LOOKS_TO_END = 6
LOOK_S = 60.0
"""Threads that look so many times, and at least so often, whether they are to end, do."""


@dataclass
class Result:
    """What a schedule showed. `trace` holds (task, step); `states` of the specification were met, as keys."""

    setup: Setup
    steps: list[Step] = field(default_factory=list)
    finding: Finding | None = None
    choices: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    trace: list[tuple[str, str]] = field(default_factory=list)
    digest: str = ""
    states: set[Any] = field(default_factory=set)
    outcomes: Counter[str] = field(default_factory=Counter)
    unobserved: Counter[str] = field(default_factory=Counter)
    capabilities: Sequence[str] = ()


@dataclass(frozen=True)
class SimulatedPlace:
    """See session.Place. `settle_target`: for a target that works in its calls, and can be told to go on."""

    world: World
    settle_target: Callable[[], object] = lambda: None

    def now(self) -> float:
        """See Place."""
        return self.world.now

    def wait(self, seconds: float) -> None:
        """See Place."""
        self.world.jump(seconds)

    def settle(self) -> None:
        """See Place."""
        self.settle_target()
        self._settle_threads()

    def _settle_threads(self) -> None:
        held = [task.held_until for task in self.world.tasks if task.held and task.held_until is not None]
        if held:
            # Whoever is slow has something left to do.
            self.world.jump(max(0.0, max(held) - self.world.now))
        self.world.settle()

    def set_clock(self, seconds: float) -> None:
        """See Place."""
        self.world.wall_offset_s += seconds

    def slow(self, threads: Sequence[str], seconds: float) -> None:
        """See Place."""
        self.world.hold(self._tasks(threads), seconds)

    def kill(self, threads: Sequence[str]) -> list[str]:
        """See Place."""
        struck = self._tasks(threads)
        for task in struck:
            self.world.strike(task)
        return [task.said for task in struck]

    def left(self) -> list[str]:
        """See Place."""
        self._settle_threads()
        for _ in range(LOOKS_TO_END):
            if self._others():
                self.world.jump(LOOK_S)
                self._settle_threads()
        return self._others()

    def died(self) -> Finding | None:
        """See Place."""
        return _death(self.world)

    def _others(self) -> list[str]:
        """Who has not ended, and is not to die, but the caller."""
        others = (task for task in self.world.tasks if not task.ended and task is not self.world.running)
        return [task.said for task in others if task.to_raise is None]

    def _tasks(self, threads: Sequence[str]) -> list[Task]:
        """Those that have not ended. A thread may have been ended and begun again under its name."""
        tasks = (task for task in self.world.tasks if task.thread is not None and not task.ended)
        return [task for task in tasks if task.thread.name in threads]


def run_schedule(
    build: Callable[[], Any],
    ranks: int,
    policy: str,
    choices: Choices,
    strategy: Strategy | None = None,
    steps_max: int = STEPS_MAX,
    limits: Limits = LIMITS,
    judge: MakeJudge = judge_for,
) -> Result:
    """Build a target and run a program on it, drawn step by step. The stand-ins must be in place (see `simulated`)."""

    def draw(result: Result, world: World, target: Any) -> None:
        result.setup = draw_setup(world, ranks, policy, "store" in result.capabilities, variants_of(target))

    def drawn(session: Session, world: World) -> None:
        session.run(world, menu_for(session.can), steps_max)

    return _run(build, Result(Setup(ranks, policy)), draw, drawn, choices, strategy, limits, judge)


def run_script(
    build: Callable[[], Any],
    setup: Setup,
    steps: Sequence[Step],
    choices: Choices,
    strategy: Strategy | None = None,
    judge: MakeJudge = judge_for,
) -> Result:
    """The same with a program that is given: only who runs next is chosen."""

    def do(session: Session, world: World) -> None:
        for step in steps:
            session.do(step)
        session.run_out()

    return _run(build, Result(setup), lambda result, world, target: None, do, choices, strategy, LIMITS, judge)


def _run(
    build: Callable[[], Any],
    result: Result,
    draw: Callable[[Result, World, Any], None],
    work: Callable[[Session, World], None],
    choices: Choices,
    strategy: Strategy | None,
    limits: Limits,
    judge: MakeJudge,
) -> Result:
    """`draw` chooses the setup, once the target's capabilities are known; `work` does the program."""
    world = World(choices, strategy, limits, modes=TorchModes())
    open_ranks(world, result.setup.ranks)
    parts: dict[str, Any] = {}

    def main() -> None:
        target = built(build)
        result.capabilities = sorted(target.capabilities())
        draw(result, world, target)
        parts["session"], parts["judge"] = begin(world, target, result.setup, judge)
        work(parts["session"], world)
        parts["session"].close()

    try:
        world.run(main)
    except Broken as broken:
        result.finding = broken.finding
    except NotSimulated as error:
        result.finding = Finding("stand-in", str(error), HARNESS)
    except Exception as error:
        # What the target raises in its calls is told by whoever calls it.
        where = traceback.extract_tb(error.__traceback__)[-1].name
        result.finding = Finding("harness", f"{type(error).__name__}: {first_line(error)}", HARNESS, where)
    is_struck = "session" in parts and parts["session"].is_struck
    result.finding = result.finding or broken_world(world, None if is_struck else parts.get("judge"))
    if "session" in parts:
        result.steps = parts["session"].done
        result.states = parts["judge"].states
        result.outcomes = parts["judge"].outcomes
        result.unobserved = parts["judge"].unobserved
    result.choices, result.counts = choices.taken, choices.counts
    result.trace = world.trace
    result.digest = world.digest() if len(world.tasks) > 1 else digest_of_program(result)
    return result


def variants_of(target: Any) -> Variants:
    """What a target may be told besides; nothing, if it does not say."""
    variants: Variants = target.variants() if "variants" in target.capabilities() else {}
    return variants


def begin(world: World, target: Any, setup: Setup, judge: MakeJudge = judge_for) -> tuple[Session, Judging]:
    """Reset a target, fill its storage, and begin a session with it. Raises Broken."""
    asked(lambda: target.reset(setup.config()), "reset")
    for prompt in setup.stored:
        asked(partial(target.store, prompt), "store")
    capabilities = target.capabilities()
    judging = judge(target, setup, Rest("settle" in capabilities or has_threads(world), pause_s=0))
    return ScenarioSession(target, setup, judging, place_for(world, target), capabilities), judging


def place_for(world: World, target: Any) -> SimulatedPlace:
    """Threads of its own come to rest where the world can see it. What a target does in its calls, only it can say: it
    is asked, unless it has threads and logs, which show what they have done."""
    capabilities = target.capabilities()
    settles = "settle" in capabilities and not ("events" in capabilities and has_threads(world))
    return SimulatedPlace(world, target.settle) if settles else SimulatedPlace(world)


def has_threads(world: World) -> bool:
    """Does anybody run besides the caller?"""
    return len(world.tasks) > 1


def digest_of_program(result: Result) -> str:
    """A short name of a run of which nothing but the program was chosen."""
    return blake2b(repr((result.setup, result.steps)).encode(), digest_size=8).hexdigest()


def broken_world(world: World, judge: Judge | None) -> Finding | None:
    """What the world says, unless what was seen before says more."""
    death = _death(world)
    if world.problem is None and death is None:
        return None
    if judge is not None:
        try:
            judge.explain_failure()
        except Broken as broken:
            return broken.finding
        except Exception:
            # Its logs cannot be read any more: they say no more than the world.
            pass
    return death or _of_problem(world.problem)


def _death(world: World) -> Finding | None:
    """The first that was not to be."""
    for died in world.died:
        if not _may_be_dead(died):
            error = died.error
            return Finding("P31 threads_survive", f"{died.task} died: {type(error).__name__}: {first_line(error)}")
    return None


def _may_be_dead(died: Died) -> bool:
    """Whoever was killed, and who says after it that he cannot go on (see `session`)."""
    return isinstance(died.error, TaskStruck) or (died.after_strike and not isinstance(died.error, SLIPS))


def _of_problem(problem: Problem | None) -> Finding:
    assert problem is not None
    return Finding(PROPERTY_OF.get(problem.kind, DEADLOCKED), problem.message, place=problem.kind)
