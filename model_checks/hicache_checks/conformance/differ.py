"""Two targets and one program: does it end differently on them?

Nothing but the targets differs: the program is drawn before either runs, nobody is preempted, and after every call
everybody has the time that he needs. Compared is what became of every request, and what is observed at rest in the end.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from hicache_checks.conformance.adapter_checks import OBSERVED
from hicache_checks.conformance.explainer import name_of
from hicache_checks.conformance.findings import HARNESS, Broken
from hicache_checks.conformance.judges import built
from hicache_checks.conformance.minimise import minimise
from hicache_checks.conformance.nobody import Nobody
from hicache_checks.conformance.observation import UNOBSERVED, Seen
from hicache_checks.conformance.program import TIMEOUT_S, Item, Setup, Step, draw_setup, draw_step, menu_for
from hicache_checks.conformance.schedule import SimulatedPlace, place_for
from hicache_checks.conformance.session import Session
from hicache_checks.conformance.target import Target, opened
from hicache_checks.reporting import InputError, counted
from hicache_checks.simulation.choices import Choices, Chooser, Plainest, Replayed, Seeded
from hicache_checks.simulation.isolation import TorchModes
from hicache_checks.simulation.standins.collectives import open_ranks
from hicache_checks.simulation.world import NotSimulated, World

AMPLE_PAGES = 64
"""More than all prompts together have, resident and on their way."""
SHRINK_S = 60.0
DIFFERING_MAX = 8
"""So many programs that end differently are made small, together in so many seconds."""
STEPS_MAX = 12
PROGRESS_S = 0.5
RANKS = (1, 1, 1, 2)
CROWD = 3
DECISIONS = ("allocated", "revoked", "skipped", "fetched", "evicted", "stopped")
COUNTS = ("free_pages", "resident_pages", "occupied_pages")
PENDING = "pending"
TURNS_TO_END = 4


def _ample(setup: Setup) -> Setup:
    return replace(setup, host_pages=AMPLE_PAGES)


ASSUMPTIONS: dict[str, Callable[[Setup], Setup]] = {"no_host_pressure": _ample, "whole_ticks": lambda setup: setup}
"""Those of the specification that say something of the sizes or hold of every program here: no thread is on its way
during a tick, so it takes everything."""


@dataclass(frozen=True)
class DiffOptions:
    """What to compare: programs 0, 1, ... below `programs`, as far as the time goes. `ranks` None: one, or two."""

    left: str
    right: str
    assume: tuple[str, ...] = ()
    programs: int = 1000
    seconds_max: float = 120.0
    seed: int = 0
    ranks: int | None = None
    policies: tuple[str, ...] = ("wait_complete", "best_effort", "timeout")


@dataclass(frozen=True)
class Program:
    """What is done to both."""

    setup: Setup
    steps: tuple[Step, ...]


@dataclass
class Call:
    """A call as one side answers it; below it, what was decided then, or what became different."""

    text: str
    answer: str = ""
    below: list[str] = field(default_factory=list)


@dataclass
class Run:
    """A program on one target, and what lets everything end.

    `ends`: of every operation, in the order of the submissions; `rest`: observed in the end; `broken`: what was wrong,
    and `why`, which is not compared.
    """

    calls: list[Call] = field(default_factory=list)
    ends: dict[str, str] = field(default_factory=dict)
    rest: dict[str, Any] = field(default_factory=dict)
    broken: str | None = None
    why: str = ""

    @property
    def outcome(self) -> tuple[Any, ...]:
        """What is compared."""
        return (list(self.ends.items()), self.rest, self.broken)


# ---- one side


class Recorder(Nobody):
    """Only writes down what became of the operations."""

    def __init__(self, target: Any, place: SimulatedPlace, run: Run) -> None:
        self._target = target
        self._place = place
        self._run = run
        self._attempts: Counter[str] = Counter()
        self._live: dict[str, str] = {}

    def after(self, step: Step, answer: Any, now: float) -> None:
        """See Judge. Everybody goes on until he rests."""
        self._place.settle()
        if step.kind == "submit" and answer["accepted"]:
            (rid, _) = step.args
            self._end(rid, "revoked")
            self._attempts[rid] += 1
            self._live[rid] = f"{rid}#{self._attempts[rid]}"
            self._run.ends[self._live[rid]] = PENDING
        if step.kind == "poll":
            for rid, how in answer.items():
                if how.get("state") in ("fetched", "revoked"):
                    pages = (
                        f" {how['pages']}" if how["state"] == "fetched" and isinstance(how.get("pages"), int) else ""
                    )
                    self._end(rid, f"{how['state']}{pages}")

    def at_rest(self, observed: Mapping[str, Any]) -> None:
        """See Judge. An operation that is gone without a word was revoked."""
        self._run.rest = {name: _plain(observed[name]) for name in OBSERVED if observed[name] is not UNOBSERVED}
        if observed["operations"] is not UNOBSERVED:
            pending = {rid for rid, _ in observed["operations"]}
            for rid in self._live.keys() - pending:
                self._end(rid, "revoked")

    def _end(self, rid: str, how: str) -> None:
        if rid in self._live:
            self._run.ends[self._live.pop(rid)] = how


class Teller(Recorder):
    """A Recorder who also writes down every call, and what came of it."""

    def __init__(self, target: Any, place: SimulatedPlace, run: Run) -> None:
        super().__init__(target, place, run)
        self._has_events = "events" in target.capabilities()
        self._read = 0
        self._seen: Mapping[str, Any] = target.observe()

    def before(self, step: Step, now: float) -> None:
        """See Judge."""
        if step.kind != "observe":
            self._run.calls.append(Call(str(step)))

    def after(self, step: Step, answer: Any, now: float) -> None:
        """See Judge."""
        super().after(step, answer, now)
        if step.kind != "observe":
            self._run.calls[-1].answer = said(step, answer)
            self._look()

    def begin_again(self, logs_go_on: bool = False) -> None:
        """See Judge."""
        if not logs_go_on:
            self._read = 0
        self._look()

    def _look(self) -> None:
        """What was decided, and what is seen of it."""
        before, self._seen = self._seen, self._target.observe()
        below = self._run.calls[-1].below
        if self._has_events:
            below += self._decisions()
        below += [f"{name} {before[name]} -> {self._seen[name]}" for name in COUNTS if before[name] != self._seen[name]]

    def _decisions(self) -> list[str]:
        """What the scheduler of rank 0 decided since the last look; they all decide the same."""
        events = self._target.logs()[0].take_since(self._read)
        self._read += len(events)
        return [told(event) for event in events if event.kind in DECISIONS]


def _plain(observed: Any) -> Any:
    """As JSON has it."""
    return {name_of(op): pages for op, pages in observed.items()} if isinstance(observed, Mapping) else observed


def told(event: Seen) -> str:
    """An event without whose it is."""
    operation = "" if event.op is None else f" {name_of(event.op)}"
    return f"{event.kind}{operation}{''.join(f' {name}={value}' for name, value in event.data.items())}"


def said(step: Step, answer: Any) -> str:
    """An answer in a few words."""
    if step.kind == "submit":
        reason = answer.get("reason")
        return "accepted" if answer["accepted"] else f"declined{f': {reason}' if reason else ''}"
    if step.kind == "poll":
        return f"ready: {', '.join(_ready(rid, how) for rid, how in answer.items() if how['ready']) or 'none'}"
    return str(answer) if isinstance(answer, bool) else ""


def _ready(rid: str, how: Mapping[str, Any]) -> str:
    """With how many pages, where a target says so and there are any."""
    return f"{rid} ({counted(how['loaded'], 'page')} fetched)" if how.get("loaded") else rid


def run_program(target: Target, program: Program, judge: type[Recorder] = Recorder) -> Run:
    """The program, each call to its end, and turns until nothing is left to do. Raises InputError for a target that
    cannot be used."""
    run, setup = Run(), program.setup
    world = World(Plainest(), modes=TorchModes())
    open_ranks(world, setup.ranks)

    def main() -> None:
        adapter = built(target.build)
        adapter.reset(setup.config())
        for prompt in setup.stored:
            adapter.store(prompt)
        capabilities = adapter.capabilities()
        place = place_for(world, adapter)
        session = Session(adapter, setup, judge(adapter, place, run), place, capabilities)
        for step in program.steps:
            if step.kind == "wait":
                run.calls.append(Call(str(step)))
            session.do(step)
        for step in to_the_end(capabilities):
            session.do(step)
        adapter.close()

    try:
        world.run(main)
    except Broken as broken:
        if broken.finding.kind == HARNESS:
            raise InputError(f"{target.name} cannot be used: {broken}") from None
        run.broken, run.why = broken.finding.property, broken.finding.message
    except NotSimulated as error:
        raise InputError(f"{target.name} cannot be used: {error}") from None
    except Exception as error:
        run.broken, run.why = type(error).__name__, str(error)
    if world.problem is not None:
        run.broken, run.why = world.problem.kind, world.problem.message
    return run


def to_the_end(capabilities: Collection[str]) -> list[Step]:
    """What lets everything end: healthy stores, time, and turns, for all threads rest before each."""
    heal = [Step("heal_storage")] if "faults" in capabilities else []
    return [*heal, Step("wait", (2 * TIMEOUT_S,)), *[Step("turn")] * TURNS_TO_END, Step("settle")]


# ---- both sides


@dataclass(frozen=True)
class Side:
    """A target with the modules that it was loaded in: two variants of one package have each their own."""

    target: Target
    modules: dict[str, Any]
    capabilities: frozenset[str]

    def run(self, program: Program, judge: type[Recorder] = Recorder) -> Run:
        """See run_program."""
        with _in_place(self.modules, self.target.packages):
            return run_program(self.target, program, judge)


@contextmanager
def open_side(name: str) -> Iterator[Side]:
    """Load a target, simulated. Raises InputError."""
    with opened(name, simulate=True) as target:
        modules = {name: sys.modules[name] for name in _own(target.packages)}
        capabilities: list[str] = []
        World(Plainest()).run(lambda: capabilities.extend(built(target.build).capabilities()))
        yield Side(target, modules, frozenset(capabilities))


@contextmanager
def _in_place(modules: dict[str, Any], packages: Sequence[str]) -> Iterator[None]:
    """What is imported within a function is then of the same variant, and stays with it."""
    others = {name: sys.modules.pop(name) for name in _own(packages)}
    sys.modules.update(modules)
    try:
        yield
    finally:
        modules.update({name: sys.modules.pop(name) for name in _own(packages)})
        sys.modules.update(others)


def _own(packages: Sequence[str]) -> list[str]:
    """The names of the modules of these packages that are loaded."""
    own = tuple(f"{package}." for package in packages)
    return [name for name in sys.modules if f"{name}.".startswith(own)]


def crowded(menu: Sequence[Item]) -> tuple[Item, ...]:
    """More requests that come together: only among several is there anything to decide."""
    return tuple(replace(item, weight=CROWD * item.weight) if item.kind == "fetch" else item for item in menu)


def draw_program(choices: Chooser, menu: Sequence[Item], options: DiffOptions) -> Program:
    """A program on a setup of which the assumptions hold."""
    ranks = options.ranks or RANKS[choices.choose(len(RANKS))]
    policy = options.policies[choices.choose(len(options.policies))]
    setup = draw_setup(choices, ranks, policy, any(item.kind == "store" for item in menu))
    for name in options.assume:
        setup = ASSUMPTIONS[name](setup)
    steps: list[Step] = []
    while len(steps) < STEPS_MAX and (step := draw_step(choices, menu, ranks)) is not None:
        steps.append(step)
    return Program(setup, tuple(steps))


@dataclass(frozen=True)
class Difference:
    """A program that ends differently. `number`: of the one that it was before it was made small."""

    number: int
    program: Program
    left: Run
    right: Run

    @property
    def calls(self) -> int:
        """How long it is, to whoever reads it."""
        return max(len(self.left.calls), len(self.right.calls))


@dataclass(frozen=True)
class Compared:
    """How many programs were run on both, and how many of them end differently; of those the shortest, made small.

    `out_of_time`: there is no difference in the programs that were run, and they are not as many as wanted.
    """

    programs: int
    differing: int
    out_of_time: bool
    difference: Difference | None


@dataclass(frozen=True)
class Pair:
    """Both sides, and the programs that are drawn for them."""

    left: Side
    right: Side
    menu: Sequence[Item]
    options: DiffOptions

    def run(self, choices: Choices, judge: type[Recorder] = Recorder) -> tuple[Program, Run, Run]:
        """The same program on the left and on the right."""
        program = draw_program(choices, self.menu, self.options)
        return program, self.left.run(program, judge), self.right.run(program, judge)

    def differs(self, choices: Choices) -> bool:
        """Does the program end differently?"""
        _, ours, theirs = self.run(choices)
        return ours.outcome != theirs.outcome


def compare(options: DiffOptions, note: Callable[[str], None]) -> Compared:
    """Look for differences, make them small, and keep the one of the fewest calls. `note` is told how far it is.

    What cannot be made smaller may still be larger than what another program comes to, so several are tried. Raises
    InputError.
    """
    with open_side(options.left) as left, open_side(options.right) as right:
        menu = crowded(menu_for((left.capabilities & right.capabilities) - {"threads", "deaths"}))
        pair = Pair(left, right, menu, options)
        deadline = time.monotonic() + options.seconds_max
        differing: dict[int, Choices] = {}
        number = 0
        while number < options.programs and len(differing) < DIFFERING_MAX and time.monotonic() < deadline:
            note(f"{number:,} programs, {len(differing)} of them end differently")
            choices = Seeded(f"{options.seed}/{number}")
            if pair.differs(choices):
                differing[number] = choices
            number += 1
        if not differing:
            return Compared(number, 0, number < options.programs, None)
        return Compared(number, len(differing), False, _shortest(pair, differing, note))


def _shortest(pair: Pair, differing: Mapping[int, Choices], note: Callable[[str], None]) -> Difference:
    """Each made small, in its share of the time; of those with the fewest calls the first."""

    def differs(choices: Choices) -> bool:
        note(f"making difference {len(small) + 1} of {len(differing)} small")
        return pair.differs(choices)

    deadline = time.monotonic() + SHRINK_S
    small: list[Difference] = []
    for number, choices in differing.items():
        share = (deadline - time.monotonic()) / (len(differing) - len(small))
        smallest = minimise(differs, choices, share)
        small.append(Difference(number, *pair.run(Replayed(smallest.taken), Teller)))
    return min(small, key=lambda difference: difference.calls)


def compare_job(job: Mapping[str, Any], say: Callable[[Mapping[str, Any]], None]) -> None:
    """The job of a worker: `options` as of DiffOptions. Raises InputError."""
    last = time.monotonic()

    def note(text: str) -> None:
        nonlocal last
        if time.monotonic() - last > PROGRESS_S:
            last = time.monotonic()
            say({"doing": text})

    given = job["options"]
    options = DiffOptions(**{**given, "assume": tuple(given["assume"]), "policies": tuple(given["policies"])})
    say({"compared": asdict(compare(options, note))})
