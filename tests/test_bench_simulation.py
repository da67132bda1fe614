"""`hicheck bench simulation` and `hicheck bench tick`: the work is done, the same seed does the same, and what is
printed."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console

from hicache_checks import bench_simulation, bench_tick
from hicache_checks.bench_simulation import SETUP, STEPS, SimulationOptions, simulated_run, threaded_run
from hicache_checks.bench_tick import TickOptions
from hicache_checks.conformance.nobody import Nobody
from hicache_checks.conformance.program import Step
from hicache_checks.conformance.schedule import SimulatedPlace
from hicache_checks.conformance.session import Session
from hicache_checks.conformance.target import Target, opened
from hicache_checks.reporting import InputError, Outcome, Progress, Screen, Verdict
from hicache_checks.simulation.choices import Plainest
from hicache_checks.simulation.standins.collectives import open_ranks
from hicache_checks.simulation.world import World


@pytest.fixture
def target() -> Iterator[Target]:
    with opened("reference", simulate=True) as simulated:
        yield simulated


def printed_by(command: Any, options: Any) -> tuple[Outcome, list[list[str]]]:
    """The outcome, and the words of each line."""
    printed = io.StringIO()
    screen = Screen(Console(file=printed, soft_wrap=True, highlight=False), Progress(io.StringIO()))
    outcome = command.run(options, screen)
    return outcome, [re.split(r"  +", line.strip()) for line in printed.getvalue().splitlines()]


def test_a_seed_is_a_schedule(target: Target) -> None:
    first, again, other = (simulated_run(target.build, seed, False) for seed in (1, 1, 2))
    assert first.digest() == again.digest() != other.digest()
    assert first.steps > 300


def test_the_monitor_only_looks(target: Target) -> None:
    """It reads the logs, and does nothing that anybody could notice."""
    watched, alone = (simulated_run(target.build, 1, has_monitor).trace for has_monitor in (True, False))
    assert watched == alone


def test_the_same_with_real_threads() -> None:
    with opened("reference", simulate=False) as real:
        for has_monitor in (False, True):
            threaded_run(real.build, has_monitor)


def test_work_that_is_not_done_is_no_measurement(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_simulation, "STEPS", STEPS[:-1])
    with pytest.raises(InputError, match=r"^4 of 8 pages were fetched$|^0 of 8 pages were fetched$|is wrong"):
        simulated_run(target.build, 1, False)


def test_a_flushed_system_is_not_a_new_one(target: Target) -> None:
    """Its workers are younger than its schedulers, so the same choices are other threads': ranks are not reused."""
    world = World(Plainest())
    open_ranks(world, SETUP.ranks)
    places: list[int] = []

    def main() -> None:
        adapter = target.build()
        adapter.reset(SETUP.config())
        session = Session(adapter, SETUP, Nobody(), SimulatedPlace(world), ())
        for again in range(3):
            if again:
                assert adapter.flush()
            for prompt in SETUP.stored:
                adapter.store(prompt)
            # Workers that were just started come to their queues.
            session.do(Step("settle"))
            places.append(len(world.trace))
            for step in STEPS:
                session.do(step)
            places.append(len(world.trace))
        adapter.close()

    world.run(main)
    assert world.problem is None
    fresh, flushed, flushed_again = (without_names(world.trace[places[i] : places[i + 1]]) for i in (0, 2, 4))
    assert len(fresh) > 300
    assert flushed == flushed_again != fresh


def without_names(trace: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Threads and objects count on, and an object is named for who made it: `query-0#2`, `scheduler-0.lock-31`."""
    return [
        (re.sub(r"#\d+", "", who), re.sub(r"(?:scheduler-\d+\.)?(lock|queue|event)-\d+", r"\1", doing))
        for who, doing in trace
    ]


@pytest.mark.heavy
def test_the_table_of_runs() -> None:
    outcome, lines = printed_by(bench_simulation, SimulationOptions(seconds=0.2))
    assert outcome.verdict is Verdict.PASS
    assert lines[0] == ["run", "monitor", "runs", "runs/s", "runs/s of a core", "wanted", "steps"]
    assert [line[:2] for line in lines[1:]] == [
        ["simulated", "off"],
        ["simulated", "on"],
        ["real threads", "off"],
        ["real threads", "on"],
    ]
    assert [line[5] for line in lines[1:3]] == ["500", "250"]
    rows: Any = outcome.keys["rows"]
    for row in rows:
        assert row["runs"] >= 1
        assert row["per_second"] == pytest.approx(row["runs"] / row["seconds"])
        assert row["per_cpu_second"] == pytest.approx(row["runs"] / row["cpu_seconds"])
    assert [row["share_of_wanted"] is None for row in rows] == [False, False, True, True]
    assert rows[0]["share_of_wanted"] == pytest.approx(rows[0]["per_cpu_second"] / 500)


def test_the_table_of_ticks() -> None:
    outcome, lines = printed_by(bench_tick, TickOptions(rounds=1, operations=2))
    assert lines[0] == ["ranks", "tick", "variant", "agreed counts", "operations", "ticks", "us, least", "us, median"]
    assert lines[1][:4] == ["1", "idle", "reference", "3"]
    assert lines[2][:4] == ["1", "idle", "reference:revoke_queue", "4"]
    rows: Any = outcome.keys["rows"]
    assert len(rows) == len(lines) - 1 == 12
