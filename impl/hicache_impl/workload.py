"""Replay of a request trace through the threaded implementation: one process a rank, one report for all.

Registered as the entry point `reference` of the group `hicheck.workloads`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import msgspec

from hicache_impl.disruptions import check_fault
from hicache_impl.process_world import checked_options
from hicache_impl.rank_processes import RankProcesses
from hicache_impl.rank_results import Result, add_up, by_replica, disagreements
from hicache_impl.storage import open_storage
from hicache_impl.traces import BLOCK_TOKENS, Trace
from hicache_impl.workload_rank import WorkloadOptions, run_alone


def run(options: Mapping[str, Any], progress: Callable[[str], None]) -> dict[str, Any]:
    """Replay a trace and report.

    `options`: the fields of WorkloadOptions; `logs` names a folder that exists and takes the event logs. `progress`
    gets a line now and then. The report counts tokens, pages, requests, operations, bytes and seconds as its keys say;
    `violations` has a line for everything that this side saw go wrong, `pages_left` are pages of all ranks that are
    neither free nor in the tree at the end, slots beside them included, `logs` the traces by rank of the world
    (spec/EVENTS.md), whole where nothing went wrong. What is the same on every rank of a replica is reported once, and
    added up over replicas; pages verified and storage counts are sums over ranks, memory is the largest rank's.

    Raises ValueError, with one line, for options or a trace that cannot be used; RankDied.
    """
    checked = _checked(options)
    trace = checked.read()
    progress(f"workload: {len(trace.requests)} requests, {checked.layout.world} ranks")
    if checked.layout.world == 1:
        results = [run_alone(checked, trace, progress)]
    else:
        processes = RankProcesses("hicache_impl.workload_rank", checked.logs, checked.layout.world, progress)
        results = processes.run(msgspec.json.encode(checked))
    return _report(checked, trace, results)


def _checked(options: Mapping[str, Any]) -> WorkloadOptions:
    checked = checked_options(WorkloadOptions, options)
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


def _report(options: WorkloadOptions, trace: Trace, results: Sequence[Result]) -> dict[str, Any]:
    replicas = by_replica(results, options.layout.ranks)
    firsts = [replica[0] for replica in replicas]
    counters = [first["counters"] for first in firsts]
    happened = add_up(first["happened"] for first in firsts)
    seconds = max(result["seconds"] for result in results)
    verified = sum(result["counters"]["pages_verified"] for result in results)
    replayed_pages = sum(first["replayed_pages"] for first in firsts)
    return {
        "requests": happened["finished"] + happened["aborted"],
        "hit_tokens": {
            tier: pages * BLOCK_TOKENS for tier, pages in add_up(first["hit_pages"] for first in firsts).items()
        },
        "computed_tokens": sum(first["computed_pages"] for first in firsts) * BLOCK_TOKENS,
        "operations": {state: add_up(counts[state] for counts in counters) for state in ("fetched", "revoked")},
        "terminated": sum(counts["passed_terminated"] for counts in counters),
        "declined": add_up(counts["declined"] for counts in counters),
        "skipped": sum(counts["skipped"] for counts in counters),
        "shortened": sum(counts["shortened"] for counts in counters),
        "aborted_requests": happened["aborted"],
        "stopped_requests": happened["stopped"],
        "resubmitted_requests": happened["resubmitted"],
        "truncated_requests": happened["truncated"],
        "pages_fetched": sum(result["fetched_pages"] for result in results),
        "pages_verified": verified,
        "bytes_verified": verified * options.config().stored_bytes,
        "violations": [finding for result in results for finding in result["findings"]]
        + [line for replica in replicas for line in disagreements(replica, _in_lockstep)],
        "pages_left": sum(sum(result["pages_left"].values()) for result in results),
        "storage": add_up(result["storage"] for result in results),
        "storage_errors": add_up(result["storage_errors"] for result in results),
        "fault": options.fault,
        "damaged_files": sum(result["damaged_files"] for result in results),
        "bad_lines": {
            "count": trace.bad_line_count,
            "first": [{"line": bad.number, "reason": bad.reason} for bad in trace.bad_lines],
        },
        "ranks": options.layout.world,
        "layout": asdict(options.layout),
        "peak_rss_bytes": max(result["peak_rss_bytes"] for result in results),
        "seconds": round(seconds, 3),
        "pages_per_second": round(replayed_pages / seconds, 1) if seconds else 0.0,
        "logs": [result["log"] for result in results],
    }


# What the schedulers of all ranks of a replica must have counted alike (P7). What threads count, each rank counts for
# itself.
LOCKSTEP = ("hit_pages", "fetched_pages", "computed_pages", "replayed_pages", "happened")
LOCKSTEP_COUNTERS = ("fetched", "revoked", "declined", "skipped", "shortened", "known_pages", "evicted_pages")


def _in_lockstep(result: Result) -> dict[str, Any]:
    counts = {key: result[key] for key in LOCKSTEP}
    return counts | {key: result["counters"][key] for key in LOCKSTEP_COUNTERS}
