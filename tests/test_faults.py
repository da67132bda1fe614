"""What goes wrong in programs: each fault strikes in some schedules of the reference, which does then what is expected.

Stores that fail are in test_program_steps; the table of all faults is in `program`.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from hicache_checks.conformance import program
from hicache_checks.conformance.findings import HARNESS, Broken, Finding
from hicache_checks.conformance.judges import MakeJudge, judge_for
from hicache_checks.conformance.nobody import Nobody
from hicache_checks.conformance.program import END, MENU, Setup, Step, draw_step, menu_for
from hicache_checks.conformance.schedule import SimulatedPlace, begin, broken_world, run_schedule
from hicache_checks.conformance.search import SearchOptions, run_numbered, run_once
from hicache_checks.conformance.target import Target, opened
from hicache_checks.simulation.choices import Plainest, Replayed, Seeded
from hicache_checks.simulation.standins import clocks, queues
from hicache_checks.simulation.standins.collectives import open_ranks
from hicache_checks.simulation.strategies import Walk
from hicache_checks.simulation.world import TaskStruck, World

PROMPT, OTHER = (1, 2, 3), (5, 6)
SEEDS = range(12)
SUBMIT, FETCH, TURN, SETTLE = (
    Step("submit", ("a", PROMPT)),
    Step("fetch", (OTHER, PROMPT)),
    Step("turn"),
    Step("settle"),
)


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    with opened("reference", simulate=True) as simulated:
        yield simulated


@dataclass
class Played:
    """A program that was run to its end: the world, the adapter, and what happened."""

    world: World
    adapter: Any
    outcomes: dict[str, int]

    def died(self) -> list[str]:
        """The threads of which it is known that they were killed: they fell, or a rank said so."""
        fell = [died.task for died in self.world.died if isinstance(died.error, TaskStruck)]
        said = [event for log in self.adapter.logs() for event in log.take_since(0) if event.kind == "died"]
        return [*fell, *(event.data["thread"] for event in said)]


def play(build: Callable[[], Any], *steps: Step, seed: int = 0, **sizes: Any) -> Played:
    """Run a program with switches at random. Raises Broken."""
    setup = Setup(**{"ranks": 2, "host_pages": 4, "stored": (PROMPT, OTHER), **sizes})
    choices = Seeded(seed)
    world = World(choices, Walk(choices.random, 0.5))
    open_ranks(world, setup.ranks)
    parts: dict[str, Any] = {}

    def main() -> None:
        adapter = parts["adapter"] = build()
        session, parts["judge"] = begin(world, adapter, setup)
        for step in steps:
            session.do(step)
        session.run_out()
        session.close()

    world.run(main)
    finding = broken_world(world, None)
    if finding is not None:
        raise Broken(finding.property, finding.message)
    return Played(world, parts["adapter"], dict(parts["judge"].outcomes))


# ---- what is drawn


def test_the_table_names_what_is_drawn_and_everything_is_drawn() -> None:
    kinds = {item.kind for item in MENU} - {END}
    table = [line for line in (program.__doc__ or "").splitlines() if line.startswith("| ")][1:]
    named = {name for line in table for name in line.split("|")[2].split("`")[1::2]}
    assert named - set(program.BREAKS) - set(program.LIES) <= kinds
    menu = menu_for({item.needs for item in MENU if item.needs is not None})
    drawn = (draw_step(Seeded(seed), menu, ranks=2) for seed in range(3000))
    assert {step.kind for step in drawn if step is not None} == kinds


def test_a_target_says_which_threads_are_whose(target: Target) -> None:
    plain = play(target.build)
    names = {task.name for task in plain.world.tasks} - {"caller"}
    assert names == {name for rank in range(2) for name in plain.adapter.threads_of(rank)}


def test_a_run_with_a_death_is_the_same_again(target: Target) -> None:
    options = SearchOptions(ranks=2)
    for number in range(200):
        result, choices = run_numbered(target, options, number)
        if any(step.kind == "kill_thread" for step in result.steps):
            again = Replayed(choices.taken, choices.counts)
            assert run_once(target, options, options.policy_of(number), again).digest == result.digest
            assert again.divergence() is None
            return
    pytest.fail("nobody was killed")


# ---- deaths


@pytest.mark.parametrize(("number", "name"), [*enumerate(("query", "io", "backup", "scheduler-0"))])
def test_a_thread_dies(target: Target, number: int, name: str) -> None:
    """Sometimes at once, sometimes when it is needed; never without an end."""
    steps = (SUBMIT, TURN, Step("prefill", ((1, 9, 3),)), Step("kill_thread", (0, number)), FETCH, SETTLE, TURN)
    dead = [play(target.build, *steps, seed=seed).died() for seed in SEEDS]
    assert name in {thread for threads in dead for thread in threads}


def test_a_rank_dies(target: Target) -> None:
    steps = (SUBMIT, SETTLE, Step("tick"), Step("kill_rank", (1,)), FETCH, TURN)
    dead = [play(target.build, *steps, seed=seed).died() for seed in SEEDS]
    assert all(dead)
    assert {"io", "scheduler-1"} <= {thread for threads in dead for thread in threads}


def test_what_was_before_a_death_is_judged() -> None:
    with (
        opened("reference+sched_accounts_what_it_declines", simulate=True) as faulty,
        pytest.raises(Broken, match=r"^step_declined_for_cause|^observed_state"),
    ):
        play(faulty.build, *[SUBMIT, SUBMIT] * 3, SETTLE, Step("kill_rank", (0,)), limit_pages=4)


def reference_with(**methods: Callable[..., Any]) -> Callable[[], Any]:
    """The reference, as it is simulated now, with other methods."""
    reference = importlib.import_module("hicache_impl.adapter").Reference
    runtime = importlib.import_module("hicache_impl.runtime").ThreadRuntime
    return lambda: type("Other", (reference,), methods)(runtime=runtime())


def test_a_slip_after_a_death_is_found(target: Target) -> None:
    def poll(adapter: Any, rids: Any) -> Any:
        return {} if adapter.caches[0].controller.failure is None else adapter.caches[0].nobody

    steps = (SUBMIT, Step("kill_thread", (0, 0)), SETTLE, Step("poll", (("a",),)))
    with pytest.raises(Broken, match=r"^raises: AttributeError.*nobody"):
        play(reference_with(poll=poll), *steps, seed=2)


def test_threads_that_outlive_a_death_are_found(target: Target) -> None:
    with pytest.raises(Broken, match=r"^P22: these threads do not end: .*query-0"):
        play(reference_with(close=lambda adapter: None), SUBMIT, Step("kill_thread", (0, 1)))


def test_a_wait_for_the_dead_is_found(target: Target) -> None:
    def tick(adapter: Any) -> None:
        adapter.runtime.queue().get()

    with pytest.raises(Broken, match=r"^P2 live_submitted_operations_end: .*caller: get"):
        play(reference_with(tick=tick), Step("kill_rank", (0,)), Step("tick"))


@pytest.mark.parametrize("threads", [[], ["nobody"]])
def test_where_nobody_can_be_killed_all_is_judged(target: Target, threads: list[str]) -> None:
    build = reference_with(threads_of=lambda adapter, rank: threads)
    strikes = (Step("kill_thread", (0, 5)), Step("kill_rank", (1,)))
    assert play(build, SUBMIT, *strikes, FETCH).outcomes == play(build, SUBMIT, FETCH).outcomes


def ended_after_a_strike(worker: Callable[[], object], struck: bool = True) -> Finding | None:
    """What is found when a task is struck, or woken, while it waits in a worker's program."""

    def main() -> None:
        task = world.spawn(worker, "worker")
        world.settle()
        if struck:
            world.strike(task)
        world.jump(1.0)
        world.settle()

    world = World(Plainest())
    world.run(main)
    return broken_world(world, None)


