"""The same search by `frontrun`, another scheduler of Python threads (PyPI, MPL-2.0): as far as it applies.

It schedules, bytecode by bytecode, the functions that it is given as workers. The threads that a system starts itself
run as they like beside them, and a worker that waits for one of those counts as stuck.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from hicache_checks.conformance.findings import Finding

MISSING = "frontrun is not installed: pip install frontrun --no-deps"
ACTIVE = "FRONTRUN_ACTIVE"
RUN_S_MAX = 5.0


@dataclass(frozen=True)
class Explored:
    """What it came to: how many interleavings, what was wrong in one, or why it cannot tell."""

    interleavings: int
    seconds: float
    finding: Finding | None
    note: str


@dataclass
class _State:
    finding: Finding | None = None


def explore(run: Callable[[], Finding | None], seconds_max: float) -> Explored:
    """Let frontrun explore one program as its only worker; `run` says what was wrong with it."""
    try:
        frontrun = import_module("frontrun")
    except ImportError:
        return Explored(0, 0.0, None, MISSING)
    # Else it wants to be the program that starts this one, to see its system calls; there are none to see.
    os.environ[ACTIVE] = "1"
    states: list[_State] = []

    def setup() -> _State:
        states.append(_State())
        return states[-1]

    def worker(state: _State) -> None:
        state.finding = run()

    start = time.monotonic()
    result: Any = frontrun.explore(
        setup,
        [worker],
        lambda state: state.finding is None,
        timeout_per_run=RUN_S_MAX,
        total_timeout=seconds_max,
        reproduce_on_failure=0,
    )
    seconds = time.monotonic() - start
    if result.property_holds is False:
        found = next(state.finding for state in states if state.finding is not None)
        return Explored(result.num_explored, seconds, found, "")
    reason = result.inconclusive_reason or "one worker has one interleaving"
    return Explored(result.num_explored, seconds, None, f"it does not apply: {reason}")
