"""Who runs next: walks, priorities, and what the literature promises of them."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from functools import partial
from typing import Any

import pytest

from hicache_checks.simulation.choices import Plainest, Replayed, Seeded
from hicache_checks.simulation.strategies import Pct, Walk
from hicache_checks.simulation.world import World
from simulated_runs import run, sticky, went_well


def order_of(names: str, steps: int, strategy: Any) -> str:
    """Who made the steps of some tasks that make so many each, their start included."""

    def main(world: World) -> None:
        def work(name: str) -> None:
            for i in range(steps - 1):
                world.point(f"{name}{i}")

        for name in names:
            world.spawn(partial(work, name), name)
        world.settle()

    world = run(main, Plainest(), strategy)
    went_well(world)
    return "".join(who for who, _ in world.trace if who != "caller")


def test_a_walk_takes_everybody_equally() -> None:
    firsts = Counter(order_of("abc", 1, Walk(Seeded(seed).random))[0] for seed in range(600))
    assert set(firsts) == set("abc")
    assert all(150 < times < 250 for times in firsts.values())


def test_a_sticky_walk_switches_less() -> None:
    def switches(strategy: Any) -> int:
        order = order_of("ab", 50, strategy)
        return sum(a != b for a, b in itertools.pairwise(order))

    assert sum(switches(sticky(seed)) for seed in range(20)) * 2 < sum(
        switches(Walk(Seeded(seed).random)) for seed in range(20)
    )


STEPS = 20
TIMES = 6000


def position_of_b(depth: int, seed: int) -> int:
    """How many steps a task had made when the only step of another came."""

    def main(world: World) -> None:
        def many() -> None:
            for i in range(STEPS):
                world.point(str(i))
                made[0] = i + 1

        def one() -> None:
            seen.append(made[0])

        made, seen = [0], list[int]()
        world.spawn(many, "many")
        world.spawn(one, "one")
        world.settle()
        positions.extend(seen)

    positions: list[int] = []
    # A switch each before the start and the steps of the first task, while the other has not come.
    run(main, Plainest(), Pct(Seeded(seed).random, depth, steps=STEPS + 1))
    return positions[0]


def test_pct_finds_an_order_of_two_at_about_the_rate_that_is_promised() -> None:
    """Exactly so many steps of one task, then the other: depth 2, n = 2 tasks, k = 21 switches."""
    promised = 1 / (2 * (STEPS + 1))
    found = Counter(position_of_b(2, seed) for seed in range(TIMES))
    for steps in (1, 7, STEPS - 1):
        assert 0.75 * promised < found[steps] / TIMES < 1.35 * promised


def test_pct_without_a_fall_never_comes_between() -> None:
    assert {position_of_b(1, seed) for seed in range(200)} == {0, STEPS}


def test_pct_falls_in_any_order() -> None:
    """Of two that fell, the later may still go before the earlier: else some orders of three are never found."""
    orders = {order_of("abc", 4, Pct(Seeded(seed).random, 3, steps=10)) for seed in range(3000)}
    assert any(re.fullmatch("a+b+c{4}b+a+", order) for order in orders)
    assert any(re.fullmatch("a+b+c{4}a+b+", order) for order in orders)


@pytest.mark.parametrize("depth", [1, 2, 5, 100])
def test_pct_of_any_depth_serves_runs_of_any_length(depth: int) -> None:
    assert len(order_of("ab", 30, Pct(Seeded(0).random, depth, steps=3))) == 60


@pytest.mark.parametrize("seed", range(5))
def test_what_a_strategy_picks_is_replayed_without_it(seed: int) -> None:
    def main(world: World) -> None:
        def work() -> None:
            for i in range(world.choose(4) + 1):
                world.point(str(i))

        for name in "abc":
            world.spawn(work, name)
        world.settle()

    for strategy in (Walk, Pct):
        choices = Seeded(seed)
        world = run(main, choices, strategy(choices.random))
        replayed = Replayed(choices.taken, choices.counts)
        again = run(main, replayed)
        assert again.trace == world.trace
        assert (replayed.taken, replayed.counts, replayed.switches) == (choices.taken, choices.counts, choices.switches)
        assert replayed.divergence() is None
