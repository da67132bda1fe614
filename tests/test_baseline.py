"""Known failures: the file is read strictly, and a run is held against it in both directions."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from conform_run import conform
from hicache_checks.conformance.baseline import Baseline, Known, judge, read
from hicache_checks.conformance.campaign import run_campaign
from hicache_checks.conformance.findings import HARNESS, Finding, cause
from hicache_checks.conformance.search import SearchOptions
from hicache_checks.reporting import InputError

SHRINK_S = 8.0
DAY = datetime.date(2026, 12, 31)
ONE, OTHER = "0123abcd", "89abcdef"
ENTRY = {"id": ONE, "reason": "our issue 12", "expires": "2026-12-31"}
FILE = {"format": "hicheck-baseline", "version": 1, "known": [ENTRY]}


def written(directory: Path, document: Any, name: str = "known.json") -> Path:
    path = directory / name
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def known(*names: str) -> Baseline:
    return Baseline("hicheck-baseline", 1, [Known(name, "a reason", DAY) for name in names])


# ---- the file


def test_json_and_toml_say_the_same(tmp_path: Path) -> None:
    text = (
        f'format = "hicheck-baseline"\nversion = 1\n[[known]]\nid = "{ONE}"\nreason = "our issue 12"\nexpires = {DAY}\n'
    )
    expected = Baseline("hicheck-baseline", 1, [Known(ONE, "our issue 12", DAY)])
    assert read(written(tmp_path, FILE)) == read(written(tmp_path, text, "known.toml")) == expected


WRONG = {
    "no JSON": ("{", "not a baseline: "),
    "no list": ({**FILE, "known": {}}, "Expected `array`"),
    "another format": ({**FILE, "format": "x"}, "its format is 'x', version 1; expected 'hicheck-baseline', version 1"),
    "another version": ({**FILE, "version": 2}, "version 2; expected"),
    "no reason": ({**FILE, "known": [{**ENTRY, "reason": " "}]}, "$.known[0].reason"),
    "no expiry": ({**FILE, "known": [{"id": ONE, "reason": "r"}]}, "missing required field `expires`"),
    "no such day": ({**FILE, "known": [{**ENTRY, "expires": "2026-02-30"}]}, "$.known[0].expires"),
    "no id": ({**FILE, "known": [{**ENTRY, "id": "P4"}]}, "$.known[0].id"),
    "an unknown field": ({**FILE, "known": [{**ENTRY, "owner": "me"}]}, "unknown field `owner`"),
    "an unknown key": ({**FILE, "comment": ""}, "unknown field `comment`"),
    "twice": ({**FILE, "known": [ENTRY, ENTRY]}, f"{ONE} is in it twice"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    document, line = WRONG[name]
    with pytest.raises(InputError) as error:
        read(written(tmp_path, document))
    assert str(error.value).startswith(str(tmp_path / "known.json"))
    assert line in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.json: No such file"):
        read(tmp_path / "none.json")


# ---- a run against it


def test_what_is_known_is_tolerated_until_its_day_is_over() -> None:
    assert judge(known(ONE), {ONE, OTHER}, is_complete=True, today=DAY).known.keys() == {ONE}
    late = judge(known(ONE), {ONE}, is_complete=True, today=DAY + datetime.timedelta(days=1))
    assert (dict(late.known), dict(late.stale)) == ({}, {ONE: "expired on 2026-12-31: a reason"})


def test_only_a_complete_run_can_miss_something() -> None:
    assert judge(known(ONE), {OTHER}, is_complete=True, today=DAY).stale == {ONE: "not found any more: a reason"}
    assert not judge(known(ONE), {OTHER}, is_complete=False, today=DAY).stale


# ---- ids


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("free_pages is 2, explained is 6", "free_pages is 0, explained is 4"),
        ("the poll did not end [('a', 1)]", "the poll did not end [('b', 2), ('a', 1)]"),
        ("a#1, b#2 never ended", "c#1 never ended"),
        ("operations is a#1: 2, explained is a#1: 0 or none", "operations is a#1: 1, b#1: 2, explained is a#1: 0"),
        ("the next answer on rank 0 is that of a#1", "the next answer on rank 1 is that of c#3"),
        (
            "the process was killed by SIGSEGV in schedule 3, saying 'x'",
            "the process was killed by SIGSEGV in schedule 9, saying ''",
        ),
    ],
)
def test_what_differs_from_run_to_run_is_not_part_of_an_id(left: str, right: str) -> None:
    assert cause(Finding("P4", left, place="rank 0 #1: x")) == cause(Finding("P4", right, place="rank 1 #77: x"))


def test_what_tells_faults_apart_is_part_of_an_id() -> None:
    findings = [
        Finding("P4", "free_pages is 2"),
        Finding("P8", "free_pages is 2"),
        Finding("P4", "resident_pages is 2"),
        Finding("P4", "free_pages is 2", HARNESS),
        Finding("P4", "free_pages is 2", place="tick()"),
    ]
    assert len({cause(finding) for finding in findings}) == len(findings)


# ---- the command

LEAKY = """
from toy_adapter import ToyAdapter

