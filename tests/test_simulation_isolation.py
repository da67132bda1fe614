"""Thread-local modes of torch: each task has its own, as each thread has."""

from __future__ import annotations

import threading as real_threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch

from hicache_checks.simulation.isolation import TorchModes
from hicache_checks.simulation.world import World
from simulated_runs import run, sticky, threading, went_well

MODES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "no_grad": torch.no_grad,
    "set_grad_enabled": lambda: torch.set_grad_enabled(False),
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.float16, cache_enabled=False),
    "device": lambda: torch.device("meta"),
}


def present() -> tuple[Any, ...]:
    needs_gradient = torch.ones(1).requires_grad_() if not torch.is_inference_mode_enabled() else None
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
        torch.is_autocast_cache_enabled(),
        str(torch.ones(1).device),
        torch.ones(1).is_inference(),
        None if needs_gradient is None else (needs_gradient * 2).requires_grad,
    )


def program(start: Callable[..., Any], give_way: Callable[[], None], mode: str) -> list[Any]:
    """What each of two threads and the caller see, in and out of a mode that each enters by itself."""
    seen: dict[str, list[Any]] = {}

    def work(name: str, inside: bool) -> Callable[[], None]:
        def go() -> None:
            mine = seen[name] = []
            for _ in range(3):
                mine.append(present())
                give_way()
                if inside:
                    with MODES[mode]():
                        give_way()
                        mine.append(present())
                        give_way()
                mine.append(present())

        return go

    started = [start(target=work(name, inside)) for name, inside in (("in", True), ("out", False), ("too", True))]
    for thread in started:
        thread.start()
    with MODES[mode]():
        give_way()
        seen["caller"] = [present()]
        for thread in started:
            thread.join()
        seen["caller"].append(present())
    return [*seen.pop("caller"), present(), sorted(seen.items())]


@pytest.mark.parametrize("carriers", ["greenlets", "threads"])
@pytest.mark.parametrize("mode", MODES)
def test_a_mode_belongs_to_its_task(mode: str, carriers: str) -> None:
    before = present()
    real = program(real_threading.Thread, lambda: None, mode)
    assert real[0] != real[2]

    def main(world: World) -> None:
        answers.append(program(threading.Thread, lambda: world.point("give way"), mode))

    for seed in range(5):
        answers: list[Any] = []
        world = run(main, seed, carriers=carriers, modes=TorchModes())
        went_well(world)
        assert answers == [real]
        assert present() == before


@pytest.mark.parametrize("mode", MODES)
def test_the_caller_has_the_modes_of_who_runs_the_world(mode: str) -> None:
    with MODES[mode]():
        inside = present()

        def main(world: World) -> None:
            seen.append(present())
            thread = threading.Thread(target=lambda: seen.append(present()))
            thread.start()
            thread.join()
            seen.append(present())

        for _ in range(2):
            seen: list[Any] = []
            run(main, strategy=sticky(0), modes=TorchModes())
            assert seen[0] == seen[2] == inside != seen[1]
            assert present() == inside
    assert present() == seen[1]


def test_without_them_a_mode_leaks_into_other_tasks() -> None:
    """What the isolation is for."""

    def main(world: World) -> None:
        def work() -> None:
            with torch.no_grad():
                world.point("inside")

        world.spawn(work, "worker")
        world.point("look")
        seen.add(torch.is_grad_enabled())

    seen: set[bool] = set()
    for seed in range(20):
        run(main, seed)
    assert seen == {True, False}


def test_the_default_dtype_is_shared_as_it_is_by_threads() -> None:
    def work() -> None:
        torch.set_default_dtype(torch.float64)

    def main(world: World) -> None:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert torch.get_default_dtype() == torch.float64

    try:
        run(main, modes=TorchModes())
        torch.set_default_dtype(torch.float32)
        thread = real_threading.Thread(target=work)
        thread.start()
        thread.join()
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
