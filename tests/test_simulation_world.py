"""The world of a simulated run: steps, time, what ends a run, what is left behind, and the faults that it offers."""

from __future__ import annotations

import contextvars
import gc
import time as real_time
from collections.abc import Callable
from typing import Any

import pytest

from hicache_checks.simulation.choices import Choices, Drawn, Plainest, Seeded
from hicache_checks.simulation.world import (
    DEADLOCK,
    LIVELOCK,
    Limits,
    NotSimulated,
    TaskStruck,
    World,
)
from simulated_runs import queue, run, sticky, threading, threads, time, went_well


def say(world: World, *words: str) -> Callable[[], None]:
    def talk() -> None:
        for word in words:
            world.point(word, word)

    return talk


# --- steps and choices


def test_choice_zero_lets_the_running_task_go_on() -> None:
    def main(world: World) -> None:
        world.spawn(say(world, "b"), "b")
        world.point("a1")
        world.point("a2")

    world = run(main, Plainest())
    assert world.trace == [("caller", "start"), ("caller", "a1"), ("caller", "a2")]


def test_a_choice_names_who_runs_by_number_after_the_running_task() -> None:
    class Last(Choices):
        def _next(self, count: int) -> int:
            return count - 1

    def main(world: World) -> None:
        for name in ("x", "y"):
            world.spawn(say(world, name), name)
        world.settle()

    assert [who for who, step in run(main, Last()).trace if step in "xy"] == ["y", "x"]
    assert [who for who, step in run(main, Plainest()).trace if step in "xy"] == ["x", "y"]


def test_only_who_can_go_on_can_be_chosen() -> None:
    counts: set[int] = set()

    def main(world: World) -> None:
        lock = threading.Lock()

        def enter() -> None:
            with lock:
                world.point("inside")
                counts.add(len(world._ready))

        with lock:
            for name in "abc":
                world.spawn(enter, name)
            world.settle()
            counts.add(len(world._ready))
        world.settle()

    for seed in range(20):
        world = run(main, seed)
        assert world.problem is None
        # Nobody is let into the lock only to find it taken.
        assert len([step for _, step in world.trace if step == "take lock-1"]) == 4
    assert counts == {1}


def test_a_task_that_lost_the_race_for_an_item_waits_again() -> None:
    def main(world: World) -> None:
        items, got = queue.SimpleQueue(), queue.SimpleQueue()
        for name in "abc":
            world.spawn(lambda: got.put(items.get()), name)
        for i in range(3):
            items.put(i)
        world.settle()
        assert sorted(got.get() for _ in range(3)) == [0, 1, 2]

    for seed in range(50):
        world = run(main, seed)
        went_well(world)
        assert len([step for _, step in world.trace if step == "get queue-1"]) == 3


def test_labels_depend_on_the_maker_alone() -> None:
    def main(world: World) -> None:
        def make() -> None:
            world.point("make")
            lock = threading.Lock()
            lock.acquire()

        threads(make, make)

    labels = {tuple(sorted(step for who, step in run(main, seed).trace if "take" in step)) for seed in range(10)}
    assert labels == {("take t0.lock-1", "take t1.lock-1")}


def test_tasks_of_the_same_name_are_told_apart() -> None:
    def main(world: World) -> None:
        for rank in (None, 0, 0):
            world.spawn(say(world, "x"), "io", rank)
        world.settle()

    assert {who for who, _ in run(main).trace} == {"caller", "io", "io (rank 0)", "io#2 (rank 0)"}


def test_a_task_inherits_the_rank_of_who_starts_it() -> None:
    ranks: dict[str, int | None] = {}

    def main(world: World) -> None:
        def outer() -> None:
            threads(lambda: ranks.update(inner=world.running.rank if world.running else None))

        world.spawn(outer, "outer", 3)
        world.settle()

    run(main)
    assert ranks == {"inner": 3}


def test_settle_returns_when_nobody_can_go_on_without_time_passing() -> None:
    seen: list[float] = []

    def main(world: World) -> None:
        def sleeper() -> None:
            world.point("work")
            seen.append(world.now)
            time.sleep(5)
            seen.append(world.now)

        world.spawn(sleeper, "sleeper")
        world.settle()
        assert seen == [1000.0]
        time.sleep(6)
        assert seen == [1000.0, 1005.0]

    went_well(run(main))


# --- time


