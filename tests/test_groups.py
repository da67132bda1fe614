"""§14 Groups: pinned sizes, outcomes, liveness, faulty rules, and the grid itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hicache_checks.engine.engines import EngineOptions, explore
from hicache_checks.engine.liveness import PROMISES_MAX, promises
from hicache_checks.engine.native.build import compiler
from hicache_checks.explore_command import ExploreOptions, configurations_of
from hicache_checks.export_command import model_of
from hicache_checks.reporting import InputError
from hicache_spec import BoundSpec, Refused
from hicache_spec.language import Symbol
from hicache_spec.parts.grid import (
    AFTER_POINT,
    AFTER_SEAT,
    CP,
    DRAIN_CP,
    DRAIN_TP,
    FLAGS_PP,
    FREE,
    HIT_PP,
    JUDGING,
    LINE,
    LINES,
    POLLING,
    PP,
    SAMPLING,
    SHARD,
    TAKING,
    TP,
    Grid,
)
from hicache_spec.parts.groups_design import GROUPS, GROUPS_BOUNDS, PAIR

ARRAY = EngineOptions("array")
needs_compiler = pytest.mark.skipif(compiler() is None, reason="there is no C compiler")
PAGE = (Path(__file__).resolve().parents[1] / "spec" / "SPEC.md").read_text(encoding="utf-8")


def resolved(symbol: object, grid: Grid) -> object:
    """What a name of the grid stands for in a configuration."""
    assert isinstance(symbol, Symbol)
    return symbol.resolve(grid)


# ---- the grid


def test_groups_are_the_ranks_that_differ_in_one_coordinate() -> None:
    cube = Grid("cube", tp=2, cp=2, pp=2)
    places = list(cube.places())
    assert len(places) == cube.ranks == 8
    order = {CP: 1, TP: 2, PP: 0}
    for axis, coordinate in order.items():
        lines = cube.lines(axis)
        for a in range(8):
            for b in range(8):
                others = [x for i, x in enumerate(places[a]) if i != coordinate]
                same = others == [x for i, x in enumerate(places[b]) if i != coordinate]
                assert (lines[a] == lines[b]) == same
    assert resolved(LINE, cube) == tuple(cube.lines(axis) for axis in range(3))
    assert resolved(LINES, cube) == range(4)


def test_groups_of_one_are_passed_over() -> None:
    square, line, solo = Grid("a", tp=2, cp=2), Grid("b", tp=1, pp=2), Grid("c", tp=1)
    after = {grid.name: resolved(AFTER_POINT, grid) for grid in (square, line, solo)}
    assert after["a"][SAMPLING] == DRAIN_CP  # type: ignore[index]
    assert after["a"][DRAIN_CP] == DRAIN_TP  # type: ignore[index]
    assert after["b"][SAMPLING] == TAKING, "nobody to agree with in the stage"  # type: ignore[index]
    assert after["b"][POLLING] == FLAGS_PP  # type: ignore[index]
    assert after["c"][POLLING] == JUDGING  # type: ignore[index]
    assert resolved(AFTER_SEAT, line)[FREE] == HIT_PP  # type: ignore[index]


def test_every_slice_and_every_stage_has_a_writer_of_its_own() -> None:
    cube = Grid("cube", tp=2, cp=2, pp=2, backup=True, replicated=True)
    assert resolved(SHARD, cube) == (0, 0, 2, 2, 4, 4, 6, 6)
    assert resolved(SHARD, replace(cube, replicated=False)) == tuple(range(8))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tp": 0}, "tp must be at least 1, not 0"),
        ({"requests": 0}, "requests must be at least 1, not 0"),
        ({"replicated": True}, "replicated without backup says nothing"),
    ],
)
def test_impossible_grids_are_refused_in_one_line(changes: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message) as refusal:
        Grid(**changes)  # type: ignore[arg-type]
    assert "\n" not in str(refusal.value)


# ---- the design


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(("deaths", "states"), [(0, 359_678), (1, 1_747_870)])
def test_the_walk_of_eight_ranks_on_three_axes_holds(deaths: int, states: int) -> None:
    grid = Grid("cube", tp=2, cp=2, pp=2, fetches=False, deaths=deaths)
    result = explore(BoundSpec(GROUPS, grid), EngineOptions("native", threads=2))
    assert result.violation is None
    assert (result.states, result.complete) == (states, True)
    assert f"{states:,}" in PAGE


@pytest.mark.parametrize("grid", GROUPS_BOUNDS, ids=lambda g: g.name)
def test_an_engine_can_decide_all_that_is_promised(grid: Grid) -> None:
    assert len(promises(BoundSpec(GROUPS, grid))[1]) <= PROMISES_MAX


def test_a_refused_action_leaves_the_state_untouched() -> None:
    spec = BoundSpec(GROUPS, Grid("line", tp=1, pp=2, deaths=1))
    seen, waiting, refused = {spec.encode(spec.initial())}, [spec.encode(spec.initial())], 0
    reasons: set[str] = set()
    changed = 0
    while waiting:
        key = waiting.pop()
        for step in spec.steps:
            s = spec.decode(key)
            try:
                step.run(s)
            except Refused as refusal:
                reasons.add(str(refusal))
                changed += spec.encode(s) != key
                refused += 1
                continue
            if spec.encode(s) not in seen:
                seen.add(spec.encode(s))
                waiting.append(spec.encode(s))
    assert changed == 0
    assert "" not in reasons
    assert len(seen) > 500
    assert refused > 5_000


# ---- the command


def test_groups_are_explored_in_bounds_of_their_own() -> None:
    for bounds in (None, "groups"):
        assert configurations_of(ExploreOptions(design="groups", bounds=bounds)) == GROUPS_BOUNDS
    options = ExploreOptions(design="groups", requests=2)
    assert {grid.requests for grid in configurations_of(options)} == {2}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (ExploreOptions(design="groups", bounds="tiny"), "the bounds tiny are not those of the design groups"),
        (ExploreOptions(bounds="groups"), "the bounds groups are not those of the design decide_at_drain"),
        (ExploreOptions(design="groups", host_pages=3), "the bounds groups do not have all of host_pages"),
    ],
)
def test_bounds_that_do_not_fit_are_refused_in_one_line(options: ExploreOptions, message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}$"):
        configurations_of(options)


@pytest.mark.parametrize("language", ["tla", "promela"])
def test_groups_are_exported(language: str) -> None:
    (text, *_) = model_of(language, "groups", PAIR).files.values()
    assert "sched_follow" in text
