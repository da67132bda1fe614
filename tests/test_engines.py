"""The compiled engines on the designs: the same counts, the same runs to the same faults, the same steps anywhere."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_comparison import events_by_kernels, explore_alike, findings, seen_by_kernels, seen_by_objects
from hicache_checks.engine import explore as objects
from hicache_checks.engine.array.search import ArrayKernels
from hicache_checks.engine.engines import EngineOptions, explore, kernels_of
from hicache_checks.engine.kernel_steps import Kernels
from hicache_checks.engine.native import search as native_search
from hicache_checks.engine.native.build import compiler
from hicache_checks.mutants.spec_mutants import SPEC_MUTANTS, SpecMutant
from hicache_spec import DESIGNS, Bounds, BoundSpec, Refused
from hicache_spec.bounds import AGAIN, PRESSURE, PRESSURE_CHURN, SMALL, SOLO_CHURN, TIMEOUT
from hicache_spec.designs.findings import findings_of
from test_explore import COUNTS, all_configurations
from test_spec_mutants import spec_of

CANONICAL = DESIGNS["decide_at_drain"]
PAIR_PRESSURE = SMALL[0]
BUSY = Bounds("busy", host_pages=2, policy=TIMEOUT, churn=True, stops=True, writes=True)
ARRAY, NATIVE = EngineOptions("array"), EngineOptions("native")
COMPILED_IN_CI = ("sched_unprotects_the_root", "sched_never_reclaims")
needs_compiler = pytest.mark.skipif(compiler() is None, reason="there is no C compiler")
ENGINES = [pytest.param(ARRAY, id="array"), pytest.param(NATIVE, id="native", marks=needs_compiler)]


# ---- whole explorations


@pytest.mark.heavy
@pytest.mark.parametrize("bounds", all_configurations(), ids=lambda b: b.name)
def test_the_pinned_sizes_hold_in_arrays(bounds: Bounds) -> None:
    check_size(bounds, ARRAY)


@needs_compiler
@pytest.mark.heavy
@pytest.mark.parametrize("bounds", [SOLO_CHURN, AGAIN, PRESSURE_CHURN, PAIR_PRESSURE], ids=lambda b: b.name)
def test_the_pinned_sizes_hold_in_c(bounds: Bounds) -> None:
    check_size(bounds, NATIVE)


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("bounds", all_configurations(), ids=lambda b: b.name)
def test_every_pinned_size_holds_in_c(bounds: Bounds) -> None:
    check_size(bounds, replace(NATIVE, threads=2))


def check_size(bounds: Bounds, options: EngineOptions) -> None:
    result = explore(BoundSpec(CANONICAL, bounds), options)
    assert (result.states, result.transitions, result.depth) == COUNTS[bounds.name]
    assert result.complete
    assert result.violation is None
    assert result.first == {}


@pytest.mark.parametrize("bounds", [SOLO_CHURN, pytest.param(AGAIN, marks=pytest.mark.heavy)], ids=lambda b: b.name)
def test_the_pinned_sizes_hold_on_tensors(bounds: Bounds) -> None:
    result = explore(BoundSpec(CANONICAL, bounds), EngineOptions("array", device="cpu"))
    assert (result.states, result.transitions, result.depth) == COUNTS[bounds.name]


@needs_compiler
@pytest.mark.heavy
@pytest.mark.parametrize("threads", [2, 64])
def test_threads_change_nothing(threads: int) -> None:
    """More threads than the explorer has room for are too many, and then fewer do."""
    spec = BoundSpec(CANONICAL, SOLO_CHURN)
    assert findings(explore(spec, replace(NATIVE, threads=threads))) == findings(objects.explore(spec))
    assert findings(explore(spec, replace(ARRAY, threads=threads))) == findings(objects.explore(spec))


@pytest.mark.heavy
@pytest.mark.parametrize("mutant", SPEC_MUTANTS, ids=lambda m: m.name)
def test_arrays_catch_a_mutant_by_the_same_run(mutant: SpecMutant) -> None:
    caught_by(mutant, ARRAY)


@needs_compiler
@pytest.mark.heavy
@pytest.mark.parametrize("mutant", [m for m in SPEC_MUTANTS if m.name in COMPILED_IN_CI], ids=lambda m: m.name)
def test_c_catches_a_mutant_by_the_same_run(mutant: SpecMutant) -> None:
    caught_by(mutant, NATIVE)


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("mutant", SPEC_MUTANTS, ids=lambda m: m.name)
def test_c_catches_every_mutant_by_the_same_run(mutant: SpecMutant) -> None:
    caught_by(mutant, replace(NATIVE, threads=2))


def caught_by(mutant: SpecMutant, options: EngineOptions) -> None:
    result = explore(spec_of(mutant), options)
    assert findings(result) == findings(objects.explore(spec_of(mutant)))
    assert result.violation is not None
    assert (result.violation.property, len(result.violation.run)) == (mutant.caught_by, mutant.steps)


@pytest.mark.heavy
def test_without_a_stop_every_violated_property_has_its_shortest_length() -> None:
    design = DESIGNS["decide_at_drain_by_rid"]
    spec = BoundSpec(design, AGAIN)
    found = explore_alike(spec, ARRAY)
    pinned = {f.property: f.steps for f in findings_of(design.name) if f.bounds == AGAIN}
    assert pinned
    assert found.first.items() >= pinned.items()
    for name, steps in found.first.items():
        alone = explore(spec, ARRAY, only={name}).violation
        assert alone is not None
        assert (alone.property, len(alone.run)) == (name, steps)


# ---- single steps


@cache
def kernels(design: str, bounds: Bounds, engine: str) -> Kernels:
    return kernels_of(BoundSpec(DESIGNS[design], bounds), EngineOptions(engine))[0]


def walk(spec: BoundSpec, choices: list[int]) -> list[bytes]:
    """The states of a run: in each, one of the possible steps is chosen."""
    keys = [spec.encode(spec.initial())]
    for choice in choices:
        order = [*range(choice % len(spec.steps), len(spec.steps)), *range(choice % len(spec.steps))]
        after = next((key for number in order if (key := target(spec, keys[-1], number)) is not None), None)
        if after is None:
            break
        keys.append(after)
    return keys


def target(spec: BoundSpec, key: bytes, number: int) -> bytes | None:
    s = spec.decode(key)
    try:
        spec.steps[number].run(s)
    except Refused:
        return None
    return None if spec.out_of_bounds(s) else spec.encode(s)


WALKED = [
    pytest.param("decide_at_drain", BUSY, "array", marks=pytest.mark.heavy),
    pytest.param("decide_at_drain", BUSY, "native", marks=[pytest.mark.slow, needs_compiler]),
    pytest.param("decide_at_drain", SOLO_CHURN, "array"),
    pytest.param("decide_at_drain", SOLO_CHURN, "native", marks=[pytest.mark.heavy, needs_compiler]),
    pytest.param("decide_at_drain_by_rid", AGAIN, "array", marks=pytest.mark.heavy),
    pytest.param("revoke_queue", PRESSURE_CHURN, "array", marks=pytest.mark.heavy),
    pytest.param("alloc_first", PRESSURE, "array", marks=pytest.mark.heavy),
    pytest.param("alloc_first", PRESSURE, "native", marks=[pytest.mark.slow, needs_compiler]),
]


@pytest.mark.parametrize(("design", "bounds", "engine"), WALKED)
def test_the_steps_from_any_reachable_state_are_those_of_the_text(design: str, bounds: Bounds, engine: str) -> None:
    made = kernels(design, bounds, engine)
    spec, layout = made.compiled.spec, made.compiled.layout

    @settings(max_examples=6)
    @given(st.lists(st.integers(0, 1 << 16), min_size=10, max_size=40))
    def check(choices: list[int]) -> None:
        keys = walk(spec, choices)
        states = [spec.decode(key) for key in keys]
        assert seen_by_kernels(made, states) == [seen_by_objects(spec, made, key) for key in keys]
        assert [spec.encode(layout.unpack(layout.pack(s))) for s in states] == keys
        if isinstance(made, ArrayKernels):
            events = events_by_kernels(made, states)
            for row, key in enumerate(keys):
                assert {step: shown for (at, step), shown in events.items() if at == row} == events_of(spec, key)

    check()


def events_of(spec: BoundSpec, key: bytes) -> dict[int, list[tuple[object, ...]]]:
    """By the text: the events that each possible step shows."""
    shown = {}
    for number, step in enumerate(spec.steps):
        s = spec.decode(key)
        try:
            step.run(s)
        except Refused:
            continue
        shown[number] = s.events
    return shown


# ---- interrupts


class Enough(Exception):
    """Somebody interrupts."""


def interrupt(*_: object) -> None:
    raise Enough


@pytest.mark.heavy
@pytest.mark.parametrize("options", ENGINES)
def test_an_interrupt_ends_the_search(options: EngineOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_search, "POLL_SECONDS", 0.0001)
    before = threading.active_count()
    with pytest.raises(Enough):
        explore(BoundSpec(CANONICAL, PAIR_PRESSURE), options, interrupt)
    assert threading.active_count() == before
