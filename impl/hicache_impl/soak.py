"""A soak: random work on gloo ranks with real threads for as long as one likes, and one report for all.

Registered as the entry point `reference` of the group `hicheck.soaks`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import msgspec

from hicache_impl.process_world import checked_options
from hicache_impl.rank_processes import RankDied, RankProcesses
from hicache_impl.rank_results import Result, add_up, by_replica, disagreements
from hicache_impl.soak_rank import SoakOptions
from hicache_impl.soak_servers import SERVED, servers_of

RESIDENT_GROWTH_MAX = 0.05
# With fewer samples in each of the two windows, memory is not judged.
SAMPLES_MIN = 4
LAST_SHARE = 0.2
STORES = ("lmdb", "file", "memory", *SERVED)
LOCKSTEP = ("rounds", "lives", "happened")


def run(options: Mapping[str, Any], progress: Callable[[str], None]) -> dict[str, Any]:
    """Soak for `seconds` and report. `options`: the fields of SoakOptions; `folder` is one that exists and is empty.

    `progress` gets a line after each round. In the report, `violations` has a line for everything that went wrong, a
    hang and a rank that died among them; `servers` says what befell those of the store; `resident` says how much memory
    each rank had after the warm-up and at the end, in bytes; `memory_judged` is False where there was too little time
    to compare the two. What is the same on every rank of a replica is reported once, and added up over replicas.

    Raises ValueError, with one line, for options that cannot be used.
    """
    checked = _checked(options)
    with servers_of(checked.store, checked.seed) as (server, befell):
        report = _run(msgspec.structs.replace(checked, server=server), progress)
    report["servers"] = dict(befell)
    return report


def _run(checked: SoakOptions, progress: Callable[[str], None]) -> dict[str, Any]:
    silence_s = checked.silent_s
    processes = RankProcesses("hicache_impl.soak_rank", checked.folder, checked.layout.world, progress, silence_s)
    try:
        results = processes.run(msgspec.json.encode(checked))
    except RankDied as died:
        return {**_report(checked, []), "violations": [str(died)]}
    report = _report(checked, results)
    if processes.hung:
        report["violations"] += [
            f"hang: rank {rank}: no round ended within {silence_s:g} s; {_where(processes.stacks(rank))}"
            for rank in range(checked.layout.world)
        ]
    return report


def _report(checked: SoakOptions, results: Sequence[Result]) -> dict[str, Any]:
    violations = [finding for result in results for finding in result["findings"]]
    replicas = by_replica(results, checked.layout.ranks)
    violations += [line for replica in replicas for line in disagreements(replica, _in_lockstep)]
    resident = [_resident(result["resident"], checked.warmed_up_s) for result in results]
    judged = [(rank, before, after) for rank, (before, after) in enumerate(resident) if before and after]
    for rank, before, after in judged:
        if after > before * (1 + RESIDENT_GROWTH_MAX):
            violations.append(
                f"memory: rank {rank} had {before / 2**20:.1f} MiB after the warm-up and {after / 2**20:.1f} MiB at "
                f"the end, {after / before - 1:.1%} more"
            )
    firsts = [replica[0] for replica in replicas]
    return {
        "ranks": checked.layout.world,
        "layout": asdict(checked.layout),
        "store": checked.store,
        "seed": checked.seed,
        "rounds": sum(first["rounds"] for first in firsts),
        "lives": sum(first["lives"] for first in firsts),
        "happened": add_up(first["happened"] for first in firsts),
        "moved_pages": add_up(first["moved_pages"] for first in firsts),
        "violations": violations,
        "recent": [line for result in results for line in result["recent"]],
        "memory_judged": len(judged) == checked.layout.world,
        "resident": [{"after_warm_up_bytes": before, "at_the_end_bytes": after} for before, after in resident],
        "seconds": round(max((result["seconds"] for result in results), default=0.0), 3),
    }


def _in_lockstep(result: Result) -> dict[str, Any]:
    return {key: result[key] for key in LOCKSTEP}


def _checked(options: Mapping[str, Any]) -> SoakOptions:
    checked = checked_options(SoakOptions, options)
    if not checked.seconds > 0:
        raise ValueError(f"a soak takes more than 0 s, not {checked.seconds}")
    if checked.store not in STORES:
        raise ValueError(f"store must be one of {', '.join(STORES)}, not {checked.store!r}")
    return checked


def _resident(samples: Sequence[tuple[float, int]], warmed_up_s: float) -> tuple[int, int]:
    """Median bytes in the first window after the warm-up, and in the last; 0, 0 where there are too few samples."""
    warm = [size for seconds, size in samples if seconds >= warmed_up_s]
    window = max(SAMPLES_MIN, int(len(warm) * LAST_SHARE))
    if len(warm) < 2 * window or not all(warm):
        return 0, 0
    return int(statistics.median(warm[:window])), int(statistics.median(warm[-window:]))


def _where(stacks: str) -> str:
    """The innermost frames of the main thread, which is the last that faulthandler writes."""
    frames = [line.strip() for line in stacks.splitlines() if line.strip().startswith("File ")]
    main = stacks.rfind("(most recent call first)")
    if main >= 0:
        frames = [line.strip() for line in stacks[main:].splitlines() if line.strip().startswith("File ")]
    short = [frame.rpartition("/")[2].replace('"', "") for frame in frames[:4]]
    return "it is in " + " < ".join(short) if short else "nothing is known of where it is"
