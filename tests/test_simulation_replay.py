"""The same choices, the same run: in this process again, in another, with real threads, under another hash seed."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial

import pytest

import determined_run
from determined_run import PROGRAMS, determined
from hicache_checks.simulation.choices import Choices, Plainest, Replayed, Seeded
from hicache_checks.simulation.patching import simulated
from hicache_checks.simulation.world import World
from simulated_runs import queue, run

SEEDS = 3


def elsewhere(what: str, hash_seed: str) -> list[str]:
    """The digests of the first seeds, in a process of its own."""
    ran = subprocess.run(
        [sys.executable, determined_run.__file__, what, str(SEEDS)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.split()


@pytest.mark.parametrize("what", PROGRAMS)
def test_the_same_choices_give_the_same_run_again(what: str) -> None:
    digests = [determined(what, seed).digest() for seed in range(SEEDS)]
    assert [determined(what, seed).digest() for seed in range(SEEDS)] == digests
    assert len(set(digests)) == SEEDS


@pytest.mark.parametrize("what", PROGRAMS)
def test_real_threads_carry_the_same_run(what: str) -> None:
    for seed in range(SEEDS):
        one, other = determined(what, seed), determined(what, seed, carriers="threads")
        assert one.trace == other.trace
        assert one.digest() == other.digest()
        assert one.choices.taken == other.choices.taken


@pytest.mark.heavy
@pytest.mark.parametrize("hash_seed", ["0", "1", "4242"])
@pytest.mark.parametrize("what", PROGRAMS)
def test_another_process_gives_the_same_run(what: str, hash_seed: str) -> None:
    """Whatever sets of strings are iterated over, no trace of the reference shows it."""
    assert elsewhere(what, hash_seed) == [determined(what, seed).digest() for seed in range(SEEDS)]


@pytest.mark.parametrize("what", PROGRAMS)
def test_a_record_is_replayed_without_strategy(what: str) -> None:
    world = determined(what, 1)
    choices = Replayed(world.choices.taken, world.choices.counts)
    again = World(choices)
    with simulated(["hicache_impl"]):
        again.run(lambda: PROGRAMS[what](again))
    assert again.digest() == world.digest()
    assert choices.divergence() is None


# --- a replay that goes another way


def workers(count: int, choices: Choices) -> World:
    def main(world: World) -> None:
        items = queue.SimpleQueue()
        for i in range(count):
            world.spawn(partial(items.put, i), f"w{i}")
        world.settle()

    return run(main, choices)


def recorded(count: int) -> World:
    return workers(count, Seeded(0))


def test_a_program_that_asks_otherwise_is_noticed() -> None:
    record = recorded(2)
    choices = Replayed(record.choices.taken, record.choices.counts)
    workers(3, choices)
    assert choices.differs_at() == 0
    assert choices.divergence() == "choice 0 is one of 3, it was one of 2 when it was recorded"


def test_a_program_that_asks_more_is_noticed() -> None:
    record = recorded(2)
    taken, counts = record.choices.taken[:-1], record.choices.counts[:-1]
    choices = Replayed(taken, counts)
    workers(2, choices)
    place = len(taken)
    assert choices.differs_at() == place
    assert choices.divergence() == f"choice {place} is one of 2, it was one of none when it was recorded"


def test_a_program_that_asks_less_is_noticed() -> None:
    record = recorded(2)
    choices = Replayed([*record.choices.taken, 1, 0])
    workers(2, choices)
    asked = len(record.choices.taken)
    assert choices.differs_at() == asked
    assert choices.divergence() == f"the run ended after {asked} choices, {asked + 2} were recorded"


def test_a_number_that_is_too_large_now_is_taken_as_far_as_it_goes() -> None:
    choices = Replayed([5, 5])
    assert [choices.choose(3), choices.choose(9), choices.choose(4)] == [2, 5, 0]


def test_only_a_choice_is_written_down() -> None:
    choices = Plainest()
    assert choices.choose(1) == 0
    assert choices.taken == []
    with pytest.raises(ValueError, match="nothing to choose from"):
        choices.choose(0)
    assert choices.switch(3) == 0
    assert (choices.taken, choices.counts, choices.switches) == ([0], [3], [0])
