"""Random small specifications: the compiled engines find what plain Python objects find."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, note, settings

from engine_comparison import explore_alike, findings
from hicache_checks.engine import explore as objects
from hicache_checks.engine.engines import EngineOptions, explore
from hicache_checks.engine.native.build import compiler
from hicache_spec import BoundSpec
from random_specs import load, random_specs

STATES_MAX = 400
ARRAY = EngineOptions("array")
needs_compiler = pytest.mark.skipif(compiler() is None, reason="there is no C compiler")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where specifications are written; their kernels are kept apart from the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield tmp_path_factory.mktemp("specs")


def agree(folder: Path, examples: int, *engines: EngineOptions) -> Counter[str]:
    """Explore so many random specifications alike; what there was to be seen, and in how many of them."""
    seen: Counter[str] = Counter()

    @settings(max_examples=examples)
    @given(random_specs())
    def check(text: str) -> None:
        note(text)
        spec = load(text, folder)
        results = [explore_alike(spec, options, STATES_MAX) for options in engines]
        if ARRAY in engines and results[0].complete:
            explore_each_property_alike(spec, sorted(results[0].first)[:2])
        seen.update({name.split("_")[0] for name in results[0].first})
        seen["reached"] += bool(results[0].reached)
        seen["deep"] += results[0].complete and results[0].depth > 3
        seen["cut"] += not results[0].complete

    check()
    return seen


def explore_each_property_alike(spec: BoundSpec, names: list[str]) -> None:
    """A property by itself may be the first to break, with a longer run."""
    for name in names:
        assert findings(explore(spec, ARRAY, only={name})) == findings(objects.explore(spec, only={name}))


def test_objects_and_arrays_find_the_same_in_a_few_specifications(folder: Path) -> None:
    agree(folder, 10, ARRAY)


@pytest.mark.heavy
def test_objects_and_arrays_find_the_same(folder: Path) -> None:
    seen = agree(folder, 60, ARRAY)
    assert all(seen[what] > 0 for what in ("inv", "step", "deadlock", "state", "reached", "cut"))
    assert seen["deep"] > 20


@pytest.mark.heavy
def test_objects_and_tensors_find_the_same(folder: Path) -> None:
    agree(folder, 15, EngineOptions("array", device="cpu"))


@needs_compiler
@pytest.mark.heavy
def test_objects_and_c_find_the_same(folder: Path) -> None:
    seen = agree(folder, 16, EngineOptions("native"), EngineOptions("native", threads=2))
    assert all(seen[what] > 0 for what in ("inv", "step", "reached"))
    assert seen["deep"] > 5


@needs_compiler
@pytest.mark.slow
def test_all_engines_find_the_same_in_many_specifications(folder: Path) -> None:
    seen = agree(folder, 600, ARRAY, EngineOptions("native", threads=2))
    assert all(seen[what] > 10 for what in ("inv", "step", "deadlock", "state", "reached", "cut"))
