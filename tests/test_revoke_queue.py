"""The older drain as a variant of the reference: all that an operation can meet, and where the two designs differ."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import test_cache
from cache_scenario import Scenario, tokens
from hicache_impl.adapter import Reference
from hicache_impl.audit import LOCKSTEP_KEYS
from hicache_impl.tick_cost import RANKS, TICKS_A_ROUND, VARIANTS, measure_tick_cost
from hicache_impl.variants.revoke_queue import RevokingCache, RevokingController

ROOT = Path(__file__).resolve().parents[1]
REVOKE_QUEUE: dict[str, Any] = {"cache_class": RevokingCache, "controller_class": RevokingController}
SCENARIO = REVOKE_QUEUE


# What holds of the reference holds of the variant, but for the order within a tick.


class TestDrain(test_cache.TestDrain):
    def test_hits_are_drained_in_order(self, scenario: Callable[..., Scenario]) -> None:
        """And revokes before them, also in order."""
        s = scenario()
        for name, stored in (("a", 5), ("b", 0), ("c", 2), ("d", 1)):
            s.submit(name, tokens(ord(name), 5), stored=stored)
        s.turn()
        drained = [(event.op, event.kind) for event in s.events("allocated", "revoked")]
        assert drained == [
            (("b", 1), "revoked"),
            (("d", 1), "revoked"),
            (("a", 1), "allocated"),
            (("c", 1), "allocated"),
        ]
        s.reference.settle()
        s.reference.poll(["a", "c"])


class TestSubmit(test_cache.TestSubmit):
    pass


class TestPolicies(test_cache.TestPolicies):
    pass


class TestAbortAndStop(test_cache.TestAbortAndStop):
    pass


class TestPublish(test_cache.TestPublish):
    pass


class TestQueryThread:
    def test_it_revokes_what_is_not_worth_it(self, scenario: Callable[..., Scenario]) -> None:
        s = scenario()
        s.submit("a", tokens(1, 3))
        s.submit("b", tokens(2, 3), stored=1)
        s.reference.settle()
        queues = [seen["queues"] for seen in s.reference.observe()["ranks"]]
        assert [(q["hit"], q["revoke"]) for q in queues] == [(1, 1)] * len(s.ranks)
        s.turn()
        s.poll("a")

    def test_it_revokes_what_was_stopped_before_it_asked(self, scenario: Callable[..., Scenario]) -> None:
        s = scenario()
        s.runtime.hold("query.take")
        s.submit("a", tokens(1, 3))
        s.reference.stop("a")
        s.runtime.release("query.take")
        s.reference.settle()
        assert s.reference.observe()["ranks"][0]["queues"]["revoke"] == 1
        s.turn()
        assert s.ends() == [(("a", 1), "revoked", "stopped")]

    def test_a_stop_that_comes_later_is_left_to_the_scheduler(self, scenario: Callable[..., Scenario]) -> None:
        """Where ranks are at different points, only the agreed hit is the same for all query threads."""
        s = scenario()
        s.runtime.hold("query.agreed", s.ranks[-1])
        s.submit("a", tokens(1, 3))
        s.reference.settle()
        s.reference.stop("a")
        s.runtime.release("query.agreed", s.ranks[-1])
        s.reference.settle()
        assert [seen["queues"]["hit"] for seen in s.reference.observe()["ranks"]] == [1] * len(s.ranks)
        s.turn()
        assert s.ends() == [(("a", 1), "revoked", "stopped")]

    def test_a_revoke_of_an_aborted_operation_is_skipped(self, scenario: Callable[..., Scenario]) -> None:
        s = scenario()
        s.submit("a", tokens(1, 3), stored=0)
        s.reference.settle()
        s.reference.abort("a")
        s.submit("a", tokens(2, 3), stored=0)
        s.turn()
        assert [event.op for event in s.events("skipped")] == [("a", 1)]
        assert s.ends() == [(("a", 1), "revoked", "aborted"), (("a", 2), "revoked", "below_threshold")]


# The founding counterexamples (spec/EQUIVALENCE.md), on threads.


def hit_then_miss(builds: dict[str, Any], threshold_pages: int) -> Scenario:
    """4 host pages, 2 of them resident. `a` hits 4; `b` misses, and protects the resident node until it is revoked."""
    s = Scenario(**builds, host_pages=4, threshold_pages=threshold_pages, ranks=2)
    s.reference.prefill(tokens(9, 2))
    s.reference.quiesce()
    s.reference.evict_device(2)
    s.submit("a", tokens(1, 4))
    s.submit("b", [*tokens(9, 2), *tokens(2, 3)], stored=2)
    s.turn()
    return s


def decisions(s: Scenario) -> list[tuple[Any, ...]]:
    return [
        (event.kind, event.op and event.op[0], event.data.get("pages", event.data.get("reason")))
        for event in s.events("allocated", "revoked", "evicted")
    ]


class TestOneTick:
    def test_the_older_design_fetches_everything(self) -> None:
        s = hit_then_miss(REVOKE_QUEUE, threshold_pages=2)
        assert decisions(s) == [("revoked", "b", "below_threshold"), ("evicted", None, 2), ("allocated", "a", 4)]
        assert s.poll("a") == (True, "fetched", "complete", 4)
        assert s.reference.prefill(tokens(9, 2)).host_pages == 0
        s.finish()

    def test_the_newer_one_a_shorter_prefix(self) -> None:
        s = hit_then_miss({}, threshold_pages=2)
        assert decisions(s) == [("allocated", "a", 2), ("revoked", "b", "below_threshold")]
        assert s.poll("a") == (True, "fetched", "complete", 2)
        assert s.reference.prefill(tokens(9, 2)).host_pages == 2
        s.finish()

    @pytest.mark.parametrize(("builds", "fetched"), [({}, 0), (REVOKE_QUEUE, 4)], ids=["newer", "older"])
    def test_or_nothing_when_a_shorter_one_is_not_worth_it(self, builds: dict[str, Any], fetched: int) -> None:
        s = hit_then_miss(builds, threshold_pages=3)
        assert s.poll("a")[3] == fetched
        s.finish()


@pytest.mark.parametrize(("builds", "fetched"), [({}, 1), (REVOKE_QUEUE, 2)], ids=["newer", "older"])
def test_three_requests_show_it_in_the_outcomes(builds: dict[str, Any], fetched: int) -> None:
    """The run of EQUIVALENCE.md, section 2: the first request holds memory until the protecting one is there."""
    s = Scenario(**builds, host_pages=2, threshold_pages=1, ranks=2)
    s.reference.prefill(tokens(9, 1))
    s.reference.quiesce()
    s.reference.evict_device(1)
    prompt = tokens(1, 2)
    s.runtime.hold("query.take")
    s.submit("a", prompt)
    s.submit("b", prompt)
    s.submit("c", [*tokens(9, 1), 5], stored=0)
    s.reference.settle()
    s.runtime.step("query.take")
    s.turn()
    s.runtime.release("query.take")
    s.reference.settle()
    assert s.poll("a") == (True, "fetched", "complete", 1)
    s.turn()
    assert s.poll("b") == (True, "fetched", "complete", fetched)
    assert s.ends()[1][:2] == (("c", 1), "revoked")
    s.finish()


# Without pressure on host memory they cannot be told apart by anything that is asked or observed between ticks.

rids = st.sampled_from("abc")
prompts = st.tuples(st.integers(1, 2), st.integers(1, 5)).map(lambda drawn: tokens(*drawn))
steps = st.one_of(
    st.tuples(st.just("submit"), rids, prompts),
    st.tuples(st.just("store"), prompts),
    st.tuples(st.just("prefill"), prompts),
    st.tuples(st.sampled_from(["abort", "stop"]), rids),
    st.tuples(st.just("poll"), st.just(["a", "b", "c"])),
    st.tuples(st.just("tick")),
    st.tuples(st.just("tick")),
)


@settings(max_examples=60)
@given(st.lists(steps, max_size=20))
def test_with_ample_memory_they_are_alike(program: list[tuple[Any, ...]]) -> None:
    both = [Scenario(**builds, host_pages=200, device_pages=99, ranks=2) for builds in ({}, REVOKE_QUEUE)]
    for name, *arguments in program:
        answers = []
        for s in both:
            answer = getattr(s.reference, name)(*arguments)
            s.reference.settle()
            seen = s.reference.observe()
            answers.append((answer, {key: seen[key] for key in LOCKSTEP_KEYS}))
        assert answers[0] == answers[1]
    ended = [sorted(s.ends()) for s in both]
    assert ended[0] == ended[1]
    for s in both:
        s.finish()


# What it is called, and what it costs.


def registered(group: str, name: str) -> Any:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    module, _, attribute = project["entry-points"][group][name].partition(":")
    return getattr(import_module(module), attribute)


def test_the_adapter_of_the_variant() -> None:
    reference = registered("hicheck.targets", "reference.revoke_queue")()
    reference.reset({"host_pages": 4, "device_pages": 4, "ranks": 2})
    assert isinstance(reference, Reference)
    assert all(isinstance(cache, RevokingCache) for cache in reference.caches)
    reference.flush()
    assert [seen["queues"]["revoke"] for seen in reference.observe()["ranks"]] == [0, 0]
    reference.close()


def test_the_cost_of_a_tick() -> None:
    assert registered("hicheck.benchmarks", "tick_cost") is measure_tick_cost
    rows = measure_tick_cost(rounds=1, operations=3)
    assert [(row["ranks"], row["tick"], row["variant"]) for row in rows] == [
        (ranks, tick, variant) for ranks in RANKS for tick in TICKS_A_ROUND for variant in VARIANTS
    ]
    for row in rows:
        assert row["agreed_counts"] == (3 if row["variant"] == "reference" else 4)
        assert row["operations"] == (0 if row["tick"] == "idle" else 3)
        assert row["ticks"] == TICKS_A_ROUND[row["tick"]]
        assert 0 < row["us_min"] <= row["us_median"]
    cost = {(row["ranks"], row["tick"], row["variant"]): row["us_min"] for row in rows}
    for ranks in RANKS:
        for variant in VARIANTS:
            assert cost[ranks, "idle", variant] < cost[ranks, "revoke", variant], (
                "what is drained costs more than nothing"
            )
