"""Where the stand-ins and the real things differ, and where they might: docs/stand-ins.md, row by row."""

from __future__ import annotations

import concurrent.futures
import importlib
import json
import os
import queue
import random
import re
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import collective_difference_programs as collective
import simulated_runs
import standin_difference_programs
import thread_difference_programs
from hicache_checks.simulation.choices import Seeded
from hicache_checks.simulation.patching import simulated
from hicache_checks.simulation.standins.collectives import open_ranks
from hicache_checks.simulation.strategies import Pct
from hicache_checks.simulation.world import Limits, NotSimulated, World, current
from simulated_runs import run, sticky
from standin_difference_rows import Program, compute, rows_of

ROWS = {**rows_of(standin_difference_programs), **rows_of(thread_difference_programs)}

LOOK_S = 20.0
"""For so long real outcomes are looked for."""
SCHEDULES = 24
RANKS_SCHEDULES = 8
LIMITS = Limits(steps_max=5000, idle_steps_max=2000, idle_rounds_max=50)
PAGE = Path(__file__).parents[1] / "docs" / "stand-ins.md"


def real_modules(folder: Path) -> types.SimpleNamespace:
    return types.SimpleNamespace(
        threading=threading,
        queue=queue,
        time=time,
        futures=concurrent.futures,
        folder=str(folder),
        tries=2000,
        rounds_max=LIMITS.idle_rounds_max,
        pause=lambda seconds: compute(random.uniform(0, seconds)),
    )


def standins(folder: Path) -> types.SimpleNamespace:
    return types.SimpleNamespace(
        threading=simulated_runs.threading,
        queue=simulated_runs.queue,
        time=simulated_runs.time,
        futures=simulated_runs.futures,
        folder=str(folder),
        tries=3,
        rounds_max=LIMITS.idle_rounds_max,
        pause=pause,
    )


def pause(seconds: float) -> None:
    """None, or one that the others use."""
    world = current()
    assert world is not None
    if world.choose(2):
        simulated_runs.time.sleep(seconds)


def real_outcomes(program: Program, wanted: frozenset[object], modules: Any) -> set[object]:
    """All that was seen, until all that is wanted was, or something else."""
    seen: set[object] = set()
    end = time.monotonic() + LOOK_S
    while seen < wanted and time.monotonic() < end:
        seen.add(program(modules))
    return seen


def simulated_outcome(program: Program, modules: Any, seed: int, carriers: str = "greenlets") -> object:
    """What the program returns; how the world ended, if it did before."""
    answers: list[object] = []
    strategy: Any = (None, sticky(seed), Pct(Seeded(seed).random))[seed % 3]
    world = run(lambda world: answers.append(program(modules)), seed, strategy, LIMITS, carriers)
    assert not world.died, world.died
    return answers[0] if world.problem is None else world.problem.kind


@pytest.mark.parametrize("name", ROWS)
def test_outcomes(name: str, tmp_path: Path) -> None:
    row = ROWS[name]
    assert real_outcomes(row.program, row.real, real_modules(tmp_path)) == row.real
    modules = standins(tmp_path)
    assert {simulated_outcome(row.program, modules, seed) for seed in range(SCHEDULES)} == row.standin


def test_tasks_on_threads_of_their_own_are_apart_in_native_code(tmp_path: Path) -> None:
    row = ROWS["what_native_code_keeps_for_a_thread"]
    assert {simulated_outcome(row.program, standins(tmp_path), 0, "threads")} == row.real


# --- what has no stand-in

OBJECTS: dict[str, Callable[[Any], Any]] = {
    "Thread": lambda m: m.threading.Thread(),
    "Lock": lambda m: m.threading.Lock(),
    "RLock": lambda m: m.threading.RLock(),
    "Condition": lambda m: m.threading.Condition(),
    "Semaphore": lambda m: m.threading.Semaphore(),
    "Event": lambda m: m.threading.Event(),
    "Queue": lambda m: m.queue.Queue(),
    "SimpleQueue": lambda m: m.queue.SimpleQueue(),
}


@pytest.mark.parametrize("kind", OBJECTS)
def test_what_a_stand_in_lacks_is_not_simulated(kind: str, tmp_path: Path) -> None:
    make = OBJECTS[kind]
    real, modules = make(real_modules(tmp_path)), standins(tmp_path)
    lacking = {name for name in dir(real) if not name.startswith("__")} - set(dir(make(modules)))
    assert {name for name in lacking if not name.startswith("_")} <= LACKING.get(kind, set())
    for name in sorted(lacking):
        look = partial(lambda name, world: getattr(make(modules), name), name)
        with pytest.raises(NotSimulated, match=rf"{kind}\.{name} has no stand-in"):
            run(look)
    assert not hasattr(make(modules), "of_neither")


LACKING = {
    "Lock": {"acquire_lock", "locked_lock", "release_lock"},
    "Condition": {"notifyAll"},
    "Event": {"isSet"},
    "Queue": {"not_empty", "not_full", "all_tasks_done", "shutdown", "is_shutdown"},
    "RLock": {"locked"},
}
"""Public names, of some version of Python."""


