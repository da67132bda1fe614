"""The module `time`: the clock of the current world, the real one outside."""

from __future__ import annotations

import time
import types
from collections.abc import Callable
from typing import Any

from hicache_checks.simulation.standins import locks
from hicache_checks.simulation.world import current

NS = 1_000_000_000
CLOCKS = ("time", "monotonic", "perf_counter", "process_time", "thread_time")
OF_SECONDS = ("localtime", "gmtime", "ctime")
"""Functions of a time in seconds, which is the present one if it is left out."""


def sleep(seconds: float) -> None:
    """`time.sleep`: only virtual time passes."""
    if seconds < 0:
        raise ValueError("sleep length must be non-negative")
    world = current()
    if world is None:
        raise locks.not_simulated("sleep outside a simulated task")
    if seconds:
        world.block([], f"sleep {seconds:g} s", None, world.deadline(seconds))
    else:
        world.point("sleep 0 s")


def _seconds(real: Callable[[], float], is_wall: bool) -> Callable[[], float]:
    def clock() -> float:
        world = current()
        return real() if world is None else world.read_clock() + (world.wall_offset_s if is_wall else 0.0)

    return clock


def _nanoseconds(seconds: Callable[[], float], real: Callable[[], int]) -> Callable[[], int]:
    def clock() -> int:
        return real() if current() is None else round(seconds() * NS)

    return clock


def _of_seconds(real: Callable[[Any], Any], now: Callable[[], float]) -> Callable[..., Any]:
    def told(seconds: float | None = None) -> Any:
        return real(now() if seconds is None else seconds)

    return told


def module() -> types.ModuleType:
    """A module with the names of `time`."""
    made = types.ModuleType("time")
    made.__dict__.update({name: value for name, value in vars(time).items() if not name.startswith("_")})
    clocks = {name: _seconds(getattr(time, name), name == "time") for name in CLOCKS}
    made.__dict__.update(clocks, sleep=sleep)
    made.__dict__.update(
        {f"{name}_ns": _nanoseconds(clock, getattr(time, f"{name}_ns")) for name, clock in clocks.items()}
    )
    localtime = _of_seconds(time.localtime, clocks["time"])
    made.__dict__.update({name: _of_seconds(getattr(time, name), clocks["time"]) for name in OF_SECONDS})
    made.__dict__.update(
        asctime=lambda told=None: time.asctime(localtime() if told is None else told),
        strftime=lambda form, told=None: time.strftime(form, localtime() if told is None else told),
        clock_gettime=lambda clock: clocks["time" if clock == time.CLOCK_REALTIME else "monotonic"](),
        clock_gettime_ns=lambda clock: round(made.__dict__["clock_gettime"](clock) * NS),
    )
    return made
