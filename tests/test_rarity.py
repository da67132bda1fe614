"""How rare the timing of a finding is: one that is always there, and one that needs an interruption."""

from __future__ import annotations

from pathlib import Path

import pytest

from conform_run import conform
from hicache_checks.conformance.program import Setup, Step
from hicache_checks.conformance.rarity import Rarity, rarity
from hicache_checks.conformance.schedule import run_script
from hicache_checks.conformance.search import SearchOptions
from hicache_checks.conformance.target import Target, opened
from hicache_checks.simulation.choices import Seeded
from hicache_checks.simulation.strategies import Walk

RACE = '''
import threading
import time

class Counter:
    """Adds one in two steps, between which somebody else may do so."""

    def capabilities(self): return ("settle",)
    def reset(self, config): self.pages, self.count, self.added = config["host_pages"], 0, 0
    def submit(self, rid, tokens): return {"accepted": False}
    def poll(self, rids): return {rid: {"ready": True} for rid in rids}
    def abort(self, rid): return False
    def add(self):
        seen = self.count
        time.sleep(0)
        self.count = seen + 1
    def tick(self):
        both = [threading.Thread(target=self.add) for _ in range(2)]
        for one in both: one.start()
        for one in both: one.join()
        self.added += 2
        if MUST_DIFFER or self.count != self.added: raise ValueError("P4 a count is lost")
    def observe(self): return {"free_pages": self.pages, "resident_pages": 0, "occupied_pages": 0, "operations": {}}
    def settle(self): pass
    def close(self): pass
'''


def opened_race(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, must_differ: bool) -> str:
    (tmp_path / f"{name}.py").write_text(f"{RACE}\nMUST_DIFFER = {must_differ}\n")
    monkeypatch.syspath_prepend(tmp_path)
    return f"{name}:Counter"


def weighed(target: Target) -> Rarity:
    """Of the first finding that random orders of one turn show."""
    setup, steps = Setup(), [Step("tick")]
    for seed in range(100):
        choices = Seeded(seed)
        found = run_script(target.build, setup, steps, choices, Walk(choices.random), target.judge).finding
        if found is not None:
            return rarity(target, setup, steps, found)
    raise AssertionError("no order shows it")


def test_what_needs_an_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(opened_race(tmp_path, monkeypatch, "sometimes", False), simulate=True) as target:
        rare = weighed(target)
    assert not rare.plain
    assert 0 < rare.shown < rare.tried
    assert str(rare) == f"needs an interruption: shows in {rare.shown} of {rare.tried} random orders of its program"


def test_what_needs_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(opened_race(tmp_path, monkeypatch, "always", True), simulate=True) as target:
        always = weighed(target)
    assert (always.plain, always.shown) == (True, always.tried)


def test_a_finding_says_how_rare_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = conform(opened_race(tmp_path, monkeypatch, "said", True), SearchOptions(schedules=5, ranks=1))
    (finding,) = ran.keys["findings"]
    assert finding["rarity"]["plain"] is True
    assert "shows without any interruption, and in" in ran.text
