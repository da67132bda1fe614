"""The store at run time: detach, attach and reset, called by the schedulers of all ranks at any moment."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cache_scenario import Scenario, tokens
from hicache_checks.conformance.monitor import MonitorConfig
from hicache_checks.conformance.watch import Watch
from hicache_impl.adapter import Reference
from hicache_impl.cache import AttachFailed, HiCache
from hicache_impl.controller import Controller
from hicache_impl.operation import Operation
from hicache_impl.runtime import GATES, Stalled, ThreadRuntime
from hicache_impl.storage.memory import MemoryStorage
from recorded_trace import FailsOnce

QUERY_AND_IO = [gate for gate in GATES if not gate.startswith("backup")]


def workers(s: Scenario) -> list[str]:
    return sorted(name for name in s.runtime.workers() if not name.startswith("scheduler"))


def reach(s: Scenario, gate: str) -> None:
    """`a` is at this gate on the last rank, `b` is behind it, and a node waits for its backup."""
    if gate == "io.release":
        s.reference.lose(s.ranks[-1], tokens(1, 2))
    s.runtime.hold(gate, s.ranks[-1])
    s.submit("a", tokens(1, 4))
    s.turn()
    s.submit("b", tokens(2, 2))
    s.reference.prefill(tokens(3, 1))
    s.reference.settle()
    assert (gate, s.ranks[-1]) in s.runtime.held()


class TestDetach:
    @pytest.mark.parametrize("gate", QUERY_AND_IO)
    def test_whatever_is_on_its_way_ends(self, scenario: Callable[..., Scenario], gate: str) -> None:
        s = scenario()
        reach(s, gate)
        s.runtime.release(gate, s.ranks[-1])
        # The threads run on from the gate, beside this call.
        assert s.reference.detach()
        seen = s.reference.observe()
        assert (seen["operations"], seen["occupied_pages"], seen["host_refs"]) == ({}, 0, 0)
        assert (seen["free_pages"], seen["resident_pages"]) == (7, 1), "the prefilled page is still there"
        assert all(not any(rank["queues"].values()) for rank in seen["ranks"])
        assert s.reference.audit() == []
        assert sorted(s.ends()) == [(("a", 1), "revoked", "aborted"), (("b", 1), "revoked", "aborted")]
        assert workers(s) == []

    @pytest.mark.parametrize("gate", ["query.asked", "io.copied"])
    def test_a_worker_that_does_not_come_to_rest(self, scenario: Callable[..., Scenario], gate: str) -> None:
        """Every rank gives up, in bounded time, and the store stays; later it can be detached."""
        s = scenario(timeout_s=2)
        reach(s, gate)
        assert not s.reference.detach()
        assert s.reference.observe()["operations"] == {}
        assert len(workers(s)) == 3 * len(s.ranks)
        assert s.reference.submit("c", tokens(4, 2))["accepted"]
        s.runtime.release(gate, s.ranks[-1])
        s.reference.settle()
        assert s.reference.detach()

    def test_ranks_that_wait_for_different_things(self) -> None:
        """What is left on one rank alone will never be drained: nobody goes on looking for ever."""

        class Loses(Controller):
            def _hand_over(self, op: Operation) -> None:
                if self.rank == 0:
                    super()._hand_over(op)

        s = Scenario(ranks=2, controller_class=Loses, timeout_s=5)
        s.submit("a", tokens(1, 2))
        s.reference.settle()
        assert not s.reference.detach()
        s.reference.close()

    def test_submissions_are_declined(self, scenario: Callable[..., Scenario]) -> None:
        s = scenario()
        s.fetch("a", tokens(1, 3))
        assert s.reference.detach()
        before = s.reference.observe()
        answer = s.reference.submit("b", tokens(2, 3))
        assert (answer["accepted"], answer["reason"]) == (False, "detached")
        assert s.reference.counters()[0]["declined"] == {"detached": 1}
        assert s.poll("b") == (True, None, None, 0)
        assert not s.reference.abort("b")
        assert not s.reference.stop("b")
        s.turn()
        assert s.reference.observe() == before

    def test_the_tiers_above_go_on(self, scenario: Callable[..., Scenario]) -> None:
        s = scenario()
        s.fetch("a", tokens(1, 3))
        assert s.reference.detach()
        found = s.reference.prefill(tokens(1, 5))
        assert (found.host_pages, found.computed_pages, found.wrong) == (3, 2, ())
        assert [(event.data["pages"], event.data["failed"]) for event in s.events("stored")] == [(2, 2)]
        assert s.reference.counters()[0]["unstored_pages"] == 2
        assert s.reference.observe()["host_refs"] == 0, "what nobody backs up need not be kept for it"
        s.reference.evict_device(5)
        assert s.reference.prefill(tokens(1, 5)).host_pages == 5

    def test_twice_is_once(self, scenario: Callable[..., Scenario]) -> None:
        s = scenario()
        assert s.reference.detach()
        before = [len(log) for log in s.reference.logs()]
        assert s.reference.detach()
        assert [len(log) for log in s.reference.logs()] == before

    def test_after_the_end(self) -> None:
        s = Scenario(ranks=1)
        cache = s.reference.caches[0]
        s.reference.close()
        cache.detach_storage()
        with pytest.raises(RuntimeError, match="rank 0 is closed"):
            cache.attach_storage(MemoryStorage())
        with pytest.raises(RuntimeError, match="rank 0 is closed"):
            cache.reset()


class TestAttach:
    def test_it_goes_on(self, scenario: Callable[..., Scenario]) -> None:
        s = scenario()
        s.fetch("a", tokens(1, 3))
        for round_ in range(2):
            assert s.reference.detach()
            assert s.reference.attach()
            assert s.submit("b", [*tokens(1, 3), *tokens(round_ + 2, 2)]) == round_ + 1, (
                "an attempt number is used once"
            )
            s.turn()
            assert s.poll("b") == (True, "fetched", "complete", 2)
        s.reference.prefill(tokens(9, 1))
        s.turn()
        assert [event.data["failed"] for event in s.events("stored")] == [0]
        assert len(workers(s)) == 3 * len(s.ranks)

    def test_nothing_of_the_first_store_is_known_of_the_second(self) -> None:
        s = Scenario(ranks=1)
        cache, other = s.reference.caches[0], Scenario(ranks=1)
        other.reference.store(tokens(2, 3))
        cache.detach_storage()
        cache.attach_storage(other.reference.faults[0])
        s.submit("a", tokens(1, 3))
        s.reference.submit("b", tokens(2, 3))
        s.turn()
        assert s.poll("a") == (True, None, None, 0)
        assert s.poll("b") == (True, "fetched", "complete", 3)
        s.finish()
        other.finish()

    def test_while_there_is_one(self, scenario: Callable[..., Scenario]) -> None:
        s = scenario()
        s.runtime.hold("query.take")
        s.submit("a", tokens(1, 3))
        s.reference.settle()
        before = s.reference.observe()
        assert not s.reference.attach()
        assert s.reference.observe() == before
        s.runtime.release("query.take")
        s.turn()
        assert s.poll("a") == (True, "fetched", "complete", 3)

    def test_a_rank_that_cannot_start_leaves_all_detached(self, scenario: Callable[..., Scenario]) -> None:
        s = scenario(controller_class=FailsOnce)
        s.fetch("a", tokens(1, 3))
        assert s.reference.detach()
        before = s.reference.observe()
        FailsOnce.fails = True
        assert s.reference._all("attach", why_not_attached) == [
            *["rank 0: another rank could not start"] * (len(s.ranks) - 1),
            f"rank {s.ranks[-1]}: cannot start: RuntimeError('no thread can be had')",
        ]
        assert not s.reference.attach()
        assert s.reference.observe() == before
        assert workers(s) == []
        assert s.reference.submit("b", tokens(2, 3))["reason"] == "detached"
        FailsOnce.fails = False
        assert s.reference.attach()
        s.fetch("b", tokens(2, 3))


def why_not_attached(cache: HiCache) -> str:
    with pytest.raises(AttachFailed) as failed:
        cache.attach_storage(MemoryStorage())
    return str(failed.value)


# What `reset` and `flush` must forget, whatever it is.


def live_a_little(s: Scenario) -> list[Any]:
    """Something of everything: fetched, computed, evicted, aborted, stopped, declined. Returns what the calls said."""
    said: list[Any] = []
    s.fetch("a", tokens(1, 3))
    said.append(s.reference.prefill(tokens(2, 2)))
    s.turn()
    said.append(s.reference.evict_device(1))
    said.append(s.submit("b", tokens(3, 6)))
    s.turn()
    said.append(s.reference.submit("b", tokens(3, 6)))
    said.append(s.reference.stop("b"))
    said.append(s.poll("b"))
    said.append(s.submit("b", tokens(4, 2), stored=1))
    said.append(s.submit("c", tokens(5, 2)))
    s.turn()
    said.append(s.reference.abort("c"))
    s.turn()
    return said


class TestReset:
    @pytest.mark.parametrize("gate", GATES)
    def test_as_at_the_start(self, scenario: Callable[..., Scenario], gate: str) -> None:
        s = scenario()
        start, counted = s.reference.observe(), s.reference.counters()
        live_a_little(s)
        if gate.startswith("backup"):
            s.runtime.hold(gate)
            s.reference.prefill(tokens(6, 2))
        else:
            reach(s, gate)
        assert s.reference.observe() != start
        assert s.reference.flush()
        assert s.reference.observe() == start
        assert s.reference.counters() == counted
        assert s.reference.audit() == []
        assert all(not cache.host.data.any() and not cache.device.data.any() for cache in s.reference.caches)
        assert sorted(workers(s)) == sorted(f"{name}-{r}" for name in ("query", "io", "backup") for r in s.ranks)

    def test_the_second_life_is_as_the_first(self, scenario: Callable[..., Scenario]) -> None:
        s = scenario()
        lives = []
        for _ in range(2):
            said = live_a_little(s)
            events = [s.lockstep(rank) for rank in s.ranks]
            numbers = [[event.seq for event in log.take_since(0)] for log in s.reference.logs()]
            calls = [[event.data for event in s.events("joined", rank=rank)] for rank in s.ranks]
            lives.append((said, events, numbers, calls, s.reference.observe(), s.reference.counters()))
            assert s.reference.flush()
        assert lives[0] == lives[1]
        assert lives[0][2][0] == list(range(len(lives[0][2][0]))), "a log begins at 0"

    def test_a_store_of_its_own_is_empty_again(self, scenario: Callable[..., Scenario]) -> None:
        s = scenario()
        s.fetch("a", tokens(1, 3))
        s.reference.break_storage(0, "exists", "raise")
        assert s.reference.flush()
        s.reference.submit("b", tokens(1, 3))
        s.turn()
        assert s.ends() == [(("b", 1), "revoked", "below_threshold")]
        s.fetch("c", tokens(1, 3))
        assert s.reference.audit_stores() == []

    def test_a_store_that_outlives_it_keeps_its_pages(self, scenario: Callable[..., Scenario], tmp_path: Path) -> None:
        s = scenario(storage=f"file:{tmp_path}")
        s.reference.store(tokens(1, 3))
        assert s.reference.flush()
        s.reference.submit("a", tokens(1, 3))
        s.turn()
        assert s.poll("a") == (True, "fetched", "complete", 3)

    def test_it_attaches_what_was_detached(self, scenario: Callable[..., Scenario]) -> None:
        s = scenario()
        assert s.reference.detach()
        assert s.reference.flush()
        s.fetch("a", tokens(1, 3))

    def test_a_detached_cache_stays_so(self) -> None:
        s = Scenario(ranks=1)
        cache = s.reference.caches[0]
        s.fetch("a", tokens(1, 3))
        cache.detach_storage()
        cache.reset()
        assert s.free() == 8
        assert s.reference.submit("b", tokens(1, 3))["reason"] == "detached"
        s.finish()

    def test_a_worker_that_does_not_come_to_rest(self) -> None:
        """Nothing is forgotten."""
        s = Scenario(ranks=1)
        cache = s.reference.caches[0]
        s.fetch("a", tokens(1, 3))
        s.runtime.hold("io.copied")
        s.submit("b", tokens(2, 3))
        s.turn()
        with pytest.raises(Stalled, match=r"rank 0: .* did nothing for 0\.1 s and do not rest"):
            cache.reset(timeout_s=0.1)
        assert s.reference.observe()["resident_pages"] == 3
        s.runtime.release("io.copied")
        cache.reset()
        assert (s.free(), s.reference.observe()["resident_pages"]) == (8, 0)
        s.finish()

    def test_workers_that_are_slow_are_waited_for(self) -> None:
        """Each of many pages takes a while, but less than the time in which something must happen."""

        class Slow(MemoryStorage):
            def put_from(self, keys: Sequence[str], pages: Sequence[torch.Tensor]) -> list[bool]:
                time.sleep(0.1)
                return super().put_from(keys, pages)

        s = Scenario(Slow(), ranks=1, host_pages=20, device_pages=40)
        for name in range(12):
            s.reference.prefill(tokens(name, 1))
        began = time.monotonic()
        s.reference.caches[0].reset(timeout_s=0.6)
        assert time.monotonic() - began > 0.6
        assert s.free() == 20
        s.reference.close()


# Explained by the specification, event by event.


@pytest.mark.parametrize("gate", QUERY_AND_IO)
def test_the_specification_explains_it(scenario: Callable[..., Scenario], gate: str) -> None:
    """A detach is aborts and drains; a life after a reset is explained from the beginning."""
    s = scenario()
    for _ in range(2):
        watch = Watch(s.reference, MonitorConfig(len(s.ranks), 8, 2, 99, "wait_complete"))
        reach(s, gate)
        watch.look()
        s.runtime.release_all()
        assert s.reference.detach()
        s.reference.prefill(tokens(7, 2))
        watch.look()
        assert s.reference.attach()
        s.reference.heal_storage()
        s.fetch("a", tokens(8, 2))
        watch.look()
        watch.monitor.finish()
        assert watch.finding is None
        assert watch.outcomes["fetched: all"] == 1
        assert s.reference.flush()


# At any moment: nothing rests between two calls.

rids = st.sampled_from("abc")
prompts = st.tuples(st.integers(1, 3), st.integers(1, 5)).map(lambda drawn: tokens(*drawn))
steps = st.one_of(
    st.tuples(st.just("submit"), rids, prompts),
    st.tuples(st.just("submit"), rids, prompts),
    st.tuples(st.just("store"), prompts),
    st.tuples(st.just("prefill"), prompts),
    st.tuples(st.just("evict_device"), st.integers(1, 4)),
    st.tuples(st.sampled_from(["abort", "stop"]), rids),
    st.tuples(st.just("poll"), st.just(["a", "b", "c"])),
    st.tuples(st.just("tick")),
    st.tuples(st.sampled_from(["detach", "attach", "attach", "flush"])),
)


@settings(max_examples=60)
@given(st.integers(1, 2), st.lists(steps, max_size=25))
def test_at_any_moment(ranks: int, program: list[tuple[Any, ...]]) -> None:
    s = Scenario(ranks=ranks, threshold_pages=1)
    attached = True
    for name, *arguments in program:
        answer = getattr(s.reference, name)(*arguments)
        if name == "detach":
            assert answer
            attached = False
        elif name == "attach":
            assert answer != attached
            attached = True
        elif name == "flush":
            assert answer
            attached = True
            assert s.free() == 8
        elif name == "submit":
            assert (answer["reason"] == "detached") == (not attached)
    for rid in "abc":
        s.reference.abort(rid)
    s.finish()


def test_plain_threads() -> None:
    """The same on threads that nothing holds, with many operations in flight."""
    sizes = {"host_pages": 40, "device_pages": 30, "threshold_pages": 2, "ranks": 2, "page_bytes": 64}
    reference = Reference(sizes, runtime=ThreadRuntime())
    for round_ in range(6):
        for name in range(8):
            reference.store(tokens(name, 6))
            reference.submit(f"{round_}-{name}", tokens(name, 6))
        reference.tick()
        reference.prefill(tokens(20 + round_, 4))
        assert reference.detach()
        assert reference.audit() == []
        if round_ % 2:
            assert reference.attach()
        else:
            assert reference.flush()
            assert reference.observe()["free_pages"] == 40
    reference.close()
