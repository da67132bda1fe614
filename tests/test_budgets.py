"""A budget that runs out: never complete, and what the levels up to then break is told, by every engine alike."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine_comparison import explore_alike, without_sizes
from hicache_checks.engine import explore as objects
from hicache_checks.engine.array import search as array_search
from hicache_checks.engine.engines import EngineOptions, explore
from hicache_checks.engine.native.build import compiler
from hicache_spec import DESIGNS, BoundSpec
from hicache_spec.bounds import SOLO_CHURN
from random_specs import HEAD, load
from test_engine_faults import TEXT
from test_explore import COUNTS

CANONICAL = DESIGNS["decide_at_drain"]
ARRAY, NATIVE = EngineOptions("array"), EngineOptions("native")
needs_compiler = pytest.mark.skipif(compiler() is None, reason="there is no C compiler")
COMPILED = [
    pytest.param(ARRAY, id="array", marks=pytest.mark.heavy),
    pytest.param(NATIVE, id="native", marks=needs_compiler),
]
ENGINES = [pytest.param(EngineOptions("object"), id="object"), *COMPILED]


@pytest.mark.parametrize("options", COMPILED)
@pytest.mark.parametrize("budget", [{"max_states": 500}, {"max_bytes": 70_000}], ids=["states", "bytes"])
def test_a_budget_that_runs_out_is_not_complete(options: EngineOptions, budget: dict[str, int]) -> None:
    spec = BoundSpec(CANONICAL, SOLO_CHURN)
    bounded = replace(options, max_states=budget.get("max_states"), max_bytes=budget.get("max_bytes"))
    result = explore(spec, bounded)
    assert not result.complete
    assert result.violation is None
    assert result.bytes_peak > 0


@pytest.mark.heavy
@pytest.mark.parametrize("options", ENGINES)
def test_a_budget_that_is_just_enough_is_complete(options: EngineOptions) -> None:
    states = COUNTS[SOLO_CHURN.name][0]
    spec = BoundSpec(CANONICAL, SOLO_CHURN)
    assert explore(spec, replace(options, max_states=states)).complete
    assert not explore(spec, replace(options, max_states=states - 1)).complete


# ---- what is found before it runs out

BREAKS = {1: 0, 18: 0, 90: 0, 95: 2, 163: 2, 300: 3, 400: 3, 900: 4, 2133: 4, 2134: 4}
"""How many properties are seen to break within a budget of states; 2,134 are all that there are."""


@pytest.mark.parametrize("options", COMPILED)
def test_every_engine_finds_the_same_within_any_budget(options: EngineOptions, tmp_path: Path) -> None:
    spec = load(TEXT, tmp_path)
    found = {budget: explore_alike(spec, options, budget) for budget in BREAKS}
    assert {budget: len(result.first) for budget, result in found.items()} == BREAKS
    assert [budget for budget, result in found.items() if result.complete] == [2134]
    assert found[90].violation is None
    assert found[95].violation is not None
    assert found[95].violation == found[2134].violation


WIDE = (
    HEAD.format(a=16, b=2, k=2, on=True, costs=(1, 2), grid=((0, 1), (2, 3)))
    + '''    x = field(flag(), A)


@action(fairness="weak", p=A)
def act(s: State, p: int) -> None:
    """§2.1 Act."""
    require(not s.x[p], "it is not yet so")
    s.x[p] = True


@quiescent
def rests(s: State) -> bool:
    """§1 It may."""
    return True


@sometimes
def sometimes_last(s: State, t: State) -> bool:
    """§5.1 The last seven."""
    return all(t.x[a] == (a > 8) for a in A)


@invariant
def inv(s: State) -> bool:
    """§3.1 It never comes to the last seven alone."""
    return not all(s.x[a] == (a > 8) for a in A)
'''
)


@pytest.mark.heavy
@pytest.mark.parametrize("options", COMPILED)
def test_the_level_in_which_a_budget_runs_out_is_checked_to_its_end(
    options: EngineOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Levels 0 to 6 have 14,893 states, level 7 has 11,440 more; the one that matters is the last of them."""
    monkeypatch.setattr(array_search, "CHUNK", 64)
    spec = load(WIDE, tmp_path)
    found = explore(spec, replace(options, max_states=15_000))
    assert found.states < 25_000, "it is cut within the level"
    assert (found.first, found.reached) == ({"inv": 7}, {"sometimes_last"})
    assert without_sizes(found) == without_sizes(objects.explore(spec, 15_000))
