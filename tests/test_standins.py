"""The stand-ins beside the real things: the same small programs, the same answers."""

from __future__ import annotations

import concurrent.futures
import itertools
import queue
import threading
import time
import types
from collections.abc import Callable
from typing import Any

import pytest

import simulated_runs
from hicache_checks.simulation.choices import Plainest, Seeded
from hicache_checks.simulation.strategies import Pct
from hicache_checks.simulation.world import Limits, NotSimulated, World
from simulated_runs import run, sticky, went_well
from standin_programs import PROGRAMS

REAL = types.SimpleNamespace(threading=threading, queue=queue, time=time, futures=concurrent.futures)
STANDINS = types.SimpleNamespace(
    threading=simulated_runs.threading,
    queue=simulated_runs.queue,
    time=simulated_runs.time,
    futures=simulated_runs.futures,
)


def simulate(program: Callable[[Any], Any], seed: int, strategy: Any = None, carriers: str = "greenlets") -> Any:
    answers: list[Any] = []
    world = run(lambda world: answers.append(program(STANDINS)), seed, strategy, carriers=carriers)
    went_well(world)
    return answers[0]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_sees_what_it_sees_with_the_real_things(name: str) -> None:
    program = PROGRAMS[name]
    real = program(REAL)
    for seed in range(10):
        assert simulate(program, seed) == real
        assert simulate(program, seed, sticky(seed)) == real
    assert simulate(program, 0, carriers="threads") == real
    assert simulate(program, 0, Pct(Seeded(0).random)) == real


def test_the_clock_strictly_increases() -> None:
    def main(world: World) -> None:
        clocks = (STANDINS.time.time, STANDINS.time.monotonic, STANDINS.time.perf_counter)
        seen = [clock() for _ in range(50) for clock in clocks]
        world.jump(3600)
        seen += [clock() for _ in range(50) for clock in clocks]
        assert all(earlier < later for earlier, later in itertools.pairwise(seen))
        nanoseconds = [STANDINS.time.monotonic_ns() for _ in range(50)]
        assert all(earlier < later for earlier, later in itertools.pairwise(nanoseconds))

    went_well(run(main))


def test_outside_a_world_the_clock_is_the_real_one() -> None:
    assert abs(STANDINS.time.time() - time.time()) < 5
    assert STANDINS.threading.current_thread() is threading.current_thread()
    assert STANDINS.threading.get_ident() == threading.get_ident()


def test_a_real_thread_beside_the_world_is_outside() -> None:
    def main(world: World) -> None:
        items = STANDINS.queue.SimpleQueue()
        world.spawn(items.get, "getter")
        world.settle()
        seen: list[Any] = []

        def beside() -> None:
            seen.append(STANDINS.time.time())
            try:
                items.put(1)
            except Exception as error:
                seen.append(str(error))

        thread = threading.Thread(target=beside)
        thread.start()
        thread.join()
        assert seen[0] > 1e9
        assert seen[1] == "a task is woken from outside its world"

    with pytest.raises(NotSimulated, match="a task is woken from outside its world"):
        run(main)


def test_pools_are_numbered_anew_in_every_world() -> None:
    def program(modules: Any) -> Any:
        with modules.futures.ThreadPoolExecutor() as pool:
            return pool.submit(lambda: modules.threading.current_thread().name).result(), pool._max_workers

    assert [simulate(program, 0) for _ in range(2)] == [("ThreadPoolExecutor-1_0", 8)] * 2


def test_an_idle_pool_is_silent_at_the_end(capfd: pytest.CaptureFixture[str]) -> None:
    def main(world: World) -> None:
        STANDINS.futures.ThreadPoolExecutor(2).submit(pow, 2, 2).result()

    went_well(run(main))
    assert capfd.readouterr().err == ""


def test_processes_are_not_simulated() -> None:
    with pytest.raises(NotSimulated, match="ProcessPoolExecutor has no stand-in"):
        run(lambda world: STANDINS.futures.ProcessPoolExecutor())


def test_sets_of_threads_and_futures_have_an_order() -> None:
    def main(world: World) -> None:
        threads = [STANDINS.threading.Thread(name=str(i)) for i in range(50)]
        futures = [STANDINS.futures.Future() for _ in range(50)]
        orders.append([thread.name for thread in set(threads)])
        orders.append([futures.index(future) for future in set(futures)])
        assert len({*threads, *futures}) == 100

    orders: list[Any] = []
    for _ in range(2):
        went_well(run(main))
    assert orders[:2] == orders[2:] == [[str(i) for i in range(50)], list(range(50))]


def test_a_condition_over_a_strange_lock_is_not_simulated() -> None:
    with pytest.raises(NotSimulated, match=r"a Condition over .* has no stand-in"):
        run(lambda world: STANDINS.threading.Condition(threading.Lock()))


