"""Runs of small programs in a simulated world, for the tests of the simulation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hicache_checks.simulation.choices import Choices, Seeded
from hicache_checks.simulation.patching import STANDINS
from hicache_checks.simulation.strategies import Walk
from hicache_checks.simulation.world import Limits, World

threading: Any = STANDINS["threading"]
queue: Any = STANDINS["queue"]
time: Any = STANDINS["time"]
futures: Any = STANDINS["concurrent.futures"]
LIMITS = Limits()


def run(
    main: Callable[[World], object],
    choices: Choices | int = 0,
    strategy: Any = None,
    limits: Limits = LIMITS,
    carriers: str = "greenlets",
    modes: Any = None,
) -> World:
    """The world after `main(world)`; a number is a seed."""
    if isinstance(choices, int):
        choices = Seeded(choices)
    world = World(choices, strategy, limits, carriers, modes)
    world.run(lambda: main(world))
    return world


def sticky(seed: int) -> Walk:
    """A walk in which the running task mostly goes on."""
    return Walk(Seeded(seed).random, stay=0.7)


def threads(*targets: Callable[[], object]) -> None:
    """Start them all, and wait for them."""
    started = [threading.Thread(target=target, name=f"t{i}") for i, target in enumerate(targets)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()


def went_well(world: World) -> None:
    """It came to its end, and nobody fell."""
    assert world.problem is None, world.problem
    assert not world.died, world.died
