"""Putting stand-ins into modules, imported before or meanwhile, and what is left afterwards."""

from __future__ import annotations

import builtins
import importlib
import queue
import sys
import threading
import time
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

import simulated_runs
from hicache_checks.simulation.patching import simulated
from hicache_checks.simulation.standins import locks, queues
from hicache_checks.simulation.standins import threads as standin_threads
from hicache_checks.simulation.world import World
from simulated_runs import run, went_well

TARGET = """
import concurrent.futures
import concurrent.futures as pools
import queue, threading
import time as clock
from concurrent import futures
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import Queue
from threading import Lock, Thread
from time import monotonic, sleep as rest

EMPTY = ""
NOTHING = None
GUARD = threading.Lock()
HELD = threading.Lock()
HELD.acquire()
FLAG = threading.Event()
FLAG.set()
BACKLOG = queue.Queue(3)
MINE = threading.local()

class Worker(Thread):
    guard = GUARD
    made = threading.RLock()

    def __init__(self, clock=time_of_default):
        super().__init__(name="worker")
        self.clock = clock

    def run(self):
        self.told = self.clock()

@dataclass
class Box:
    lock: object = field(default_factory=threading.Lock)
    also: object = field(default_factory=lambda: Lock())

class Registry:
    def __init__(self):
        self.lock = threading.Lock()

REGISTRY = Registry()

def closing(clock=monotonic):
    def told():
        return clock()
    return told

TOLD = closing()

def late():
    import time
    from threading import Event
    from queue import SimpleQueue
    return time.monotonic(), Event, SimpleQueue

def named(*, clock=monotonic):
    return clock()
""".replace("time_of_default", "monotonic")


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    package = tmp_path / "patched_target"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "module.py").write_text(TARGET)
    (package / "other.py").write_text("from .module import GUARD, Worker\n")
    (package / "storage.py").write_text("import threading\nclass Mine(threading.local):\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "patched_target"
    for name in [name for name in sys.modules if name.partition(".")[0] == "patched_target"]:
        del sys.modules[name]


def load(target: str, name: str = "module") -> types.ModuleType:
    return importlib.import_module(f"{target}.{name}")


def check_standins(module: types.ModuleType) -> None:
    """It meets the stand-ins, however it reaches for them."""
    seen: list[float] = []

    def main(world: World) -> None:
        worker = module.Worker()
        worker.start()
        worker.join()
        seen.extend([worker.told, module.monotonic(), module.clock.monotonic(), module.TOLD(), module.named()])
        when, event, items = module.late()
        assert event is locks.Event
        assert items is queues.SimpleQueue
        before = module.monotonic()
        module.rest(100)
        assert module.monotonic() - before > 100
        seen.append(when)
        box = module.Box()
        assert type(box.lock) is type(box.also) is locks.Lock
        with module.ThreadPoolExecutor() as pool:
            assert pool.submit(module.threading.current_thread).result() is not threading.main_thread()
        assert type(module.queue.Queue()) is type(module.Queue()) is queues.Queue
        assert [module.concurrent.futures, module.pools, module.futures] == [simulated_runs.futures] * 3

    world = run(main)
    went_well(world)
    assert all(1000 < when < 1001 for when in seen)
    assert ("worker", "start") in world.trace


def check_real(module: types.ModuleType) -> None:
    """Nothing of the stand-ins is left."""
    worker = module.Worker()
    worker.start()
    worker.join()
    assert isinstance(worker, threading.Thread)
    assert module.threading is threading
    assert module.clock is time
    assert module.rest is time.sleep
    assert module.pools is module.futures is module.concurrent.futures is sys.modules["concurrent.futures"]
    assert abs(module.TOLD() - time.monotonic()) < 5
    assert abs(module.named() - time.monotonic()) < 5
    assert type(module.Box().lock) is type(module.GUARD) is type(threading.Lock())
    assert module.late()[1:] == (threading.Event, queue.SimpleQueue)
    assert type(module.MINE) is threading.local
    assert type(module.BACKLOG) is queue.Queue


def test_a_module_imported_before(target: str) -> None:
    module, other = load(target), load(target, "other")
    guard = module.GUARD
    with simulated([target]):
        check_standins(module)
        assert type(module.GUARD) is locks.Lock
        assert module.GUARD is module.Worker.guard is other.GUARD
        assert type(module.Worker.made) is locks.RLock
        assert type(module.REGISTRY.lock) is locks.Lock
        assert type(module.FLAG) is locks.Event
        assert module.FLAG.is_set()
        assert type(module.BACKLOG) is queues.Queue
        assert module.BACKLOG.maxsize == 3
        assert type(module.MINE) is standin_threads.local
        # Somebody holds it: it stays what it is.
        assert module.HELD.locked()
        assert type(module.HELD) is type(threading.Lock())
        assert module.EMPTY == ""
        assert module.NOTHING is None
    check_real(module)
    assert module.GUARD is guard is module.Worker.guard is other.GUARD


def test_a_module_imported_meanwhile(target: str) -> None:
    with simulated([target]):
        module = load(target)
        check_standins(module)
        assert issubclass(module.Worker, standin_threads.Thread)
    check_real(module)
    assert module.FLAG.is_set()
    assert module.GUARD is module.Worker.guard


def test_the_real_things_are_back_after_an_error(target: str) -> None:
    before, real_import = load(target), builtins.__import__
    meanwhile: types.ModuleType | None = None
    try:
        with simulated([target]):
            meanwhile = load(target, "storage")
            raise ZeroDivisionError
    except ZeroDivisionError:
        assert meanwhile is not None
    check_real(before)
    assert meanwhile.threading is threading
    assert builtins.__import__ is real_import


def test_a_class_that_cannot_change_its_base_says_so(target: str) -> None:
    load(target, "storage")
    with (
        pytest.raises(TypeError, match=r"patched_target.storage.Mine must be imported in the block"),
        simulated([target]),
    ):
        pass


def test_such_a_class_imported_meanwhile_serves_before_and_after(target: str) -> None:
    with simulated([target]):
        mine = load(target, "storage").Mine()
        mine.x = 1
    assert mine.x == 1


def test_other_packages_see_the_real_things(target: str) -> None:
    module = load(target)
    with simulated(["patched"]):
        assert module.threading is threading
        import time as seen_here

        assert seen_here is time


def test_torch_distributed_imported_meanwhile_is_replaced(target: str, tmp_path: Path) -> None:
    """In a process of its own, where torch is not imported yet."""
    import subprocess

    (tmp_path / "patched_target" / "user.py").write_text("import torch.distributed as dist\n")
    script = (
        "import sys\n"
        "from hicache_checks.simulation.patching import simulated\n"
        "assert 'torch' not in sys.modules\n"
        "with simulated(['patched_target']):\n"
        "    from patched_target import user\n"
        "    import patched_target.user\n"
        "    print(user.dist.all_reduce.__qualname__)\n"
        "print(user.dist.all_reduce.__qualname__)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True
    )
    assert ran.stdout.split() == ["_ask_first.<locals>.call", "all_reduce"]
