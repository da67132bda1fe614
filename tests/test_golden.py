"""Golden counterexamples: each is the same run on its fault, told in the same few steps, and no counterexample on the
reference. `python tests/golden_files.py` makes them again.
"""

from __future__ import annotations

import pytest

from golden_files import GOLDEN, PLACE, REFERENCE, STEPS_MAX, Golden, replayed, steps_of, told
from hicache_checks.conformance import replay_file
from hicache_checks.conformance.findings import Finding
from hicache_checks.conformance.replaying import Again
from hicache_checks.conformance.target import opened
from quick import one_quick


@pytest.mark.parametrize("golden", one_quick(GOLDEN), ids=lambda golden: golden.mutant)
def test_a_golden_run(golden: Golden) -> None:
    replay = replay_file.read(golden.replay)
    assert golden.is_shown_by(replay.found)
    with opened(golden.target, simulate=True) as target:
        again, story = replayed(target, replay)
    assert again.is_same, "the steps of a run have changed: make the golden files again"
    assert again.finding == replay.found
    assert steps_of(story) <= STEPS_MAX
    with opened(REFERENCE, simulate=True) as reference:
        repaired, _ = replayed(reference, replay)
    assert repaired.finding is None
    assert told(golden, story, repaired, replay) == golden.told.read_text(encoding="utf-8")


def test_ten_kinds_each_with_its_files() -> None:
    assert len(GOLDEN) == len({golden.kind for golden in GOLDEN}) == len({golden.mutant for golden in GOLDEN}) == 10
    assert {golden.replay for golden in GOLDEN} | {golden.told for golden in GOLDEN} == set(PLACE.iterdir())


def test_what_is_told_says_what_becomes_of_it_on_the_reference() -> None:
    golden = GOLDEN[0]
    replay = replay_file.read(golden.replay)
    with opened(golden.target, simulate=True) as target:
        _, story = replayed(target, replay)
    lines = told(golden, story, Again(Finding("P1", "wrong"), is_same=True, story=story), replay).splitlines()
    assert lines[0] == f"{golden.kind}: {golden.mutant}"
    assert lines[-1] == "reference: fail; the same run, step by step"
