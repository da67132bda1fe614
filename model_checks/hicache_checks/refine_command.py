"""`hicheck refine LEFT RIGHT`: is every observable behaviour of LEFT one of RIGHT's?"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from hicache_checks.engine.graph import Graph, restrict
from hicache_checks.engine.graph_by_kernels import reachable_graph
from hicache_checks.engine.refine import BudgetSpent, Comparison
from hicache_checks.engine.refine_told import Move, TwoSides, both_sides
from hicache_checks.reporting import InputError, Outcome, Screen, Verdict, counted, print_rows
from hicache_spec import DESIGNS, Bounds, BoundSpec, SpecError
from hicache_spec.assumptions import ASSUMPTIONS, Assumption
from hicache_spec.claim import COMPARED
from hicache_spec.observations import DRAINS, OBSERVATIONS, OUTCOMES, POLLS, TOLD, default_polls, observation, outcome
from hicache_spec.state import FETCHED, PHASE
from hicache_spec.watched import watched

GRAPHS_KEPT = 128
HOST_PRESSURE = ("whole_ticks",)
AMPLE_MEMORY = ("whole_ticks", "no_host_pressure")
"""What designs are compared under, unless more is asked: a tick reads all queues at once; memory is tight, or ample."""


@dataclass(frozen=True)
class RefineOptions:
    """What to compare. `polls` None: as `default_polls` says. Budgets: states of each graph, pairs of the product."""

    left: str
    right: str
    observe: str = OUTCOMES.name
    assume: tuple[str, ...] = ()
    bounds: str = "claim"
    polls: str | None = None
    max_states: int | None = None
    max_pairs: int | None = None


@dataclass(frozen=True)
class Compared:
    """One configuration's answer. `holds` is None if a budget ran out; `run` tells the difference, if there is one."""

    bounds: Bounds
    polls: str
    holds: bool | None
    left_states: int
    right_states: int
    pairs: int
    run: TwoSides | None = field(default=None, repr=False)

    @property
    def steps(self) -> int | None:
        """The steps of LEFT's shortest distinguishing run."""
        return None if self.run is None else len(self.run.left)


def shortest(found: Sequence[Compared]) -> Compared | None:
    """The configuration with the shortest run that refutes, the first of several; None if nothing refutes."""
    return min((c for c in found if c.run is not None), key=lambda c: c.steps or 0, default=None)


def holds(found: Sequence[Compared]) -> bool | None:
    """The answer over configurations: one that refutes is enough. None if it is not known."""
    if shortest(found) is not None:
        return False
    return True if found and all(c.holds for c in found) else None


def says(found: Sequence[Compared]) -> str:
    """The answer over configurations in words, with the steps of the shortest run that refutes."""
    refuted = shortest(found)
    if refuted is not None:
        return f"refuted in {counted(refuted.steps or 0, 'step')}"
    return "holds" if holds(found) else "unknown: a budget ran out"


def run(options: RefineOptions, screen: Screen) -> Outcome:
    """Compare in every configuration, and report. Raises InputError for names that are not known."""
    found = compare_all(options, screen.progress.update)
    keys = summarise(options, found)
    report(options, found, screen)
    return Outcome(Verdict(keys["verdict"]), keys)


def compare_all(options: RefineOptions, progress: Callable[[str], None] = lambda text: None) -> tuple[Compared, ...]:
    """Decide every configuration. Raises InputError for names that are not known and designs that cannot be watched."""
    return tuple(compare(options, bounds, progress) for bounds in check(options))


def check(options: RefineOptions) -> tuple[Bounds, ...]:
    """The configurations that the options ask for. Raises InputError, in one line, for names that are not known."""
    names: list[tuple[str, Collection[str], str]] = [
        (options.left, DESIGNS, "design"),
        (options.right, DESIGNS, "design"),
        (options.observe, OBSERVATIONS, "observation"),
        (options.bounds, COMPARED, "bounds of a comparison"),
        *((name, ASSUMPTIONS, "assumption") for name in options.assume),
    ]
    if options.polls is not None:
        names.append((options.polls, POLLS, "kind of polls"))
    for given, known, what in names:
        if given not in known:
            raise InputError(f"no {what} {given!r}; there is {', '.join(known)}")
    return COMPARED[options.bounds]


