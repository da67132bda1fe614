"""Replay of a request trace through the threaded implementation: one process a rank, one report for all.

Registered as the entry point `reference` of the group `hicheck.workloads`.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from hicache_impl.disruptions import check_fault
from hicache_impl.runtime import ThreadRuntime
from hicache_impl.storage import open_storage
from hicache_impl.traces import BLOCK_TOKENS, Trace
from hicache_impl.workload_rank import WorkloadOptions, run_alone

# How long the other ranks may go on once one of them has ended with a finding or has died.
GRACE_S = 5.0
POLL_S = 0.1


class RankDied(RuntimeError):
    """The process of a rank ended without a result."""


def run(options: Mapping[str, Any], progress: Callable[[str], None]) -> dict[str, Any]:
    """Replay a trace and report.

    `options`: the fields of WorkloadOptions; `logs` names a folder that exists and takes the event logs. `progress`
    gets a line now and then. The report counts tokens, pages, requests, operations, bytes and seconds as its keys say;
    `violations` has a line for everything that this side saw go wrong, `pages_left` are pages of all ranks that are
    neither free nor in the tree at the end, `logs` the traces by rank (spec/EVENTS.md), whole where nothing went
    wrong. What is the same on every rank is reported once; pages verified and storage counts are sums over ranks,
    memory is the largest rank's.

    Raises ValueError, with one line, for options or a trace that cannot be used; RankDied.
    """
    checked = _checked(options)
    trace = checked.read()
    progress(f"workload: {len(trace.requests)} requests, {checked.ranks} ranks")
    if checked.ranks == 1:
        results = [run_alone(checked, trace, progress)]
    else:
        results = _Processes(checked, progress).run()
    return _report(checked, trace, results)


def _checked(options: Mapping[str, Any]) -> WorkloadOptions:
    checked = msgspec.convert(dict(options), WorkloadOptions)
    checked.config()
    check_fault(checked.fault, checked.storage)
    open_storage(checked.storage).close()
    if checked.trace is not None and checked.synthetic:
        raise ValueError("a trace and a synthetic one exclude each other")
    if checked.requests is not None and checked.requests < 1:
        raise ValueError(f"requests must be at least 1, not {checked.requests}")
    if checked.window < 1:
        raise ValueError(f"window must be at least 1, not {checked.window}")
    if checked.speed is not None and not checked.speed > 0:
        raise ValueError(f"speed must be greater than 0, not {checked.speed}")
    for name in ("abort_rate", "stop_rate"):
        if not 0 <= getattr(checked, name) <= 1:
            raise ValueError(f"{name} must be between 0 and 1, not {getattr(checked, name)}")
    if checked.abort_rate + checked.stop_rate > 1:
        raise ValueError(
            f"abort_rate and stop_rate together must be at most 1, not {checked.abort_rate + checked.stop_rate:g}"
        )
    return checked


class _Processes:
    """Starts a process a rank, passes rank 0's progress on, and ends all of them whatever happens."""

    def __init__(self, options: WorkloadOptions, progress: Callable[[str], None]) -> None:
        self._options = options
        self._folder = Path(options.logs)
        self._progress = progress
        self._runtime = ThreadRuntime()
        self._processes: list[subprocess.Popen[str]] = []
        self._first_spoilt: int | None = None

    def run(self) -> list[dict[str, Any]]:
        """The results of the ranks that have one, in rank order. RankDied: one has none, and none has a finding."""
        (self._folder / "options.json").write_bytes(msgspec.json.encode(self._options))
        try:
            for rank in range(self._options.ranks):
                self._processes.append(self._start(rank))
            reader = self._runtime.thread("progress", self._pass_progress_on)
            reader.start()
            self._wait()
        finally:
            for process in self._processes:
                process.kill()
                process.wait()
        reader.join(GRACE_S)
        return self._results()

    def _start(self, rank: int) -> subprocess.Popen[str]:
        with self._stderr(rank).open("w", encoding="utf-8") as stderr:
            return subprocess.Popen(
                [sys.executable, "-m", "hicache_impl.workload_rank", str(self._folder), str(rank)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                stderr=stderr,
                text=True,
            )

    def _pass_progress_on(self) -> None:
        lines = self._processes[0].stdout
        assert lines is not None
        for line in lines:
            self._progress(line.rstrip("\n"))

    def _wait(self) -> None:
        """Until all have ended, or the grace has passed since one ended in a way that the others cannot survive."""
        pause = self._runtime.event()
        deadline_s = math.inf
        while any(process.poll() is None for process in self._processes) and self._runtime.now() < deadline_s:
            spoilt = [rank for rank in range(len(self._processes)) if self._spoils(rank)]
            if spoilt and self._first_spoilt is None:
                # A rank that a signal ended comes first: the others only lost their connection to it.
                self._first_spoilt = min(spoilt, key=lambda rank: self._processes[rank].returncode)
                deadline_s = self._runtime.now() + GRACE_S
            pause.wait(POLL_S)

    def _spoils(self, rank: int) -> bool:
        if self._processes[rank].poll() is None:
            return False
        result = self._result(rank)
        return result is None or bool(result["broken"])

    def _results(self) -> list[dict[str, Any]]:
        ranks = range(len(self._processes))
        results = {rank: result for rank in ranks if (result := self._result(rank)) is not None}
        missing = sorted(set(ranks) - results.keys(), key=lambda rank: (rank != self._first_spoilt, rank))
        if missing and not any(result["findings"] for result in results.values()):
            raise RankDied(f"rank {missing[0]} ended without a result: {self._last_words(missing[0])}")
        for rank in missing:
            some = next(iter(results.values()))
            some["findings"].append(f"rank {rank}: ended without a result: {self._last_words(rank)}")
        return [results[rank] for rank in sorted(results)]

    def _result(self, rank: int) -> dict[str, Any] | None:
        path = self._folder / f"rank-{rank}.json"
        try:
            result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None
        return result

    def _stderr(self, rank: int) -> Path:
        return self._folder / f"rank-{rank}.stderr"

    def _last_words(self, rank: int) -> str:
        lines = [line for line in self._stderr(rank).read_text(encoding="utf-8").splitlines() if line.strip()]
        return lines[-1].strip() if lines else f"exit code {self._processes[rank].returncode}"


def _report(options: WorkloadOptions, trace: Trace, results: list[dict[str, Any]]) -> dict[str, Any]:
    first = results[0]
    counters = first["counters"]
    seconds = max(result["seconds"] for result in results)
    verified = sum(result["counters"]["pages_verified"] for result in results)
    happened = first["happened"]
    return {
        "requests": happened["finished"] + happened["aborted"],
        "hit_tokens": {tier: pages * BLOCK_TOKENS for tier, pages in first["hit_pages"].items()},
        "computed_tokens": first["computed_pages"] * BLOCK_TOKENS,
        "operations": {"fetched": counters["fetched"], "revoked": counters["revoked"]},
        "terminated": counters["passed_terminated"],
        "declined": counters["declined"],
        "skipped": counters["skipped"],
        "shortened": counters["shortened"],
        "aborted_requests": happened["aborted"],
        "stopped_requests": happened["stopped"],
        "resubmitted_requests": happened["resubmitted"],
        "truncated_requests": happened["truncated"],
        "pages_fetched": sum(result["fetched_pages"] for result in results),
        "pages_verified": verified,
        "bytes_verified": verified * options.page_bytes,
        "violations": [finding for result in results for finding in result["findings"]] + _disagreements(results),
        "pages_left": sum(sum(result["pages_left"].values()) for result in results),
        "storage": _sum(result["storage"] for result in results),
        "storage_errors": _sum(result["storage_errors"] for result in results),
        "fault": options.fault,
        "damaged_files": sum(result["damaged_files"] for result in results),
        "bad_lines": {
            "count": trace.bad_line_count,
            "first": [{"line": bad.number, "reason": bad.reason} for bad in trace.bad_lines],
        },
        "ranks": options.ranks,
        "peak_rss_bytes": max(result["peak_rss_bytes"] for result in results),
        "seconds": round(seconds, 3),
        "pages_per_second": round(first["replayed_pages"] / seconds, 1) if seconds else 0.0,
        "logs": [result["log"] for result in results],
    }


# What the schedulers of all ranks must have counted alike (P7). What threads count, each rank counts for itself.
LOCKSTEP = ("hit_pages", "fetched_pages", "computed_pages", "replayed_pages", "happened")
LOCKSTEP_COUNTERS = ("fetched", "revoked", "declined", "skipped", "shortened", "known_pages", "evicted_pages")


def _disagreements(results: list[dict[str, Any]]) -> list[str]:
    """P7: one line for each count that differs between ranks that came to the end."""
    whole = [result for result in results if not result["broken"]]
    seen = [
        {key: result[key] for key in LOCKSTEP} | {key: result["counters"][key] for key in LOCKSTEP_COUNTERS}
        for result in whole
    ]
    return [
        f"P7 ranks disagree on {key}: {', '.join(str(counts[key]) for counts in seen)}"
        for key in (*LOCKSTEP, *LOCKSTEP_COUNTERS)
        if any(counts[key] != seen[0][key] for counts in seen)
    ]


def _sum(counts: Any) -> dict[str, int]:
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return dict(total)
