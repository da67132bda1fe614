"""`hicheck workload`: the logs of a run are really held to the specification."""

from __future__ import annotations

import io
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from hicache_checks import trace_command, workload_command
from hicache_checks.rank_layout import RankLayout
from hicache_checks.reporting import InputError, Outcome, Progress, Screen, Verdict
from hicache_checks.trace_command import TraceOptions
from hicache_checks.workload_command import WorkloadOptions
from hicache_impl import workload
from hicache_impl.cache import HiCache

REAL_TRACE = Path(__file__).resolve().parents[2] / "shared" / "data" / "mooncake_conversation_trace.jsonl"

OPTIONS = WorkloadOptions(
    trace=None,
    synthetic=True,
    requests=40,
    layout=RankLayout(),
    storage="memory",
    policy="wait_complete",
    abort_rate=0.1,
    stop_rate=0.1,
    page_bytes=64,
    host_pages=48,
    device_pages=64,
    speed=None,
    seed=3,
    fault=None,
)


def silent() -> Screen:
    return Screen(Console(file=io.StringIO()), Progress(io.StringIO()))


def options(target: str = "reference", **changes: object) -> WorkloadOptions:
    return replace(OPTIONS, target=target, **changes)  # type: ignore[arg-type]


def test_an_honest_run_is_explained() -> None:
    outcome = workload_command.replay(options("reference"), silent())
    assert outcome.verdict is Verdict.PASS
    assert outcome.keys["violations"] == []
    assert int(str(outcome.keys["events_explained"])) > 100


def test_a_log_that_does_not_add_up_is_a_violation() -> None:
    outcome = workload_command.replay(options("altered_runner:run"), silent())
    assert outcome.verdict is Verdict.FAIL
    violations = outcome.keys["violations"]
    assert isinstance(violations, list)
    (violation,) = violations
    assert violation.startswith("step_admitted_for_cause: it is to be declined: too_short at rank 0")
    assert "span=1" in violation


def assert_nothing_lost(outcome: Outcome) -> None:
    keys = outcome.keys
    assert outcome.verdict is Verdict.PASS, keys["violations"]
    assert (keys["violations"], keys["pages_left"]) == ([], 0)


@pytest.mark.heavy
@pytest.mark.parametrize("fault", [None, "delete", "corrupt", "raise"])
def test_a_store_that_breaks_loses_nothing_and_is_explained(tmp_path: Path, fault: str | None) -> None:
    storage = f"file:{tmp_path / 'pages'}"
    outcome = workload_command.replay(
        options(requests=150, layout=RankLayout(tp=2), storage=storage, fault=fault), silent()
    )
    assert_nothing_lost(outcome)
    assert outcome.keys["fault"] == fault
    assert outcome.keys["requests"] == 150


@pytest.mark.heavy
@pytest.mark.skipif(not REAL_TRACE.exists(), reason="the real trace is not committed")
def test_the_real_trace_on_two_gloo_ranks(tmp_path: Path) -> None:
    outcome = workload_command.replay(
        options(
            trace=str(REAL_TRACE),
            synthetic=False,
            requests=2000,
            layout=RankLayout(tp=2),
            storage=f"file:{tmp_path / 'pages'}",
            abort_rate=0.05,
            stop_rate=0.05,
            page_bytes=4096,
            host_pages=512,
            device_pages=512,
        ),
        silent(),
    )
    assert_nothing_lost(outcome)
    report: dict[str, Any] = dict(outcome.keys)
    assert report["requests"] == 2000
    assert report["operations"]["fetched"]["complete"] > 0
    assert report["operations"]["revoked"].keys() == {"below_threshold", "no_memory", "stopped", "aborted"}
    assert all(count > 0 for count in report["operations"]["revoked"].values())
    assert report["terminated"] > 0
    assert report["events_explained"] > 40_000
    assert report["peak_rss_bytes"] < 2 * 2**30


@pytest.mark.parametrize("target", ["nobody", "altered_runner:nothing", "no_such_module:run"])
def test_an_unknown_runner_is_one_line(target: str) -> None:
    with pytest.raises(InputError) as refusal:
        workload_command.replay(options(target), silent())
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.heavy)])
def test_its_logs_are_traces(tmp_path: Path, ranks: int) -> None:
    given = asdict(options(layout=RankLayout(tp=ranks)))
    del given["target"]
    report = workload.run({**given, "logs": str(tmp_path)}, lambda line: None)
    outcome = trace_command.run(TraceOptions(report["logs"]), silent())
    assert (outcome.verdict, outcome.keys["whole"]) == (Verdict.PASS, True)
    assert outcome.keys["producer"] == "hicheck workload: the reference"


def test_the_log_of_a_run_that_went_wrong_does_not_say_that_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HiCache, "audit", lambda cache: ["P4 a page is lost"])
    given = asdict(options())
    del given["target"]
    report = workload.run({**given, "logs": str(tmp_path)}, lambda line: None)
    assert report["violations"] == ["rank 0: P4 a page is lost"]
    assert trace_command.run(TraceOptions(report["logs"]), silent()).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("runner", "message"),
    [
        ("cut_short", "line 101: the line is cut"),
        ("of_another", "line 1: the trace of another system than was asked for"),
    ],
)
def test_logs_that_cannot_be_used_are_an_error(runner: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        workload_command.replay(options(f"altered_runner:{runner}"), silent())


def test_a_log_that_breaks_off_hides_no_violation() -> None:
    outcome = workload_command.replay(options("altered_runner:killed"), silent())
    assert (outcome.verdict, outcome.keys["violations"]) == (Verdict.FAIL, ["rank 0: ended without a result"])
