"""What engines must have in common: the findings of an exploration, and the steps from a state."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hicache_checks.engine import explore as objects
from hicache_checks.engine.array.search import ArrayKernels
from hicache_checks.engine.compile.layout import Layout
from hicache_checks.engine.engines import EngineOptions, explore
from hicache_checks.engine.explore import Exploration
from hicache_checks.engine.kernel_steps import Kernels
from hicache_spec import BoundSpec, Refused
from hicache_spec.binding import at
from hicache_spec.language import State


def findings(result: Exploration) -> dict[str, object]:
    """What an exploration found, whoever explored."""
    names = ("states", "transitions", "depth", "complete", "reached", "first", "violation")
    return {name: getattr(result, name) for name in names}


def without_sizes(result: Exploration) -> dict[str, object]:
    """What engines must agree on if one of them has fewer states, or if a budget cuts them."""
    return {name: found for name, found in findings(result).items() if name not in ("states", "transitions")}


def explore_alike(spec: BoundSpec, options: EngineOptions, states_max: int | None = None) -> Exploration:
    """Explore with objects and with another engine: to the end, and up to the first violation. What the objects found.

    A specification with more states than `states_max` is cut by both, and then they need not have kept as many.
    """
    reference = objects.explore(spec, states_max, stop=False)
    seen = findings if reference.complete else without_sizes
    for stop in (False, True):
        found = explore(spec, replace(options, stop=stop, max_states=states_max))
        assert seen(found) == seen(objects.explore(spec, states_max, stop=stop))
    return reference


@dataclass(frozen=True)
class Seen:
    """A step from a state: its number, the packed target (None if a value left its type), and by number the step
    properties that it breaks and the outcomes that it reaches."""

    step: int
    target: tuple[int, ...] | None
    broken: tuple[int, ...]
    reached: tuple[int, ...]


@dataclass(frozen=True)
class SeenState:
    """What an engine knows of a state: the steps from it, the invariants that it breaks, whether it is a deadlock."""

    steps: tuple[Seen, ...]
    broken: tuple[int, ...]
    stuck: bool


def seen_by_objects(spec: BoundSpec, kernels: Kernels, key: bytes) -> SeenState:
    """A state by the text itself; the kernels only pack the targets."""
    steps, goes_on, before = [], False, spec.decode(key)
    for number, step in enumerate(spec.steps):
        after = spec.decode(key)
        try:
            step.run(after)
        except Refused:
            continue
        goes_on |= bool(step.rule.fairness)
        target = None if spec.out_of_bounds(after) else kernels.compiled.layout.pack(after)
        broken = tuple(i for i, p in enumerate(spec.step_properties) if not p.holds(before, after))
        reached = tuple(i for i, p in enumerate(spec.sometimes) if p.holds(before, after))
        steps.append(Seen(number, target, broken, reached))
    violated = tuple(i for i, p in enumerate(spec.invariants) if not p.holds(before))
    return SeenState(tuple(steps), violated, not goes_on and not spec.is_quiescent(before))


def seen_by_kernels(kernels: Kernels, states: Sequence[State]) -> list[SeenState]:
    """States by kernels, all at once."""
    packed = np.array([kernels.compiled.layout.pack(s) for s in states], np.uint64)
    found, violated = kernels.successors(packed), kernels.broken_invariants(packed)
    steps: list[list[Seen]] = [[] for _ in states]
    for row, source in enumerate(found.sources):
        target = None if found.leaves[row] else tuple(map(int, found.targets[row]))
        bits = _bits(int(found.broken[row])), _bits(int(found.reached[row]))
        steps[source].append(Seen(int(found.steps[row]), target, *bits))
    return [
        SeenState(tuple(s), _bits(int(v)), bool(stuck))
        for s, v, stuck in zip(steps, violated, found.stuck, strict=True)
    ]


def events_by_kernels(
    kernels: ArrayKernels, states: Sequence[State]
) -> dict[tuple[int, int], list[tuple[object, ...]]]:
    """For each state, by its place, and each step from it: the events that it shows."""
    packed = kernels.from_words(np.array([kernels.compiled.layout.pack(s) for s in states], np.uint64))
    shown: dict[tuple[int, int], list[tuple[object, ...]]] = {}
    for kernel in kernels.compiled.kernels:
        roots = [kernel.guard, *(n for e in kernel.events for n in (e.condition, *e.values))]
        columns = iter([np.broadcast_to(v, len(states)) for v in kernels.values(roots, packed)])
        enabled = np.flatnonzero(next(columns))
        shown |= {(int(row), kernel.number): [] for row in enabled}
        for event in kernel.events:
            is_shown, values = next(columns), [next(columns) for _ in event.values]
            for row in enabled[is_shown[enabled] != 0]:
                shown[int(row), kernel.number].append((event.kind.name, *(int(v[row]) for v in values)))
    return shown


def _bits(number: int) -> tuple[int, ...]:
    return tuple(i for i in range(64) if number >> i & 1)


def any_state(layout: Layout, seed: int) -> State:
    """Any values of the right types, reachable or not."""
    chance, s = random.Random(seed), layout.spec.initial()
    for slot in layout.slots:
        t = slot.variable.type
        if t.kind in ("queue", "set"):
            value: Any = chance.sample(range(t.high + 1), chance.randint(0, t.capacity))
            value = sorted(value) if t.kind == "set" else value
        else:
            value = chance.random() < 0.5 if t.kind == "flag" else chance.randint(t.low, t.high)
        put(s, slot.variable.name, slot.place, value)
    return s


def put(s: State, name: str, place: tuple[int, ...], value: Any) -> None:
    if place:
        at(s, name, place[:-1])[place[-1]] = value
    else:
        setattr(s, name, value)
