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
from random_specs import load, random_specs

STATES_MAX = 400
needs_compiler = pytest.mark.skipif(compiler() is None, reason="there is no C compiler")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where specifications are written; their kernels are kept apart from the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield tmp_path_factory.mktemp("specs")


def agree(folder: Path, examples: int, *engines: EngineOptions) -> Counter[str]:
    """Explore so many random specifications alike; how many had states, depth, violations and outcomes to speak of."""
    seen: Counter[str] = Counter()

    @settings(max_examples=examples)
    @given(random_specs())
    def check(text: str) -> None:
        note(text)
        spec = load(text, folder)
        for options in engines:
            result = explore_alike(spec, options, STATES_MAX)
        seen["cut" if not result.complete else "deep" if result.depth > 3 else "shallow"] += 1
        seen.update({name.split("_")[0] for name in result.first} | {"reached"} if result.reached else set())
        if EngineOptions("array") in engines and result.complete:
            for name in sorted(result.first)[:2]:  # a property alone: later than the first to break, maybe
                alone, mine = (find(spec, name) for find in (by_arrays, by_objects))
                assert alone == {**mine, "reached": set()}

    check()
    return seen


def by_arrays(spec, name):
    return findings(explore(spec, EngineOptions("array"), only={name}))


def by_objects(spec, name):
    return findings(objects.explore(spec, only={name}))
