"""All schedules with a bounded number of preemptions: how many, and that none is lost by what is left out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count, pairwise
from typing import Any

import pytest
from hypothesis import given, settings

from hicache_checks.simulation.choices import Plainest, Replayed
from hicache_checks.simulation.exhaustive import Diverged, Exhaustive
from hicache_checks.simulation.world import DEADLOCK, World
from random_programs import Program, outcome_of, programs
from simulated_runs import queue, run, threading, threads

Main = Callable[[World], object]


def schedules(main: Main, search: Exhaustive) -> list[World]:
    return list(search.run(lambda strategy: run(main, Plainest(), strategy)))


def orders(worlds: list[World]) -> set[str]:
    """Who made the steps, by the letter that they are called."""
    return {"".join(who for who, _ in world.trace if who != "caller") for world in worlds}


def steppers(steps: int, resource: Callable[[str], str]) -> Main:
    """Two tasks; each starts and makes so many steps."""

    def main(world: World) -> None:
        def work(name: str) -> None:
            for i in range(steps):
                world.point(f"{name}{i}", resource(name))

        for name in "ab":
            world.spawn(partial(work, name), name)
        world.settle()

    return main


def preemptions(order: str) -> int:
    """Switches away from a task that comes again."""
    return sum(a != b and a in order[i:] for i, (a, b) in enumerate(pairwise(order), 1))


# Two tasks of three steps, start included, have C(6, 3) = 20 orders: a^i b^3 a^(3-i) takes one preemption, i = 1, 2.
@pytest.mark.parametrize(("bound", "expected"), [(0, 2), (1, 6), (2, 14), (3, 18), (4, 20), (5, 20)])
def test_every_order_with_so_many_preemptions_is_run_once(bound: int, expected: int) -> None:
    search = Exhaustive(bound, reduce=False)
    worlds = schedules(steppers(2, lambda name: name), search)
    found = ["".join(who for who, _ in world.trace if who != "caller") for world in worlds]
    assert len(found) == len(set(found)) == search.schedules == expected
    assert {preemptions(order) for order in found} == set(range(min(bound, 4) + 1))
    assert search.is_complete
    assert search.cut == search.asleep == 0
    # Nothing they do has an order.
    assert search.traces == 1


# Only the start commutes: of the steps aabb there are C(4, 2) = 6 orders. One preemption does not reach abab and baba.
@pytest.mark.parametrize(("bound", "expected"), [(0, 2), (1, 4), (2, 6), (3, 6)])
def test_what_conflicts_has_as_many_traces_as_orders(bound: int, expected: int) -> None:
    for reduce in (False, True):
        search = Exhaustive(bound, reduce)
        worlds = schedules(steppers(2, lambda name: "shared"), search)
        steps = {tuple(step for who, step in world.trace if who != "caller" and step != "start") for world in worlds}
        assert search.traces == len(steps) == expected


# Of two tasks that share nothing, all orders are one: what is left are the ways into states that were not met before.
@pytest.mark.parametrize(("bound", "expected"), [(0, (2, 0, 0)), (1, (6, 0, 0)), (2, (8, 0, 6)), (3, (8, 0, 6))])
def test_what_commutes_is_cut_or_asleep(bound: int, expected: tuple[int, int, int]) -> None:
    search = Exhaustive(bound)
    schedules(steppers(2, lambda name: name), search)
    assert (search.schedules, search.cut, search.asleep) == expected
    assert search.traces == 1


def test_more_preemptions_find_no_less() -> None:
    found = [orders(schedules(steppers(3, lambda name: "shared"), Exhaustive(bound))) for bound in range(4)]
    assert found[0] < found[1] < found[2] < found[3]


def counter_by_two(world: World) -> None:
    """Two tasks that read and write: the sum is wrong if one comes between the other's two steps."""
    total = [0]

    def add() -> None:
        world.point("read", "total")
        before = total[0]
        world.point("write", "total")
        total[0] = before + 1

    threads(add, add)
    world.trace.append(("total", str(total[0])))


@pytest.mark.parametrize(("bound", "expected"), [(0, {"2"}), (1, {"1", "2"})])
def test_a_lost_update_takes_one_preemption(bound: int, expected: set[str]) -> None:
    for reduce in (False, True):
        worlds = schedules(counter_by_two, Exhaustive(bound, reduce))
        assert {world.trace[-1][1] for world in worlds} == expected


def test_a_deadlock_is_found_and_replayed_from_its_choices() -> None:
    def main(world: World) -> None:
        one, other = threading.Lock(), threading.Lock()

        def take(first: Any, second: Any) -> None:
            with first, second:
                pass

        threads(partial(take, one, other), partial(take, other, one))

    search = Exhaustive(1)
    deadlocked = [world for world in schedules(main, search) if world.problem]
    assert deadlocked
    for world in deadlocked:
        choices = Replayed(world.choices.taken, world.choices.counts)
        again = run(main, choices)
        assert again.digest() == world.digest()
        assert again.problem is not None
        assert again.problem.kind == DEADLOCK
        assert choices.divergence() is None
    assert not [world for world in schedules(main, Exhaustive(0)) if world.problem]


def test_what_a_lock_lets_go_has_an_order() -> None:
    """A release is no step of its own: whoever tries the lock meanwhile finds it taken, or does not."""

    def main(world: World) -> None:
        lock, inner = threading.Lock(), threading.Lock()

        def hold() -> None:
            with lock, inner:
                pass

        def try_() -> None:
            seen.append(lock.acquire(blocking=False))

        seen: list[bool] = []
        threads(hold, try_)
        found.add(seen[0])

    for reduce in (False, True):
        found: set[bool] = set()
        schedules(main, Exhaustive(1, reduce))
        assert found == {True, False}


def test_a_choice_of_a_task_has_an_order() -> None:
    """Two tasks take the next choice of the program: who is first gets the first."""

    def main(world: World) -> None:
        drawn: dict[str, int] = {}

        def draw(name: str) -> None:
            world.point(name, name)
            drawn[name] = world.choose(3)

        for name in "ab":
            world.spawn(partial(draw, name), name)
        world.settle()
        found.add((drawn["a"], drawn["b"]))

    class Program(Plainest):
        def _next(self, count: int) -> int:
            return len(self.taken) - len(self.switches) + 1

    found: set[tuple[int, int]] = set()
    list(Exhaustive(1).run(lambda strategy: run(main, Program(), strategy)))
    assert found == {(1, 2), (2, 1)}


@settings(max_examples=60, deadline=None)
@given(programs(tasks_max=3, operations_max=4))
def test_no_outcome_is_lost(program: Program) -> None:
    for bound in (0, 1, 2):
        every, reduced = Exhaustive(bound, reduce=False), Exhaustive(bound)
        outcomes = [
            set(search.run(lambda strategy: outcome_of(program, lambda main: run(main, Plainest(), strategy))))
            for search in (every, reduced)
        ]
        assert outcomes[0] == outcomes[1]
        assert every.traces == reduced.traces
        assert reduced.schedules <= every.schedules


def test_a_program_that_is_not_determined_is_told() -> None:
    times = count()

    def main(world: World) -> None:
        items = queue.SimpleQueue()
        for _ in range(2 + next(times) % 2):
            world.spawn(partial(items.put, 1), "worker")
        world.settle()

    with pytest.raises(Diverged, match=r"at switch \d+ .*can run, it was"):
        schedules(main, Exhaustive(1))


def test_a_search_can_be_left() -> None:
    search = Exhaustive(3)
    next(iter(search.run(lambda strategy: run(counter_by_two, Plainest(), strategy))))
    assert not search.is_complete
    assert search.schedules == 1
