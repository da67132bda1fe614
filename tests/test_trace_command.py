"""`hicheck trace`: what a user reads, the JSON document, and the verdicts."""

from __future__ import annotations

import io
import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from rich.console import Console

from hicache_checks import trace_command
from hicache_checks.conformance import logs
from hicache_checks.reporting import InputError, Outcome, Progress, Screen, Verdict
from hicache_checks.trace_command import TraceOptions
from recorded_trace import recorded, write_recorded


@cache
def trace() -> tuple[str, ...]:
    with TemporaryDirectory() as folder:
        return tuple(write_recorded(Path(folder) / "trace.jsonl", recorded(2)))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run the command on these lines: the outcome, and the lines that it printed."""
    monkeypatch.chdir(tmp_path)

    def command(lines: list[str]) -> tuple[Outcome, list[str]]:
        Path("trace.jsonl").write_text("".join(lines), encoding="utf-8")
        printed = io.StringIO()
        screen = Screen(Console(file=printed, soft_wrap=True, highlight=False), Progress(io.StringIO()))
        outcome = trace_command.run(TraceOptions(["trace.jsonl"]), screen)
        return outcome, [" ".join(line.split()) for line in printed.getvalue().splitlines()]

    return command


def line_of(kind: str, rank: int = 0) -> int:
    """The number of the first line with this kind of event of this rank."""
    events = enumerate(map(json.loads, trace()[1:-1]), 2)
    return next(number for number, event in events if event["kind"] == kind and event["rank"] == rank)


def altered(line: int, **data: Any) -> list[str]:
    event = json.loads(trace()[line - 1])
    return [*trace()[: line - 1], json.dumps(event | {"data": event["data"] | data}) + "\n", *trace()[line:]]


def test_a_whole_trace_passes(run: Any) -> None:
    outcome, printed = run(list(trace()))
    events = len(trace()) - 2
    assert outcome.verdict is Verdict.PASS
    assert printed == [
        "produced by tests/recorded_trace.py",
        "system 2 ranks, wait_complete, 6 host pages, threshold 1, limit 99",
        f"events {events} explained, 0 of them in part taken on trust",
        "verdict pass: every event is explained by the specification",
    ]
    assert outcome.keys == {
        "files": ["trace.jsonl"],
        "producer": "tests/recorded_trace.py",
        "ranks": 2,
        "policy": "wait_complete",
        "profile": "decide_at_drain",
        "events": events,
        "unobserved": 0,
        "whole": True,
        "finding": None,
    }


def test_an_event_that_is_not_explained_fails_and_is_told_in_full(run: Any) -> None:
    line = line_of("io_landed")
    outcome, printed = run(altered(line, page=2))
    assert outcome.verdict is Verdict.FAIL
    finding = outcome.keys["finding"]
    assert finding["property"] == "io_land_page (§3.7.2)"
    assert finding["message"] == "the specification says: io_landed whole#1 page=0"
    assert (finding["at"]["file"], finding["at"]["line"]) == ("trace.jsonl", line)
    assert finding["at"]["event"].endswith("io_landed whole#1 page=2")
    assert finding["related"] == []
    assert finding["last_explained"]["line"] < line
    assert finding["possible_next"] == [
        "io thread of rank 0: io_landed whole#1 page=0 or io_failed whole#1 page=0",
        "schedulers: submitted or declined or stopped or revoked whole#1 by its caller",
    ]
    assert "finding io_land_page (§3.7.2): the specification says: io_landed whole#1 page=0" in printed
    assert any(text.startswith(f"at trace.jsonl, line {line}: rank 0 #") for text in printed)
    assert any(text.startswith("explained up to trace.jsonl, line ") for text in printed)
    assert "possible io thread of rank 0: io_landed whole#1 page=0 or io_failed whole#1 page=0" in printed
    assert printed[-1] == "verdict fail: the specification does not explain it"


def test_copies_that_differ_are_both_named(run: Any) -> None:
    lines = [line_of("allocated", rank) for rank in (0, 1)]
    outcome, printed = run(altered(lines[1], pages=2))
    assert outcome.verdict is Verdict.FAIL
    finding = outcome.keys["finding"]
    assert finding["property"] == "P7 lockstep"
    assert {finding["at"]["line"], *(event["line"] for event in finding["related"])} == set(lines)
    assert sum(text.startswith("about trace.jsonl, line ") for text in printed) == 1
    assert finding["possible_next"][-1].startswith("schedulers: submitted or declined or a drain of whole#1")


def test_what_the_query_thread_could_have_done_is_told(run: Any) -> None:
    told = {}
    for kind, change in (
        ("query_taken", {"terminated": True}),
        ("query_asked", {"hit": 9}),
        ("query_agreed", {"hit": 9}),
    ):
        outcome, _ = run(altered(line_of(kind), **change))
        told[kind] = outcome.keys["finding"]["possible_next"][0]
    assert told == {
        "query_taken": "query thread of rank 0: query_taken whole#1",
        "query_asked": "query thread of rank 0: query_asked whole#1 hit=0 .. 3",
        "query_agreed": "query thread of rank 0: query_agreed whole#1 hit=3",
    }


def test_the_end_is_a_place_too(run: Any) -> None:
    header, *events, _ = trace()
    last = [json.loads(line)["kind"] == "submitted" for line in events].index(True)
    pending = [line for line in events[: last + 1] if json.loads(line)["rank"] == 0]
    first = json.dumps(json.loads(header) | {"ranks": 1, "logs_of": [0]}) + "\n"
    outcome, printed = run([first, *pending, json.dumps({"end": [len(pending)]}) + "\n"])
    assert outcome.verdict is Verdict.FAIL
    assert outcome.keys["finding"]["at"] is None
    assert "finding P2 live_submitted_operations_end: [('whole', 1)] never ended" in printed
    assert "at the end of the trace" in printed


def test_a_trace_without_its_end_is_unknown(run: Any) -> None:
    outcome, printed = run(list(trace()[:-1]))
    assert outcome.verdict is Verdict.UNKNOWN
    assert outcome.keys["whole"] is False
    assert printed[-1].startswith("verdict unknown: every event is explained, but the trace does not say")


def test_ranks_too_far_apart_are_unknown(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "BACKLOG_EVENTS_MAX", 1)
    outcome, printed = run(list(trace()))
    assert outcome.verdict is Verdict.UNKNOWN
    assert printed == [f"verdict: unknown: {outcome.keys['reason']}; write a file for each rank"]


def test_a_trace_without_events_is_an_error(run: Any) -> None:
    outcome, printed = run([trace()[0], '{"end": [0, 0]}\n'])
    assert outcome.verdict is Verdict.ERROR
    assert printed[-1] == "verdict error: there is no event"


def test_what_is_no_trace_is_one_line(run: Any) -> None:
    with pytest.raises(InputError) as refusal:
        run([*trace()[:5], trace()[5][:-4]])
    assert str(refusal.value) == "trace.jsonl, line 6: the line is cut"
    with pytest.raises(InputError, match="give at least one FILE"):
        trace_command.run(TraceOptions([]), Screen(Console(file=io.StringIO()), Progress(io.StringIO())))
