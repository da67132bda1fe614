"""The watch over runs that make no step."""

from __future__ import annotations

import subprocess
import sys
import threading
import time as real_time
from pathlib import Path

import pytest

from hicache_checks.simulation.watchdog import Watchdog
from hicache_checks.simulation.world import World
from simulated_runs import run, time, went_well


def hang_in(world: World, lock: threading.Lock) -> None:
    def worker() -> None:
        world.point("before the call")
        lock.acquire()

    world.spawn(worker, "io", rank=1)
    time.sleep(1)


@pytest.mark.parametrize("carriers", ["greenlets", "threads"])
def test_it_says_who_is_where(carriers: str) -> None:
    lock, lines = threading.Lock(), []

    def bark(line: str) -> None:
        lines.append(line)
        lock.release()

    lock.acquire()
    with Watchdog(0.2, bark):
        went_well(run(lambda world: hang_in(world, lock), carriers=carriers))
    (line,) = lines
    assert line.startswith("no step for 0.")
    assert "s, io (rank 1) (about to: before the call) is in `lock.acquire()` test_simulation_watchdog.py:" in line
    assert " worker < world.py:" in line
    assert "\n" not in line


def test_it_is_silent_while_steps_are_made_and_between_runs() -> None:
    lines: list[str] = []

    def main(world: World) -> None:
        for _ in range(4):
            real_time.sleep(0.1)
            world.point("work")

    with Watchdog(0.3, lines.append):
        went_well(run(main))
        real_time.sleep(0.5)
        went_well(run(main))
    assert not lines


def test_it_barks_again_at_the_next_hang() -> None:
    lines: list[str] = []

    def main(world: World) -> None:
        for _ in range(2):
            real_time.sleep(0.6)
            world.point("work")

    with Watchdog(0.2, lines.append):
        went_well(run(main))
    assert len(lines) == 2


def test_it_may_end_the_process(tmp_path: Path) -> None:
    script = tmp_path / "hangs.py"
    script.write_text(
        "import os, threading\n"
        "from hicache_checks.simulation.choices import Plainest\n"
        "from hicache_checks.simulation.watchdog import Watchdog\n"
        "from hicache_checks.simulation.world import World\n"
        "def bark(line):\n"
        "    print(line, flush=True)\n"
        "    os._exit(7)\n"
        "with Watchdog(0.3, bark):\n"
        "    World(Plainest()).run(lambda: threading.Event().wait())\n"
    )
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 7
    assert "caller (about to: start) is in `waiter.acquire()` threading.py:" in ran.stdout
