"""All trees under the same checks: what a caller can do, under simulation and at gates, and the three side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import pytest

import test_cache
from cache_scenario import Scenario
from hicache_checks.conformance.observation import checked
from hicache_checks.conformance.program import Setup, Step
from hicache_checks.conformance.schedule import run_schedule, run_script
from hicache_checks.conformance.stateful import run_stateful
from hicache_checks.conformance.target import opened
from hicache_checks.simulation.choices import Seeded
from hicache_impl.adapter import Reference
from hicache_impl.targets import BESIDE, DRAFT, PACKED, STATE, WINDOW
from hicache_impl.trees import TREES

POLICIES = ("wait_complete", "best_effort", "timeout")
SCHEDULES = 40
EXAMPLES = 40
SEEDS = 12
ENDS = ("allocated", "fetched", "revoked")

# What must have happened in the programs: a check of nothing is no check.
HAPPENED = (
    *("allocated", "fetched: all", "fetched: failed_page", "revoked: below_threshold", "revoked: aborted"),
    *("evicted", "written", "stored", "loaded", "reclaimed", "io_released"),
)


# --- what holds of the pages does not depend on the tree -----------------------------------------------------------

WITH_SIDECARS = [{"tree": tree, "pools": [DRAFT, PACKED]} for tree in TREES]


@pytest.fixture(params=WITH_SIDECARS, ids=lambda model: model["tree"])
def scenario(request: pytest.FixtureRequest) -> Iterator[Callable[..., Scenario]]:
    """Makes scenarios of a tree with sidecars and audits each at the end."""
    made: list[Scenario] = []

    def make(**config: Any) -> Scenario:
        made.append(Scenario(ranks=2, **request.param, **config))
        return made[-1]

    yield make
    for each in made:
        each.finish()


class TestDrain(test_cache.TestDrain):
    pass


class TestSubmit(test_cache.TestSubmit):
    pass


class TestPolicies(test_cache.TestPolicies):
    pass


class TestAbortAndStop(test_cache.TestAbortAndStop):
    pass


# --- at gates ------------------------------------------------------------------------------------------------------


@pytest.mark.heavy
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("tree", BESIDE)
def test_every_program_at_gates_is_explained(tree: str, ranks: int) -> None:
    outcomes: set[str] = set()
    *_, most = BESIDE[tree].values()
    for policy in POLICIES:
        run = run_stateful(lambda: Reference(settings={"tree": tree, "pools": most}), ranks, policy, EXAMPLES)
        assert run.failure is None, run.failure
        outcomes |= {name for name, times in run.outcomes.items() if times}
    assert outcomes >= {"allocated", "fetched: all", "revoked: below_threshold", "written", "stored", "loaded"}


# --- simulated -----------------------------------------------------------------------------------------------------


@pytest.mark.heavy
@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("target", ["sidecars", "hi_mamba", "unified"])
def test_every_schedule_is_explained(target: str, ranks: int) -> None:
    outcomes: set[str] = set()
    with opened(f"hicache_impl.targets:{target}", simulate=True) as simulated:
        for seed in range(SCHEDULES):
            result = run_schedule(simulated.build, ranks, POLICIES[seed % len(POLICIES)], Seeded(seed))
            assert result.finding is None, f"seed {seed}: {result.finding}"
            outcomes |= {name for name, times in result.outcomes.items() if times}
    assert outcomes >= set(HAPPENED[:1] if ranks == 3 else HAPPENED)


# --- side by side --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Life:
    """All that is to be seen of a schedule: who ran when, what was asked, what each rank logged and counted."""

    steps: tuple[str, ...]
    trace: tuple[tuple[str, str], ...]
    logs: tuple[tuple[str, ...], ...]
    counters: tuple[Mapping[str, Any], ...]


def build_of(tree: str, pools: Sequence[Mapping[str, Any]], built: list[Any]) -> Callable[[], Any]:
    """Builds the reference with this tree, and keeps what it built."""

    def build() -> Any:
        # By name, because only what is imported now is simulated.
        adapter, runtime = import_module("hicache_impl.adapter"), import_module("hicache_impl.runtime")
        settings = {"tree": tree, "pools": pools}
        built.append(adapter.Reference(runtime=runtime.ThreadRuntime(), settings=settings))
        return built[-1]

    return build


def life(tree: str, pools: tuple[dict[str, Any], ...], ranks: int, policy: str, seed: int) -> Life:
    """One schedule on this tree, drawn from the seed alone."""
    targets: list[Any] = []
    result = run_schedule(build_of(tree, pools, targets), ranks, policy, Seeded(seed))
    assert result.finding is None, f"{tree}, seed {seed}: {result.finding}"
    (target,) = targets
    logs = tuple(tuple(map(str, checked(log.take_since(0)))) for log in target.logs())
    return Life(tuple(map(str, result.steps)), tuple(result.trace), logs, tuple(target.counters()))


SIDE_BY_SIDE: dict[str, tuple[tuple[str, ...], tuple[dict[str, Any], ...]]] = {
    "pages": (("hiradix", "hi_mamba", "unified"), ()),
    "a sidecar": (("hiradix", "hi_mamba", "unified"), (DRAFT,)),
    "packed and separate": (("hiradix", "hi_mamba", "unified"), (PACKED, DRAFT)),
    "states": (("hi_mamba", "unified"), (STATE,)),
    "states and a sidecar": (("hi_mamba", "unified"), (DRAFT, {**STATE, "host_slots": 2, "device_slots": 1})),
}


@pytest.mark.heavy
@pytest.mark.parametrize("pools", SIDE_BY_SIDE)
def test_the_same_schedule_has_the_same_life_on_every_tree(pools: str) -> None:
    trees, beside = SIDE_BY_SIDE[pools]
    events = 0
    with opened("hicache_impl.targets:reference", simulate=True):
        for seed in range(SEEDS):
            ranks, policy = 1 + seed % 3, POLICIES[seed // 3 % 3]
            first, *others = (life(tree, beside, ranks, policy, seed) for tree in trees)
            assert all(other == first for other in others), f"seed {seed}"
            events += sum(map(len, first.logs))
    assert events > 50 * SEEDS


PROMPTS = ((1, 2, 3), (5, 6), (1, 9, 3, 4), (7, 7, 8))
WORKLOAD = (
    *(Step("submit", (rid, prompt)) for rid, prompt in zip("abc", PROMPTS, strict=False)),
    *(Step("settle"), Step("turn"), Step("settle"), Step("turn")),
    *(Step("prefill", (PROMPTS[0],)), Step("evict_device", (3,)), Step("submit", ("a", PROMPTS[3]))),
    *(Step("settle"), Step("turn"), Step("settle"), Step("abort", ("a",)), Step("fetch", (PROMPTS[1], PROMPTS[3]))),
    *(Step("settle"), Step("turn"), Step("settle"), Step("turn")),
)
"""Everybody has the time that he needs after each call, so that nothing that is compared depends on who is first."""


@pytest.mark.heavy
@pytest.mark.parametrize("ranks", [1, 2])
def test_with_room_for_all_states_every_request_ends_as_without(ranks: int) -> None:
    """Each prompt was stored with its state, nothing fails, no pool is short: only when pages land differs."""
    ends: dict[str, list[Any]] = {}
    with opened("hicache_impl.targets:reference", simulate=True):
        for tree, pools in (("hiradix", ()), ("hi_mamba", (STATE,)), ("unified", (WINDOW, STATE))):
            targets: list[Any] = []
            setup = Setup(ranks=ranks, host_pages=16, stored=PROMPTS)
            result = run_script(build_of(tree, pools, targets), setup, WORKLOAD, Seeded(1))
            assert result.finding is None, result.finding
            events = [event for event in checked(targets[0].logs()[0].take_since(0)) if event.kind in ENDS]
            ends[tree] = [(event.kind, event.op, event.data.get("pages")) for event in events]
    assert ends["hiradix"] == ends["hi_mamba"] == ends["unified"]
    assert [end for end in ends["unified"] if end[0] == "fetched"] == [
        ("fetched", ("a", 1), 3),
        ("fetched", ("b", 1), 2),
        ("fetched", ("c", 1), 4),
        ("fetched", ("b", 2), 3),
    ]
