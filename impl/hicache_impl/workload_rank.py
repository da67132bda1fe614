"""One rank of a workload: in this process when it is alone, else a process of its own that `workload` starts.

As a program: `python -m hicache_impl.workload_rank FOLDER RANK`, where FOLDER holds `options.json` and takes this
rank's event log, a trace as spec/EVENTS.md describes it, and `rank-RANK.json`, its result. Rank 0 prints a line of
progress now and then.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import msgspec

from hicache_impl.audit import unowned_host_pages, unowned_slots
from hicache_impl.cache import HiCache, open_rank
from hicache_impl.config import CacheConfig
from hicache_impl.controller import WorkerDied
from hicache_impl.disruptions import StorageBreaker, plan_disruption
from hicache_impl.events import EventLog, dump_events
from hicache_impl.operation import IllegalTrigger
from hicache_impl.page_pool import PoolError
from hicache_impl.process_world import World, WorldOptions
from hicache_impl.ranks import Desync, Group, GroupAborted, Groups, SoloGroup, solo_groups
from hicache_impl.replay import Replay
from hicache_impl.runtime import Stalled, ThreadRuntime
from hicache_impl.storage import open_storage
from hicache_impl.traces import BLOCK_TOKENS, Trace, read_trace, synthetic_trace
from hicache_impl.trees.node import TreeError

SYNTHETIC_REQUESTS = 300
PROGRESS_S = 0.5
TRACE_VERSION = 2
# What the implementation raises when a rule of its own is broken: findings, not accidents of the run.
FINDINGS = (PoolError, TreeError, WorkerDied, IllegalTrigger, Desync, GroupAborted, Stalled)


class WorkloadOptions(WorldOptions, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """What to replay and how; see `workload.run`. Rates are shares of requests, `logs` is a folder.

    Each replica replays requests of its own: of as many as there are replicas, one.
    """

    logs: str
    trace: str | None = None
    synthetic: bool = False
    requests: int | None = None
    storage: str = "memory"
    policy: str = "wait_complete"
    abort_rate: float = 0.0
    stop_rate: float = 0.0
    page_bytes: int = 4096
    host_pages: int = 512
    device_pages: int = 512
    threshold_pages: int = 2
    window: int = 8
    stall_s: float = 120.0
    speed: float | None = None
    seed: int = 0
    fault: str | None = None
    tree: str = "hiradix"
    pools: tuple[dict[str, Any], ...] = ()
    replicated: bool = False

    def config(self, rank: int = 0) -> CacheConfig:
        """The cache of a world rank: one block of the trace is one page. Raises ValueError."""
        return CacheConfig(
            host_pages=self.host_pages,
            device_pages=self.device_pages,
            page_size=BLOCK_TOKENS,
            layers=1 if self.page_bytes % 2 else 2,
            page_bytes=self.page_bytes,
            threshold_pages=self.threshold_pages,
            policy=self.policy,  # type: ignore[arg-type]  # CacheConfig checks it
            layout=self.layout,
            device=self.device_of(rank),
            tree=self.tree,
            pools=self.pools,  # type: ignore[arg-type]  # CacheConfig makes PoolSpecs of them
            replicated=self.replicated,
        )

    def read(self) -> Trace:
        """The trace, cut to `requests`. Raises ValueError (TraceError) when it cannot be read."""
        if self.synthetic:
            return synthetic_trace(SYNTHETIC_REQUESTS if self.requests is None else self.requests, self.seed)
        if self.trace is None:
            raise ValueError("there is no trace to replay")
        return read_trace(self.trace, self.requests)


@dataclass(frozen=True)
class _Place:
    """Where a rank runs: its number in the world, its groups, one more for the replay's own agreement, and its log."""

    rank: int
    groups: Groups
    replay_group: Group
    log: EventLog
    runtime: ThreadRuntime


def run_alone(options: WorkloadOptions, trace: Trace, progress: Callable[[str], None]) -> dict[str, Any]:
    """A workload of one rank, in this process. Returns the rank's result (see `_result`)."""
    runtime = ThreadRuntime()
    log = EventLog(0)
    place = _Place(0, solo_groups(log), SoloGroup("replay"), log, runtime)
    return _run(options, trace, place, progress)


def run_process(options: WorkloadOptions, rank: int) -> dict[str, Any]:
    """This process's rank of a workload of several."""
    world = World(options, Path(options.logs), rank)
    log = EventLog(rank % options.layout.ranks)
    place = _Place(rank, world.groups(log), world.group("replay"), log, ThreadRuntime())
    result = _run(options, options.read(), place, _print_progress if rank == 0 else _say_nothing)
    if not result["broken"]:
        world.leave()
    return result


