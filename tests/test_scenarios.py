"""Scenarios: the format, and what a scenario says of a target."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest

from conform_run import ran
from hicache_checks.conformance import scenario as scenarios
from hicache_checks.conformance.findings import Finding
from hicache_checks.conformance.program import Step
from hicache_checks.conformance.target import kind_of
from hicache_checks.reporting import InputError, Verdict
from hicache_checks.scenario_command import ScenarioOptions, Tried, run, verdict_of
from hicache_checks.targets.releases import release_of
from release_under_test import have

HEADER = """
title = "a page is lost"
source = ["a test"]
shows = ["P4", "P13"]
affected = []
repaired = []
"""
STEPS = 'steps = [["store", [1, 2]], ["submit", "a", [1, 2]], ["turn"]]'


@pytest.mark.parametrize("name", scenarios.names())
def test_every_scenario_can_be_read_and_names_releases(name: str) -> None:
    scenario = scenarios.read(name)
    assert scenario.shows
    assert scenario.source
    assert scenario.affected, "a scenario that nobody shows proves nothing"
    for target in (*scenario.affected, *scenario.repaired):
        assert release_of(kind_of(target)[0]) is not None, target
    assert not set(scenario.affected) & set(scenario.repaired)


def test_every_scenario_that_the_list_of_bugs_names_is_there() -> None:
    page = (Path(__file__).parent.parent / "docs" / "results" / "scenarios.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([BNW]\d\d\w?-[\w-]+)`", page))
    assert len(named) > 30
    assert named <= set(scenarios.names())


def test_steps_and_system_are_those_of_a_program() -> None:
    scenario = scenarios.parsed(
        HEADER + STEPS + "\n[system]\nranks = 2\nhost_pages = 3\nmore = {page_size = 4}", "here"
    )
    assert scenario.program == [Step("store", ((1, 2),)), Step("submit", ("a", (1, 2))), Step("turn")]
    assert (scenario.setup.ranks, scenario.setup.host_pages, scenario.setup.config()["page_size"]) == (2, 3, 4)
    assert scenarios.from_document(scenarios.to_document(scenario)) == scenario


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("title = ", "not a scenario"),
        (HEADER, "missing required field `steps`"),
        (HEADER + 'steps = [["explode"]]', "there is no step ['explode']"),
        (HEADER + "steps = [[]]", "there is no step []"),
        (HEADER + STEPS + "\nmood = 1", "unknown field `mood`"),
        (HEADER + STEPS + '\n[system]\npolicy = "never"', "there is no policy 'never'"),
    ],
)
def test_what_is_no_scenario_is_one_line(text: str, problem: str) -> None:
    with pytest.raises(InputError) as refused:
        scenarios.parsed(text, "here")
    assert str(refused.value).startswith("here: not a scenario: ")
    assert problem in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_scenario_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no scenario 'nonsense'"):
        scenarios.read("nonsense")
    with pytest.raises(InputError, match="No such file"):
        scenarios.read(str(tmp_path / "nothing.toml"))


@pytest.mark.heavy
def test_a_scenario_tells_a_faulty_implementation_from_a_right_one(tmp_path: Path) -> None:
    file = tmp_path / "lost.toml"
    steps = '[["store", [1, 2, 3]], ["lose", 0, [1, 2]], ["submit", "a", [1, 2, 3]], ["settle"], ["turn"], ["settle"]]'
    file.write_text(HEADER.replace('"P13"', '"P3"') + f"steps = {steps}")
    faulty = ran(lambda screen: run(ScenarioOptions(str(file), "reference+io_drops_the_tail"), screen))
    assert (faulty.code, faulty.keys["scenarios"][0]["shown"]) == (1, True)
    assert "P3" in faulty.text
    right = ran(lambda screen: run(ScenarioOptions(str(file), "reference"), screen))
    assert (right.code, right.keys["scenarios"][0]["shown"]) == (0, False)


def test_a_scenario_is_judged_by_what_it_says_or_by_what_is_asked() -> None:
    shown = Tried("s", "t", True, 3, Finding("P4", "lost"))
    hidden = Tried("s", "u", False, 50)
    assert verdict_of([shown, hidden], is_asked=False) is Verdict.PASS
    assert verdict_of([Tried("s", "t", True, 50)], is_asked=False) is Verdict.FAIL
    assert verdict_of([Tried("s", "u", False, 1, Finding("P4", "lost"))], is_asked=False) is Verdict.FAIL
    assert verdict_of([Tried("s", "t", None, 1, Finding("P4", "lost"))], is_asked=True) is Verdict.FAIL
    assert verdict_of([Tried("s", "t", None, 50)], is_asked=True) is Verdict.PASS
    assert verdict_of([Tried("s", "t", True, why="it cannot be fetched")], is_asked=False) is Verdict.ERROR


@pytest.mark.parametrize(
    ("what", "is_shown"),
    [
        ("P7", True),
        ("P7 lockstep", True),
        ("P7: ranks differ", True),
        ("P7: all_reduce", False),
        ("P2: ranks differ", False),
    ],
)
def test_what_a_scenario_shows_may_be_words_of_a_finding(what: str, is_shown: bool) -> None:
    finding = Finding("P7 lockstep", "ranks differ: rank 0: free_pages 1; rank 1: free_pages 6", place="rest")
    assert scenarios.is_shown(finding, what) is is_shown


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("name", "affected", "repaired"),
    [
        ("B05-nothing-drains-while-idle", "sglang==0.5.9", "sglang==0.5.10"),
        ("B69-retries-spent-on-nothing", "sglang==0.5.20", "sglang==0.5.21"),
        ("B32-crowded-out", "sglang==0.5.8", "sglang==0.5.9"),
    ],
)
def test_what_a_scheduler_does_by_itself_is_shown(name: str, affected: str, repaired: str) -> None:
    for release in (affected, repaired):
        have(release)
    played = ran(lambda screen: run(ScenarioOptions(name, schedules=5), screen))
    assert [(s["target"], s["shown"]) for s in played.keys["scenarios"]] == [(affected, True), (repaired, False)]
    assert played.keys["scenarios"][1]["others"] == {}


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("name", "affected", "repaired"),
    [
        ("B17-contexts-do-not-agree", "sglang==0.5.10", "sglang==0.5.11"),
        ("W06-stages-end-a-copy-each-by-itself", "sglang==0.5.12", "sglang==0.5.13"),
        ("B48-pages-without-their-indices", "sglang==0.5.16", "sglang==0.5.17"),
        ("W21-slot-of-a-load-that-is-called-off", "sglang[unified]==0.5.16", "sglang[unified]==0.5.17"),
    ],
)
def test_what_ranks_and_pools_of_other_kinds_do_is_shown(name: str, affected: str, repaired: str) -> None:
    assert shown_on(name, affected, repaired) == [(affected, True, {}), (repaired, False, {})]


@pytest.mark.heavy
def test_a_release_without_contexts_says_so() -> None:
    have("sglang==0.5.8")
    played = ran(lambda screen: run(ScenarioOptions("B17-contexts-do-not-agree", "sglang==0.5.8", 1), screen))
    assert "this release has no ranks that share a context" in played.text
    assert played.keys["scenarios"][0]["shown"] is False


def shown_on(name: str, *targets: str) -> list[tuple[str, bool, dict[str, int]]]:
    """Which of these targets show a scenario, in a few schedules, and what else they do."""
    played = []
    for target in targets:
        have(target)
        options = ScenarioOptions(name, target, 5)
        played.append(ran(partial(run, options)).keys["scenarios"][0])
    return [(one["target"], one["shown"], one["others"]) for one in played]
