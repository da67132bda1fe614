"""One way to explore, whichever engine does it: `object` (the reference), `array` (NumPy, torch) or `native` (C)."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from hicache_checks.engine import explore as objects
from hicache_checks.engine.array.columns import NUMPY
from hicache_checks.engine.array.search import ArrayKernels
from hicache_checks.engine.compile.kernels import Compiled
from hicache_checks.engine.compile.layout import Layout
from hicache_checks.engine.compile.symmetry import images
from hicache_checks.engine.cut_level import finish_level
from hicache_checks.engine.explore import BUILT_IN, DEADLOCK, STATE_IN_BOUNDS, Exploration, Progress, Violation
from hicache_checks.engine.kernel_steps import Checks, Kernels, Tally
from hicache_checks.engine.native.build import NoCompiler
from hicache_checks.engine.native.search import NativeKernels
from hicache_checks.engine.shortest import Shortest, shortest_run
from hicache_checks.engine.symmetry_check import check_symmetry
from hicache_spec import BoundSpec
from hicache_spec.binding import Property


@dataclass(frozen=True)
class EngineOptions:
    """How to explore. `device` is where the array engine's columns live: numpy, cpu or cuda (the latter two: torch).

    `max_bytes` bounds the memory of states and tables. `stop`: end after the level of the first violation. Symmetry,
    threads, devices and `max_bytes` are of the compiled engines.
    """

    engine: str = "auto"
    threads: int = 1
    device: str = NUMPY
    symmetry: bool = False
    max_states: int | None = None
    max_bytes: int | None = None
    stop: bool = True


def explore(
    spec: BoundSpec,
    options: EngineOptions,
    progress: Callable[[Progress], None] | None = None,
    only: Collection[str] | None = None,
) -> Exploration:
    """Explore breadth-first with one of the engines; all find the same.

    `only`: check just these properties, and look for no outcome but these. Raises DoesNotFit for a specification that
    cannot be compiled, NoCompiler if the native engine is asked for by name and there is none.
    """
    if options.engine == "object":
        return objects.explore(spec, options.max_states, progress, only, options.stop)
    start = time.perf_counter()
    kernels, note = kernels_of(spec, options, only)
    build_seconds = time.perf_counter() - start
    result = _explore(kernels, options, progress, only)
    result.engine, result.build_seconds = kernels.name, build_seconds
    result.note = "; ".join(n for n in (note, result.note) if n)
    return result


def kernels_of(spec: BoundSpec, options: EngineOptions, only: Collection[str] | None = None) -> tuple[Kernels, str]:
    """The compiled kernels, and what there is to say about the choice of the back end."""
    mirrored = images(Layout(spec)) if options.symmetry else []
    compiled = Compiled(spec, only)
    if options.engine in ("auto", "native"):
        try:
            return NativeKernels.build(compiled, mirrored), ""
        except NoCompiler as reason:
            if options.engine == "native":
                raise
            note = f"{reason}: array engine"
    else:
        note = ""
    return ArrayKernels.build(compiled, options.device, mirrored), note


def _explore(
    kernels: Kernels,
    options: EngineOptions,
    progress: Callable[[Progress], None] | None,
    only: Collection[str] | None,
) -> Exploration:
    spec = kernels.compiled.spec
    checks = Checks(
        steps=_bits(spec.step_properties, only),
        invariants=_bits(spec.invariants, only),
        bounds=only is None or STATE_IN_BOUNDS in only,
        deadlock=only is None or DEADLOCK in only,
        stop=options.stop,
    )
    start = time.perf_counter()

    def tell(t: Tally) -> None:
        if progress is not None:
            progress(Progress(t.states, t.frontier, t.depth, time.perf_counter() - start, t.bytes_peak))

    search = kernels.search(checks, options.threads, options.max_states, options.max_bytes, tell)
    try:
        tally, seconds = search.tally(), time.perf_counter() - start
        if options.symmetry:
            checked = check_symmetry(kernels, images(kernels.compiled.layout), search)
        if tally.cut:
            tally = finish_level(kernels, search, tally)
        found = shortest_run(kernels, search, tally, checks)
    finally:
        search.close()
    return Exploration(
        states=tally.states,
        transitions=tally.transitions,
        depth=tally.depth,
        seconds=seconds,
        complete=not tally.cut and not (options.stop and found is not None),
        reached={p.rule.name for i, p in enumerate(spec.sometimes) if tally.reached >> i & 1},
        violation=None if found is None else _violation(spec, found),
        first=_first(spec, tally, checks),
        bytes_peak=tally.bytes_peak,
        note=f"symmetry checked on {checked[0]:,} of {checked[1]:,} states" if options.symmetry else "",
    )


def _bits(properties: list[Property], only: Collection[str] | None) -> int:
    return sum(1 << i for i, p in enumerate(properties) if only is None or p.rule.name in only)


def _first(spec: BoundSpec, tally: Tally, checks: Checks) -> dict[str, int]:
    first = {spec.step_properties[i].rule.name: d for i, d in tally.step_depth.items() if checks.steps >> i & 1}
    first |= {spec.invariants[i].rule.name: d for i, d in tally.invariant_depth.items() if checks.invariants >> i & 1}
    if checks.bounds and tally.leaves_depth is not None:
        first[STATE_IN_BOUNDS] = tally.leaves_depth
    if checks.deadlock and tally.deadlock_depth is not None:
        first[DEADLOCK] = tally.deadlock_depth
    return first


def _violation(spec: BoundSpec, found: Shortest) -> Violation:
    """What the run breaks first: a step property, the bounds, an invariant, or nothing: then it ends in a deadlock."""
    properties, broken = (spec.step_properties, found.broken_steps)
    if not broken and not found.leaves:
        properties, broken = spec.invariants, found.broken_invariants
    if broken:
        rule = properties[(broken & -broken).bit_length() - 1].rule
        return Violation(rule.name, rule.section, rule.title, found.run)
    name = STATE_IN_BOUNDS if found.leaves else DEADLOCK
    return Violation(name, *BUILT_IN[name], found.run, _outside(spec, found.run) if found.leaves else "")


def _outside(spec: BoundSpec, run: tuple[int, ...]) -> str:
    s = spec.initial()
    for number in run:
        spec.steps[number].run(s)
    return spec.out_of_bounds(s) or ""
