"""The replay of a trace: what it reports, that it can fail, and that a broken storage loses nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from hicache_impl import workload, workload_rank
from hicache_impl.cache import HiCache, Poll
from hicache_impl.controller import Controller
from hicache_impl.disruptions import POINTS, plan_disruption
from hicache_impl.layout import Layout
from hicache_impl.operation import Operation
from hicache_impl.rank_processes import RankDied, RankProcesses
from hicache_impl.storage import Storage
from hicache_impl.storage.faults import FaultyStorage
from hicache_impl.storage.memory import MemoryStorage

KEYS = {
    "requests", "hit_tokens", "computed_tokens", "operations", "terminated", "declined", "skipped", "shortened",
    "aborted_requests", "stopped_requests", "resubmitted_requests", "truncated_requests", "pages_fetched",
    "pages_verified", "bytes_verified", "violations", "pages_left", "storage", "storage_errors", "fault",
    "damaged_files", "bad_lines",
    "ranks", "layout", "peak_rss_bytes", "seconds", "pages_per_second", "logs",
}  # fmt: skip
REVOKED = {"below_threshold", "no_memory", "stopped", "aborted"}


def replay(folder: Path, **options: Any) -> dict[str, Any]:
    logs = folder / "logs"
    logs.mkdir(exist_ok=True)
    given = {"synthetic": "trace" not in options, "requests": 100, "page_bytes": 64, "host_pages": 160}
    return workload.run(given | {"device_pages": 128, "logs": str(logs)} | options, lambda text: None)


def assert_clean(report: dict[str, Any]) -> None:
    assert report["violations"] == []
    assert report["pages_left"] == 0


def test_a_replay_reports_every_key_and_leaves_nothing_over(tmp_path: Path) -> None:
    report = replay(tmp_path, abort_rate=0.1, stop_rate=0.1)
    assert report.keys() == KEYS
    assert_clean(report)
    assert report["requests"] == 100
    assert report["hit_tokens"].keys() == {"device", "host", "storage"}
    assert report["hit_tokens"]["storage"] > 0
    assert report["pages_verified"] >= report["pages_fetched"] > 0
    assert report["bytes_verified"] == report["pages_verified"] * 64
    assert report["terminated"] > 0
    header, *events, end = [json.loads(line) for line in Path(report["logs"][0]).read_text().splitlines()]
    assert (header["logs_of"], end) == ([0], {"end": [len(events)]})
    assert [event["seq"] for event in events] == list(range(len(events)))
    assert [event["kind"] for event in events if not event["kind"].startswith("thread_")][-1] == "closed"


@pytest.mark.parametrize("policy", ["best_effort", "wait_complete", "timeout"])
def test_every_policy_ends_every_request(tmp_path: Path, policy: str) -> None:
    report = replay(tmp_path, policy=policy, abort_rate=0.1, stop_rate=0.1)
    assert_clean(report)
    assert report["requests"] == 100


def test_timestamps_are_kept_when_a_speed_is_given(tmp_path: Path) -> None:
    # The 40 requests of the trace span some 10 s; at this speed the last one arrives after about a tenth of one.
    report = replay(tmp_path, requests=40, speed=100.0)
    assert_clean(report)
    assert report["seconds"] > 0.05


def test_requests_are_cut_to_the_device_pool(tmp_path: Path) -> None:
    report = replay(tmp_path, device_pages=4, host_pages=16)
    assert_clean(report)
    assert report["truncated_requests"] > 0


@pytest.mark.parametrize(
    ("storage", "fault"),
    [("memory", "delete"), ("memory", "raise"), ("file", "delete"), ("file", "corrupt"), ("file", "raise")],
)
def test_a_storage_that_breaks_half_way_loses_no_page_and_hangs_no_request(
    tmp_path: Path, storage: str, fault: str
) -> None:
    spec = storage if storage == "memory" else f"file:{tmp_path / 'pages'}"
    report = replay(tmp_path, storage=spec, fault=fault, abort_rate=0.05)
    assert_clean(report)
    assert report["requests"] == 100
    assert report["fault"] == fault
    assert (report["damaged_files"] > 0) == (fault == "corrupt")
    assert (sum(report["storage_errors"].values()) > 0) == (fault == "raise")


@pytest.mark.heavy
@pytest.mark.parametrize("fault", [None, "delete", "corrupt", "raise"])
def test_gloo_processes_agree_and_leave_nothing_over(tmp_path: Path, fault: str | None) -> None:
    report = replay(
        tmp_path,
        requests=200,
        layout={"tp": 2},
        storage=f"file:{tmp_path / 'pages'}",
        abort_rate=0.1,
        stop_rate=0.1,
        fault=fault,
    )
    assert_clean(report)
    assert (report["requests"], report["ranks"], len(report["logs"])) == (200, 2, 2)
    assert report["peak_rss_bytes"] < 2 * 2**30
    if fault is None:
        assert report["operations"]["fetched"]["complete"] > 0
        assert report["operations"]["revoked"].keys() == REVOKED


def test_a_storage_that_lies_about_bytes_is_a_violation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lying(spec: str) -> Storage:
        storage = FaultyStorage(MemoryStorage())
        storage.wrong_bytes()
        return storage

    monkeypatch.setattr(workload_rank, "open_storage", lying)
    report = replay(tmp_path)
    assert any("P6 wrong bytes" in violation for violation in report["violations"])


def test_a_published_page_that_is_not_there_is_a_violation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    poll = HiCache.poll

    def boasting(self: HiCache, rids: Iterable[str]) -> dict[str, Poll]:
        return {
            rid: replace(answer, pages=answer.pages + 999) if answer.pages else answer
            for rid, answer in poll(self, rids).items()
        }

    monkeypatch.setattr(HiCache, "poll", boasting)
    report = replay(tmp_path)
    assert any("published" in violation and "found" in violation for violation in report["violations"])


def test_a_tail_that_is_not_released_is_left_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def keep(self: Controller, op: Operation) -> None:
        pass

    monkeypatch.setattr(Controller, "_release_tail", keep)
    report = replay(tmp_path, stop_rate=0.5)
    assert report["pages_left"] > 0
    assert any("P4 host pages" in violation for violation in report["violations"])


def test_a_request_that_waits_for_ever_is_a_violation_and_not_a_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_again = threading.Event()

    class Stuck(MemoryStorage):
        def get_into(self, keys: Sequence[str], into: Sequence[torch.Tensor]) -> list[bool]:
            open_again.wait()
            return super().get_into(keys, into)

    close = HiCache.close

    def let_go_and_close(self: HiCache, timeout_s: float = 10) -> None:
        open_again.set()
        close(self, timeout_s)

    monkeypatch.setattr(workload_rank, "open_storage", lambda spec: Stuck())
    monkeypatch.setattr(HiCache, "close", let_go_and_close)
    report = replay(tmp_path, stall_s=0.1)
    assert report["violations"][0].startswith("rank 0: Stalled: P5 for 0.1 s no request ended; waiting: r")


@pytest.mark.heavy
def test_a_rank_that_dies_is_named_with_its_last_words(tmp_path: Path) -> None:
    options = workload_rank.WorkloadOptions(logs=str(tmp_path), layout=Layout(tp=2), trace=str(tmp_path / "gone.jsonl"))
    processes = RankProcesses("hicache_impl.workload_rank", tmp_path, 2, lambda text: None)
    with pytest.raises(RankDied, match=r"rank [01] ended without a result: .*gone\.jsonl: no such file"):
        processes.run(msgspec.json.encode(options))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"trace": "nowhere.jsonl"}, "nowhere.jsonl: no such file"),
        ({"storage": "tape"}, "storage must be 'memory', 'file:DIRECTORY'"),
        ({"fault": "flood"}, "the faults are delete, corrupt, raise, not 'flood'"),
        ({"fault": "corrupt"}, "it needs the storage file:DIR"),
        ({"policy": "never"}, "policy must be one of"),
        ({"host_pages": 0}, "host_pages must be an integer >= 1"),
        ({"requests": 0}, "requests must be at least 1"),
        ({"window": 0}, "window must be at least 1"),
        ({"speed": -1.0}, "speed must be greater than 0"),
        ({"abort_rate": 2.0}, "abort_rate must be between 0 and 1"),
        ({"pages": 7}, "unknown field `pages`"),
    ],
)
def test_options_that_cannot_be_used_are_one_line(tmp_path: Path, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]+$") as error:
        replay(tmp_path, **options)
    assert says in str(error.value)


def test_bad_lines_of_a_trace_are_reported(tmp_path: Path) -> None:
    good = json.dumps({"timestamp": 0, "input_length": 1024, "output_length": 1, "hash_ids": [1, 2]})
    path = tmp_path / "trace.jsonl"
    path.write_text(f"{good}\nnonsense\n{good}\n")
    report = replay(tmp_path, trace=str(path))
    assert_clean(report)
    assert report["requests"] == 2
    assert report["bad_lines"]["count"] == 1
    assert report["bad_lines"]["first"][0]["line"] == 2


def test_disruptions_are_a_function_of_seed_and_request() -> None:
    plans = [plan_disruption(7, index, 0.2, 0.1) for index in range(2000)]
    assert plans == [plan_disruption(7, index, 0.2, 0.1) for index in range(2000)]
    aborts = [plan for plan in plans if plan is not None and plan.kind == "abort"]
    stops = [plan for plan in plans if plan is not None and plan.kind == "stop"]
    assert 300 < len(aborts) < 500
    assert 130 < len(stops) < 270
    assert {plan.point for plan in aborts} == {plan.point for plan in stops} == set(POINTS)
    assert {plan.resubmit_ticks for plan in aborts} == {None, 0, 1, 2, 3}
    assert {plan.resubmit_ticks for plan in stops} == {None}
