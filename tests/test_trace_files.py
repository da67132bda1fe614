"""The files of traces: what is written is read, and whatever is not exactly as described is refused by line."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from cache_scenario import SIZES, tokens
from hicache_checks.conformance import logs as logs_module
from hicache_checks.conformance.logs import Explained, TooFarApart, explain_traces
from hicache_checks.conformance.monitor import MonitorConfig
from hicache_checks.conformance.observation import Event, LogError
from hicache_checks.conformance.traces import HEADER, LINE_BYTES_MAX, VERSION, LogFile, write_trace
from hicache_impl.adapter import Reference
from hicache_impl.runtime import ThreadRuntime
from recorded_trace import Kept, config_of, recorded, write_recorded


@cache
def whole() -> tuple[str, ...]:
    with TemporaryDirectory() as folder:
        return tuple(write_recorded(Path(folder) / "trace.jsonl", recorded(2)))


def explain(*paths: Path) -> Explained:
    return explain_traces([LogFile(path) for path in paths], lambda _: None)


def saved(folder: Path, lines: list[str], name: str = "trace.jsonl") -> Path:
    path = folder / name
    path.write_bytes("".join(lines).encode("utf-8", "surrogatepass"))
    return path


def by_rank(folder: Path, lines: tuple[str, ...] = ()) -> list[Path]:
    """The trace as one file for each rank."""
    header, *events, _ = lines or whole()
    paths = []
    for rank in (0, 1):
        own = [line for line in events if json.loads(line)["rank"] == rank]
        first = json.dumps(json.loads(header) | {"logs_of": [rank]}) + "\n"
        paths.append(saved(folder, [first, *own, json.dumps({"end": [len(own)]}) + "\n"], f"rank-{rank}.jsonl"))
    return paths


# ---- what is a trace


def test_a_run_with_free_threads_is_written_and_explained(tmp_path: Path) -> None:
    """Two ranks of the reference, threads of the operating system, nobody held at a gate."""
    runtime = ThreadRuntime()
    config = {**SIZES, "ranks": 2, "host_pages": 6, "threshold_pages": 1}
    target = Reference(config, runtime=runtime)
    for name in range(12):
        target.store(tokens(name, 1 + name % 4))
        target.submit(f"r{name % 5}", tokens(name, 1 + name % 4))
        target.tick()
        target.poll([f"r{n}" for n in range(5)])
        if name % 3 == 0:
            target.abort(f"r{name % 5}")
    for _ in range(4):
        target.settle()
        target.tick()
        target.poll([f"r{n}" for n in range(5)])
    target.quiesce()
    target.close()
    path = tmp_path / "trace.jsonl"
    written = write_trace(path, config_of(2), target.logs(), "a test")
    explained = explain(path)
    assert explained.finding is None
    assert explained.whole
    assert explained.events == written > 200


def test_a_file_for_each_rank_is_the_same_trace(tmp_path: Path) -> None:
    first, second = by_rank(tmp_path)
    for order in ((first, second), (second, first)):
        explained = explain(*order)
        assert (explained.finding, explained.whole, explained.events) == (None, True, len(whole()) - 2)


def test_ranks_one_after_the_other_are_the_same_trace(tmp_path: Path) -> None:
    header, *events, end = whole()
    path = saved(tmp_path, [header, *sorted(events, key=lambda line: json.loads(line)["rank"]), end])
    assert explain(path).finding is None


def test_ranks_that_lie_too_far_apart_are_not_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    header, *events, end = whole()
    path = saved(tmp_path, [header, *sorted(events, key=lambda line: json.loads(line)["rank"]), end])
    monkeypatch.setattr(logs_module, "BACKLOG_EVENTS_MAX", 50)
    with pytest.raises(TooFarApart, match=r"trace\.jsonl: more than 50 events wait for those of other ranks"):
        explain(path)
    assert explain(*by_rank(tmp_path)).finding is None


def test_a_trace_without_its_end_is_explained_as_far_as_it_goes(tmp_path: Path) -> None:
    header, *events, _ = whole()
    for last in (len(events), len(events) // 2, 7, 0):
        explained = explain(saved(tmp_path, [header, *events[:last]]))
        assert (explained.finding, explained.whole) == (None, False)
        assert explained.events <= last


def test_what_was_not_whole_is_not_called_whole(tmp_path: Path) -> None:
    lines = write_recorded(tmp_path / "trace.jsonl", recorded(1), is_whole=False)
    assert "end" not in json.loads(lines[-1])
    assert not explain(tmp_path / "trace.jsonl").whole


def test_an_operation_that_never_ended_is_found_at_the_end(tmp_path: Path) -> None:
    header, *events, _ = whole()
    pending = next(n for n, line in enumerate(events) if json.loads(line)["kind"] == "fetched")
    ranks = [json.loads(line)["rank"] for line in events[:pending]]
    lines = [header, *events[:pending], json.dumps({"end": [ranks.count(0), ranks.count(1)]}) + "\n"]
    finding = explain(saved(tmp_path, lines)).finding
    assert finding is not None
    assert finding.property in ("P2 live_submitted_operations_end", "P7 lockstep")
    assert finding.event is None or "never joined" in finding.message


# ---- what is not


def edit(line: int, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[list[str]], list[str]]:
    def apply(lines: list[str]) -> list[str]:
        return [*lines[: line - 1], json.dumps(change(json.loads(lines[line - 1]))) + "\n", *lines[line:]]

    return apply


def replace(line: int, text: str) -> Callable[[list[str]], list[str]]:
    return lambda lines: [*lines[: line - 1], text, *lines[line:]]


def without(name: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda raw: {key: value for key, value in raw.items() if key != name}


END = len(whole())

BROKEN: dict[str, tuple[Callable[[list[str]], list[str]], str]] = {
    "empty": (lambda lines: [], "line 1: not the first line of a trace"),
    "no header": (lambda lines: lines[1:], "line 1: not the first line of a trace: it has no 'hicheck_trace'"),
    "version": (edit(1, lambda h: h | {"hicheck_trace": 1}), "line 1: format version 1 is not known, only 2"),
    "version as text": (edit(1, lambda h: h | {"hicheck_trace": "1"}), "line 1: format version '1' is not known"),
    "header's unknown key": (edit(1, lambda h: h | {"colour": 1}), "line 1: unknown field 'colour'"),
    "header's missing key": (edit(1, without("policy")), "line 1: without 'policy'"),
    "no such policy": (edit(1, lambda h: h | {"policy": "never"}), "line 1: policy is 'never', expected best_effort, "),
    "no rank": (edit(1, lambda h: h | {"ranks": 0}), "line 1: ranks is 0, expected 1 to 1,024 ranks"),
    "a size that is none": (edit(1, lambda h: h | {"host_pages": 1.0}), r"line 1: host_pages is 1\.0, expected 1 to"),
    "ranks twice": (edit(1, lambda h: h | {"logs_of": [0, 0]}), r"line 1: logs_of is \[0, 0\], expected different"),
    "a rank too many": (edit(1, lambda h: h | {"logs_of": [0, 2]}), r"line 1: logs_of is \[0, 2\], expected different"),
    "ranks as a number": (edit(1, lambda h: h | {"logs_of": 2}), "line 1: logs_of is 2, expected a list of ranks"),
    "not JSON": (replace(4, "{]\n"), r"line 4: not a JSON object \(Expecting"),
    "no object": (replace(4, "[]\n"), "line 4: not a JSON object"),
    "blank": (replace(4, "\n"), r"line 4: not a JSON object \(Expecting value"),
    "bytes": (replace(4, '{"a": "\udcff"}\n'), r"line 4: not a JSON object \('utf-8' codec"),
    "nested": (replace(4, "[" * 50_000 + "\n"), "line 4: not a JSON object"),
    "long": (replace(4, " " * LINE_BYTES_MAX + "\n"), "line 4: the line is longer than 65,536 bytes"),
    "a key twice": (replace(4, '{"rank": 0, "rank": 0}\n'), r"line 4: not a JSON object \(a key stands twice"),
    "cut": (lambda lines: [*lines[:3], lines[3][:-9]], "line 4: the line is cut"),
    "cut before the newline": (lambda lines: [*lines[:3], lines[3][:-1]], "line 4: the line is cut"),
    "an unknown key": (edit(4, lambda e: e | {"colour": 1}), "line 4: unknown field 'colour'"),
    "a missing key": (edit(4, without("op")), "line 4: without 'op'"),
    "an unknown kind": (edit(4, lambda e: e | {"kind": "exploded"}), "line 4: unknown event 'exploded'"),
    "an unknown field": (edit(4, lambda e: e | {"data": {"colour": 1}}), r"line 4: .* has the fields \['colour'\]"),
    "a rank as text": (edit(4, lambda e: e | {"rank": "0"}), "line 4: rank is '0', expected a rank"),
    "a truth as a number": (edit(4, lambda e: e | {"seq": True}), "line 4: seq is True, expected a number"),
    "no such operation": (edit(4, lambda e: e | {"op": ["a", 0]}), r"line 4: op is \['a', 0\], expected null, or a"),
    "no operation": (edit(2, lambda e: e | {"op": None}), "line 2: submitted needs the operation that it is about"),
    "half a character": (edit(2, lambda e: e | {"op": ["\ud800", 1]}), "line 2: op is"),
    "negative": (
        edit(2, lambda e: e | {"data": e["data"] | {"span": -1}}),
        "line 2: span of submitted is -1, expected pages",
    ),
    "a rank that the file has not": (edit(2, lambda e: e | {"rank": 7}), "line 2: an event of rank 7, but the file ho"),
    "a gap at the start": (edit(2, lambda e: e | {"seq": 1}), "line 2: event 1 of rank 0, expected event 0 as its fir"),
    "a gap": (edit(4, lambda e: e | {"seq": 9}), "line 4: event 9 of rank 0, expected event 2 after line 3"),
    "a repetition": (edit(4, lambda e: e | {"seq": 1}), "line 4: event 1 of rank 0, expected event 2 after line 3"),
    "the end says more": (replace(END, '{"end": [999, 1]}\n'), f"line {END}: 999 events of rank 0 are announced, ther"),
    "the end says nothing": (replace(END, '{"end": 3}\n'), f"line {END}: end is 3, expected one number for each of"),
    "more after the end": (lambda lines: [*lines, lines[-1]], f"line {END + 1}: a line after the end"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_trace_is_refused_by_line(name: str, tmp_path: Path) -> None:
    change, says = BROKEN[name]
    with pytest.raises(LogError, match=says) as refusal:
        explain(saved(tmp_path, change(list(whole()))))
    assert str(refusal.value).startswith(str(tmp_path / "trace.jsonl"))
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 400


def test_files_of_different_runs_are_refused(tmp_path: Path) -> None:
    first, second = by_rank(tmp_path)
    header, *rest = second.read_text(encoding="utf-8").splitlines(keepends=True)
    saved(tmp_path, [json.dumps(json.loads(header) | {"host_pages": 7}) + "\n", *rest], second.name)
    with pytest.raises(LogError, match=r"rank-1\.jsonl, line 1: of another run than .*rank-0\.jsonl"):
        explain(first, second)


def test_a_rank_in_two_files_and_a_rank_in_none_are_refused(tmp_path: Path) -> None:
    first, _ = by_rank(tmp_path)
    with pytest.raises(LogError, match=r"line 1: the log of rank 0 is in .*rank-0\.jsonl, too"):
        explain(first, first)
    with pytest.raises(LogError, match="no file has the log of rank 1"):
        explain(first)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"nowhere\.jsonl: No such file"):
        LogFile(tmp_path / "nowhere.jsonl")


def test_an_event_that_is_none_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"rank 0, event 0: pages of reclaimed is 1\.5, expected pages"):
        write_trace(tmp_path / "trace.jsonl", config_of(1), [Kept([Event(0, 0, "reclaimed", None, {"pages": 1.5})])])


def test_the_header_has_what_the_monitor_needs() -> None:
    """By which design it is explained, its reader says."""
    assert set(MonitorConfig.__dataclass_fields__) - {"design"} == HEADER.keys() - {
        *("hicheck_trace", "producer", "logs_of")
    }


# ---- long ones


def long_trace(folder: Path, rounds: int) -> Path:
    """One rank that fetches the same page over and over, as different attempts of a few requests."""
    example = [e for e in recorded_fetch() if e["kind"] != "closed"]
    collectives = {group: sum(e["data"].get("group") == group for e in example) // 2 for group in ("query", "sched")}
    lines: list[str] = []
    for n in range(rounds):
        for e in example:
            data = dict(e["data"])
            if "group" in data:
                data["number"] += n * collectives[data["group"]]
            if e["kind"] == "allocated":
                data |= {"free": 3 if n == 0 else 2, "evictable": min(n, 1)}
            if e["kind"] == "fetched":
                data["known"] = min(n, 1)
            op = None if e["op"] is None else [f"r{n % 7}", n // 7 + 1]
            line = {"rank": 0, "seq": len(lines), "kind": e["kind"], "op": op, "data": data}
            lines.append(json.dumps(line) + "\n")
    header = {"hicheck_trace": VERSION, "producer": "", "ranks": 1, "logs_of": [0], "policy": "wait_complete"}
    sizes = {"host_pages": 4, "threshold_pages": 1, "limit_pages": 4}
    first, last = json.dumps(header | sizes) + "\n", json.dumps({"end": [len(lines)]}) + "\n"
    return saved(folder, [first, *lines, last], f"{rounds}.jsonl")


def recorded_fetch() -> list[dict[str, Any]]:
    """The example of EVENTS.md."""
    page = (Path(__file__).resolve().parents[1] / "spec" / "EVENTS.md").read_text(encoding="utf-8")
    return [json.loads(line) for line in page.split("```jsonl\n")[1].split("```")[0].splitlines()[1:-1]]


@pytest.mark.heavy
def test_a_longer_trace_takes_no_more_memory(tmp_path: Path) -> None:
    peaks = []
    for rounds in (100, 1000):
        path = long_trace(tmp_path, rounds)
        tracemalloc.start()
        explained = explain(path)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert explained.finding is None
        assert explained.events == rounds * 18
    assert peaks[1] < 1.1 * peaks[0]
