"""An outsider's fork under the harness: it conforms, and what is planted in it is found, replayed, and gone again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from conform_run import conform, ran
from hicache_checks import replay_command
from hicache_checks.conformance.search import SearchOptions
from hicache_checks.replay_command import ReplayOptions

TESTS = Path(__file__).parent
TARGET = "toy_adapter:ToyAdapter"
ADAPTER_LINES_MAX = 30

# What is left out or put in, and the property that it breaks.
FAULTS = {
    "leaks_the_unread_tail": (
        "            self._given_back += fetch.empty\n",
        "",
        "P4 inv_pages_conserved",
    ),
    "stays_occupied_after_a_revoke": (
        "        if fetch.over or pages < self._least:\n            self._end(fetch)\n",
        "        if fetch.over or pages < self._least:\n            del self.wanted[fetch.rid]\n",
        "P8 inv_occupied_is_sum_of_spans",
    ),
}


def code_lines(path: Path) -> list[str]:
    """Without blank lines and docstrings of one line."""
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line and not line.startswith(('"""', "#"))]


def test_the_adapter_is_short() -> None:
    assert len(code_lines(TESTS / "toy_adapter.py")) <= ADAPTER_LINES_MAX


def test_the_fork_shares_nothing_with_the_reference() -> None:
    texts = [path.read_text(encoding="utf-8") for path in (TESTS / "toy_fork").glob("*.py")]
    assert len(texts) == 3
    assert not any(word in text for text in texts for word in ("hicache_", "threading", "torch"))


@pytest.mark.heavy
def test_the_fork_conforms() -> None:
    search = conform(TARGET, SearchOptions(schedules=90))
    assert (search.code, search.keys["findings"]) == (0, [])
    assert search.keys["spec_states"] > 100
    assert search.keys["distinct_traces"] > 80
    assert {"submitted", "polled: UNOBSERVED"} <= search.keys["outcomes"].keys()


@pytest.mark.heavy
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_replayed_and_gone_when_repaired(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(TESTS / "toy_fork", tmp_path / "toy_fork", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(TESTS / "toy_adapter.py", tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    sound = (tmp_path / "toy_fork" / "loop.py").read_text()
    left_out, put_in, property_ = FAULTS[fault]
    assert sound.count(left_out) == 1
    (tmp_path / "toy_fork" / "loop.py").write_text(sound.replace(left_out, put_in))

    found = conform(TARGET, SearchOptions(schedules=60, stop_at_first=True), findings=tmp_path / "findings")
    (finding,) = found.keys["findings"]
    assert (found.code, finding["property"]) == (1, property_)
    assert finding["steps"] <= 4
    file = tmp_path / "findings" / f"{finding['id']}.json"
    assert f"hicheck replay {file}" in found.text

    again = ran(lambda screen: replay_command.run(ReplayOptions(file), screen))
    assert (again.code, again.keys["finding"]["id"], again.keys["same_run"]) == (1, finding["id"], True)
    assert not again.keys["target_changed"]

    (tmp_path / "toy_fork" / "loop.py").write_text(sound)
    repaired = ran(lambda screen: replay_command.run(ReplayOptions(file), screen))
    assert (repaired.code, repaired.keys["finding"], repaired.keys["target_changed"]) == (0, None, True)
