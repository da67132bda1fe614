"""Liveness: fair cycles against a definition that is as plain as it is slow, a toy, the designs, the mutants."""

from __future__ import annotations

import sys
from itertools import chain, combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import spec_tables
import toy_turns
from hicache_checks.engine.explore import explore
from hicache_checks.engine.graph import Graph, graph_by_objects
from hicache_checks.engine.liveness import (
    Fairness,
    Lasso,
    LivenessResult,
    check_liveness,
    find_lasso,
    promises,
    tell_lasso,
)
from hicache_checks.mutants.faulty_liveness import LIVENESS_MUTANTS, LivenessMutant
from hicache_checks.reporting import Screen
from hicache_checks.reporting.lasso import print_lasso
from hicache_checks.reporting.progress import Progress
from hicache_spec import Bounds, BoundSpec, Design
from hicache_spec.bounds import SMALL, SOLO_CHURN, TINY
from hicache_spec.designs import DECIDE_AT_DRAIN
from hicache_spec.language import State, action, require
from quick import one_quick
from toy_graph import Edge, graph_of
from toy_turns import WORKERS, TurnBounds, Turns

CANONICAL = DECIDE_AT_DRAIN
TOY = Design("turns", "", Turns, (toy_turns,), {})
FAIR, UNFAIR = (0, 1), 2
"""Steps of the random graphs."""


@action(fairness="weak", chosen=("worker",), worker=WORKERS)
def serve_whom_you_like(s: State, worker: int) -> None:
    """§2 Somebody is served; nobody in particular."""
    require(s.asks[worker], "the worker has asked")
    require(not s.locked, "the door is open")
    s.asks[worker] = False


def toy(bounds: TurnBounds, design: Design = TOY) -> tuple[BoundSpec, dict[str, LivenessResult]]:
    spec = BoundSpec(design, bounds)
    return spec, {r.label: r for r in check_liveness(graph_by_objects(spec))}


def actions(spec: BoundSpec, run: tuple[int, ...]) -> list[str]:
    return [spec.steps[n].label for n in run]


# ---- the toy


def test_what_is_promised_to_each_worker_is_kept() -> None:
    _, results = toy(TurnBounds())
    assert results["live_asking_is_served(worker=0)"].lasso is None
    assert results["live_asking_is_served(worker=1)"].lasso is None


def test_what_nobody_promises_need_not_happen() -> None:
    """No promised action is possible: the run may stay where it is."""
    spec, results = toy(TurnBounds())
    assert results["live_it_gets_dark()"].lasso == Lasso((), ())
    assert tell_lasso(spec, Lasso((), ())).stem == ()


def test_a_promise_to_somebody_lets_another_starve() -> None:
    design = TOY.variant("somebody", "", {"sched_serve": serve_whom_you_like})
    spec, results = toy(TurnBounds(), design)
    lasso = results["live_asking_is_served(worker=0)"].lasso
    assert lasso is not None
    assert actions(spec, lasso.stem) == ["env_ask(worker=0)"]
    assert actions(spec, lasso.loop) == ["env_ask(worker=1)", "sched_serve(worker=1)"]
    assert promises(spec)[1] == ["sched_serve()"]


def test_weak_fairness_does_not_help_who_is_sometimes_not_enabled() -> None:
    spec, results = toy(TurnBounds(locks=True))
    lasso = results["live_asking_is_served(worker=1)"].lasso
    assert lasso is not None
    assert actions(spec, lasso.stem) == ["env_ask(worker=1)"]
    assert actions(spec, lasso.loop) == ["env_turn_key()", "env_turn_key()"]


def test_promises_are_per_value_of_what_is_not_chosen() -> None:
    spec = BoundSpec(CANONICAL, SOLO_CHURN)
    of_step, names = promises(spec)
    assert {"query_take(rank=0)", "query_take(rank=1)", "query_ask_storage(rank=0)", "sched_drain()"} <= set(names)
    assert not [name for name in names if name.startswith(("sched_abort", "sched_stop", "io_fail_page"))]
    drains = {int(of_step[n]) for n, step in enumerate(spec.steps) if step.rule.name == "sched_drain"}
    assert len(drains) == 1