def compare(options: RefineOptions, bounds: Bounds, progress: Callable[[str], None] = lambda text: None) -> Compared:
    """Decide one configuration. Raises InputError for a design that cannot be watched."""
    progress(f"comparing {options.left} with {options.right} in {bounds.name}")
    polls = options.polls or default_polls(bounds)
    assumed = tuple(ASSUMPTIONS[name] for name in options.assume)
    for assumption in assumed:
        if assumption.bounds is not None:
            bounds = assumption.bounds(bounds)
    try:
        left = graph_of(options.left, bounds, polls, _steps(assumed, of_left=True), options.max_states)
        right = graph_of(options.right, bounds, polls, _steps(assumed, of_left=False), options.max_states)
    except SpecError as error:
        raise InputError(str(error)) from None
    if not (left.complete and right.complete):
        return Compared(bounds, polls, None, left.size, right.size, 0)
    for assumption in assumed:
        for graph in (left, right):
            _check_sizes(assumption, graph)
    progress(f"comparing {options.left} with {options.right} in {bounds.name}: {left.size:,} and {right.size:,} states")
    comparison = Comparison(left, right, observation(options.observe, bounds, polls), outcome)
    try:
        found = comparison.decide(
            options.max_pairs, lambda n: progress(f"comparing in {bounds.name}: {n:,} pairs of a state and a set")
        )
    except BudgetSpent:
        return Compared(bounds, polls, None, left.size, right.size, options.max_pairs or 0)
    told = None if found.difference is None else both_sides(comparison, found.difference)
    return Compared(bounds, polls, found.holds, left.size, right.size, found.pairs, told)


def _steps(assumed: Sequence[Assumption], of_left: bool) -> tuple[str, ...]:
    return tuple(a.step for a in assumed if a.step and (of_left or a.of_both))


@lru_cache(GRAPHS_KEPT)
def graph_of(design: str, bounds: Bounds, polls: str, allowed: tuple[str, ...], max_states: int | None) -> Graph:
    """The graph of a watched design, its runs restricted to drains of which these functions hold. Raises SpecError."""
    if allowed:
        whole = graph_of(design, bounds, polls, allowed[:-1], max_states)
        return restrict(whole, whole.spec.function(allowed[-1]), DRAINS)
    spec = BoundSpec(watched(DESIGNS[design], bounds, polls), bounds)
    return reachable_graph(spec, TOLD, max_states)


def _check_sizes(assumption: Assumption, graph: Graph) -> None:
    """The sizes do what they are to do. Raises ValueError: the assumption is wrong, no matter what is compared."""
    if assumption.refutes is not None:
        for _, events in graph.vocabulary:
            for event in filter(assumption.refutes, events):
                raise ValueError(f"{assumption.name} does not hold in {graph.spec.bounds.name}: {event}")


def summarise(options: RefineOptions, found: Sequence[Compared]) -> dict[str, object]:
    """The JSON keys. One configuration that refutes is enough; the shortest run is given."""
    refuted, answer = shortest(found), holds(found)
    verdict = Verdict.UNKNOWN if answer is None else Verdict.PASS if answer else Verdict.FAIL
    return {
        "left": options.left,
        "right": options.right,
        "observe": options.observe,
        "assume": list(options.assume),
        "bounds": options.bounds,
        "holds": answer,
        "steps": None if refuted is None else refuted.steps,
        "states": sum(c.left_states + c.right_states for c in found),
        "verdict": verdict.value,
        "configurations": [
            {
                "name": c.bounds.name,
                "polls": c.polls,
                "holds": c.holds,
                "steps": c.steps,
                "states": c.left_states + c.right_states,
                "pairs": c.pairs,
            }
            for c in found
        ],
        "run": None if refuted is None or refuted.run is None else _run_as_json(refuted.bounds, refuted.run),
    }