def test_who_cannot_go_on_after_a_death_may_say_so(target: Target) -> None:
    """What a thread dies of in the end is its own affair, but for slips; without a death before, it is a finding."""

    def failing(error: Exception) -> Callable[[], object]:
        def work() -> None:
            try:
                clocks.sleep(1.0)
            finally:
                raise error

        return work

    assert ended_after_a_strike(failing(RuntimeError("the store is gone"))) is None
    slip, plain = (
        ended_after_a_strike(failing(KeyError(1))),
        ended_after_a_strike(failing(RuntimeError()), struck=False),
    )
    assert slip is not None
    assert plain is not None
    assert slip.property == plain.property == "P31 threads_survive"


@pytest.mark.parametrize("ends", [True, False])
def test_who_looks_now_and_then_whether_to_end_is_given_the_time(ends: bool) -> None:
    over: list[bool] = []
    left: list[list[str]] = []

    def worker() -> None:
        while not over:
            clocks.sleep(30.0)

    def main() -> None:
        world.spawn(worker, "worker")
        world.settle()
        over.extend([True] * ends)
        left.append(SimulatedPlace(world).left())

    world = World(Plainest())
    world.run(main)
    assert left == [[] if ends else ["worker"]]


# ---- what a target says, and what is no fault of it


def test_what_the_world_saw_stands_when_logs_cannot_be_read() -> None:
    class Unreadable(Nobody):
        def explain_failure(self) -> None:
            raise OSError("the log is gone")

    world = World(Plainest())
    world.run(queues.Queue().get)
    finding = broken_world(world, Unreadable())
    assert finding is not None
    assert (finding.place, finding.kind) == ("deadlock", "protocol")


