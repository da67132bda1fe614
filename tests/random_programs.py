"""Small threaded programs, drawn at random, over what tasks share: locks, queues, events, variables.

A program is a tuple of tasks, a task a tuple of operations. What a run of it shows is its outcome: what each task saw,
in its own order, and how the run ended.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from hypothesis import strategies as st

from hicache_checks.simulation.world import World
from simulated_runs import queue, threading, time

Operation = tuple[str, int]
Program = tuple[tuple[Operation, ...], ...]

KINDS = ("add", "read", "put", "get", "try_get", "enter", "leave", "set", "wait", "wait_short", "rest")


def programs(tasks_max: int, operations_max: int) -> st.SearchStrategy[Program]:
    operation = st.tuples(st.sampled_from(KINDS), st.integers(0, 1))
    task = st.lists(operation, min_size=1, max_size=operations_max).map(tuple)
    return st.lists(task, min_size=2, max_size=tasks_max).map(tuple)


class Shared:
    """What the tasks of one run share."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.variables = [0, 0]
        self.queues = [queue.SimpleQueue(), queue.Queue(1)]
        self.locks = [threading.Lock(), threading.RLock()]
        self.events = [threading.Event(), threading.Event()]


def do(shared: Shared, saw: list[Any], held: list[int], operation: Operation) -> None:
    kind, which = operation
    if kind in ("add", "read"):
        shared.world.point(f"{kind} {which}", f"variable {which}")
        shared.variables[which] = shared.variables[which] * 3 + (kind == "add")
        saw.append(shared.variables[which])
    elif kind == "put":
        shared.queues[which].put(len(saw))
    elif kind == "get":
        saw.append(shared.queues[which].get())
    elif kind == "try_get":
        try:
            saw.append(shared.queues[which].get_nowait())
        except queue.Empty:
            saw.append("empty")
    elif kind == "enter":
        shared.locks[which].acquire()
        held.append(which)
    elif kind == "leave":
        if held:
            shared.locks[held.pop()].release()
    elif kind == "set":
        shared.events[which].set()
    elif kind == "wait":
        shared.events[which].wait()
    elif kind == "wait_short":
        saw.append(shared.events[which].wait(1))
    else:
        time.sleep(1)


def outcome_of(program: Program, run: Callable[[Callable[[World], object]], World]) -> Any:
    """What a run shows."""
    saws: list[list[Any]] = [[] for _ in program]

    def work(shared: Shared, number: int) -> None:
        held: list[int] = []
        for operation in program[number]:
            do(shared, saws[number], held, operation)

    def main(world: World) -> None:
        shared = Shared(world)
        tasks = [world.spawn(partial(work, shared, number), f"t{number}") for number in range(len(program))]
        time.sleep(100)
        saws.append([task.ended for task in tasks])

    world = run(main)
    return tuple(map(tuple, saws)), world.problem and world.problem.kind
