"""Symmetry reduction: the same verdicts and runs from fewer states, and nothing asymmetric slips through."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from engine_comparison import any_state, put, without_sizes
from hicache_checks.engine.compile.kernels import Compiled
from hicache_checks.engine.compile.layout import DoesNotFit, Layout, Words
from hicache_checks.engine.compile.symmetry import images
from hicache_checks.engine.engines import EngineOptions, explore, kernels_of
from hicache_checks.engine.native.build import compiler
from hicache_checks.engine.symmetry_check import NotSymmetric
from hicache_checks.mutants.spec_mutants import SPEC_MUTANTS, SpecMutant
from hicache_spec import DESIGNS, Bounds, BoundSpec, Refused
from hicache_spec.binding import at
from hicache_spec.bounds import AGAIN, PRESSURE, SMALL, SOLO_CHURN, TRIO_PRESSURE
from hicache_spec.language import State, Symbol
from random_specs import HEAD, load, random_specs
from test_spec_mutants import spec_of

CANONICAL = DESIGNS["decide_at_drain"]
PAIR_PRESSURE = SMALL[0]
TRIO_STATES = 4_191_833
ARRAY = EngineOptions("array", symmetry=True)
NATIVE = EngineOptions("native", symmetry=True)
needs_compiler = pytest.mark.skipif(compiler() is None, reason="there is no C compiler")
ENGINES = [pytest.param(ARRAY, id="array"), pytest.param(NATIVE, id="native", marks=needs_compiler)]

ASYMMETRIC = {
    # these treat one rank otherwise than the other, and are refused for what does so
    "sched_drains_by_its_own_count": "sched_drain is not enabled alike",
    "sched_completes_on_the_first_rank": "sched_poll is not enabled alike",
    "sched_marks_the_first_rank_only": "sched_stop does not act alike",
    "sched_submits_out_of_order": "sched_submit does not act alike",
    "query_skips_the_agreement": "query_agree does not reach the same outcomes",
}
FEW = (
    *("sched_evicts_one_too_many", "io_releases_the_tail_twice"),
    *("sched_completes_on_the_first_rank", "query_skips_the_agreement"),
)


# ---- the same findings from fewer states


def same_findings(spec: BoundSpec, options: EngineOptions) -> tuple[int, int]:
    """How many states there are without and with symmetry, after the same findings."""
    every, some = explore(spec, replace(options, symmetry=False)), explore(spec, options)
    if every.states <= (options.max_states or every.states):
        assert without_sizes(some) == without_sizes(every)
    return every.states, some.states


@pytest.mark.parametrize("bounds", [SOLO_CHURN, pytest.param(AGAIN, marks=pytest.mark.slow)], ids=lambda b: b.name)
def test_symmetry_changes_no_finding(bounds: Bounds) -> None:
    every, some = same_findings(BoundSpec(DESIGNS["decide_at_drain_by_rid"], bounds), replace(ARRAY, stop=False))
    assert some < every


@pytest.mark.heavy
@pytest.mark.parametrize("mutant", [m for m in SPEC_MUTANTS if m.name in FEW], ids=lambda m: m.name)
def test_symmetry_changes_no_counterexample_or_is_refused(mutant: SpecMutant) -> None:
    check_mutant(mutant)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", SPEC_MUTANTS, ids=lambda m: m.name)
def test_symmetry_changes_no_counterexample_of_any_mutant(mutant: SpecMutant) -> None:
    check_mutant(mutant)


def check_mutant(mutant: SpecMutant) -> None:
    if mutant.name in ASYMMETRIC:
        with pytest.raises(NotSymmetric, match=f"^{ASYMMETRIC[mutant.name]} under the declared symmetry"):
            explore(spec_of(mutant), ARRAY)
    else:
        same_findings(spec_of(mutant), ARRAY)


@pytest.mark.heavy
def test_the_reduced_size_is_pinned() -> None:
    result = explore(BoundSpec(CANONICAL, PAIR_PRESSURE), ARRAY)
    assert (result.states, result.complete, result.violation) == (18_263, True, None)
    assert result.note == "symmetry checked on 18,263 of 18,263 states"


@needs_compiler
@pytest.mark.heavy
def test_three_requests_on_two_ranks_have_an_eighth_of_the_states_or_less() -> None:
    some = explore(BoundSpec(CANONICAL, TRIO_PRESSURE), replace(NATIVE, threads=2))
    assert (some.states, some.complete, some.violation) == (360_942, True, None)
    assert 8 * some.states <= TRIO_STATES


@needs_compiler
@pytest.mark.slow
def test_the_reduced_size_is_the_same_in_c() -> None:
    assert explore(BoundSpec(CANONICAL, PAIR_PRESSURE), NATIVE).states == 18_263


@needs_compiler
@pytest.mark.slow
def test_three_requests_on_two_ranks_are_alike_without_symmetry() -> None:
    assert same_findings(BoundSpec(CANONICAL, TRIO_PRESSURE), replace(NATIVE, threads=2)) == (TRIO_STATES, 360_942)


# ---- permutations, written down again for plain objects


def moved(spec: BoundSpec, s: State, permutation: Mapping[str, tuple[int, ...]]) -> State:
    """The image of a state: values move along the index sets that are permuted, elements of them are renamed."""
    image = spec.decode(spec.encode(s))
    for name, declared in spec.design.fields().items():
        rename = permutation.get(name_of(declared.type.high))
        dims = [permutation.get(name_of(d)) for d in declared.dims]
        for place in next(v for v in spec.variables if v.name == name).places():
            value = at(s, name, place)
            if rename is not None:
                value = (
                    [rename[x] for x in value] if isinstance(value, list) else rename[value] if value >= 0 else value
                )
                value = sorted(value) if declared.type.kind == "set" else value
            put(image, name, tuple(d[i] if d else i for d, i in zip(dims, place, strict=True)), value)
    return image


def name_of(index_set: object) -> str:
    return index_set.name if isinstance(index_set, Symbol) and index_set.is_index else ""


def reachable(spec: BoundSpec) -> Iterator[State]:
    seen, waiting = set(), [spec.encode(spec.initial())]
    while waiting:
        key = waiting.pop()
        if key in seen:
            continue
        seen.add(key)
        yield spec.decode(key)
        for step in spec.steps:
            s = spec.decode(key)
            try:
                step.run(s)
            except Refused:
                continue
            waiting.append(spec.encode(s))


@pytest.mark.heavy
@pytest.mark.parametrize("bounds", [SOLO_CHURN, pytest.param(PRESSURE, marks=pytest.mark.slow)], ids=lambda b: b.name)
def test_there_is_one_representative_for_each_orbit(bounds: Bounds) -> None:
    spec = BoundSpec(CANONICAL, bounds)
    permutations = [image.permutation for image in images(Layout(spec))]
    orbits = {min(spec.encode(s), *(spec.encode(moved(spec, s, p)) for p in permutations)) for s in reachable(spec)}
    assert explore(spec, ARRAY).states == len(orbits)


EVERY_KIND = (
    HEAD.format(a="3, symmetric=True", b="2, symmetric=True", k=2, on=True, costs=(1, 2), grid=((0, 1), (2, 3)))
    + """    flags = field(flag(), A, B)
    number = field(upto(5), B)
    where = field(optional(A), B, A)
    one = field(element(B), A)
    queue = field(fifo(A), A)
    short = field(fifo(B, 1))
    some = field(subset(A), B)


