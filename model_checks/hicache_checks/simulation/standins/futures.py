"""The module `concurrent.futures`, for threads; processes are not simulated."""

from __future__ import annotations

import concurrent.futures
import concurrent.futures._base
import concurrent.futures.thread
import logging
import types
from collections.abc import Mapping
from typing import Any

from hicache_checks.simulation.standins import library, locks
from hicache_checks.simulation.world import TaskKilled

CPUS = 4
NAMES = (
    *("Future", "Executor", "CancelledError", "InvalidStateError", "BrokenExecutor", "TimeoutError"),
    *("wait", "as_completed", "FIRST_COMPLETED", "FIRST_EXCEPTION", "ALL_COMPLETED"),
)


def module(standins: Mapping[str, types.ModuleType]) -> types.ModuleType:
    """A module with the names of `concurrent.futures`, over the stand-ins of what it imports."""
    threading = types.ModuleType("threading")
    threading.__dict__.update(vars(standins["threading"]), _register_atexit=lambda function: None)
    # As many CPUs everywhere, and no hooks for a fork.
    operating = types.SimpleNamespace(cpu_count=lambda: CPUS, process_cpu_count=lambda: CPUS)
    known = {**standins, "threading": threading, "os": operating}
    base = library.module_over(concurrent.futures._base, known)
    package = types.ModuleType("concurrent.futures")
    package.__dict__["_base"] = base
    base.Future.__hash__ = locks.Numbered.__hash__
    base.Future._number = None
    pools = library.module_over(concurrent.futures.thread, {**known, "concurrent.futures": package})

    # Its threads log every exception that ends them, the end of the world too.
    base.LOGGER.addFilter(_is_of_the_program)

    class ThreadPoolExecutor(pools.ThreadPoolExecutor):  # type: ignore[name-defined]
        """`concurrent.futures.ThreadPoolExecutor`; its threads are numbered anew in every world."""

        def __init__(
            self, max_workers: int | None = None, thread_name_prefix: str = "", *initializer: Any, **named: Any
        ) -> None:
            prefix = thread_name_prefix or locks.named("ThreadPoolExecutor")
            super().__init__(max_workers, prefix, *initializer, **named)

    package.__dict__.update({name: getattr(base, name) for name in NAMES}, ThreadPoolExecutor=ThreadPoolExecutor)
    package.__dict__["ProcessPoolExecutor"] = _no_processes
    return package


def _is_of_the_program(record: logging.LogRecord) -> bool:
    return not (isinstance(record.exc_info, tuple) and isinstance(record.exc_info[1], TaskKilled))


def _no_processes(*args: Any, **named: Any) -> Any:
    raise locks.not_simulated("concurrent.futures.ProcessPoolExecutor has no stand-in")