class Leaky(ToyAdapter):
    packages = ("leaky", "toy_adapter", "toy_fork")

    def observe(self):
        seen = super().observe()
        return {**seen, "free_pages": max(0, seen["free_pages"] - 1)}
"""


@pytest.mark.heavy
def test_a_run_is_held_against_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "leaky.py").write_text(LEAKY)
    monkeypatch.syspath_prepend(tmp_path)
    search = SearchOptions(ranks=1, policies=("wait_complete",), schedules=60)
    bare = conform("leaky:Leaky", search)
    names = {finding["id"] for finding in bare.keys["findings"]}
    assert bare.code == 1
    assert names
    assert not any(finding["known"] for finding in bare.keys["findings"])

    entries = [{"id": name, "reason": "our issue 12", "expires": "9999-12-31"} for name in sorted(names)]
    junit = tmp_path / "junit.xml"
    file = written(tmp_path, {**FILE, "known": entries})
    listed = conform("leaky:Leaky", search, baseline=file, junit=str(junit))
    assert (listed.code, listed.keys["baseline"]) == (0, {"known": sorted(names), "stale": {}})
    assert all(finding["known"] for finding in listed.keys["findings"])
    assert "known until 9999-12-31: our issue 12" in listed.text
    suite = ElementTree.parse(junit).getroot()[0]
    assert (suite.get("failures"), suite.get("errors")) == ("0", "0")

    more = [*entries, {**entries[0], "id": ONE}]
    stale = conform("leaky:Leaky", search, baseline=written(tmp_path, {**FILE, "known": more}), junit=str(junit))
    assert stale.code == 1
    assert stale.keys["baseline"]["stale"] == {ONE: "not found any more: our issue 12"}
    assert f"{ONE}  baseline: not found any more: our issue 12" in stale.text
    assert ElementTree.parse(junit).getroot()[0].get("failures") == "1"


MUTANTS = (
    *("io_drops_the_tail", "io_counts_before_the_copy", "query_dies_of_a_raising_store", "sched_keeps_known_pages"),
    *("sched_finds_records_by_request_id", "sched_frees_known_pages_twice", "sched_grants_the_whole_span"),
    *("sched_reuses_attempts", "sched_evicts_for_every_grant", "sched_revokes_without_accounting"),
)


def ids_of(mutant: str, seed: int) -> set[str]:
    """Of the causes that a short search finds."""
    search = SearchOptions(schedules=120, seed=seed)
    return set(run_campaign(f"reference+{mutant}", search, 2, SHRINK_S, lambda line: None).reported)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_ids_are_the_same_with_every_seed_and_tell_faults_apart() -> None:
    found = {mutant: ids_of(mutant, seed=0) for mutant in MUTANTS}
    for mutant, names in found.items():
        assert names & ids_of(mutant, seed=1), mutant
    everything = [name for names in found.values() for name in names]
    assert len(everything) == len(set(everything))


@pytest.mark.slow
def test_faults_that_show_in_the_same_way_share_an_id() -> None:
    assert ids_of("sched_revokes_without_accounting", 0) == ids_of("sched_publishes_without_accounting", 0)