LOOKS: dict[str, Callable[[Any], tuple[Callable[[], Any], Callable[[], Any]]]] = {
    "lock.acquire": lambda m: _of(m.threading.Lock(), lambda x: x.acquire(False), lambda x: x.release(), "acquire"),
    "lock.locked": lambda m: _of(m.threading.Lock(), lambda x: not x.locked(), lambda x: x.release(), "acquire"),
    "lock.timeout": lambda m: _of(m.threading.Lock(), lambda x: x.acquire(timeout=0), lambda x: x.release(), "acquire"),
    "semaphore.acquire": lambda m: _of(m.threading.Semaphore(0), lambda x: x.acquire(False), lambda x: x.release()),
    "semaphore.timeout": lambda m: _of(m.threading.Semaphore(0), lambda x: x.acquire(timeout=0), lambda x: x.release()),
    "event.is_set": lambda m: _of(m.threading.Event(), lambda x: x.is_set(), lambda x: x.set()),
    "event.wait": lambda m: _of(m.threading.Event(), lambda x: x.wait(0), lambda x: x.set()),
    "queue.empty": lambda m: _of(m.queue.Queue(), lambda x: not x.empty(), lambda x: x.put(1)),
    "queue.get": lambda m: _of(m.queue.Queue(), lambda x: not _is_refused(x.get_nowait), lambda x: x.put(1)),
    "queue.timeout": lambda m: _of(
        m.queue.Queue(), lambda x: not _is_refused(lambda: x.get(timeout=0)), lambda x: x.put(1)
    ),
    "queue.put": lambda m: _of(
        m.queue.Queue(1), lambda x: not _is_refused(lambda: x.put_nowait(2)), lambda x: x.get(), "put", 1
    ),
    "queue.full": lambda m: _of(m.queue.Queue(1), lambda x: not x.full(), lambda x: x.get(), "put", 1),
    "queue.qsize": lambda m: _of(m.queue.SimpleQueue(), lambda x: x.qsize(), lambda x: x.put(1)),
    "thread.is_alive": lambda m: _of(
        m.threading.Thread(target=int), lambda x: not x.is_alive(), lambda x: None, "start"
    ),
    "thread.join": lambda m: _of(
        m.threading.Thread(target=int), lambda x: x.join(0) or not x.is_alive(), lambda x: None, "start"
    ),
    "time.monotonic": lambda m: _of([], lambda x: m.time.monotonic() and x, lambda x: x.append(1)),
    "time.sleep": lambda m: _of([], lambda x: m.time.sleep(0) or x, lambda x: x.append(1)),
}
"""What a program may look at again and again until another thread has done something."""


def _of(
    thing: Any, look: Callable[[Any], Any], do: Callable[[Any], Any], first: str = "", *args: Any
) -> tuple[Callable[[], Any], Callable[[], Any]]:
    if first:
        getattr(thing, first)(*args)
    return lambda: look(thing), lambda: do(thing)


def _is_refused(call: Callable[[], Any]) -> bool:
    try:
        call()
    except (queue.Empty, queue.Full):
        return True
    return False


@pytest.mark.parametrize("name", LOOKS)
def test_whoever_only_looks_lets_others_run(name: str) -> None:
    def main(world: World) -> None:
        look, do = LOOKS[name](STANDINS)
        world.spawn(do, "doer")
        while not look():
            pass

    went_well(run(main, Plainest(), limits=Limits(steps_max=10_000)))


def test_an_event_cleared_before_it_is_looked_at_is_waited_for() -> None:
    """Whoever arrives after the pulse has missed it, whoever waited before has not: both happen."""
    outcomes = set()

    def main(world: World) -> None:
        event, seen = STANDINS.threading.Event(), []
        world.spawn(lambda: seen.append(event.wait(1)), "waiter")
        event.set()
        event.clear()
        STANDINS.time.sleep(2)
        outcomes.add(tuple(seen))

    for seed in range(40):
        run(main, seed)
    assert outcomes == {(True,), (False,)}


def test_a_lock_may_be_snatched_from_who_waits() -> None:
    orders = set()

    def main(world: World) -> None:
        lock, order = STANDINS.threading.Lock(), []

        def take(name: str) -> Callable[[], None]:
            def go() -> None:
                with lock:
                    order.append(name)

            return go

        lock.acquire()
        world.spawn(take("waits"), "waits")
        world.settle()
        world.spawn(take("comes"), "comes")
        lock.release()
        world.settle()
        orders.add(tuple(order))

    for seed in range(40):
        run(main, seed)
    assert orders == {("waits", "comes"), ("comes", "waits")}
