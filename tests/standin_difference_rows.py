"""Small programs whose outcomes differ between the real things and the stand-ins, or might, as rows of a table.

Each takes the modules, so that it runs with either, and returns what it saw. A program that needs a rare moment on real
threads looks for it: `m.tries` times, with pauses of any length at `m.pause`.
"""

from __future__ import annotations

import time
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Modules = types.SimpleNamespace
Program = Callable[[Modules], object]


@dataclass(frozen=True)
class Row:
    """`real`, `standin`: all that the program returns, or how the simulated world ends; each is seen."""

    program: Program
    real: frozenset[object]
    standin: frozenset[object]


def rows_of(module: types.ModuleType) -> dict[str, Row]:
    """By name."""
    return {name: row for name, row in vars(module).items() if isinstance(row, Row)}


def differs(real: set[object], standin: set[object]) -> Callable[[Program], Row]:
    """The program is a row."""
    return lambda program: Row(program, frozenset(real), frozenset(standin))


def same(*outcomes: object) -> Callable[[Program], Row]:
    """The program is a row in which the stand-ins do all that the real things do, and nothing else."""
    return differs(set(outcomes), set(outcomes))


def started(m: Modules, target: Callable[[], object]) -> Any:
    """A daemon thread that runs it."""
    thread = m.threading.Thread(target=target, daemon=True)
    thread.start()
    return thread


def compute(seconds: float) -> None:
    """Be busy for so long in real time, without a look at the clock that a program sees."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass
