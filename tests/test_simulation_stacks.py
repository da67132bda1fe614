"""Tasks begin on the hub's stack, so that native code can walk through theirs: torch does for each of its errors."""

from __future__ import annotations

import signal
import subprocess
import sys

PROGRAM = """
import torch

from hicache_checks.simulation.choices import Seeded
from hicache_checks.simulation.world import World


def deep(levels, do):
    return do() if levels == 0 else list(map(lambda _: deep(levels - 1, do), [0]))


def child():
    for _ in range(3):
        world.point("look", "x")
        try:
            torch.zeros(1)[5]
        except IndexError as error:
            errors.append(error)


def begin(name):
    world.spawn(child, name)
    world.point("one", "x")
    world.point("two", "x")


def main():
    for number in range(12):
        deep(3 * number, lambda: begin(f"child-{number}"))
    for _ in range(60):
        deep(7, lambda: world.point("go on", "x"))


for seed in range(60):
    errors = []
    world = World(Seeded(seed))
    world.run(main)
    assert world.problem is None, world.problem
    assert errors, seed
print("all went well")
"""


def test_an_error_of_torch_in_a_task_does_not_end_the_process() -> None:
    """Tasks begin deep in the stack of another one, who is elsewhere when they fail."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode != -signal.SIGSEGV
    assert (done.returncode, done.stdout, done.stderr) == (0, "all went well\n", "")
