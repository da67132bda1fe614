"""`hicheck conform --strategy exhaustive`: what is run, what it finds, and when that was not all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conform_run import Ran, conform, ran
from hicache_checks import replay_command
from hicache_checks.conformance.orders import Orders
from hicache_checks.conformance.schedule import Result, run_schedule
from hicache_checks.conformance.search import SearchOptions
from hicache_checks.conformance.target import opened
from hicache_checks.replay_command import ReplayOptions
from hicache_checks.simulation.choices import Choices
from hicache_checks.simulation.world import Strategy

RACE = "reference+io_counts_after_termination"
FORK = """
import os, threading
from toy_adapter import ToyAdapter

class Fork(ToyAdapter):
    packages = ("fork", "toy_adapter", "toy_fork")
    resets = 0

    def reset(self, config):
        super().reset(config)
        Fork.resets += 1
        for number in range(self.workers()):
            threading.Thread(target=int).start()

    def workers(self):
        return 2

    def capabilities(self):
        return ("store",)

    def tick(self):
        self.loop.rest()
        super().tick()
        self.loop.rest()
"""


def exhaustive(target: str, *policies: str, **options: Any) -> Ran:
    """All schedules on one rank with at most one preemption, if nothing else is said."""
    given = {"ranks": 1, "schedules": None, "preemptions_max": 1, **options.pop("search", {})}
    return conform(target, SearchOptions(policies=policies, strategy="exhaustive", **given), **options)


@pytest.fixture
def exhaustive_fork(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Search a fork with two threads that do nothing, which does everything in its ticks; with something put in."""

    def search(body: str = "", *policies: str, **options: Any) -> Ran:
        (tmp_path / "fork.py").write_text(FORK + body)
        monkeypatch.syspath_prepend(tmp_path)
        return exhaustive("fork:Fork", *(policies or ("wait_complete",)), **options)

    return search


# ---- the program


def first_of(target: str, can_store: bool) -> Result:
    with opened(target, simulate=True) as loaded:

        def run(policy: str, choices: Choices, strategy: Strategy) -> Result:
            return run_schedule(loaded.build, 1, policy, choices, strategy)

        result = Orders(run, ("timeout",), 0, can_store).run_next().result
    assert result is not None
    return result


def test_two_requests_come_and_a_tick() -> None:
    result = first_of("reference", True)
    assert (result.finding, result.setup.policy) == (None, "timeout")
    assert result.setup.stored == ((1, 2), (5, 6))
    assert [str(step) for step in result.steps] == ["submit('a', (1, 2))", "submit('b', (5, 6))", "tick()", "settle()"]
    assert result.outcomes["fetched: all"] == 2
    assert all(choice < count for choice, count in zip(result.choices, result.counts, strict=True))


def test_whose_storage_cannot_be_filled_is_asked_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bare.py").write_text(
        "from toy_adapter import ToyAdapter\n"
        "class Bare(ToyAdapter):\n"
        "    packages = ('bare', 'toy_adapter', 'toy_fork')\n"
        "    def capabilities(self): return ('settle',)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    result = first_of("bare:Bare", False)
    assert result.setup.stored == ()
    assert [str(step) for step in result.steps] == ["submit('a', (1, 2))", "submit('b', (5, 6))", "tick()", "settle()"]


# ---- what is found


@pytest.mark.heavy
def test_a_race_takes_one_preemption_and_is_replayed(tmp_path: Path) -> None:
    bare = exhaustive(RACE, "best_effort", search={"preemptions_max": 0})
    assert (bare.code, bare.keys["findings"], bare.keys["preemptions_max"]) == (0, [], 0)

    found = exhaustive(RACE, "best_effort", search={"stop_at_first": True}, findings=tmp_path)
    (finding,) = found.keys["findings"]
    assert (found.code, finding["property"]) == (1, "io_land_page (§3.7.2)")
    assert finding["message"].startswith("the specification says: io_uncounted ")
    assert "at most 1, not all schedules; " in found.text
    again = ran(lambda screen: replay_command.run(ReplayOptions(tmp_path / f"{finding['id']}.json"), screen))
    assert (again.code, again.keys["finding"]["id"], again.keys["same_run"]) == (1, finding["id"], True)


