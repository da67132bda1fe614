"""One schedule: a program on a simulated target, with every switch chosen, judged from its first call to its close."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from hicache_checks.conformance.findings import HARNESS, UNKNOWN, Broken, Finding
from hicache_checks.conformance.judges import Judging, MakeJudge, Rest, built, judge_for
from hicache_checks.conformance.program import STEPS_MAX, Setup, Step, draw_setup, menu_for
from hicache_checks.conformance.session import Judge, Session
from hicache_checks.simulation.choices import Choices
from hicache_checks.simulation.isolation import TorchModes
from hicache_checks.simulation.standins.collectives import open_ranks
from hicache_checks.simulation.world import DESYNC, LIVELOCK, Limits, NotSimulated, Problem, Strategy, World

PROPERTY_OF = {DESYNC: "P7 lockstep", LIVELOCK: "P22 progress"}
LIMITS = Limits()
DEADLOCKED = "P2 live_submitted_operations_end"


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
    """See session.Place. `settle_target`: for a target that works without threads, and can be told to go on."""

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
        self.world.settle()


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
    """Build a target and run a program on it. The stand-ins must be in place (see `simulated`)."""
    result = Result(Setup(ranks, policy))
    world = World(choices, strategy, limits, modes=TorchModes())
    open_ranks(world, ranks)
    parts: dict[str, Any] = {}

    def main() -> None:
        target = built(build)
        result.capabilities = sorted(target.capabilities())
        result.setup = draw_setup(world, ranks, policy, "store" in target.capabilities())
        parts["session"], parts["judge"] = begin(world, target, result.setup, judge)
        parts["session"].run(world, menu_for(result.capabilities), steps_max)
        target.close()

    try:
        world.run(main)
    except Broken as broken:
        result.finding = broken.finding
    except NotSimulated as error:
        result.finding = Finding("stand-in", str(error), HARNESS)
    except Exception as error:
        result.finding = Finding("raises", f"{type(error).__name__}: {error}", place="reset or close")
    result.finding = result.finding or broken_world(world, parts.get("judge"))
    if "session" in parts:
        result.steps = parts["session"].done
        result.states = parts["judge"].states
        result.outcomes = parts["judge"].outcomes
        result.unobserved = parts["judge"].unobserved
    result.choices, result.counts = choices.taken, choices.counts
    result.trace = world.trace
    result.digest = world.digest() if len(world.tasks) > 1 else digest_of_program(result)
    return result


def begin(world: World, target: Any, setup: Setup, judge: MakeJudge = judge_for) -> tuple[Session, Judging]:
    """Reset a target, fill its storage, and begin a session with it."""
    target.reset(setup.config())
    for prompt in setup.stored:
        target.store(prompt)
    capabilities = target.capabilities()
    settles = "settle" in capabilities
    # Threads of its own come to rest where the world can see it; without any, only the target itself can say so.
    judging = judge(target, setup, Rest(settles or len(world.tasks) > 1, pause_s=0))
    place = SimulatedPlace(world, target.settle) if settles else SimulatedPlace(world)
    return Session(target, setup, judging, place, capabilities), judging


def digest_of_program(result: Result) -> str:
    """A short name of a run of which nothing but the program was chosen."""
    return blake2b(repr((result.setup, result.steps)).encode(), digest_size=8).hexdigest()


def broken_world(world: World, judge: Judge | None) -> Finding | None:
    """What the world says, unless what was seen before says more."""
    if world.problem is None and not world.died:
        return None
    if judge is not None:
        try:
            judge.explain_failure()
        except Broken as broken:
            return broken.finding
        except Exception as error:
            return Finding("adapter", f"its logs cannot be read after the run: {error}", UNKNOWN)
    if world.died:
        died = world.died[0]
        return Finding("P31 threads_survive", f"{died.task} died: {type(died.error).__name__}: {died.error}")
    return _of_problem(world.problem)


def _of_problem(problem: Problem | None) -> Finding:
    assert problem is not None
    return Finding(PROPERTY_OF.get(problem.kind, DEADLOCKED), problem.message, place=problem.kind)