def test_a_module_that_is_imported_by_its_name_in_a_string_is_the_real_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "import importlib, threading, _thread\nby_name = importlib.import_module('threading')\n"
    (tmp_path / "imports_by_name.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with simulated(["imports_by_name"]):
        module: Any = importlib.import_module("imports_by_name")
        assert module.threading is simulated_runs.threading
        assert module.by_name is threading
        assert type(module._thread.allocate_lock()) is type(threading.Lock())
    del sys.modules["imports_by_name"]


# --- how threads end

LEFT_BEHIND = """
def work():
    try:
        gate.wait(0.5)
        say("its time is up")
    finally:
        say("unwound")

gate = threading.Event()
threading.Thread(target=work, daemon=daemon).start()
"""


@pytest.mark.parametrize(("daemon", "real"), [(True, []), (False, ["its time is up", "unwound"])])
def test_a_thread_that_is_left_behind(daemon: bool, real: list[str]) -> None:
    text = f"import threading\ndef say(line): print(line, flush=True)\ndaemon = {daemon}\n{LEFT_BEHIND}"
    process = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=True)
    assert process.stdout.splitlines() == real
    said: list[str] = []
    names = {"threading": simulated_runs.threading, "say": said.append, "daemon": daemon}
    world = run(lambda world: exec(LEFT_BEHIND, names))
    assert world.problem is None
    assert said == ["unwound"]


def test_an_exception_that_leaves_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[type] = []

    def fall(modules: Any) -> None:
        thread = modules.Thread(target=lambda: [].pop())
        thread.start()
        thread.join()
        assert not thread.is_alive()

    for modules in (threading, simulated_runs.threading):
        monkeypatch.setattr(modules, "excepthook", lambda told: heard.append(told.exc_type))
    fall(threading)
    assert heard == [IndexError]
    world = run(lambda world: fall(simulated_runs.threading))
    assert heard == [IndexError]
    assert [type(died.error) for died in world.died] == [IndexError]


# --- ranks


@pytest.fixture(scope="module")
def gloo_answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """Of three processes, by row and rank."""
    folder = tmp_path_factory.mktemp("gloo")
    outs = [folder / f"rank{rank}.json" for rank in range(collective.RANKS)]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    processes = [
        subprocess.Popen(
            [sys.executable, collective.__file__, str(rank), str(folder / "store"), str(out)], env=environment
        )
        for rank, out in enumerate(outs)
    ]
    assert [process.wait(timeout=240) for process in processes] == [0] * collective.RANKS
    answers = [json.loads(out.read_text()) for out in outs]
    return {name: [answer[name] for answer in answers] for name in collective.ROWS}


def simulated_answers(program: collective.Program, seed: int) -> list[Any] | str:
    """Of three ranks; how the world ended, if it did before."""
    world = World(Seeded(seed))
    open_ranks(world, collective.RANKS)
    answers: list[Any] = [collective.GONE] * collective.RANKS
    modules = collective.Modules(
        time=simulated_runs.time,
        threading=simulated_runs.threading,
        leave=lambda: world.hold(task for task in world.tasks if task.rank == 1),
        timeout_s_of=lambda group: group.timeout_s,
    )

    def rank(number: int) -> None:
        answers[number] = program(modules, number)

    def main() -> None:
        tasks = [world.spawn(partial(rank, number), f"main-{number}", number) for number in range(collective.RANKS)]
        while any(not task.ended and not task.held for task in tasks):
            simulated_runs.time.sleep(1)

    try:
        with simulated([]):
            world.run(main)
    except NotSimulated:
        return "not simulated"
    assert not world.died, world.died
    return answers if world.problem is None else world.problem.kind


@pytest.mark.heavy
@pytest.mark.parametrize("name", collective.ROWS)
def test_answers_of_ranks(name: str, gloo_answers: dict[str, list[Any]]) -> None:
    row = collective.ROWS[name]
    assert gloo_answers[name] == row.real
    seen = [simulated_answers(row.program, seed) for seed in range(RANKS_SCHEDULES)]
    assert all(answers in row.standin for answers in seen)
    assert all(answers in seen for answers in row.standin)


# --- the page


def test_the_page_has_a_row_for_each_of_them() -> None:
    cells = [line.split("|") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    named = [name for row in cells for name in re.findall(r"`(\w+)`", row[-2])]
    here = {name for name, value in globals().items() if name.startswith("test_") and callable(value)}
    rows = {*ROWS, *collective.ROWS}
    tests = here - {"test_outcomes", "test_answers_of_ranks", "test_the_page_has_a_row_for_each_of_them"}
    assert {name for name in named if name in rows | here} == rows | tests
    elsewhere = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py")) + "".join(
        path.read_text() for path in Path(__file__).parent.glob("*_programs.py")
    )
    assert [name for name in named if f"def {name}(" not in elsewhere] == []
