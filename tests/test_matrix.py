"""`hicheck matrix`: what is said of releases and findings, and that one bad target costs nobody else his results."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from conform_run import Ran, ran
from hicache_checks import cli, matrix_command
from hicache_checks.conformance import looking
from hicache_checks.conformance.campaign import Campaign, Reported
from hicache_checks.conformance.end_to_end import Fetched
from hicache_checks.conformance.findings import HARNESS, Finding, cause
from hicache_checks.conformance.history import histories, line_of
from hicache_checks.conformance.looking import Looked
from hicache_checks.conformance.search import SearchOptions
from hicache_checks.conformance.workers import Crash, work
from hicache_checks.matrix_command import MatrixOptions
from hicache_checks.reporting import InputError, Outcome, Screen, Verdict
from release_under_test import have
from test_reports import ALLOWED, HOSTILE, Page

DIES = Finding("P31 threads_survive", "io of rank 0 died: get of 4 pages fails", place="rest")
LEAKS = Finding("P4 inv_rest_restores_the_pool", "2 free pages are not the 6 of the pool", place="rest")
UNKNOWN_CALL = Finding("stand-in", "Lock.locked has no stand-in", HARNESS)
FETCHED = (Fetched(1), Fetched(2))
SEARCH = SearchOptions(schedules=None, seconds_max=8.0)


def looked(target: str, *found: tuple[Finding, int], fetched: tuple[Fetched, ...] = FETCHED) -> Looked:
    """A target that was searched, and what was found in how many of 100 schedules."""
    campaign = Campaign(schedules=100)
    campaign.outcomes["fetched"] = 1
    campaign.capabilities |= {"audit", "flush"}
    for finding, schedules in found:
        campaign.add(Reported(finding, schedules))
    return Looked(target, "attempts", "unified", fetched, campaign)


def lost(target: str) -> Looked:
    return Looked(target, why="there is no network")


def reported(*seen: Looked, **options: Any) -> Ran:
    """What `hicheck matrix` says of this."""
    chosen = MatrixOptions(tuple(of_one.target for of_one in seen), SEARCH, **options)
    return ran(lambda screen: matrix_command.report(chosen, seen, screen, 12.0))


def rows(text: str, title: str) -> list[list[str]]:
    """The table under a title, without what is said below it."""
    lines = text.partition(f"{title}\n")[2].splitlines()
    return [line.split() for line in lines]


# ---- the history of a finding


def test_a_finding_has_a_first_and_a_last_release() -> None:
    releases = [looked(f"sglang==0.5.{n}", *([(DIES, n)] if n in (2, 3, 4) else [])) for n in range(1, 7)]
    (history,) = histories(releases)
    assert (history.first, history.last) == ("sglang==0.5.2", "sglang==0.5.4")
    assert (len(history.seen_on), history.searched, history.later, history.schedules) == (3, 3, 2, 9)


def test_a_finding_that_comes_back_is_not_seen_on_all_between() -> None:
    releases = [looked(f"sglang==0.5.{n}", *([(DIES, 1)] if n in (1, 5) else [])) for n in range(1, 6)]
    (history,) = histories(releases)
    assert (history.first, history.last) == ("sglang==0.5.1", "sglang==0.5.5")
    assert (len(history.seen_on), history.searched, history.later) == (2, 5, 0)
    (row,) = [line for line in rows(reported(*releases).text, "each finding was seen") if cause(DIES) in line]
    assert row[3:11] == ["sglang==0.5.1", "sglang==0.5.5", "2", "of", "5", "0", "2", "io"]


def test_a_release_that_was_not_searched_says_nothing() -> None:
    releases = [looked("a==1", (DIES, 1)), lost("a==2"), looked("a==3", (DIES, 1)), lost("a==4")]
    (history,) = histories(releases)
    assert (history.seen_on, history.searched, history.later) == (("a==1", "a==3"), 2, 0)


def test_what_differs_from_run_to_run_is_one_finding_and_another_place_is_another() -> None:
    again = Finding(DIES.property, "io of rank 1 died: get of 2 pages fails", place="rest")
    elsewhere = Finding(DIES.property, DIES.message, place="submit")
    found = histories([looked("a==1", (DIES, 1)), looked("a==2", (again, 1)), looked("a==3", (elsewhere, 1))])
    assert [(history.first, history.last) for history in found] == [("a==1", "a==2"), ("a==3", "a==3")]


def test_distributions_are_compared_with_themselves() -> None:
    """What comes later in the list is not a later release of everything before it."""
    found = histories(
        [looked("one==1", (DIES, 1)), looked("one==2"), looked("other==1"), looked("other==2", (DIES, 1))]
    )
    assert [(h.first, h.last, h.searched, h.later) for h in found] == [
        ("one==1", "one==1", 1, 1),
        ("other==2", "other==2", 1, 0),
    ]
    names = ("sglang[unified]==0.5.18", "sglang==0.5.18@attempts", "path:/somewhere", "reference")
    assert [line_of(name) for name in names] == ["sglang[unified]", "sglang@attempts", "path:/somewhere", "reference"]


def test_findings_are_listed_by_property() -> None:
    found = histories([looked("a==1", (DIES, 1), (Finding("raises", "KeyError: 1"), 1)), looked("a==2", (LEAKS, 1))])
    assert [history.finding.property for history in found] == [LEAKS.property, DIES.property, "raises"]


# ---- what is said


def test_the_matrix_counts_schedules_by_property() -> None:
    other = Finding(DIES.property, DIES.message, place="submit")
    said = reported(looked("a==1", (DIES, 3), (other, 4), (LEAKS, 1)), looked("a==2"), lost("a==3"))
    header, *lines = rows(said.text, "What was seen of which target")[:4]
    assert header[-4:] == ["schedules", "P4", "P31", "unjudged"]
    assert lines[0] == ["a==1", "unified", "attempts", "yes", "yes", "100", "1", "7", "-"]
    assert lines[1] == ["a==2", "unified", "attempts", "yes", "yes", "100", "-", "-", "-"]
    assert lines[2] == ["a==3", "not", "tried", "not", "tried"]
    assert [target["properties"] for target in said.keys["targets"]] == [{"P31": 7, "P4": 1}, {}, {}]


def test_what_is_about_no_property_has_a_column_of_its_own() -> None:
    said = reported(looked("a==1", (Finding("raises", "KeyError: 1", place="poll"), 2), (DIES, 1)))
    header, line = rows(said.text, "What was seen of which target")[:2]
    assert header[-3:] == ["P31", "other", "unjudged"]
    assert line[-3:] == ["1", "2", "-"]
    assert "other: a call raises, or " in said.text


def test_not_seen_is_not_called_absent() -> None:
    said = reported(looked("a==1"), looked("a==2")).text
    assert "There is no finding." in said
    assert "Not seen is not absent. For each target: 8 s of search, seed 0, on 2 ranks," in said
    assert "200 schedules in all" in said
    assert "Not seen anywhere: P1, P2, P4, " in said
    assert "Of these targets nothing can show: P3, " in said


def test_a_target_that_cannot_be_had_says_why_and_is_an_error() -> None:
    said = reported(looked("a==1", (DIES, 1)), lost("a==2"))
    assert said.code == Verdict.ERROR.exit_code
    assert "a==2 was not searched: there is no network" in said.text
    assert cause(DIES) in said.text
    assert [(target["why"], target["schedules"]) for target in said.keys["targets"]] == [
        ("", 100),
        ("there is no network", None),
    ]


def test_a_fetch_in_vain_fails_and_says_why() -> None:
    in_vain = looked(
        "a==1", fetched=(Fetched(1, unchecked=("bytes",)), Fetched(2, "fetch: the request is never ready"))
    )
    said = reported(in_vain)
    assert said.code == Verdict.FAIL.exit_code
    assert "a==1 does not fetch on 2 ranks: fetch: the request is never ready" in said.text
    assert "yes, but for bytes  no" in said.text
    half = looked("a==1", fetched=FETCHED[:1])
    assert matrix_command.verdict_of(half) is Verdict.FAIL


@pytest.mark.parametrize(
    ("found", "verdict"), [((), Verdict.PASS), (((DIES, 1),), Verdict.FAIL), (((UNKNOWN_CALL, 1),), Verdict.ERROR)]
)
def test_what_is_found_is_the_verdict(found: tuple[tuple[Finding, int], ...], verdict: Verdict) -> None:
    assert reported(looked("a==1", *found)).code == verdict.exit_code


def test_what_could_not_be_judged_is_no_finding() -> None:
    said = reported(looked("a==1", (UNKNOWN_CALL, 2), (DIES, 1)))
    assert [one["id"] for one in said.keys["history"]] == [cause(DIES)]
    assert "a==1: 2 schedules could not be judged: stand-in: Lock.locked has no stand-in" in said.text
    assert [finding["kind"] for finding in said.keys["targets"][0]["findings"]] == ["protocol", "harness"]


def test_the_page_says_what_the_table_says(tmp_path: Path) -> None:
    hostile = Finding("raises", HOSTILE, place="submit")
    seen = (looked("a==1", (DIES, 3), (hostile, 1)), lost("a==2"), looked(HOSTILE, (LEAKS, 12)))
    file = tmp_path / "matrix.html"
    printed = " ".join(reported(*seen, html=str(file)).text.split())
    page = Page(file.read_text(encoding="utf-8"))
    assert set(page.tags) <= ALLOWED
    told = [" ".join(text.split()) for text in page.texts if text.strip()]
    assert "hicheck matrix: error" in told
    start = told.index("What was seen of which target")
    assert start > 0
    assert not [text for text in told[start:] if text not in printed]
    for cell in ("a==1", "a==2 was not searched: there is no network", cause(DIES), cause(LEAKS), "12", "1 of 1"):
        assert cell in told[start:]


# ---- the targets, one by one


def test_results_are_kept_when_one_target_crashes(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_campaign(target: str, *_: Any) -> Campaign:
        if target == "b":
            raise InputError("cannot load b: the process was killed by SIGSEGV")
        if target == "c":
            raise ZeroDivisionError("of ours")
        found = looked(target, (DIES, 1)).campaign
        assert found is not None
        return found

    def fetching(job: Mapping[str, Any], hear: Callable[[Mapping[str, Any]], None], allowed: Any) -> Crash | None:
        hear({"profile": "attempts", "tree": ""})
        hear({"fetched": {"ranks": 1, "why": "", "unchecked": []}})
        if job["target"] == "d":
            return Crash("was killed by SIGKILL", None)
        hear({"fetched": {"ranks": 2, "why": "", "unchecked": []}})
        return None

    monkeypatch.setattr(looking, "run_campaign", run_campaign)
    monkeypatch.setattr(looking, "work", fetching)
    monkeypatch.setattr(looking, "fetch", lambda *_: None)
    said = ran(lambda screen: matrix_command.run(MatrixOptions(("a", "b", "c", "d"), SEARCH, jobs=2), screen))
    assert said.code == Verdict.ERROR.exit_code
    a, b, c, d = said.keys["targets"]
    assert [target["target"] for target in (a, b, c, d)] == ["a", "b", "c", "d"]
    assert (a["verdict"], a["schedules"], a["design"]) == ("fail", 100, "attempts")
    assert (b["why"], b["verdict"]) == ("cannot load b: the process was killed by SIGSEGV", "error")
    assert c["why"] == "internal error: ZeroDivisionError: of ours"
    assert [fetched["why"] for fetched in d["fetches"]] == ["", "the process was killed by SIGKILL"]
    assert [(one["first"], one["seen_on"]) for one in said.keys["history"]] == [("a", ["a"]), ("d", ["d"])]


@pytest.mark.parametrize(
    ("targets", "says"), [((), "there is no target"), (("a", "b", "a"), "a is named twice")], ids=["none", "twice"]
)
def test_a_list_of_targets_that_is_none(targets: tuple[str, ...], says: str) -> None:
    said = ran(lambda screen: matrix_command.run(MatrixOptions(targets, SEARCH), screen))
    assert (said.code, said.text) == (2, says)


def test_options_reach_the_body(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    given: list[MatrixOptions] = []

    def run(options: MatrixOptions, screen: Screen) -> Outcome:
        given.append(options)
        return Outcome(Verdict.PASS)

    monkeypatch.setattr(matrix_command, "run", run)
    for words in (
        "",
        "--targets a,b --targets c --schedules 5 --jobs 3 --ranks 1 --policy timeout --seed 4 --html x.html",
        "--schedules 5 --seconds 2 --wheels here",
    ):
        with pytest.raises(SystemExit) as stop:
            cli.main(["matrix", *words.split()])
        assert stop.value.code == 0
    plain, chosen, both = given
    assert plain == MatrixOptions(matrix_command.RELEASES, SearchOptions(schedules=None, seconds_max=8.0))
    search = SearchOptions(1, ("timeout",), schedules=5, seconds_max=None, seed=4)
    assert chosen == MatrixOptions(("a", "b", "c"), search, 3, None, "x.html")
    assert (both.search.schedules, both.search.seconds_max, both.wheels) == (5, 2.0, Path("here"))


# ---- real targets


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("reference", ""),
        ("reference+sched_loads_without_copying", "P6: wrong bytes were loaded"),
        ("reference+sched_publishes_without_accounting", "P8: 3 pages are occupied"),
    ],
)
def test_a_fetch_is_right_in_its_bytes_and_leaves_nothing(target: str, says: str) -> None:
    said: list[Mapping[str, Any]] = []
    assert work({"do": "fetch", "target": target, "ranks": [1, 2]}, said.append) is None
    whys = [line["fetched"]["why"] for line in said if "fetched" in line]
    assert [(why[: len(says)], bool(why)) for why in whys] == [(says, bool(says))] * 2


@pytest.mark.heavy
def test_two_releases_and_one_that_is_not_there(tmp_path: Path) -> None:
    """0.5.22 repairs that a thread dies of an error of its store (B11)."""
    targets = ("sglang==0.5.21", "sglang==0.5.22", f"path:{tmp_path}")
    for name in targets[:2]:
        have(name)
    options = MatrixOptions(targets, SearchOptions(schedules=40))
    said = ran(lambda screen: matrix_command.run(options, screen))
    older, newer, nothing = said.keys["targets"]
    for target in (older, newer):
        assert [(f["ranks"], f["why"], f["unchecked"]) for f in target["fetches"]] == [(1, "", []), (2, "", [])]
        assert (target["schedules"], target["tree"]) == (40, "unified")
    assert older["properties"]["P31"] > 0
    assert "P31" not in newer["properties"]
    assert nothing["schedules"] is None
    assert "is no SGLang tree" in nothing["why"]
    dying = [one for one in said.keys["history"] if one["property"].startswith("P31 ")]
    assert dying
    assert {(one["first"], one["last"], one["later"]) for one in dying} == {(targets[0], targets[0], 1)}
    json.dumps(said.keys)