def test_what_an_audit_says_is_told_in_whatever_words(target: Target) -> None:
    for line, told in (
        ("page 3: leaked", "audit: page 3: leaked"),
        ("leaked", "audit: leaked"),
        ("rank 1: P4 a page is leaked", "P4: a page is leaked"),
        ("P4 a page is leaked", "P4: a page is leaked"),
    ):
        with pytest.raises(Broken) as broken:
            play(reference_with(audit=lambda adapter, said=line: [said]))
        assert str(broken.value) == told


def test_only_a_number_makes_the_name_of_a_property(target: Target) -> None:
    def tick(adapter: Any) -> None:
        raise RuntimeError("P2P link is down")

    with pytest.raises(Broken, match=r"^raises: RuntimeError: P2P link is down"):
        play(reference_with(tick=tick), Step("tick"))


def test_an_error_of_ours_is_not_taken_for_one_of_the_target(target: Target) -> None:
    def run(judge: MakeJudge = judge_for, **methods: Callable[..., Any]) -> Finding | None:
        return run_schedule(reference_with(**methods), 1, "best_effort", Plainest(), judge=judge).finding

    def fails(*args: Any) -> Any:
        raise IndexError("out of bounds\nmore")

    class Failing(Nobody):
        def __init__(self, *args: Any) -> None:
            self.states: set[bytes] = set()
            self.outcomes: Counter[str] = Counter()
            self.unobserved: Counter[str] = Counter()

        finish = fails

    assert run(Failing) == Finding("harness", "IndexError: out of bounds", HARNESS, "fails")
    assert run(reset=fails) == Finding("raises", "IndexError: out of bounds", place="reset")
    assert run(close=fails) == Finding("raises", "IndexError: out of bounds", place="close")
    assert run(capabilities=fails) == Finding("adapter", "IndexError: out of bounds", HARNESS, "capabilities")


# ---- slowness, clocks, memory


def test_a_rank_is_slow(target: Target) -> None:
    """Whoever calls it waits, and nothing else comes of it."""
    slow = Step("slow_rank", (1, 0.7))
    for seed in SEEDS:
        plain = play(target.build, SUBMIT, FETCH, seed=seed)
        held = play(target.build, SUBMIT, slow, FETCH, seed=seed)
        assert held.world.now - plain.world.now > 0.6
        assert held.outcomes["submitted"] == plain.outcomes["submitted"]


@pytest.mark.parametrize("seconds", program.CLOCK_STEPS_S)
def test_who_believes_the_wall_clock_is_found(target: Target, seconds: float) -> None:
    def now(runtime: Any) -> float:
        return float(importlib.import_module("hicache_impl.runtime").time.time())

    def build() -> Any:
        runtime = importlib.import_module("hicache_impl.runtime").ThreadRuntime
        reference = importlib.import_module("hicache_impl.adapter").Reference
        return reference(runtime=type("Wall", (runtime,), {"now": now})())

    stalls = Step("break_storage", (0, "get", "stall"))
    steps = (stalls, SUBMIT, SETTLE, TURN, Step("set_clock", (seconds,)), Step("wait", (0.4,)), TURN)
    late = (*steps, Step("wait", (1.5,)), Step("poll", (("a",),)))
    assert play(target.build, *late, ranks=1, policy="timeout").outcomes["submitted"] == 1
    with pytest.raises(Broken, match=r"^step_waits|^P5 may_end|^sched_poll"):
        play(build, *late, ranks=1, policy="timeout")


def test_the_host_pool_is_full_of_pages_that_stay(target: Target) -> None:
    squeeze = Step("squeeze", (0, (5,), PROMPT, (1, 2, 5, 6)))
    outcomes = play(target.build, squeeze, FETCH, host_pages=4, threshold_pages=2).outcomes
    assert outcomes["written"] == 2
    assert outcomes["revoked: no_memory"] >= 1


# ---- stores that lie


@pytest.mark.parametrize("how", program.LIES)
def test_who_believes_a_lie_is_judged_by_all_but_bytes(target: Target, how: str) -> None:
    pages = 2 if how == "late_write" else 4
    steps = (
        Step("lie", (0, how)),
        *[Step("fetch", (OTHER,))] * 2,
        Step("heal_storage"),
        *[Step("fetch", ((1, 2),))] * 2,
    )
    played = play(target.build, *steps, host_pages=pages)
    assert played.adapter.faults[0].struck()[how]
    assert played.outcomes["fetched: all"] >= 1