def test_an_hour_of_stalled_storage_costs_milliseconds() -> None:
    def main(world: World) -> None:
        answers = queue.Queue()

        def storage() -> None:
            time.sleep(3600)
            answers.put("late")

        def poller() -> None:
            while not stop.is_set():
                try:
                    requests.get(timeout=10)
                except queue.Empty:
                    continue

        requests, stop = queue.Queue(), threading.Event()
        world.spawn(storage, "storage")
        world.spawn(poller, "poller")
        assert answers.get() == "late"
        stop.set()

    start = real_time.process_time()
    world = run(main)
    assert world.problem is None
    assert world.now >= 4600
    assert real_time.process_time() - start < 1.0


def test_waits_that_end_almost_together_end_in_any_order() -> None:
    def main(world: World) -> None:
        def sleeper(name: str, seconds: float) -> Callable[[], None]:
            def sleep() -> None:
                time.sleep(seconds)
                woken.append(name)

            return sleep

        woken: list[str] = []
        threads(sleeper("a", 1.0), sleeper("b", 1.0 + 2e-5), sleeper("c", 1.01))
        orders.add("".join(woken))

    orders: set[str] = set()
    for seed in range(40):
        run(main, seed)
    assert orders == {"abc", "bac"}


def test_a_wait_without_end_is_no_deadline() -> None:
    world = run(lambda w: threading.Event().wait(threading.TIMEOUT_MAX))
    assert world.problem is not None
    assert world.problem.kind == DEADLOCK


# --- deadlock and livelock


def test_a_deadlock_says_who_waits_for_what() -> None:
    def main(world: World) -> None:
        first, second = threading.Lock(), threading.Lock()

        def one() -> None:
            with first, second:
                pass

        def other() -> None:
            with second, first:
                pass

        threads(one, other)

    problems = [world.problem for world in (run(main, seed) for seed in range(30)) if world.problem]
    assert problems
    assert len(problems) < 30
    assert {p.kind for p in problems} == {DEADLOCK}
    assert {p.message for p in problems} == {"caller: join t0; t0: take lock-2; t1: take lock-1"}


def test_pollers_do_not_hide_a_deadlock() -> None:
    def main(world: World) -> None:
        def poll() -> None:
            while not threading.Event().wait(0.5):
                pass

        world.spawn(poll, "poller")
        queue.Queue().get()

    world = run(main)
    assert world.problem is not None
    assert world.problem.kind == DEADLOCK
    assert world.problem.message.startswith("caller: get queue-1; poller: wait for poller.event-")


def test_patience_outlasts_a_poller_that_gives_up() -> None:
    def main(world: World) -> None:
        def worker() -> None:
            for _ in range(600):
                time.sleep(0.1)
            done.set()

        done = threading.Event()
        world.spawn(worker, "worker")
        assert done.wait()

    went_well(run(main))


def test_a_livelock_of_tasks_that_only_look() -> None:
    def main(world: World) -> None:
        flag = threading.Event()

        def spin() -> None:
            while not flag.is_set():
                pass

        world.spawn(spin, "spinner")
        threads(spin)

    world = run(main, strategy=sticky(0), limits=Limits(idle_steps_max=2000))
    assert world.problem is not None
    assert world.problem.kind == LIVELOCK
    assert world.problem.message.endswith("caller: join t0; spinner: look at event-1; t0: look at event-1")
    assert 2000 <= world.steps < 2400


def test_the_caller_alone_runs_into_the_limit_of_steps() -> None:
    def main(world: World) -> None:
        while True:
            time.sleep(0)

    world = run(main, limits=Limits(steps_max=1234))
    assert world.problem is not None
    assert world.problem.kind == LIVELOCK
    assert world.steps == 1235


def test_looking_at_the_clock_for_ever_is_a_livelock() -> None:
    def main(world: World) -> None:
        def spin() -> None:
            while time.monotonic() >= 0:
                pass

        threads(spin)

    world = run(main, limits=Limits(idle_steps_max=300))
    assert world.problem is not None
    assert world.problem.kind == LIVELOCK


class Stubborn:
    """The first in the list, always."""

    def pick(self, ready: Any, running: Any) -> Any:
        return ready[0]


def test_who_only_looks_cannot_keep_the_others_from_running() -> None:
    """An unfair strategy makes no finding of its own."""

    def main(world: World) -> None:
        flag = threading.Event()

        def raise_it() -> None:
            flag.set()

        def spin() -> None:
            while not flag.is_set():
                pass

        threads(spin, spin, raise_it)

    world = run(main, Plainest(), Stubborn())
    assert world.problem is None
    assert 400 < world.steps < 1500


# --- what ends a run from outside


