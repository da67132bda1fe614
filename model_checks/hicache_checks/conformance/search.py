"""Many schedules of one target, each from a seed of its own, and what they found, one entry a cause."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count, takewhile
from random import Random
from typing import Any

from hicache_checks.conformance.findings import Finding, cause
from hicache_checks.conformance.minimise import minimise
from hicache_checks.conformance.orders import Orders
from hicache_checks.conformance.program import STEPS_MAX
from hicache_checks.conformance.real_threads import run_real
from hicache_checks.conformance.schedule import Result, run_schedule
from hicache_checks.conformance.target import Target
from hicache_checks.reporting import InputError
from hicache_checks.simulation.choices import Choices, Plainest, Replayed, Seeded
from hicache_checks.simulation.exhaustive import Diverged
from hicache_checks.simulation.strategies import Pct, Walk
from hicache_checks.simulation.world import Strategy

STRATEGIES: dict[str, tuple[Callable[[Random], Strategy], ...]] = {
    "walk": (Walk, lambda r: Walk(r, 0.5), lambda r: Walk(r, 0.9)),
    "pct": (lambda r: Pct(r, 2), lambda r: Pct(r, 3), lambda r: Pct(r, 5)),
}
STRATEGIES["mixed"] = (*STRATEGIES["walk"], *STRATEGIES["pct"])
EXHAUSTIVE = "exhaustive"
SIMULATE = "simulate"
THREADS = "threads"
MODES = (SIMULATE, THREADS)
FOUND_MAX = 20
NUMBERS_MAX = 20
HASH_MASK = (1 << 64) - 1


@dataclass(frozen=True)
class SearchOptions:
    """What to run: schedules `first`, `first + stride`, ... below `schedules`, until the time is up.

    Each schedule depends on its number, on `seed`, and on what is not a budget; so any of them can be run again. In the
    mode `threads`, of which nobody chooses the switches, that is true of its program. `schedules` None: as many as
    there is time for. With the strategy `exhaustive` (see `orders`) every `stride`th policy is searched here, from
    number `first` on, and a search that does not come to its end, for whatever reason, is out of time.
    """

    ranks: int = 2
    policies: tuple[str, ...] = ("best_effort", "wait_complete", "timeout")
    schedules: int | None = 1000
    seconds_max: float | None = None
    mode: str = SIMULATE
    strategy: str = "mixed"
    preemptions_max: int = 2
    seed: int = 0
    steps_max: int = STEPS_MAX
    first: int = 0
    stride: int = 1
    stop_at_first: bool = False
    causes_max: int = FOUND_MAX

    def policy_of(self, number: int) -> str:
        """Policies take turns."""
        return self.policies[number % len(self.policies)]

    def has(self, number: int) -> bool:
        """Is a schedule of this number asked for?"""
        return self.schedules is None or number < self.schedules


@dataclass
class Cause:
    """Schedules that show the same: how many, the first `numbers` of them, and the shortest so far."""

    finding: Finding
    policy: str
    number: int
    choices: Choices
    schedules: int = 1
    numbers: list[int] = field(default_factory=list)


@dataclass
class Searched:
    """What a search saw. `traces` and `states` are hashes.

    Of an exhaustive search, `cut` schedules were not run to the end, and `asleep` steps not tried: what follows is
    known.
    """

    schedules: int = 0
    cut: int = 0
    asleep: int = 0
    seconds: float = 0.0
    out_of_time: bool = False
    traces: set[int] = field(default_factory=set)
    states: set[int] = field(default_factory=set)
    outcomes: Counter[str] = field(default_factory=Counter)
    unobserved: Counter[str] = field(default_factory=Counter)
    capabilities: set[str] = field(default_factory=set)
    causes: dict[str, Cause] = field(default_factory=dict)


Note = Callable[[int, Searched], None]


def search(target: Target, options: SearchOptions, note: Note) -> Searched:
    """Run the schedules. `note(number, searched)` is called before each. Raises InputError for a target of which an
    exhaustive search is asked, and that does not do the same again."""
    return (_search_orders if options.strategy == EXHAUSTIVE else _search_numbers)(target, options, note)


def _search_numbers(target: Target, options: SearchOptions, note: Note) -> Searched:
    start = time.monotonic()
    searched = Searched()
    for number in takewhile(options.has, count(options.first, options.stride)):
        searched.seconds = time.monotonic() - start
        if options.seconds_max is not None and searched.seconds > options.seconds_max:
            searched.out_of_time = options.schedules is not None
            break
        note(number, searched)
        result, choices = run_numbered(target, options, number)
        searched.traces.add(int(result.digest, 16))
        _take(searched, result, choices, options.policy_of(number), number, options.causes_max)
        if options.stop_at_first and searched.causes:
            break
    searched.seconds = time.monotonic() - start
    return searched


def _search_orders(target: Target, options: SearchOptions, note: Note) -> Searched:
    start = time.monotonic()
    searched = Searched()
    can_store = "store" in run_once(target, options, options.policies[0], Plainest()).capabilities
    orders = Orders(
        lambda policy, choices, strategy: run_once(target, options, policy, choices, strategy),
        options.policies[options.first :: options.stride],
        options.preemptions_max,
        can_store,
    )
    for number in takewhile(options.has, count(options.first, options.stride)):
        searched.seconds = time.monotonic() - start
        is_late = options.seconds_max is not None and searched.seconds > options.seconds_max
        if orders.is_complete or is_late or (options.stop_at_first and searched.causes):
            break
        note(number, searched)
        try:
            ordered = orders.run_next()
        except Diverged as error:
            raise InputError(f"{target.name} does not do the same again, so not all can be tried: {error}") from None
        if ordered.result is None:
            searched.schedules += 1
        else:
            _take(searched, ordered.result, ordered.choices, ordered.policy, number, options.causes_max)
    searched.seconds = time.monotonic() - start
    searched.out_of_time = not orders.is_complete
    searched.cut, searched.asleep = orders.cut, orders.asleep
    searched.traces = {hash_of(trace) for trace in orders.traces}
    return searched


def run_numbered(target: Target, options: SearchOptions, number: int) -> tuple[Result, Choices]:
    """The schedule of this number."""
    choices = Seeded(f"{options.seed}/{number}")
    kinds = STRATEGIES[options.strategy]
    strategy = kinds[number // len(options.policies) % len(kinds)](choices.random)
    return run_once(target, options, options.policy_of(number), choices, strategy), choices


def run_once(
    target: Target, options: SearchOptions, policy: str, choices: Choices, strategy: Strategy | None = None
) -> Result:
    """A schedule in the mode of the search."""
    if options.mode == THREADS:
        return run_real(target.build, options.ranks, policy, choices, options.steps_max, target.judge)
    return run_schedule(target.build, options.ranks, policy, choices, strategy, options.steps_max, judge=target.judge)


def shrink(target: Target, options: SearchOptions, found: Cause, seconds_max: float) -> Choices:
    """The simplest choices with the same property violated, as far as the time allows."""

    def fails(choices: Choices) -> bool:
        finding = run_once(target, options, found.policy, choices).finding
        return finding is not None and (finding.property, finding.kind) == (found.finding.property, found.finding.kind)

    recorded = Replayed(found.choices.taken)
    return minimise(fails, recorded, seconds_max) if fails(recorded) else found.choices


def _take(searched: Searched, result: Result, choices: Choices, policy: str, number: int, causes_max: int) -> None:
    searched.schedules += 1
    searched.states |= {hash_of(state) for state in result.states}
    searched.outcomes.update(result.outcomes)
    searched.unobserved.update(result.unobserved)
    searched.capabilities.update(result.capabilities)
    if result.finding is None:
        return
    name = cause(result.finding)
    known = searched.causes.get(name)
    if known is None:
        if len(searched.causes) < causes_max:
            searched.causes[name] = Cause(result.finding, policy, number, choices, numbers=[number])
        return
    known.schedules += 1
    known.numbers += [number][: NUMBERS_MAX - len(known.numbers)]
    if len(choices.taken) < len(known.choices.taken):
        known.finding, known.policy, known.number, known.choices = result.finding, policy, number, choices


def hash_of(state: Any) -> int:
    """64 bits of a state's key. Python's own hash of bytes differs from process to process only in value."""
    return hash(state) & HASH_MASK


def options_from(document: Mapping[str, Any]) -> SearchOptions:
    """The options that a job document holds."""
    fields = dict(document)
    fields["policies"] = tuple(fields["policies"])
    return SearchOptions(**fields)
