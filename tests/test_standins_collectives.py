"""The collectives: beside gloo, and what ends a run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import collective_programs
from hicache_checks.simulation.choices import Seeded
from hicache_checks.simulation.patching import simulated
from hicache_checks.simulation.standins.collectives import open_ranks
from hicache_checks.simulation.world import DEADLOCK, DESYNC, NotSimulated, World
from simulated_runs import sticky, threads, time, went_well


def run_ranks(*targets: Callable[[World], object], seed: int = 0, strategy: Any = None) -> World:
    """Each is the main thread of a rank."""
    world = World(Seeded(seed), strategy)
    open_ranks(world, len(targets))

    def main() -> None:
        for rank, target in enumerate(targets):
            world.spawn(partial(target, world), f"main-{rank}", rank)
        while any(not task.ended for task in world.tasks[1:]):
            time.sleep(1000)

    with simulated([]):
        world.run(main)
    return world


def problem(*targets: Callable[[World], object], seed: int = 0) -> tuple[str, str]:
    world = run_ranks(*targets, seed=seed)
    assert world.problem is not None
    return world.problem.kind, world.problem.message


@pytest.mark.heavy
def test_two_ranks_see_what_two_gloo_processes_see(tmp_path: Path) -> None:
    store, outs = tmp_path / "store", [tmp_path / f"rank{rank}.json" for rank in range(2)]
    processes = [
        subprocess.Popen([sys.executable, collective_programs.__file__, str(rank), str(store), str(out)])
        for rank, out in enumerate(outs)
    ]
    assert [process.wait(timeout=120) for process in processes] == [0, 0]
    real = [json.loads(out.read_text()) for out in outs]
    for seed in range(20):
        seen: dict[int, Any] = {}

        def rank(world: World, seen: dict[int, Any] = seen) -> None:
            me = dist.get_rank()
            seen[me] = collective_programs.both_ranks(me)

        world = run_ranks(rank, rank, seed=seed, strategy=sticky(seed) if seed % 2 else None)
        went_well(world)
        for me in range(2):
            assert json.loads(json.dumps(seen[me])) == real[me]


def test_a_collective_that_a_rank_does_not_join_is_a_deadlock() -> None:
    assert problem(lambda w: dist.barrier(), lambda w: None) == (
        DEADLOCK,
        "caller: sleep 1000 s; main-0 (rank 0): wait in barrier 0 of world",
    )


def test_a_rank_that_dies_leaves_the_others_in_their_collective() -> None:
    def dies(world: World) -> None:
        world.hold(task for task in world.tasks if task.rank == 1)

    assert problem(lambda w: dist.barrier(), dies) == (
        DEADLOCK,
        "caller: sleep 1000 s; main-0 (rank 0): wait in barrier 0 of world; main-1 (rank 1): start (held)",
    )


def test_a_slow_rank_makes_the_others_wait() -> None:
    waited: list[float] = []

    def slow(world: World) -> None:
        world.hold((task for task in world.tasks if task.rank == 1), seconds=90)
        dist.barrier()

    def waits(world: World) -> None:
        before = time.monotonic()
        dist.barrier()
        waited.append(time.monotonic() - before)

    went_well(run_ranks(waits, slow))
    assert waited == [pytest.approx(90, abs=0.01)]


def test_ranks_in_different_collectives_are_a_desync() -> None:
    for seed in range(5):
        kind, message = problem(lambda w: dist.barrier(), lambda w: dist.all_reduce(torch.zeros(2)), seed=seed)
        assert kind == DESYNC
        assert message in (
            "all_reduce 0 of world: rank 0 is in barrier, rank 1 in all_reduce SUM (2,) float32",
            "barrier 0 of world: rank 1 is in all_reduce SUM (2,) float32, rank 0 in barrier",
        )


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        (lambda w: dist.all_reduce(torch.zeros(2)), lambda w: dist.all_reduce(torch.zeros(3)), ("(2,)", "(3,)")),
        (
            lambda w: dist.all_reduce(torch.zeros(1)),
            lambda w: dist.all_reduce(torch.zeros(1, dtype=torch.int64)),
            ("float32", "int64"),
        ),
        (
            lambda w: dist.all_reduce(torch.zeros(1), op=dist.ReduceOp.MIN),
            lambda w: dist.all_reduce(torch.zeros(1), op=dist.ReduceOp.MAX),
            ("MIN", "MAX"),
        ),
        (
            lambda w: dist.broadcast(torch.zeros(1), 0),
            lambda w: dist.broadcast(torch.zeros(1), 1),
            ("from 0", "from 1"),
        ),
    ],
    ids=["shape", "dtype", "operation", "source"],
)
def test_a_collective_that_differs_is_a_desync(one: Any, other: Any, words: tuple[str, str]) -> None:
    kind, message = problem(one, other)
    assert kind == DESYNC
    assert all(word in message for word in words)


def test_two_threads_of_a_rank_in_one_group_are_a_desync() -> None:
    def two(world: World) -> None:
        threads(lambda: dist.barrier(), lambda: dist.barrier())

    found = [world.problem for world in (run_ranks(two, two, seed=seed) for seed in range(20)) if world.problem]
    # The two may also come one after the other.
    assert 0 < len(found) < 20
    assert {problem.kind for problem in found} == {DESYNC}
    message = "two threads of rank 1 are in world: t0 in barrier 0 of world, t1 in barrier 1 of world"
    assert message in {problem.message for problem in found}


def test_two_threads_of_a_rank_may_take_turns_and_use_two_groups() -> None:
    def two(world: World) -> None:
        one, other = dist.new_group(), dist.new_group()
        threads(lambda: dist.barrier(one), lambda: dist.barrier(other))
        threads(lambda: dist.barrier(one))
        dist.barrier(one)

    for seed in range(20):
        world = run_ranks(two, two, seed=seed)
        went_well(world)


def test_a_thread_may_have_several_collectives_under_way() -> None:
    def rank(world: World) -> None:
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        for work in reversed(works):
            assert work is not None
            work.wait()

    tensors = [torch.ones(1) for _ in range(3)]
    world = run_ranks(rank, rank)
    went_well(world)


def test_what_is_completed_has_its_result() -> None:
    def rank(world: World) -> None:
        tensor = torch.tensor([1 + world.tasks.index(world.running)])  # type: ignore[arg-type]
        work = dist.all_reduce(tensor, async_op=True)
        assert work is not None
        while not work.is_completed():
            pass
        sums.append(int(tensor))

    sums: list[int] = []
    world = run_ranks(rank, rank)
    assert world.problem is None
    assert sums == [5, 5]


def test_what_is_gathered_is_a_copy() -> None:
    shared = {"pages": [1]}

    def rank(world: World) -> None:
        objects: list[Any] = [None, None]
        dist.all_gather_object(objects, shared)
        assert objects == [shared, shared]
        assert objects[0] is not shared
        assert objects[0] is not objects[1]

    world = run_ranks(rank, rank)
    went_well(world)


def test_a_group_may_have_a_time_out() -> None:
    def patient(world: World) -> None:
        group = dist.new_group(timeout=timedelta(seconds=30))
        before = time.monotonic()
        with pytest.raises(RuntimeError, match="barrier 0 of group 0: timed out"):
            dist.barrier(group)
        waited.append(time.monotonic() - before)

    waited: list[float] = []
    world = run_ranks(patient, lambda w: dist.new_group(timeout=timedelta(seconds=30)))
    assert not world.died
    assert waited == [pytest.approx(30, abs=0.01)]


def test_groups_that_differ_are_a_desync() -> None:
    kind, message = problem(lambda w: dist.new_group([0, 1]), lambda w: dist.new_group([1]))
    assert kind == DESYNC
    assert message.startswith("new_group 0: rank ")


def test_a_non_member_goes_on_at_once() -> None:
    def rank(world: World) -> None:
        group: Any = dist.new_group([0])
        if dist.get_rank() == 1:
            assert dist.get_rank(group) == -1
            assert dist.barrier(group) is None
            assert dist.all_reduce(torch.zeros(1), group=group, async_op=True) is None

    world = run_ranks(rank, rank)
    went_well(world)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda w: dist.irecv(torch.zeros(1), 1), "torch.distributed.irecv has no stand-in"),
        (lambda w: dist.recv(torch.zeros(1)), "a message of anybody has no stand-in"),
        (lambda w: dist.all_reduce(torch.zeros(1), op=dist.ReduceOp.BXOR), "all_reduce with BXOR has no stand-in"),
    ],
)
def test_what_is_missing_says_so(call: Callable[[World], object], message: str) -> None:
    with pytest.raises(NotSimulated, match=message):
        run_ranks(call, lambda w: None)


def test_a_task_of_no_rank_may_not_join() -> None:
    world = World(Seeded(0))
    open_ranks(world, 2)
    with simulated([]):
        assert not dist.is_initialized()
        with pytest.raises(NotSimulated, match="a collective outside all ranks"):
            world.run(lambda: dist.barrier())


def test_outside_a_world_the_real_functions_answer() -> None:
    with simulated([]), pytest.raises(ValueError, match="process group has not been initialized"):
        dist.get_rank()
    assert dist.get_rank.__name__ == "get_rank"


def test_a_message_comes_to_whoever_asks_for_it() -> None:
    got: list[list[float]] = []

    def first(world: World) -> None:
        number = torch.tensor([1.0])
        late, early = dist.isend(number, 1, tag=2), dist.isend(torch.tensor([2.0, 3.0]), 1, tag=1)
        assert late is not None
        assert early is not None
        number[0] = 9.0
        assert not early.is_completed()
        assert late.wait()
        assert early.wait()
        assert early.is_completed()

    def second(world: World) -> None:
        pair, number = torch.zeros(2), torch.zeros(1)
        assert dist.recv(pair, 0, tag=1) == 0
        dist.recv(number, 0, tag=2)
        got.extend((pair.tolist(), number.tolist()))

    went_well(run_ranks(first, second))
    assert got == [[2.0, 3.0], [1.0]]


def test_a_message_of_another_shape_is_a_desync() -> None:
    kind, message = problem(lambda w: dist.send(torch.zeros(2), 1), lambda w: dist.recv(torch.zeros(3), 0))
    assert kind == DESYNC
    assert message.startswith("receive from 0 in world")


def test_a_send_that_nobody_takes_is_waited_for() -> None:
    assert problem(lambda w: dist.send(torch.zeros(2), 1), lambda w: None)[0] == DEADLOCK