@action(fairness="weak", p=A, q=B)
def act(s: State, p: int, q: int) -> None:
    '''§2.1 Act.'''
    s.flags[p][q] = not s.flags[p][q]
"""
)


@pytest.fixture(scope="module")
def moving(tmp_path_factory: pytest.TempPathFactory) -> dict[str, BoundSpec]:
    """Specifications whose states have something of every kind to be moved: of every type, and in blocks."""
    attempts = Bounds("attempts", attempts=2, host_pages=2)
    return {
        "every kind": load(EVERY_KIND, tmp_path_factory.mktemp("specs")),
        "blocks": BoundSpec(CANONICAL, attempts),
        "three": BoundSpec(CANONICAL, TRIO_PRESSURE),
    }


def packed(layout: Layout, *states: State) -> Words:
    return np.array([layout.pack(s) for s in states], np.uint64)


@pytest.mark.parametrize("name", ["every kind", "blocks", "three"])
def test_images_are_the_group_of_permutations_and_act_as_they_do_on_objects(
    name: str, moving: dict[str, BoundSpec]
) -> None:
    layout = Layout(moving[name])
    every = images(layout)
    assert len(every) == {"every kind": 12, "blocks": 4, "three": 12}[name] - 1
    steps = {image.steps for image in every} | {tuple(range(len(moving[name].steps)))}
    assert len(steps) == len(every) + 1, "no two act alike"
    assert {tuple(b[i] for i in a) for a in steps for b in steps} == steps

    @settings(max_examples=10)
    @given(st.integers(0, 1 << 32))
    def check(seed: int) -> None:
        s = any_state(layout, seed)
        states = packed(layout, s)
        orbit = {image.of(states).tobytes() for image in every} | {states.tobytes()}
        for first in every:
            assert np.array_equal(first.of(states), packed(layout, moved(layout.spec, s, first.permutation)))
            assert {second.of(first.of(states)).tobytes() for second in every} <= orbit

    check()


@pytest.mark.parametrize("options", ENGINES)
def test_every_orbit_has_one_representative(options: EngineOptions, moving: dict[str, BoundSpec]) -> None:
    kernels, _ = kernels_of(moving["every kind"], options)
    layout = kernels.compiled.layout
    states = packed(layout, *(any_state(layout, seed) for seed in range(300)))
    chosen = kernels.canonical(states)
    assert np.array_equal(kernels.canonical(chosen), chosen)
    every = images(layout)
    assert all(np.array_equal(kernels.canonical(image.of(states)), chosen) for image in every)
    assert np.any(
        [np.all(image.of(states) == chosen, axis=1) for image in every] + [np.all(states == chosen, axis=1)], axis=0
    ).all()


# ---- what is not symmetric is refused

RULES = '''    x = field(upto(2), A)
    y = field(flag())


@action(p=A)
def act(s: State, p: int) -> None:
    """§2.1 Act."""
    require(s.x[p] < 2, "it is low")
    s.x[p] += 1
    emit(s, ON_X, p, s.x[p])


@quiescent
def rests(s: State) -> bool:
    """§1 All are high."""
    return all(s.x[p] == 2 for p in A)


@invariant
def inv(s: State) -> bool:
    """§3.1 None is too high."""
    return all(s.x[p] <= 2 for p in A)


@step_property
def step(s: State, t: State) -> bool:
    """§4.1 One at most gets higher."""
    return sum(t.x[p] > s.x[p] for p in A) <= 1


@sometimes
def sometimes_high(s: State, t: State) -> bool:
    """§5.1 One gets high."""
    return any(emitted(t, ON_X, a=p, n=2) for p in A)
'''
SYMMETRIC = HEAD.format(a="3, symmetric=True", b=2, k=2, on=True, costs=(1, 2), grid=((0, 1), (2, 3))) + RULES

SPOILT = {
    "a rule": ("s.x[p] += 1", "s.x[p] += 1 if p > 0 else 2 - s.x[0]", "act does not act alike"),
    "a guard": ('require(s.x[p] < 2, "it is low")', 'require(s.x[p] < 2 - p, "it is low")', "act is not enabled alike"),
    "a type": ("s.x[p] += 1", "s.x[p] += 1 + p", "act leaves its types differently"),
    "an invariant": (
        "return all(s.x[p] <= 2 for p in A)",
        "return s.x[0] <= s.x[1] + 2 and s.x[1] < 2",
        "inv is not judged",
    ),
    "a step property": ("<= 1", "<= 1 and t.x[0] <= 1", "act is not judged alike"),
    "an outcome": (
        "any(emitted(t, ON_X, a=p, n=2) for p in A)",
        "emitted(t, ON_X, a=1)",
        "act does not reach the same",
    ),
    "rest": ("all(s.x[p] == 2 for p in A)", "s.x[0] == 2 and s.x[1] == 1", "rest is not judged alike"),
    "the initial state": (
        "@action",
        '@initial\ndef start(s: State) -> None:\n    """§1 Start."""\n    s.x[0] = 1\n\n\n@action',
        "the initial state is not its own image",
    ),
}


def test_what_is_symmetric_is_explored(tmp_path: Path) -> None:
    assert same_findings(load(SYMMETRIC, tmp_path), replace(ARRAY, stop=False)) == (27, 10)


@pytest.mark.parametrize("options", ENGINES)
@pytest.mark.parametrize(("old", "new", "why"), SPOILT.values(), ids=SPOILT)
def test_what_is_not_symmetric_is_refused_by_name(
    old: str, new: str, why: str, options: EngineOptions, tmp_path: Path
) -> None:
    assert SYMMETRIC.count(old) == 1
    spec = load(SYMMETRIC.replace(old, new), tmp_path)
    with pytest.raises(NotSymmetric, match=f"^{why}.* under the declared symmetry a \\d, \\d, \\d$"):
        explore(spec, replace(options, stop=False))


def test_a_queue_that_is_too_long_to_rename_is_refused(tmp_path: Path) -> None:
    spec = load(SYMMETRIC.replace("y = field(flag())", "y = field(fifo(A, 9))"), tmp_path)
    with pytest.raises(DoesNotFit, match=r"^y: 18 bits in one variable, more than the 16 that symmetry "):
        images(Compiled(spec).layout)


@pytest.mark.heavy
def test_a_random_specification_is_refused_or_has_the_same_findings(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder, seen = tmp_path_factory.mktemp("specs"), Counter[str]()

    @settings(max_examples=40)
    @given(random_specs(alike=True))
    def check(text: str) -> None:
        note(text)
        try:
            every, some = same_findings(load(text, folder), replace(ARRAY, stop=False, max_states=2000))
        except NotSymmetric:
            seen["refused"] += 1
        else:
            seen["smaller"] += some < every

    check()
    assert min(seen["refused"], seen["smaller"]) > 5
