"""One operation after another through the threads: each outcome of the drain, each policy, each way to end early."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cache_scenario import Scenario, tokens
from mutant_case import bad_page


class TestDrain:
    def test_exact_allocation(self, scenario: Callable[..., Scenario]) -> None:
        s = scenario()
        s.submit("a", tokens(1, 5), stored=4)
        s.turn()
        assert [event.data for event in s.events("allocated")] == [{"pages": 4, "hit": 4, "evictable": 0, "free": 4}]
        assert s.poll("a") == (True, "fetched", "complete", 4)
        assert s.reference.poll(["a"])["a"]["state"] is None, "an operation ends once"

    def test_below_threshold(self, scenario: Callable[..., Scenario]) -> None:
        s = scenario()
        s.submit("a", tokens(1, 5), stored=1)
        s.turn()
        assert s.ends() == [(("a", 1), "revoked", "below_threshold")]
        assert s.poll("a") == (True, None, None, 0)
        assert s.free() == 8

    def test_a_miss_evicts_nothing(self, scenario: Callable[..., Scenario]) -> None:
        s = scenario()
        s.fetch("a", tokens(1, 7))
        s.submit("b", tokens(2, 7), stored=0)
        s.turn()
        assert s.events("evicted") == []

    def test_evict_and_retry(self, scenario: Callable[..., Scenario]) -> None:
        s = scenario()
        s.fetch("a", tokens(1, 3))
        s.fetch("b", tokens(2, 4))
        s.fetch("c", tokens(3, 3))
        assert [event.data["pages"] for event in s.events("evicted")] == [3], "the oldest, and no more than needed"
        assert s.reference.observe()["resident_pages"] == 7

    def test_shorter_prefix(self, scenario: Callable[..., Scenario]) -> None:
        s = scenario()
        s.runtime.hold("io.take")
        s.submit("a", tokens(1, 5))
        s.submit("b", tokens(2, 6))
        s.turn()
        assert [event.data for event in s.events("allocated")] == [
            {"pages": 5, "hit": 5, "evictable": 0, "free": 3},
            {"pages": 3, "hit": 6, "evictable": 0, "free": 0},
        ]
        s.runtime.release("io.take")
        s.turn()
        assert s.poll("b") == (True, "fetched", "complete", 3)
        assert s.poll("a") == (True, "fetched", "complete", 5)

    def test_no_memory_evicts_nothing_in_vain(self, scenario: Callable[..., Scenario]) -> None:
        s = scenario(threshold_pages=3)
        s.reference.prefill(tokens(9, 1))
        s.reference.evict_device(1)
        s.turn()
        s.runtime.hold("io.take")
        s.submit("a", tokens(1, 6))
        s.submit("b", tokens(2, 5))
        s.turn()
        assert s.ends() == [(("b", 1), "revoked", "no_memory")]
        assert s.events("revoked")[0].data == {"reason": "no_memory", "by": "drain", "evictable": 1, "free": 1}
        assert s.events("evicted") == []
        s.runtime.release("io.take")
        s.reference.settle()
        assert s.poll("a") == (True, "fetched", "complete", 6)

    def test_the_anchor_of_a_pending_operation_is_not_evicted(self, scenario: Callable[..., Scenario]) -> None:
        s = scenario(threshold_pages=3)
        s.fetch("old", tokens(9, 4))
        s.runtime.hold("io.take")
        s.submit("child", [*tokens(9, 4), 1, 2, 3])
        s.submit("b", tokens(2, 5))
        s.turn()
        assert s.ends()[1:] == [(("b", 1), "revoked", "no_memory")]
        assert s.events("evicted") == []
        s.runtime.release("io.take")
        s.reference.settle()
        assert s.poll("child") == (True, "fetched", "complete", 3)

    def test_stopped_while_queued(self, scenario: Callable[..., Scenario]) -> None:
        s = scenario()
        s.runtime.hold("query.take")
        s.submit("a", tokens(1, 5))
        assert s.reference.stop("a")
        assert not s.reference.stop("a")
        assert not s.reference.stop("nobody")
        s.runtime.release("query.take")
        s.turn()
        assert s.ends() == [(("a", 1), "revoked", "stopped")]
        assert [event.data["hit"] for event in s.events("query_asked")] == [0]

    def test_unknown_request_is_skipped(self, scenario: Callable[..., Scenario]) -> None:
        s = scenario()
        s.submit("a", tokens(1, 5))
        s.reference.settle()
        assert s.reference.abort("a")
        s.turn()
        assert s.ends() == [(("a", 1), "revoked", "aborted")]
        assert [event.op for event in s.events("skipped")] == [("a", 1)]

    def test_hits_are_drained_in_order(self, scenario: Callable[..., Scenario]) -> None:
        s = scenario()
        s.submit("a", tokens(1, 5))
        s.submit("b", tokens(2, 5), stored=0)
        s.submit("c", tokens(3, 2))
        s.turn()
        drained = [(event.op, event.kind) for event in s.events("allocated", "revoked")]
        s.reference.settle()
        assert drained == [(("a", 1), "allocated"), (("b", 1), "revoked"), (("c", 1), "allocated")]
        assert set(s.reference.poll(["c", "a", "c", "b"])) == {"a", "b", "c"}


class TestSubmit:
    def test_reasons_to_decline(self, scenario: Callable[..., Scenario]) -> None:
        s = scenario(limit_pages=4)
        s.fetch("old", tokens(9, 3))
        s.runtime.hold("query.take")
        s.submit("a", tokens(1, 6))
        before = s.reference.observe()
        for rid, prompt, reason in [
            ("a", tokens(1, 6), "pending"),
            ("b", tokens(2, 1), "too_short"),
            ("c", tokens(9, 3), "too_short"),
            ("d", tokens(3, 6), "limited"),
        ]:
            assert s.reference.submit(rid, prompt)["reason"] == reason
        assert s.reference.observe()["operations"] == before["operations"]
        assert s.reference.observe()["occupied_pages"] == 6
        declined = [(event.op, event.data["reason"]) for event in s.events("declined")]
        assert declined[0] == (("a", 2), "pending")
        s.reference.abort("a")
        assert s.reference.submit("d", tokens(3, 6))["accepted"], "a larger span than the limit is admitted alone"
        assert s.reference.abort("d")

    def test_anchor_that_is_not_backed_up(self, scenario: Callable[..., Scenario]) -> None:
        s = scenario(host_pages=3)
        s.reference.prefill(tokens(1, 5))
        assert s.reference.submit("a", tokens(1, 9))["reason"] == "anchor"

    def test_the_chain_continues_the_anchor(self, scenario: Callable[..., Scenario]) -> None:
        s = scenario()
        prompt = tokens(1, 6)
        s.fetch("a", prompt[:3])
        s.submit("b", prompt)
        s.turn()
        assert s.poll("b") == (True, "fetched", "complete", 3)
        assert [event.data["base"] for event in s.events("submitted")] == [0, 3]

    def test_namespaces_do_not_share(self, scenario: Callable[..., Scenario]) -> None:
        one = scenario()
        one.reference.store(tokens(1, 4))
        other = scenario(namespace="adapter", storage=one.reference.faults[0].inner)
        other.reference.submit("a", tokens(1, 4))
        other.turn()
        assert other.ends() == [(("a", 1), "revoked", "below_threshold")]


class TestPolicies:
    def test_wait_complete_waits_for_the_verdict_and_the_pages(self, scenario: Callable[..., Scenario]) -> None:
        s = scenario(policy="wait_complete")
        s.runtime.hold("query.take")
        s.runtime.hold("io.copied")
        s.submit("a", tokens(1, 3))
        assert s.poll("a")[0] is False
        s.runtime.release("query.take")
        s.reference.settle()
        assert s.poll("a")[0] is False
        for _ in range(3):
            s.turn()
            assert s.poll("a")[0] is False
            s.runtime.step("io.copied")
        s.reference.settle()
        assert s.poll("a") == (True, "fetched", "complete", 3)

    def test_best_effort_before_the_verdict_fetches_nothing(self, scenario: Callable[..., Scenario]) -> None:
        s = scenario(policy="best_effort")
        s.runtime.hold("query.agreed")
        s.submit("a", tokens(1, 3))
        s.reference.settle()
        assert s.live("a") == ["queried"] * len(s.ranks)
        assert s.poll("a") == (True, "revoked", "stopped", 0)
        assert [event.data["by"] for event in s.events("revoked")] == ["poll"]
        s.runtime.release("query.agreed")
        s.turn()
        assert [event.op for event in s.events("skipped")] == [("a", 1)]

    @pytest.mark.parametrize("at_a_time", [1, 2])
    def test_best_effort_takes_what_landed(self, scenario: Callable[..., Scenario], at_a_time: int) -> None:
        s = scenario(policy="best_effort", read_batch_pages=at_a_time)
        s.runtime.hold("io.page")
        s.submit("a", tokens(1, 5))
        s.turn()
        for _ in range(2):
            s.runtime.step("io.page")
            s.reference.settle()
        assert s.poll("a") == (True, "fetched", "policy", 2 * at_a_time)
        assert s.free() == 3
        s.runtime.release("io.page")
        s.turn()
        assert s.free() == 8 - 2 * at_a_time

    def test_best_effort_takes_no_page_that_is_not_counted(self, scenario: Callable[..., Scenario]) -> None:
        s = scenario(policy="best_effort")
        s.runtime.hold("io.copied")
        s.submit("a", tokens(1, 3))
        s.turn()
        assert s.poll("a") == (True, "fetched", "policy", 0)
        s.runtime.release("io.copied")
        s.turn()
        assert [event.data for event in s.events("io_uncounted")] == [{"page": 0}]
        assert s.free() == 8

    def test_of_a_batch_counts_what_comes_before_the_first_that_fails(self, scenario: Callable[..., Scenario]) -> None:
        s = scenario(read_batch_pages=3)
        bad_page(s, tokens(1, 6), 4)
        s.submit("a", tokens(1, 6))
        s.turn()
        assert s.poll("a") == (True, "fetched", "failed_page", 4)
        assert [event.data["page"] for event in s.events("io_failed", rank=s.ranks[-1])] == [4]

    def test_timeout(self, scenario: Callable[..., Scenario]) -> None:
        s = scenario(policy="timeout", timeout_s_base=1, timeout_s_per_page=1, timeout_s_max=3.5)
        s.runtime.hold("io.page")
        s.submit("a", tokens(1, 2))
        s.turn()
        s.runtime.step("io.page")
        s.reference.settle()
        s.runtime.advance(3)
        assert s.poll("a")[0] is False
        s.runtime.advance(0.5)
        assert s.poll("a") == (True, "fetched", "policy", 1)

    def test_timeout_does_not_wait_when_complete(self, scenario: Callable[..., Scenario]) -> None:
        s = scenario(policy="timeout")
        s.submit("a", tokens(1, 2))
        s.turn()
        assert s.poll("a") == (True, "fetched", "complete", 2)

    def test_timeout_is_capped_and_ends_a_query(self, scenario: Callable[..., Scenario]) -> None:
        s = scenario(policy="timeout", timeout_s_base=1, timeout_s_per_page=1, timeout_s_max=2.5)
        s.runtime.hold("query.take")
        s.submit("a", tokens(1, 7))
        s.runtime.advance(2.6)
        assert s.poll("a") == (True, "revoked", "stopped", 0)


class TestAbortAndStop:
    @pytest.mark.parametrize("gate", ["query.take", "query.ask", "query.asked", "query.agreed"])
    def test_abort_before_memory(self, scenario: Callable[..., Scenario], gate: str) -> None:
        s = scenario()
        s.runtime.hold(gate)
        s.submit("a", tokens(1, 5))
        s.reference.settle()
        assert s.reference.abort("a")
        assert not s.reference.abort("a")
        assert s.free() == 8
        s.runtime.release(gate)
        s.turn()
        assert s.ends() == [(("a", 1), "revoked", "aborted")]
        assert [event.data["by"] for event in s.events("revoked")] == ["abort"]

    @pytest.mark.parametrize("gate", ["io.take", "io.page", "io.copied"])
    @pytest.mark.parametrize("landed", [0, 2])
    def test_abort_after_memory(self, scenario: Callable[..., Scenario], gate: str, landed: int) -> None:
        s = scenario()
        s.runtime.hold(gate)
        s.submit("a", tokens(1, 5))
        s.turn()
        for _ in range(landed):
            s.runtime.step(gate)
            s.reference.settle()
        assert s.reference.abort("a")
        assert s.reference.observe()["occupied_pages"] == 0
        s.turn()
        s.runtime.release(gate)
        s.turn()
        assert s.free() == 8
        assert s.ends() == [(("a", 1), "revoked", "aborted")]

    def test_abort_when_complete(self, scenario: Callable[..., Scenario]) -> None:
        s = scenario()
        s.submit("a", tokens(1, 5))
        s.turn()
        assert s.reference.abort("a")
        assert s.free() == 3
        s.turn()
        assert s.free() == 8

    def test_stop_after_memory_publishes_what_landed(self, scenario: Callable[..., Scenario]) -> None:
        s = scenario()
        s.runtime.hold("io.page")
        s.submit("a", tokens(1, 5))
        s.turn()
        s.runtime.step("io.page")
        s.reference.settle()
        assert s.reference.stop("a")
        assert s.live("a") == ["terminated"] * len(s.ranks)
        assert s.poll("a") == (True, "fetched", "stopped", 1)
        assert s.reference.counters()[0]["passed_terminated"] == 1

    def test_resubmitted_while_the_old_query_travels(self, scenario: Callable[..., Scenario]) -> None:
        s = scenario()
        s.runtime.hold("query.take")
        assert s.submit("a", tokens(1, 5)) == 1
        s.reference.abort("a")
        assert s.submit("a", tokens(2, 4)) == 2
        s.runtime.release("query.take")
        s.turn()
        assert [event.op for event in s.events("skipped")] == [("a", 1)]
        assert s.poll("a") == (True, "fetched", "complete", 4)

    def test_resubmitted_while_the_old_pages_travel(self, scenario: Callable[..., Scenario]) -> None:
        s = scenario()
        s.runtime.hold("io.copied")
        s.submit("a", tokens(1, 4))
        s.turn()
        s.runtime.step("io.copied")
        s.reference.settle()
        s.reference.abort("a")
        assert s.submit("a", tokens(1, 4)) == 2
        s.turn()
        s.runtime.release("io.copied")
        s.turn()
        assert s.poll("a") == (True, "fetched", "complete", 4)
        assert s.ends() == [(("a", 1), "revoked", "aborted"), (("a", 2), "fetched", "complete")]


class TestPublish:
    def test_pages_that_somebody_wrote_through_meanwhile_are_freed(self, scenario: Callable[..., Scenario]) -> None:
        s = scenario()
        s.runtime.hold("io.page")
        s.submit("a", tokens(1, 4))
        s.turn()
        s.reference.prefill(tokens(1, 3))
        s.runtime.release("io.page")
        s.turn()
        assert s.poll("a") == (True, "fetched", "complete", 4)
        assert [event.data["known"] for event in s.events("fetched")] == [3]
        assert s.free() == 4, "at once"

    def test_a_device_only_node_adopts(self, scenario: Callable[..., Scenario]) -> None:
        s = scenario(host_pages=4)
        s.runtime.hold("io.page")
        s.submit("a", tokens(1, 4))
        s.turn()
        s.reference.prefill(tokens(1, 3))
        assert s.events("written") == []
        s.runtime.release("io.page")
        s.turn()
        assert s.poll("a") == (True, "fetched", "complete", 4)
        assert [event.data["known"] for event in s.events("fetched")] == [0]
