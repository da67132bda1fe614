"""One run, by its digest, for the tests that compare runs in processes of their own: `determined_run.py WHAT SEED`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from hicache_checks.simulation.choices import Seeded
from hicache_checks.simulation.isolation import TorchModes
from hicache_checks.simulation.patching import STANDINS, simulated
from hicache_checks.simulation.strategies import Walk
from hicache_checks.simulation.world import World

CONFIG = {
    "ranks": 2,
    "policy": "wait_complete",
    "namespace": "mine",
    "page_size": 1,
    "page_bytes": 16,
    "host_pages": 8,
    "device_pages": 6,
    "threshold_pages": 1,
    "limit_pages": 16,
    "timeout_s_base": 1.0,
    "timeout_s_per_page": 0.0,
    "timeout_s_max": 1.0,
}


def threaded(world: World) -> None:
    """Some of everything."""
    threading, queue, time, futures = (STANDINS[name] for name in ("threading", "queue", "time", "concurrent.futures"))
    items, done, condition = queue.Queue(2), queue.SimpleQueue(), threading.Condition()
    local, barrier = threading.local(), threading.Barrier(3)

    def work() -> None:
        local.seen = []
        barrier.wait()
        while (item := items.get()) is not None:
            local.seen.append(item)
            with condition:
                condition.notify()
            time.sleep(item / 10)
        done.put(local.seen)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    with futures.ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(items.put, i) for i in range(6)]:
            future.result()
    with condition:
        condition.wait(1)
    for _ in threads:
        items.put(None)
    for thread in threads:
        thread.join()


def reference(world: World) -> None:
    """Two ranks of the reference, its own threads, two requests."""
    # By name, as any implementation under test.
    adapter: Any = __import__("hicache_impl.adapter", fromlist=["Reference"])
    runtime: Any = __import__("hicache_impl.runtime", fromlist=["ThreadRuntime"])
    target = adapter.Reference(CONFIG, runtime=runtime.ThreadRuntime())
    for prompt in ((1, 2, 3, 4), (5, 6, 7, 8)):
        target.store(prompt)
    target.submit("a", (1, 2, 3, 4))
    target.submit("b", (5, 6, 7, 8))
    for _ in range(4):
        target.tick()
        target.poll(["a", "b"])
        world.settle()
    target.tick()
    assert not target.audit()
    target.close()


PROGRAMS: dict[str, Callable[[World], None]] = {"threaded": threaded, "reference": reference}


def determined(what: str, seed: int, carriers: str = "greenlets", stay: float = 0.5) -> World:
    """A run in which nothing went wrong."""
    choices = Seeded(seed)
    world = World(choices, Walk(choices.random, stay), carriers=carriers, modes=TorchModes())
    with simulated(["hicache_impl"]):
        world.run(lambda: PROGRAMS[what](world))
    assert world.problem is None, world.problem
    assert not world.died, world.died
    return world


if __name__ == "__main__":
    digests = [determined(sys.argv[1], seed).digest() for seed in range(int(sys.argv[2]))]
    sys.stdout.write(" ".join(digests))