@pytest.mark.heavy
def test_the_reference_passes_in_all_schedules_without_preemptions() -> None:
    search = exhaustive("reference", "wait_complete", search={"preemptions_max": 0})
    keys = search.keys
    assert (search.code, keys["findings"]) == (0, [])
    assert keys["schedules"] > keys["cut"] > 0
    assert keys["schedules"] - keys["cut"] >= keys["distinct_traces"] > 10
    assert keys["asleep"] > 0
    assert keys["spec_states"] > 10
    assert f"schedules    {keys['schedules']:,} on 1 rank, wait_complete; " in search.text
    cut = f"{keys['cut']:,} of them cut where the rest is known, {keys['asleep']:,} steps not tried"
    assert f"preemptions  at most 0, all schedules; {cut}\n" in search.text


@pytest.mark.heavy
def test_policies_are_shared_among_processes(exhaustive_fork: Callable[..., Ran]) -> None:
    both = ("best_effort", "timeout")
    together, shared = (exhaustive_fork("", *both, jobs=jobs).keys for jobs in (1, 5))
    alone = [exhaustive_fork("", policy).keys for policy in both]
    for key in ("schedules", "cut", "asleep", "distinct_traces"):
        assert together[key] == shared[key] == sum(keys[key] for keys in alone), key
    assert together["distinct_traces"] > 4


# ---- when it was not all


@pytest.mark.heavy
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_budget_is_no_pass(jobs: int, exhaustive_fork: Callable[..., Ran]) -> None:
    cut = exhaustive_fork("", "best_effort", "timeout", search={"schedules": 3}, jobs=jobs)
    assert (cut.code, cut.keys["schedules"], cut.keys["findings"]) == (3, 3, [])
    assert "at most 1, not all schedules; " in cut.text


@pytest.mark.heavy
def test_a_policy_for_which_nothing_is_left_is_missed(exhaustive_fork: Callable[..., Ran]) -> None:
    """Without threads there is one schedule a policy."""
    alone = "    def workers(self): return 0\n"
    both, one = (exhaustive_fork(alone, "best_effort", "timeout", search={"schedules": n}, jobs=2) for n in (2, 1))
    assert [(ran.code, ran.keys["schedules"]) for ran in (both, one)] == [(0, 2), (3, 1)]


@pytest.mark.heavy
def test_a_budget_that_is_just_enough_is_enough(exhaustive_fork: Callable[..., Ran]) -> None:
    """Also one of time that is not used up: all is all."""
    every = exhaustive_fork(search={"seconds_max": 200.0})
    count = every.keys["schedules"]
    just, fewer = (exhaustive_fork(search={"schedules": n}) for n in (count, count - 1))
    assert (every.code, just.code, fewer.code) == (0, 0, 3)
    assert just.keys["schedules"] == count


@pytest.mark.heavy
def test_time_that_is_up_is_no_pass() -> None:
    cut = exhaustive("reference", "timeout", search={"preemptions_max": 2, "seconds_max": 3.0})
    assert (cut.code, cut.keys["findings"]) == (3, [])
    assert cut.keys["schedules"] > 0
    assert "not all schedules" in cut.text


@pytest.mark.heavy
def test_a_target_that_does_something_else_each_time_is_an_error(exhaustive_fork: Callable[..., Ran]) -> None:
    refused = exhaustive_fork("    def workers(self): return 2 + Fork.resets % 2\n")
    assert refused.code == 2
    assert refused.text.startswith("fork:Fork does not do the same again, so not all can be tried: at switch ")
    assert "\n" not in refused.text


@pytest.mark.heavy
def test_after_a_crash_nobody_says_that_this_was_all(exhaustive_fork: Callable[..., Ran]) -> None:
    ran = exhaustive_fork("    def workers(self): return 2 if Fork.resets < 4 else os.abort()\n")
    (finding,) = ran.keys["findings"]
    assert (ran.code, finding["property"]) == (1, "P31 the process survives")
    assert "in schedule 2" in finding["message"], "after one to see what it can, two were run to their ends"
    assert "not all schedules" in ran.text


def test_real_threads_cannot_be_searched() -> None:
    refused = exhaustive("reference", "timeout", search={"mode": "threads"})
    assert (refused.code, refused.text) == (
        2,
        "--strategy exhaustive chooses every switch, so it is for --mode simulate",
    )


def test_half_a_program_is_not_searched() -> None:
    refused = exhaustive("reference", "timeout", search={"steps_max": 3, "schedules": 1})
    assert (refused.code, refused.text) == (
        2,
        "--strategy exhaustive has a program of 4 steps: --steps must allow them",
    )