def _run_as_json(bounds: Bounds, told: TwoSides) -> dict[str, object]:
    def moves(side: Sequence[Move]) -> list[dict[str, object]]:
        return [{"number": m.number, "step": m.label, "events": list(m.events), "seen": m.seen} for m in side]

    return {
        "configuration": bounds.name,
        "word": list(told.word),
        "matched": told.matched,
        "instead": told.instead,
        "left": moves(told.left),
        "right": moves(told.right),
        "left_outcome": told.left_outcome,
        "right_outcome": told.right_outcome,
    }


def report(options: RefineOptions, found: Sequence[Compared], screen: Screen) -> None:
    """The shortest distinguishing run, both sides step by step, and a line for each configuration."""
    screen.progress.clear()
    refuted = shortest(found)
    if refuted is not None and refuted.run is not None:
        tell(options, refuted.bounds, refuted.run, screen)
    rows = [
        (c.bounds.name, c.polls, f"{c.left_states:,}", f"{c.right_states:,}", f"{c.pairs:,}", says([c])) for c in found
    ]
    headers = ("configuration", "polls", "states of LEFT", "states of RIGHT", "pairs", "result")
    print_rows(screen.console, headers, rows, right=frozenset({2, 3, 4}))
    screen.say(f"{_question(options)}: {says(found)}")


def _question(options: RefineOptions) -> str:
    assumed = f", assuming {', '.join(options.assume)}" if options.assume else ""
    return f"{options.left} refines {options.right}, by {options.observe}{assumed}"


def tell(options: RefineOptions, bounds: Bounds, told: TwoSides, screen: Screen) -> None:
    """A difference as a table: LEFT's run, and the nearest that RIGHT can do, side by side."""
    screen.say(f"{options.left} can do what {options.right} cannot, in {bounds.name}:")
    rows = []
    for left, right in told.rows:
        lines = max(1 + len(left.events) if left else 0, 1 + len(right.events) if right else 0)
        cells = [_cells(left, lines), _cells(right, lines)]
        rows += [(*a, *b) for a, b in zip(*cells, strict=True)]
    headers = ("step", f"LEFT: {options.left}", "step", f"RIGHT: {options.right}")
    print_rows(screen.console, headers, rows, right=frozenset({0, 2}))
    screen.say(f"seen: {'; '.join(told.word)}")
    if told.left_outcome is None:
        instead = f", only {told.instead}" if told.instead else ""
        first = f"the first {told.matched} of these" if told.matched else "none of these"
        screen.say(f"RIGHT can show {first}, and then not {told.word[told.matched]}{instead}")
    else:
        screen.say(f"at rest, LEFT:           {say_outcome(told.left_outcome)}")
        nearest = "never at rest" if told.right_outcome is None else say_outcome(told.right_outcome)
        screen.say(f"at rest, RIGHT at best:  {nearest}")
    screen.say("")


def _cells(move: Move | None, lines: int) -> list[tuple[str, str]]:
    if move is None:
        return [("", "")] * lines
    cells = [(str(move.number), move.label), *(("", f"  {event}") for event in move.events)]
    return cells + [("", "")] * (lines - len(cells))


def say_outcome(ended: Sequence[tuple[str, int]]) -> str:
    """An outcome as text, such as `0 fetched 2, 1 revoked`."""
    return ", ".join(
        f"{op} {phase}{f' {pages}' if phase == PHASE.members[FETCHED] else ''}"
        for op, (phase, pages) in enumerate(ended)
    )


def verdicts(left: str, right: str) -> list[str]:
    """How two designs compare, a line for each observation and direction: for a reviewer of a change.

    With and without host pressure; each tick is taken to read all queues at once.
    """
    asked = [
        RefineOptions(one, other, observe, assume)
        for observe in OBSERVATIONS
        for one, other in ((left, right), (right, left))
        for assume in (HOST_PRESSURE, AMPLE_MEMORY)
    ]
    try:
        return [f"{_question(options)}: {says(compare_all(options))}" for options in asked]
    except InputError as error:
        return [f"cannot be compared: {error}"]
