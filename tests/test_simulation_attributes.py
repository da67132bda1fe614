"""Fine-grained runs: attributes as steps, or as what steps touch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from hicache_checks.simulation.attributes import attributes_of
from hicache_checks.simulation.choices import Plainest
from hicache_checks.simulation.exhaustive import Exhaustive
from hicache_checks.simulation.world import World
from simulated_runs import run, threads, went_well


class Counter:
    kind = "counter"

    def __init__(self) -> None:
        self.total = 0

    def add(self) -> None:
        self.total += 1

    @property
    def twice(self) -> int:
        return 2 * self.total


class Slotted:
    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total = 0


class Special(Counter):
    pass


@dataclass(frozen=True)
class Frozen:
    total: int = 0


def race(world: World) -> int:
    """Two threads that add one, without a lock."""
    counter = Counter()
    threads(counter.add, counter.add)
    return counter.total


def test_a_lost_update_is_invisible_between_two_locks_and_found_between_two_attributes() -> None:
    def main(world: World) -> None:
        totals.add(race(world))

    totals: set[int] = set()
    for seed in range(200):
        went_well(run(main, seed))
    assert totals == {2}
    with attributes_of(Counter):
        for seed in range(50):
            went_well(run(main, seed))
    assert totals == {1, 2}


def test_all_schedules_with_one_preemption_find_it_too() -> None:
    def totals(bound: int) -> set[int]:
        found: set[int] = set()
        with attributes_of(Counter):
            list(Exhaustive(bound).run(lambda s: run(lambda w: found.add(race(w)), Plainest(), s)))
        return found

    assert totals(0) == {2}
    assert totals(1) == {1, 2}


def steps_of(main: Any, *classes: type) -> list[str]:
    with attributes_of(*classes):
        return [step for _, step in run(lambda world: main(), Plainest()).trace[1:]]


def test_only_what_an_object_holds_is_a_step() -> None:
    def use() -> None:
        counter = Counter()
        counter.add()
        assert counter.twice == 2
        assert counter.kind == "counter"
        del counter.total

    assert steps_of(use, Counter) == [
        "write Counter-1.total",
        *("read Counter-1.total", "write Counter-1.total"),
        "read Counter-1.total",
        "read Counter-1.kind",
        "delete Counter-1.total",
    ]


def test_slots_subclasses_and_frozen_dataclasses() -> None:
    def use() -> None:
        slotted, special, frozen = Slotted(), Special(), Frozen()
        slotted.total += 1
        special.add()
        assert (slotted.total, special.total, frozen.total) == (1, 1, 0)

    assert steps_of(use, Slotted, Counter, Special, Frozen) == [
        *("write Slotted-1.total", "write Special-1.total"),
        *("read Slotted-1.total", "write Slotted-1.total"),
        *("read Special-1.total", "write Special-1.total"),
        *("read Slotted-1.total", "read Special-1.total", "read Frozen-1.total"),
    ]


def test_a_missing_attribute_is_still_missing() -> None:
    def use() -> None:
        with pytest.raises(AttributeError, match="no attribute 'other'"):
            Counter().other  # type: ignore[attr-defined]  # noqa: B018

    assert steps_of(use, Counter)[-1] == "read Counter-1.other"


def test_afterwards_the_classes_are_as_they_were() -> None:
    class Own:
        def __getattribute__(self, name: str) -> Any:
            return name if name == "told" else object.__getattribute__(self, name)

    own = Own.__getattribute__
    with attributes_of(Own, Counter):
        assert Own().told == "told"
        assert Counter.__setattr__ is not object.__setattr__
    assert Own.__getattribute__ is own
    assert not {"__getattribute__", "__setattr__", "__delattr__"} & vars(Counter).keys()


def test_a_class_in_c_is_refused_and_the_others_are_put_back() -> None:
    with pytest.raises(TypeError, match="immutable type"), attributes_of(Counter, dict):
        pass
    assert "__getattribute__" not in vars(Counter)


@pytest.mark.parametrize(("declared", "traces"), [((), 1), ((Counter,), 2)])
def test_what_is_declared_is_not_taken_to_commute(declared: tuple[type, ...], traces: int) -> None:
    """Steps that touch different resources, and share a plain attribute."""

    def main(world: World) -> None:
        counter = Counter()

        def write() -> None:
            world.point("write", "one")
            counter.total = 1

        def read() -> None:
            world.point("read", "other")
            assert counter.total in (0, 1)

        world.spawn(write, "writer")
        world.spawn(read, "reader")
        world.settle()

    search = Exhaustive(1)
    with attributes_of(*declared, points=False):
        list(search.run(lambda strategy: run(main, Plainest(), strategy)))
    assert search.traces == traces
