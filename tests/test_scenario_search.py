"""Do random programs find what a scenario tells? Two small targets, of which one is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conform_run import ran
from hicache_checks import scenario_search
from hicache_checks.scenario_search import PROGRAMS_MAX, SearchedOptions

TARGET = '''
class Counter:
    """Does nothing; may lose count."""

    def capabilities(self): return ()
    def reset(self, config): self.pages = config["host_pages"]
    def submit(self, rid, tokens): return {"accepted": False}
    def poll(self, rids): return {rid: {"ready": True} for rid in rids}
    def abort(self, rid): return False
    def tick(self):
        if self.pages in WRONG_WITH: raise ValueError("P4 a count is lost")
    def observe(self): return {"free_pages": self.pages, "resident_pages": 0, "occupied_pages": 0, "operations": {}}
    def close(self): pass
'''
SCENARIO = """
title = "a count is lost"
source = ["a test"]
shows = [{shows}]
affected = ["{affected}:Counter"]
repaired = ["{repaired}:Counter"]
steps = [["tick"]]
"""


def searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repaired: str, shows: str = '"P4"') -> dict[str, Any]:
    every = {"wrong_one": (2, 3, 4, 5, 6), "right_one": (), "wrong_too": (2, 3, 4, 5, 6), "wrong_with_six": (6,)}
    for name, wrong_with in every.items():
        (tmp_path / f"{name}.py").write_text(f"{TARGET}\nWRONG_WITH = {wrong_with}\n")
    monkeypatch.syspath_prepend(tmp_path)
    scenario = tmp_path / "lost.toml"
    scenario.write_text(SCENARIO.format(affected="wrong_one", repaired=repaired, shows=shows))
    done = ran(lambda screen: scenario_search.run(SearchedOptions(str(scenario), seconds=1.0, jobs=1), screen))
    assert done.code == 0
    (one,) = done.keys["scenarios"]
    return {**one, "text": done.text}


def test_what_search_shows_too_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = searched(tmp_path, monkeypatch, "right_one")
    (what,) = one["found"]
    assert "P4" in what
    assert one["on_the_repaired_too"] == []
    assert "finds 1 of 1 scenario" in str(one["text"])


def test_what_the_repaired_one_shows_too_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = searched(tmp_path, monkeypatch, "wrong_too")
    assert one["found"] == {}
    assert len(one["on_the_repaired_too"]) == 1
    assert "so it may be another" in str(one["text"])


def test_what_only_other_programs_show_on_the_repaired_one_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = searched(tmp_path, monkeypatch, "wrong_with_six")
    (what,) = one["found"]
    assert 0 < one["found"][what] == one["programs_apart"][what] < PROGRAMS_MAX
    assert len(one["on_the_repaired_too"]) == 1
    assert "programs, not on wrong_with_six:Counter" in str(one["text"])


def test_a_scenario_that_shows_nothing_is_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = searched(tmp_path, monkeypatch, "right_one", '"P9"')
    assert one["found"] == {}
    assert "nor does the scenario" in str(one["text"])
