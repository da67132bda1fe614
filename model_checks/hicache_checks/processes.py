"""Independent jobs side by side, one process each, with one progress line for all of them."""

from __future__ import annotations

import multiprocessing
import os
import queue
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeVar

from hicache_checks.engine.explore import Progress

Job = TypeVar("Job")
Result = TypeVar("Result")
Report = Callable[[str, Progress], None]

POLL_SECONDS = 0.2
MIB = 1 << 20


def workers_for(jobs: int, wanted: int | None = None) -> int:
    """How many processes for so many jobs: one a core, or as many as are wanted."""
    return max(1, min(jobs, wanted or os.cpu_count() or 1))


def run_jobs(
    work: Callable[[Job, Report], Result], jobs: Sequence[Job], workers: int, show: Callable[[str], None]
) -> list[Result]:
    """The results of all jobs, in their order. `work` and the jobs must be picklable.

    `work` may report progress under a name; `show` is told a line of all of it. Raises what `work` raises.
    """
    latest: dict[str, Progress] = {}

    def note(name: str, progress: Progress) -> None:
        latest[name] = progress
        show(line_of(latest))

    if workers == 1 or len(jobs) == 1:
        return [work(job, note) for job in jobs]
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(workers, mp_context=context) as pool:
        reports: Any = manager.Queue()
        futures = [pool.submit(_work, work, job, reports) for job in jobs]
        try:
            while not all(f.done() for f in futures):
                try:
                    note(*reports.get(timeout=POLL_SECONDS))
                except queue.Empty:
                    continue
            return [f.result() for f in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _work(work: Callable[[Job, Report], Result], job: Job, reports: Any) -> Result:
    return work(job, lambda name, progress: reports.put((name, progress)))


def line_of(latest: dict[str, Progress]) -> str:
    """How far the explorations of these names have come, together."""
    states = sum(p.states for p in latest.values())
    rate = sum(p.states / p.seconds for p in latest.values() if p.seconds > 0)
    frontier = sum(p.frontier for p in latest.values())
    depth = max(p.depth for p in latest.values())
    memory = sum(p.bytes for p in latest.values())
    return (
        f"exploring {', '.join(latest)}: {states:,} states, {rate:,.0f} states/s, frontier {frontier:,}, depth {depth}"
        + (f", {memory / MIB:,.0f} MiB" if memory else "")
    )