def test_what_the_program_raises_comes_out() -> None:
    with pytest.raises(ZeroDivisionError):
        run(lambda w: 1 / 0)


def test_a_task_that_falls_is_reported_and_the_others_go_on() -> None:
    def main(world: World) -> None:
        threads(lambda: 1 / 0, say(world, "on"))

    world = run(main)
    assert [(died.task, type(died.error)) for died in world.died] == [("t0", ZeroDivisionError)]
    assert ("t0", "dies: ZeroDivisionError") in world.trace
    assert ("t1", "on") in world.trace


def test_leaving_a_thread_by_system_exit_is_no_fall() -> None:
    def leave() -> None:
        raise SystemExit

    world = run(lambda w: threads(leave))
    assert not world.died
    assert world.problem is None


@pytest.mark.parametrize("of_program", [False, True])
def test_what_the_choices_raise_comes_out_wherever_they_are_asked(of_program: bool) -> None:
    """Hypothesis ends a case by an exception, perhaps in a worker that catches everything."""

    class Enough(BaseException):
        pass

    def draw(count: int) -> int:
        if len(choices.taken) >= 5:
            raise Enough
        return 0

    def main(world: World) -> None:
        def worker() -> None:
            while True:
                try:
                    world.point("work") if not of_program else world.choose(2)
                except BaseException as error:
                    caught.append(error)
                    raise

        world.spawn(worker, "worker")
        world.spawn(worker, "other")
        world.settle()

    choices, caught = Drawn(draw), []  # type: ignore[var-annotated]
    with pytest.raises(Enough):
        run(main, choices)
    assert Enough not in {type(error) for error in caught}


def test_an_interrupt_in_a_task_ends_the_run() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(lambda w: threads(interrupt))


def test_what_has_no_stand_in_ends_the_run_even_if_the_program_would_catch_it() -> None:
    def main(world: World) -> None:
        def worker() -> None:
            try:
                from hicache_checks.simulation.standins.locks import not_simulated

                raise not_simulated("magic has no stand-in")
            except Exception:
                caught.append(True)

        threads(worker)

    caught: list[bool] = []
    with pytest.raises(NotSimulated, match="magic has no stand-in"):
        run(main)
    assert not caught


def test_outside_a_world_nothing_waits() -> None:
    items = queue.SimpleQueue()
    items.put(1)
    assert items.get() == 1
    with pytest.raises(NotSimulated, match="would wait for ever"):
        items.get()


# --- what is left behind


def test_everybody_is_unwound_at_the_end() -> None:
    def main(world: World) -> None:
        def worker() -> None:
            try:
                with lock:
                    queue.Queue().get()
            finally:
                unwound.append(world.running)

        lock = threading.Lock()
        locks.append(lock)
        world.spawn(worker, "worker")
        world.settle()
        assert lock._held

    unwound: list[Any] = []
    locks: list[Any] = []
    world = run(main)
    assert [task.name for task in unwound] == ["worker"]
    assert not locks[0]._held
    assert not world.died
    assert all(task.ended for task in world.tasks)


def test_unwinding_is_no_fall_even_if_it_raises_on_its_way() -> None:
    def main(world: World) -> None:
        def worker() -> None:
            try:
                queue.Queue().get()
            finally:
                raise ValueError("on the way out")

        world.spawn(worker, "worker")
        world.settle()
        queue.Queue().get()

    world = run(main)
    assert not world.died
    assert world.problem is not None


def test_a_task_that_will_not_be_unwound_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    def main(world: World) -> None:
        def worker() -> None:
            while True:
                try:
                    queue.Queue().get()
                except BaseException:
                    continue

        world.spawn(worker, "worker")
        world.settle()

    for _ in range(3):
        world = run(main)
        assert world.problem is None
        del world
        gc.collect()
    assert capsys.readouterr().err == ""


def test_what_outlives_a_world_has_forgotten_who_waited() -> None:
    items = queue.SimpleQueue()

    def first(world: World) -> None:
        world.spawn(items.get, "getter")
        world.settle()

    def second(world: World) -> None:
        items.put(1)
        assert items.get() == 1

    for seed in range(10):
        run(first)
        world = run(second, seed)
        went_well(world)
        # There is nobody else to choose.
        assert world.choices.taken == []


def test_garbage_is_not_collected_during_a_run() -> None:
    assert gc.isenabled()
    seen: list[bool] = []
    run(lambda w: seen.append(gc.isenabled()))
    assert seen == [False]
    assert gc.isenabled()