def test_a_cut_graph_decides_nothing() -> None:
    graph = graph_by_objects(BoundSpec(CANONICAL, SOLO_CHURN), max_states=10)
    with pytest.raises(ValueError, match="complete graph"):
        check_liveness(graph)


# ---- random graphs, against the definition


def fair_for_ever(states: frozenset[int], edges: list[Edge], everything: list[Edge]) -> bool:
    """Can a run visit exactly these states infinitely often, by these edges, fairly? One state may be stayed in."""
    inside = [(s, t, step) for s, t, step in edges if s in states and t in states]
    reach = {s: {s} for s in states}
    for _ in states:
        for s, t, _step in inside:
            for seen in reach.values():
                if s in seen:
                    seen.add(t)
    stays = not inside and len(states) == 1
    if not stays and not (inside and all(seen == states for seen in reach.values())):
        return False
    return all(
        any(all((s, step) != (state, fair) for s, _, step in everything) for state in states)
        or any(step == fair for _, _, step in inside)
        for fair in FAIR
    )


def is_violated(size: int, edges: list[Edge], pending: set[int], goal: set[int]) -> bool:
    """Some run passes a pending state and never sees the goal from there on."""
    open_ = set(range(size)) - goal
    reached = {0}
    for _ in range(size):
        reached |= {t for s, t, _ in edges if s in reached}
    armed = reached & pending & open_
    inner = [e for e in edges if e[0] in open_ and e[1] in open_]
    for _ in range(size):
        armed |= {t for s, t, _ in inner if s in armed}
    subsets = chain.from_iterable(combinations(sorted(open_), n) for n in range(1, size + 1))
    return any(set(c) & armed and fair_for_ever(frozenset(c), inner, edges) for c in subsets)


def assert_is_a_lasso(graph: Graph, lasso: Lasso, pending: set[int], goal: set[int]) -> None:
    columns = (graph.sources.tolist(), graph.targets.tolist(), graph.steps.tolist())
    after = {(s, step): t for s, t, step in zip(*columns, strict=True)}
    run = [0]
    for step in lasso.stem:
        run.append(after[run[-1], step])
    home = run[-1]
    circle = [home]
    for step in lasso.loop:
        circle.append(after[circle[-1], step])
    assert circle[-1] == home
    run += circle
    assert any(state in pending and not goal & set(run[n:]) for n, state in enumerate(run))
    for fair in FAIR:
        assert fair in lasso.loop or any((state, fair) not in after for state in circle)


@st.composite
def cases(draw: st.DrawFn) -> tuple[int, list[Edge], set[int], set[int]]:
    size = draw(st.integers(1, 5))
    state = st.integers(0, size - 1)
    edges = draw(
        st.lists(st.tuples(state, state, st.integers(0, UNFAIR)), max_size=12, unique_by=lambda e: (e[0], e[2]))
    )
    return size, edges, draw(st.sets(state)), draw(st.sets(state))


@given(cases())
def test_the_verdict_is_that_of_the_definition(case: tuple[int, list[Edge], set[int], set[int]]) -> None:
    size, edges, pending, goal = case
    graph = graph_of(size, edges, FAIR)
    masks = [np.array([n in members for n in range(size)], bool) for members in (pending, goal)]
    lasso = find_lasso(graph, Fairness(graph), *masks)
    assert (lasso is not None) == is_violated(size, edges, pending, goal)
    if lasso is not None:
        assert_is_a_lasso(graph, lasso, pending, goal)


# ---- the designs


@pytest.mark.heavy
@pytest.mark.parametrize("bounds", TINY, ids=lambda b: b.name)
def test_the_canonical_design_is_live_at_tiny(bounds: Bounds) -> None:
    results = check_liveness(graph_by_objects(BoundSpec(CANONICAL, bounds)))
    assert {r.name for r in results} == {r.name for r in CANONICAL.rules() if r.kind == "live"}
    assert len(results) == bounds.requests * bounds.attempts + 1
    assert not [r.label for r in results if r.lasso is not None]


@pytest.mark.heavy
@pytest.mark.parametrize("bounds", [b for b in SMALL if b not in TINY], ids=lambda b: b.name)
def test_the_canonical_design_is_live_at_small(bounds: Bounds) -> None:
    assert not [r.label for r in check_liveness(graph_by_objects(BoundSpec(CANONICAL, bounds))) if r.lasso is not None]


