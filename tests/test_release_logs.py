"""Releases that log what they do: every event is told, and explained by a step of the specification, or refuted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from hicache_checks.conformance import scenario as scenarios
from hicache_checks.conformance.judges import built
from hicache_checks.conformance.merge import Merger
from hicache_checks.conformance.monitor import Finding, Monitor, MonitorConfig
from hicache_checks.conformance.observation import checked
from hicache_checks.conformance.program import Setup, Step
from hicache_checks.conformance.schedule import Result, run_script
from hicache_checks.conformance.target import Target, is_logged, kind_of, opened
from hicache_checks.conformance.white_box import WhiteBox
from hicache_checks.reporting import InputError
from hicache_checks.simulation.choices import Plainest, Seeded
from hicache_checks.simulation.strategies import Walk
from hicache_checks.targets.sglang.adapter import RankLog
from hicache_checks.targets.sglang.crews import Hung, ThreadDied
from hicache_checks.targets.sglang.event_log import EventLog, beside
from release_under_test import Driven, have, release

LOGGED, REVOKING = "sglang[events]==0.5.18", "sglang[events]==0.5.17"
PROMPT, OTHER = (1, 2, 3), (5, 6, 7)
POLICIES = ("best_effort", "wait_complete", "timeout")
COLLECTIVES = ("joined", "left")
FETCHED = [
    *("submitted", "query_taken", "query_asked", "query_agreed", "query_put", "allocated"),
    *("io_started", "io_landed") * 3,
    *("marked", "fetched"),
]


def explained(logs: Sequence[Any], policy: str = "wait_complete") -> Finding | None:
    """Hold whole logs to the specification."""
    monitor, merger = Monitor(MonitorConfig(len(logs), 6, 1, 16, policy)), Merger(len(logs))
    for rank, log in enumerate(logs):
        merger.push(rank, checked(log.take_since(0)))
    for event in merger.ready():
        monitor.feed(event)
    assert not merger.stuck()
    monitor.finish()
    return monitor.finding


def kinds(log: Any) -> list[str]:
    """What happened, but for collectives."""
    return [event.kind for event in log.take_since(0) if event.kind not in COLLECTIVES]


def played(target: Target, steps: Sequence[Step], setup: Setup, choices: Seeded | Plainest) -> Result:
    strategy = Walk(choices.random) if isinstance(choices, Seeded) else None
    return run_script(target.build, setup, steps, choices, strategy, judge=target.judge)


def test_events_are_asked_for_in_brackets() -> None:
    assert (kind_of(LOGGED), is_logged(LOGGED)) == (("sglang==0.5.18", None), True)
    assert kind_of("sglang[unified,events]==0.5.18") == ("sglang==0.5.18", "unified")
    assert is_logged("sglang[unified,events]==0.5.18")
    assert not is_logged("sglang[unified]==0.5.18")
    assert not is_logged("sglang==0.5.18")


def test_whoever_stands_beside_a_method_sees_its_calls() -> None:
    class Cache:
        def load(self, pages: int) -> int:
            return 2 * pages

    cache, seen = Cache(), []

    def around(original: Callable[[int], int], pages: int) -> int:
        seen.append(pages)
        return original(pages)

    beside(cache, "load", around)
    assert (cache.load(3), seen) == (6, [3])


def test_attempts_nodes_and_collectives_are_numbered_until_everything_begins_again() -> None:
    class Request:
        request_id = "a"

    log, root, leaf = EventLog(), object(), object()
    first, second = Request(), Request()
    assert [log.begin(operation).id for operation in (first, second)] == [("a", 1), ("a", 2)]
    assert (log.of(first), log.of(object())) == (log.of(first), None)
    assert [log.node(node) for node in (root, leaf, root)] == [0, 1, 0]
    for _ in range(2):
        with log.meeting("sched", "min"):
            pass
    assert [(kind, data["number"]) for kind, _, data in log.since(1)] == [("left", 0), ("joined", 1), ("left", 1)]
    log.restart()
    assert (log.since(0), log.of(first), log.next_attempt("a"), log.node(leaf)) == ([], None, ("a", 1), 0)


class Gone:
    """A crew of whose ranks nothing more can be heard."""

    def __init__(self, why: Exception) -> None:
        self._why = why

    def one(self, *_: object) -> None:
        raise self._why


def test_whoever_died_while_the_log_was_read_is_in_it() -> None:
    died = RankLog(cast("Any", Gone(ThreadDied("P31 the process of rank 1 died"))), 1).take_since(4)
    assert [(event.rank, event.kind, event.data["error"]) for event in checked(died)] == [
        (1, "died", "P31 the process of rank 1 died")
    ]
    assert RankLog(cast("Any", Gone(Hung("P2 tick does not return"))), 1).take_since(4) == []


@pytest.mark.heavy
@pytest.mark.parametrize(("name", "ranks"), [(LOGGED, 1), (LOGGED, 2), (REVOKING, 2)])
def test_a_plain_fetch_is_told_event_by_event(name: str, ranks: int) -> None:
    def fetch(adapter: Any, rest: Callable[..., None], seen: dict[str, Any]) -> None:
        adapter.store(PROMPT)
        adapter.submit("a", PROMPT)
        rest()
        adapter.poll(["a"])
        seen["kinds"] = [kinds(log) for log in adapter.logs()]
        seen["finding"] = explained(adapter.logs())
        seen["published"] = [event for event in adapter.logs()[0].take_since(0) if event.kind == "fetched"]
        adapter.flush()
        seen["later"] = [kinds(log) for log in adapter.logs()]

    with release(name) as target:
        seen = Driven(target, ranks).run(fetch)
    assert seen["kinds"] == [FETCHED] * ranks
    assert seen["finding"] is None
    (published,) = seen["published"]
    assert (published.op, published.data) == (("a", 1), {"pages": 3, "known": 0, "reason": "complete"})
    assert seen["later"] == [[]] * ranks


@pytest.mark.heavy
def test_whatever_order_the_threads_run_in_is_explained() -> None:
    """Two requests at a time, of which one leaves, and a store that is let go of: with two IO threads, too."""
    steps = [
        Step("store", (PROMPT,)),
        Step("store", (OTHER,)),
        Step("submit", ("a", PROMPT)),
        Step("submit", ("b", OTHER)),
        Step("turn"),
        Step("abort", ("b",)),
        Step("turn"),
        Step("settle"),
        Step("turn"),
        Step("settle"),
        Step("reattach"),
        Step("prefill", ((*PROMPT, 4),)),
        Step("fetch", (OTHER,)),
    ]
    with release(LOGGED) as target:
        results = [
            played(target, steps, Setup(2, policy), Seeded(f"{policy}/{n}")) for policy in POLICIES for n in range(4)
        ]
    assert [str(result.finding) for result in results if result.finding is not None] == []
    assert sum(result.outcomes["fetched: policy"] for result in results) > 0
    assert len({result.digest for result in results}) == len(results)


@pytest.mark.heavy
def test_what_is_not_worth_fetching_comes_by_the_revoke_queue() -> None:
    """Of the requests one is missed, one leaves before it is looked up, and a store is let go of before the drain."""
    steps = [
        Step("submit", ("a", PROMPT)),
        Step("submit", ("b", OTHER)),
        Step("abort", ("b",)),
        Step("settle"),
        Step("turn"),
        Step("submit", ("b", PROMPT)),
        Step("reattach"),
    ]
    with release(REVOKING) as target:
        assert target.profile == "revoke_queue"
        results = [played(target, steps, Setup(2), Seeded(f"{n}")) for n in range(4)]
    assert [str(result.finding) for result in results if result.finding is not None] == []
    assert all(result.outcomes["revoked: below_threshold"] and result.outcomes["skipped"] for result in results)


@pytest.mark.heavy
def test_a_stale_hit_is_refuted_where_it_is_drained() -> None:
    scenario = scenarios.read("B43c-stale-hit-at-drain")
    with release(LOGGED) as target:
        found = played(target, scenario.program, scenario.setup, Plainest()).finding
    assert found is not None
    assert (found.property, found.message) == (
        "step_drain_decides_its_own_attempt",
        "the next answer on rank 0 is that of a#1",
    )
    assert "revoked a#2 reason=stopped by=drain" in found.place


@pytest.mark.heavy
def test_a_death_is_told_before_anything_that_follows_from_it() -> None:
    steps = [Step("break_storage", (0, "put", "raise")), Step("prefill", (PROMPT,)), Step("tick"), Step("flush")]
    with release(LOGGED) as target:
        found = played(target, steps, Setup(2), Plainest()).finding
    assert found is not None
    assert found.property == "P31 threads_survive"
    assert "the backup thread died: StorageFault" in found.message


@pytest.mark.heavy
def test_what_the_specification_has_no_steps_for_is_not_logged() -> None:
    def followed(adapter: Any, **told: Any) -> bool:
        adapter.reset(Setup(1, more=tuple(told.items())).config())
        return "events" in adapter.capabilities()

    def ask(adapter: Any, rest: Callable[..., None], seen: dict[str, Any]) -> None:
        seen["followed"] = [
            followed(adapter),
            followed(adapter, write_policy="write_back"),
            followed(adapter, limit_pages=0),
        ]

    with release(LOGGED) as target:
        assert Driven(target, 1).run(ask)["followed"] == [True, False, False]


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["sglang[events]==0.5.23", "sglang[unified,events]==0.5.18"])
def test_a_release_that_cannot_be_followed_is_a_usage_error(name: str) -> None:
    have(name)
    with pytest.raises(InputError, match="cannot be told"), opened(name, simulate=True):
        pass


@pytest.mark.slow
def test_real_ranks_log_what_they_do() -> None:
    with release(LOGGED, simulate=False) as target:
        adapter = built(target.build)
        adapter.reset(Setup(2).config())
        judge = WhiteBox(adapter, Setup(2))
        for step in [Step("store", (PROMPT,)), Step("submit", ("a", PROMPT)), *[Step("settle"), Step("tick")] * 3]:
            judge.before(step, 0.0)
            judge.after(step, getattr(adapter, step.kind)(*step.args), 0.0)
        assert adapter.poll(["a"])["a"]["ready"]
        logs = adapter.logs()
        assert [kinds(log) for log in logs] == [FETCHED] * 2
        assert explained(logs) is None
        adapter.close()
