"""Breadth-first exploration of a bound specification as plain Python objects: the reference engine.

States are kept as bytes. Every distinct state is checked against the invariants, every step against the step properties
and the types. A state in which no fair action is enabled must be quiescent: a caller who may still abort something does
not save it.

What is found does not depend on an order of search that another engine could not keep: the level in which the first
violation shows is finished, and of all shortest runs the first in lexicographic order is told. A level in which a
budget runs out is finished too, as far as checking goes: what its steps lead to is judged, but no longer kept.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial

from hicache_spec import BoundSpec, Refused
from hicache_spec.language import State

PROGRESS_EVERY_STATES = 2_000
DEADLOCK = "deadlock"
STATE_IN_BOUNDS = "state_in_bounds"
BUILT_IN = {
    DEADLOCK: ("3.0", "Where nothing that must go on can go on, the system is at rest."),
    STATE_IN_BOUNDS: ("3.0", "Every variable stays within its type."),
}
"""Section and title of what is checked without being declared."""


@dataclass(frozen=True)
class Progress:
    """Where an exploration stands: distinct states, states waiting, depth, seconds, bytes of states and tables."""

    states: int
    frontier: int
    depth: int
    seconds: float
    bytes: int = 0


@dataclass(frozen=True)
class Violation:
    """A broken property, its section, and the shortest run to it: indices into `spec.steps`, in order."""

    property: str
    section: str
    title: str
    run: tuple[int, ...]
    detail: str = ""


@dataclass
class Exploration:
    """What was found. `complete` is False if a budget ran out before the state space did, or at a violation.

    `first` has the length of the shortest run to each violated property that showed up; all of them only if the search
    was not to stop. `note` says what a reader should know of how it was done.
    """

    states: int = 0
    transitions: int = 0
    depth: int = 0
    seconds: float = 0.0
    complete: bool = False
    reached: set[str] = field(default_factory=set)
    violation: Violation | None = None
    first: dict[str, int] = field(default_factory=dict)
    engine: str = "object"
    build_seconds: float = 0.0
    bytes_peak: int = 0
    note: str = ""


class _Search:
    def __init__(
        self,
        spec: BoundSpec,
        max_states: int | None,
        progress: Callable[[Progress], None] | None,
        only: Collection[str] | None,
        stop: bool,
    ) -> None:
        self.spec, self.max_states, self.progress, self.stop = spec, max_states, progress, stop
        self.invariants = [p for p in spec.invariants if only is None or p.rule.name in only]
        self.step_properties = [p for p in spec.step_properties if only is None or p.rule.name in only]
        self.checks_bounds = only is None or STATE_IN_BOUNDS in only
        self.checks_deadlock = only is None or DEADLOCK in only
        self.result = Exploration()
        self.ids: dict[bytes, int] = {}
        self.parents: list[tuple[int, int]] = []
        self.waiting = [p for p in spec.sometimes if only is None or p.rule.name in only]
        self.start = time.perf_counter()
        self.reported = 0
        self.cut = False
        self.stuck: Violation | None = None
        self.broken: Violation | None = None

    def add(self, key: bytes, parent: int, step: int) -> None:
        self.ids[key] = len(self.parents)
        self.parents.append((parent, step))

    def run(self) -> Exploration:
        first = self.spec.initial()
        self.add(self.spec.encode(first), -1, -1)
        self.check_state(first, tuple)
        level = list(self.ids)
        while level and not self.cut and not (self.stop and self.broken):
            following: list[bytes] = []
            for done, key in enumerate(level):
                self.expand(key, following)
                if self.progress is not None and len(self.ids) // PROGRESS_EVERY_STATES > self.reported:
                    self.report(len(level) - done + len(following))
            if following or self.cut:
                self.result.depth += 1
            if self.stuck and (self.broken is None or len(self.stuck.run) < len(self.broken.run)):
                self.broken = self.stuck  # a deadlock is seen a step later than the rest
            level = following
        return self.finish()

    def report(self, frontier: int) -> None:
        self.reported = len(self.ids) // PROGRESS_EVERY_STATES
        assert self.progress is not None
        self.progress(Progress(len(self.ids), frontier, self.result.depth, time.perf_counter() - self.start))

    def expand(self, key: bytes, following: list[bytes]) -> None:
        spec, source = self.spec, self.ids[key]
        before = spec.decode(key)
        after = spec.decode(key)
        enabled = False
        for number, step in enumerate(spec.steps):
            try:
                step.run(after)
            except Refused:
                continue  # guards come first: `after` is still as `before`
            enabled = enabled or bool(step.rule.fairness)
            self.result.transitions += 1
            self.check_step(before, after, source, number)
            wrong = spec.out_of_bounds(after)
            if wrong is not None:  # no such state can be written down, so it is not gone on from
                if self.checks_bounds:
                    self.violates(STATE_IN_BOUNDS, *BUILT_IN[STATE_IN_BOUNDS], (*self.path(source), number), wrong)
                after = spec.decode(key)
                continue
            target = spec.encode(after)
            if target not in self.ids:
                self.check_state(after, partial(self.path_and, source, number))
                if len(self.ids) == self.max_states:
                    self.cut = True
                else:
                    self.add(target, source, number)
                    following.append(target)
            after = spec.decode(key)
        if not enabled and self.checks_deadlock and not spec.is_quiescent(before):
            self.violates(DEADLOCK, *BUILT_IN[DEADLOCK], self.path(source))

    def violates(self, name: str, section: str, title: str, run: tuple[int, ...], detail: str = "") -> None:
        self.result.first.setdefault(name, len(run))
        violation = Violation(name, section, title, run, detail)
        if name == DEADLOCK:
            self.stuck = self.stuck or violation
        else:
            self.broken = self.broken or violation

    def check_step(self, before: State, after: State, source: int, number: int) -> None:
        for p in self.step_properties:
            if not p.holds(before, after):
                self.violates(p.rule.name, p.rule.section, p.rule.title, (*self.path(source), number))
        for p in [p for p in self.waiting if p.holds(before, after)]:
            self.waiting.remove(p)
            self.result.reached.add(p.rule.name)

    def check_state(self, s: State, run: Callable[[], tuple[int, ...]]) -> None:
        for p in self.invariants:
            if not p.holds(s):
                self.violates(p.rule.name, p.rule.section, p.rule.title, run())

    def path_and(self, source: int, number: int) -> tuple[int, ...]:
        return (*self.path(source), number)

    def path(self, number: int) -> tuple[int, ...]:
        steps: list[int] = []
        while number > 0:
            number, step = self.parents[number]
            steps.append(step)
        return tuple(reversed(steps))

    def finish(self) -> Exploration:
        self.result.states = len(self.ids)
        self.result.complete = not self.cut and not (self.stop and self.broken)
        self.result.violation = self.broken
        self.result.seconds = time.perf_counter() - self.start
        return self.result


def explore(
    spec: BoundSpec,
    max_states: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    only: Collection[str] | None = None,
    stop: bool = True,
) -> Exploration:
    """Explore breadth-first up to `max_states` distinct states; `progress` is called every few thousand states.

    `only`: check just these properties (DEADLOCK and STATE_IN_BOUNDS are two of them), look for no outcome but these;
    by default all. `stop`: end after the level of the first violation.
    """
    gc_was_enabled = gc.isenabled()
    gc.disable()  # nothing here is cyclic, and the collector would walk millions of live keys again and again
    try:
        return _Search(spec, max_states, progress, only, stop).run()
    finally:
        if gc_was_enabled:
            gc.enable()