# ---- the mutants


def spec_of(mutant: LivenessMutant) -> BoundSpec:
    return BoundSpec(CANONICAL.variant(mutant.name, "", mutant.replaces), mutant.bounds)


@pytest.mark.parametrize("mutant", one_quick(LIVENESS_MUTANTS), ids=lambda m: m.name)
def test_only_liveness_catches_a_mutant(mutant: LivenessMutant) -> None:
    spec = spec_of(mutant)
    safety = explore(spec)
    assert safety.complete
    assert safety.violation is None, "no state, no step and no deadlock gives it away"
    graph = graph_by_objects(spec)
    violated = {r.name: r.lasso for r in reversed(check_liveness(graph)) if r.lasso is not None}
    lasso = violated[mutant.caught_by]
    assert (len(lasso.stem), len(lasso.loop)) == (mutant.stem, mutant.loop)
    told = tell_lasso(spec, lasso)
    s = spec.initial()
    for n in lasso.stem:
        spec.steps[n].run(s)
    home = spec.encode(s)
    for n in lasso.loop:
        spec.steps[n].run(s)
    assert spec.encode(s) == home, "the loop comes back"
    assert [t.number for t in (*told.stem, *told.loop)] == list(range(1, mutant.stem + mutant.loop + 1))


@pytest.mark.parametrize("mutant", one_quick(LIVENESS_MUTANTS), ids=lambda m: m.name)
def test_the_configuration_is_innocent(mutant: LivenessMutant) -> None:
    results = check_liveness(graph_by_objects(BoundSpec(CANONICAL, mutant.bounds)))
    assert not [r.label for r in results if r.lasso is not None]


def test_every_liveness_property_catches_a_mutant() -> None:
    assert {m.caught_by for m in LIVENESS_MUTANTS} == {r.name for r in CANONICAL.rules() if r.kind == "live"}
    names = [m.name for m in LIVENESS_MUTANTS]
    assert len(set(names)) == len(names) >= 6


def test_the_page_lists_them_all() -> None:
    page = Path(__file__).resolve().parents[1] / "spec" / "SPEC.md"
    tables = spec_tables.page_tables(page.read_text(encoding="utf-8"))["7"]
    rows = next(t for t in tables if t.headers == ("fault", "looked for in", "breaks", "stem", "loop")).rows
    assert rows == tuple(
        (f"`{m.name}`", f"`{m.bounds.name}`", f"`{m.caught_by}`", str(m.stem), str(m.loop)) for m in LIVENESS_MUTANTS
    )


# ---- what a user sees


def printed(spec: BoundSpec, result: LivenessResult, capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert result.lasso is not None
    told = tell_lasso(spec, result.lasso)
    screen = Screen(Console(width=200, highlight=False, soft_wrap=True), Progress(sys.stderr))
    print_lasso(screen, f"{result.label} is violated", result.title, told.stem, told.loop)
    return capsys.readouterr().out.splitlines()


def test_a_lasso_is_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    spec, results = toy(TurnBounds(locks=True))
    lines = printed(spec, results["live_asking_is_served(worker=1)"], capsys)
    assert lines == [
        "live_asking_is_served(worker=1) is violated",
        "  Who asks is served.",
        "      step  actor  action             what changed",
        "         1  env    env_ask(worker=1)  asks[1]: no -> yes",
        "loop     2  env    env_turn_key()     locked: no -> yes",
        "loop     3  env    env_turn_key()     locked: yes -> no",
        "  and then steps 2 to 3 again, for ever",
        "",
    ]


def test_a_loop_of_one_step_that_changes_nothing_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    mutant = next(m for m in LIVENESS_MUTANTS if m.name == "sched_polls_in_vain")
    spec = spec_of(mutant)
    result = check_liveness(graph_by_objects(spec))[0]
    lines = printed(spec, result, capsys)
    assert lines[-3].split() == ["loop", "14", "sched", "sched_poll(request=0)", "nothing"]
    assert lines[-2] == "  and then step 14 again, for ever"


def test_staying_for_ever_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    spec, results = toy(TurnBounds())
    assert printed(spec, results["live_it_gets_dark()"], capsys)[-2] == (
        "  and then nothing: nothing that must go on can go on"
    )