def _run(options: WorkloadOptions, trace: Trace, place: _Place, progress: Callable[[str], None]) -> dict[str, Any]:
    runtime, rank = place.runtime, place.rank
    requests = trace.requests[rank // options.layout.ranks :: options.layout.dp]
    store = open_storage(options.storage)
    breaker = StorageBreaker(options.fault, options.storage, store, rank, len(requests), options.seed)
    config = options.config(rank)
    cache = open_rank(config, breaker.storage, place.groups, runtime, place.log)
    path = Path(options.logs) / f"events-{rank}.jsonl"
    started_s = runtime.now()
    findings: list[str] = []
    broken = False
    with path.open("w", encoding="utf-8") as stream:
        _write_line(stream, _header(config, place.groups.rank))
        reporter = _Reporter(cache, place.log, stream, len(requests), progress)
        replay = Replay(
            cache,
            requests,
            place.replay_group,
            window=options.window,
            plan=lambda index: plan_disruption(options.seed, index, options.abort_rate, options.stop_rate),
            breaker=breaker,
            speed=options.speed,
            on_turn=reporter.turn,
            stall_s=options.stall_s,
        )
        try:
            replay.run()
            cache.quiesce()
            seconds = runtime.now() - started_s
            findings += cache.audit()
        except FINDINGS as error:
            seconds = runtime.now() - started_s
            findings.append(f"{type(error).__name__}: {error}")
            broken = True
        left = _pages_left(cache)
        try:
            cache.close()
        except FINDINGS as error:
            findings.append(f"{type(error).__name__}: {error}")
        reporter.flush()
        if not (replay.problems or findings):
            _write_line(stream, {"end": [reporter.written]})
    store.close()
    return {
        "rank": rank,
        "broken": broken,
        "findings": [f"rank {rank}: {finding}" for finding in [*replay.problems, *findings]],
        "pages_left": left,
        "seconds": seconds,
        "hit_pages": dict(replay.hit_pages),
        "fetched_pages": replay.fetched_pages,
        "computed_pages": replay.computed_pages,
        "replayed_pages": replay.replayed_pages,
        "happened": dict(replay.happened),
        "counters": cache.counters.as_dict(),
        "storage_errors": dict(cache.controller.storage_errors),
        "storage": breaker.storage.stats(),
        "damaged_files": breaker.damaged_files,
        "peak_rss_bytes": peak_rss_bytes(),
        "log": str(path),
    }


def _header(config: CacheConfig, rank: int) -> dict[str, Any]:
    """The first line of the trace of one rank."""
    return {
        "hicheck_trace": TRACE_VERSION,
        "producer": "hicheck workload: the reference",
        "ranks": config.ranks,
        "logs_of": [rank],
        "policy": config.policy,
        "host_pages": config.host_pages,
        "threshold_pages": config.threshold_pages,
        "limit_pages": config.limit_pages,
    }


def _write_line(stream: TextIO, line: Mapping[str, Any]) -> None:
    stream.write(json.dumps(line, separators=(",", ":")) + "\n")


class _Reporter:
    """Hands the events on to the log file, so that a long run stays small, and says how far it is.

    `written`: so many events are in the file.
    """

    FLUSH_TURNS = 64

    def __init__(
        self, cache: HiCache, log: EventLog, stream: Any, requests: int, progress: Callable[[str], None]
    ) -> None:
        self._cache = cache
        self._log = log
        self._stream = stream
        self._requests = requests
        self._progress = progress
        self._turns = 0
        self.written = 0
        self._next_s = 0.0

    def turn(self, done: int) -> None:
        """After every turn of the scheduler's loop; `done` requests are over."""
        self._turns += 1
        if self._turns % self.FLUSH_TURNS == 0:
            self.flush()
        now_s = self._cache.runtime.now()
        if now_s >= self._next_s:
            self._next_s = now_s + PROGRESS_S
            self._progress(f"workload: {done} of {self._requests} requests")

    def flush(self) -> None:
        """Write what was logged since the last time, and forget it."""
        events = self._log.take_since(self.written)
        dump_events(events, self._stream)
        self.written += len(events)
        self._log.forget_before(self.written)


def _pages_left(cache: HiCache) -> dict[str, int]:
    """Pages, and slots beside them, that are neither free nor in the tree, by pool. Read before close, which gives back
    what was lost."""
    device = cache.device.allocator
    in_tree = cache.tree.device_pages_resident()
    left = {"host": len(unowned_host_pages(cache)), "device": device.pages - device.available - in_tree}
    return {**left, **{f"host {name}": len(unowned_slots(cache, name)) for name in cache.extra}}


def peak_rss_bytes() -> int:
    """The largest resident size of this process so far.

    From the kernel's high-water mark where there is one: `ru_maxrss` of a child starts at its parent's size.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest if sys.platform == "darwin" else largest * 1024


def _print_progress(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _say_nothing(text: str) -> None:
    pass


def main(arguments: list[str]) -> None:
    """Run the rank that the command line names, and leave its result in the folder."""
    folder, rank = Path(arguments[0]), int(arguments[1])
    given: Mapping[str, Any] = json.loads((folder / "options.json").read_text(encoding="utf-8"))
    result = run_process(msgspec.convert(given, WorkloadOptions), rank)
    (folder / f"rank-{rank}.json").write_text(json.dumps(result), encoding="utf-8")
    sys.stdout.flush()
    # After a finding, peers may hang in a collective and worker threads in a store; nobody waits for them.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
