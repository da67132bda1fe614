"""`hicheck workload`: the logs of a run are really held to the specification."""

from __future__ import annotations

import io
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from hicache_checks import trace_command, workload_command
from hicache_checks.rank_layout import RankLayout, described
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
@pytest.mark.parametrize("storage", ["lmdb", "file"])
def test_a_store_without_a_directory_lies_in_the_folder_of_the_run(storage: str) -> None:
    outcome = workload_command.replay(options(requests=150, layout=RankLayout(tp=2), storage=storage), silent())
    assert_nothing_lost(outcome)
    assert outcome.keys["storage"]["hits"] > 0  # type: ignore[index]
    assert not list(Path().glob("store*"))


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


WINDOW = workload_command.pool_fields("window=window,window_pages=3,host_slots=60,device_slots=60")
STATE = workload_command.pool_fields("state=state,host_slots=30,device_slots=20")
DRAFT = workload_command.pool_fields("draft=sidecar,replicated=true")


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("layout", "more"),
    [
        (RankLayout(tp=2, pp=2), {}),
        (RankLayout(pp=3), {"policy": "best_effort"}),
        (RankLayout(cp=2), {"tree": "unified", "pools": (WINDOW, STATE, DRAFT)}),
        (RankLayout(tp=2, pp=2), {"replicated": True, "tree": "hi_mamba", "pools": (STATE, DRAFT)}),
    ],
    ids=str,
)
def test_a_grid_loses_nothing_and_is_explained(tmp_path: Path, layout: RankLayout, more: dict[str, Any]) -> None:
    """Also by `hicheck trace`, from the files that it leaves."""
    chosen = options(requests=200, abort_rate=0.15, layout=layout, **more)
    assert_nothing_lost(workload_command.replay(chosen, silent()))
    given = asdict(chosen)
    del given["target"]
    report = workload.run({**given, "logs": str(tmp_path)}, lambda line: None)
    assert (report["violations"], len(report["logs"])) == ([], layout.world)
    outcome = trace_command.run(TraceOptions(report["logs"]), silent())
    assert (outcome.verdict, outcome.keys["whole"]) == (Verdict.PASS, True)


@pytest.mark.heavy
def test_replicas_replay_requests_of_their_own(tmp_path: Path) -> None:
    chosen = options(requests=101, layout=RankLayout(tp=2, dp=2), storage=f"file:{tmp_path / 'pages'}")
    outcome = workload_command.replay(chosen, silent())
    assert_nothing_lost(outcome)
    assert (outcome.keys["requests"], outcome.keys["ranks"]) == (101, 4)


def test_a_run_with_states_is_explained() -> None:
    outcome = workload_command.replay(options(tree="hi_mamba", pools=(STATE, DRAFT)), silent())
    assert_nothing_lost(outcome)


def test_a_pool_is_read_from_the_command_line() -> None:
    assert WINDOW == {
        "name": "window", "kind": "window", "window_pages": 3, "host_slots": 60, "device_slots": 60,
    }  # fmt: skip
    assert DRAFT == {"name": "draft", "kind": "sidecar", "replicated": True}
    for wrong in ("draft", "draft=", "=sidecar", "draft=sidecar,", "draft=sidecar,layers"):
        with pytest.raises(InputError, match=r"^a pool is NAME=KIND\[,FIELD=VALUE\]\.\.\., not "):
            workload_command.pool_fields(wrong)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"backend": "nccl", "layout": RankLayout(tp=4096)}, "nccl wants a CUDA device for each rank: there are "),
        ({"backend": "mpi"}, "backend must be one of gloo, nccl, not 'mpi'"),
        ({"tree": "oak"}, "tree must be one of "),
        ({"pools": (STATE,)}, "HiRadixTree has no place for state"),
        ({"layout": RankLayout(pp=-1)}, "pp must be an integer >= 1, not -1"),
        ({"pools": ({"name": "draft", "kind": "sidecar", "colour": 1},)}, "is no pool"),
    ],
)
def test_what_cannot_be_run_is_one_line(more: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as refusal:
        workload_command.replay(options(**more), silent())
    assert says in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is CUDA")
def test_a_device_that_is_not_there_is_one_line() -> None:
    with pytest.raises(InputError, match=r"^the device cuda wants CUDA, which is not available here$"):
        workload_command.replay(options(device="cuda"), silent())


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ({}, "1 rank"),
        ({"tp": 2}, "2 ranks"),
        ({"tp": 2, "pp": 3}, "6 ranks, tp 2 x pp 3"),
        ({"dp": 2}, "2 ranks, dp 2"),
    ],
)
def test_a_layout_is_described(sizes: dict[str, int], text: str) -> None:
    assert described(asdict(RankLayout(**sizes))) == text


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