def test_the_caller_has_the_context_of_who_runs_the_world_and_a_thread_has_none() -> None:
    variable = contextvars.ContextVar("variable", default="new")
    token = variable.set("outside")

    def main(world: World) -> None:
        seen.append(variable.get())
        threads(lambda: seen.append(variable.get()))

    seen: list[str] = []
    run(main)
    variable.reset(token)
    assert seen == ["outside", "new"]


def test_one_world_at_a_time_and_each_once() -> None:
    world = World(Seeded(0))
    with pytest.raises(RuntimeError, match="running in this process already"):
        world.run(lambda: run(lambda w: None))
    with pytest.raises(RuntimeError, match="runs once"):
        world.run(lambda: None)


# --- faults


def test_a_struck_task_dies_before_its_next_step() -> None:
    def main(world: World) -> None:
        items = queue.SimpleQueue()

        def worker() -> None:
            while True:
                items.get()

        worker_task = world.spawn(worker, "worker")
        world.settle()
        world.strike(worker_task)
        items.put("lost?")
        world.settle()
        assert worker_task.ended
        assert items.qsize() == 1

    world = run(main)
    assert [(died.task, type(died.error)) for died in world.died] == [("worker", TaskStruck)]


def test_a_struck_task_dies_of_what_it_is_given_and_may_catch_it() -> None:
    def main(world: World) -> None:
        def worker() -> None:
            try:
                world.point("work")
            except MemoryError:
                survived.append(True)
            world.point("more")

        world.strike(world.spawn(worker, "worker"), MemoryError())
        world.settle()

    survived: list[bool] = []
    world = run(main)
    # Its first step is to start: there nothing catches it yet.
    assert [died.task for died in world.died] == ["worker"]
    assert not survived

    def later(world: World) -> None:
        def worker() -> None:
            try:
                gate.wait()
            except MemoryError:
                survived.append(True)
            world.point("more")

        gate = threading.Event()
        task = world.spawn(worker, "worker")
        world.settle()
        world.strike(task, MemoryError())
        gate.set()
        world.settle()

    world = run(later)
    assert survived
    assert not world.died
    assert world.trace[-1] == ("caller", "settle")
    assert ("worker", "more") in world.trace


def test_held_for_ever_a_rank_leaves_the_others_waiting() -> None:
    def main(world: World) -> None:
        def worker() -> None:
            items.get()
            answers.put(1)

        items, answers = queue.SimpleQueue(), queue.SimpleQueue()
        world.spawn(worker, "io", rank=1)
        world.settle()
        world.hold(task for task in world.tasks if task.rank == 1)
        items.put(1)
        answers.get()

    world = run(main)
    assert world.problem is not None
    assert world.problem.kind == DEADLOCK
    assert world.problem.message == "caller: get queue-2; io (rank 1): get queue-1 (held)"


def test_held_for_a_while_a_task_is_slow() -> None:
    def main(world: World) -> None:
        def worker() -> None:
            world.point("work")
            done.set()

        done = threading.Event()
        world.hold([world.spawn(worker, "slow")], 7)
        before = world.now
        assert not done.wait(6)
        assert done.wait()
        assert world.now - before == pytest.approx(7, abs=1e-3)

    for seed in range(5):
        went_well(run(main, seed))


def test_the_time_of_a_held_task_runs_out_when_it_is_let_go() -> None:
    def main(world: World) -> None:
        def worker() -> None:
            outcome.append((threading.Event().wait(2), world.now))

        task = world.spawn(worker, "worker")
        world.settle()
        world.hold([task], 10)
        threads(lambda: time.sleep(20))

    outcome: list[Any] = []
    run(main)
    ((flag, when),) = outcome
    assert flag is False
    assert when == pytest.approx(1010, abs=1e-3)


def test_a_task_can_hold_itself() -> None:
    def main(world: World) -> None:
        before = world.now
        world.hold([task for task in world.tasks if task is world.running], 5)
        assert world.now - before == pytest.approx(5)

    went_well(run(main))


def test_a_jump_of_the_clock_ends_waits() -> None:
    def main(world: World) -> None:
        outcome: list[bool] = []
        world.spawn(lambda: outcome.append(threading.Event().wait(30)), "waiter")
        world.settle()
        assert not outcome
        world.jump(60)
        world.settle()
        assert outcome == [False]

    went_well(run(main))


def test_the_wall_clock_can_be_set_apart() -> None:
    def main(world: World) -> None:
        wall, steady = time.time(), time.monotonic()
        world.wall_offset_s -= 100
        assert time.time() < wall - 99
        assert time.monotonic() > steady

    went_well(run(main))
