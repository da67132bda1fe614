"""Copies that end later than they begin: lanes, layers, layouts; what is kept while one is under way, and how long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from cache_scenario import SIZES, Scenario, tokens
from hicache_checks.conformance.search import SearchOptions, run_numbered
from hicache_checks.conformance.stateful import run_stateful
from hicache_checks.conformance.target import opened
from hicache_impl.adapter import Reference
from hicache_impl.config import POOL_LAYOUTS, WRITE_POLICIES, CacheConfig
from hicache_impl.content import page_content
from hicache_impl.controller import WorkerDied
from hicache_impl.gated import GatedRuntime
from hicache_impl.page_pool import FreeUnderWriter, UnownedPage
from hicache_impl.runtime import COPY_GATES, Stalled
from hicache_impl.storage import page_to_bytes
from hicache_impl.targets import WithTiers, tiers
from hicache_impl.tensor_pool import TensorPool
from hicache_impl.transfers import Part, WorkerLane

LAYERS, LAYER_BYTES = 3, 8


def pool(layout: Any = "page_first", pages: int = 4) -> TensorPool:
    made = TensorPool(pages, LAYERS, LAYERS * LAYER_BYTES, layout=layout)
    made.allocator.alloc(pages)
    return made


def filled(layout: Any = "page_first") -> TensorPool:
    made = pool(layout)
    for page in range(made.pages):
        made.view(page).copy_(content(page))
    return made


def content(page: int) -> torch.Tensor:
    return page_content(bytes([page]), "0_1", LAYERS, LAYER_BYTES)


class TestLayouts:
    @pytest.mark.parametrize("source", POOL_LAYOUTS)
    @pytest.mark.parametrize("target", POOL_LAYOUTS)
    def test_a_page_is_the_same_whatever_comes_first(self, source: str, target: str) -> None:
        origin, copied = filled(source), pool(target)
        copied.copy_pages(origin, (0, 3), (2, 1))
        for layer in range(LAYERS):
            copied.copy_layer(origin, (1,), (0,), layer)
        for page, expected in ((2, 0), (1, 3), (0, 1)):
            assert copied.view(page).shape == (LAYERS, LAYER_BYTES)
            assert page_to_bytes(copied.view(page)) == page_to_bytes(content(expected))
        assert not copied.view(3).any(), "nobody asked for it"

    def test_what_comes_first_lies_together(self) -> None:
        assert pool("page_first").data.shape == (4, LAYERS, LAYER_BYTES)
        by_layer = pool("layer_first")
        assert by_layer.data.shape == (LAYERS, 4, LAYER_BYTES)
        by_layer.view(1).fill_(7)
        assert by_layer.data[:, 1].eq(7).all()
        assert by_layer.data.count_nonzero() == LAYERS * LAYER_BYTES

    @pytest.mark.parametrize("layout", POOL_LAYOUTS)
    def test_a_store_does_not_know_the_layout(self, layout: str) -> None:
        s = Scenario(ranks=2, host_layout=layout, device_layout="layer_first")
        s.reference.prefill(tokens(1, 3))
        s.turn()
        assert s.reference.audit_stores() == []
        s.reference.evict_device(3)
        s.fetch("a", tokens(2, 3))
        assert s.reference.prefill(tokens(2, 3)).wrong == ()
        s.finish()

    def test_no_such_layout(self) -> None:
        with pytest.raises(ValueError, match="host_layout must be one of page_first, layer_first"):
            CacheConfig(host_pages=1, device_pages=1, host_layout="page")  # type: ignore[arg-type]


class TestLane:
    """One lane on a gated runtime."""

    def open(self) -> tuple[GatedRuntime, WorkerLane, list[str]]:
        runtime, died = GatedRuntime(), list[str]()
        lane = WorkerLane("write", 0, runtime, lambda name, error: died.append(f"{name}: {error}"))
        lane.open()
        return runtime, lane, died

    def begin(self, lane: WorkerLane, jobs: Sequence[str]) -> TensorPool:
        origin, target = filled(), pool()
        for page, job in enumerate(jobs):
            lane.begin([Part(origin, (page,), target, (page,))], job)
        return target

    def test_it_copies_in_order_and_takes_in_order(self) -> None:
        runtime, lane, _ = self.open()
        runtime.hold("write.landed")
        target = self.begin(lane, ("a", "b", "c"))
        runtime.wait_idle()
        assert (len(lane), lane.qsize()) == (3, 0)
        for landed in (1, 2):
            runtime.step("write.landed")
            runtime.wait_idle()
            assert lane.qsize() == landed
        assert lane.get().job == "a"
        assert (len(lane), lane.qsize(), lane.jobs()) == (2, 1, ["b", "c"])
        runtime.release_all()
        assert [lane.get().job, lane.get().job] == ["b", "c"]
        assert all(torch.equal(target.view(page), content(page)) for page in range(3))
        assert lane.close(5)

    def test_each_layer_can_be_read_when_it_is_there(self) -> None:
        runtime, lane, _ = self.open()
        runtime.hold("write.layer")
        target = self.begin(lane, ("a",))
        for layer in range(LAYERS):
            runtime.wait_idle()
            assert not target.view(0)[layer].any()
            runtime.step("write.layer")
            lane.wait_layer(layer)
            assert torch.equal(target.view(0)[layer], content(0)[layer])
        assert lane.get().job == "a"
        assert lane.close(5)

    def test_so_long_the_pages_have_a_writer(self) -> None:
        runtime, lane, _ = self.open()
        target = self.begin(lane, ("a",))
        runtime.wait_idle()
        assert lane.qsize() == 1
        with pytest.raises(FreeUnderWriter):
            target.allocator.free((0,))
        with pytest.raises(UnownedPage, match="two writers"):
            lane.begin([Part(filled(), (1,), target, (0,))], "b")
        lane.get()
        target.allocator.free((0,))
        assert lane.close(5)

    def test_settle_gives_up(self) -> None:
        runtime, lane, _ = self.open()
        runtime.hold("write.take")
        self.begin(lane, ("a",))
        with pytest.raises(Stalled, match="a write copy of rank 0 does not land"):
            lane.settle(0.01)
        runtime.release_all()
        lane.settle(5)
        assert lane.forget() == ["a"]
        assert len(lane) == 0
        assert lane.close(5)

    def test_who_waits_for_a_dead_thread_is_told(self) -> None:
        runtime, lane, died = self.open()
        runtime.hold("write.take")
        target = self.begin(lane, ("a", "b"))
        target.layers = LAYERS + 1
        lane._under_way[0].parts[0].source.data.resize_(0)
        runtime.release_all()
        with pytest.raises(WorkerDied, match="the write thread of rank 0 died"):
            lane.wait_layer(0)
        with pytest.raises(WorkerDied):
            lane.get()
        with pytest.raises(WorkerDied):
            self.begin(lane, ("c",))
        assert len(died) == 1
        assert lane.close(5)


def under_way(ranks: int = 1, gate: str = "write.take", **config: Any) -> Scenario:
    """`gate` is held on the last rank, and so a copy of it is late."""
    s = Scenario(ranks=ranks, async_copies=True, host_layout="layer_first", **config)
    s.runtime.hold(gate, ranks - 1)
    return s


def computed(s: Scenario, prompt: list[int]) -> None:
    s.reference.prefill(prompt)
    s.turn()


class TestWriting:
    @pytest.mark.parametrize("gate", [gate for gate in COPY_GATES if gate.startswith("write")])
    def test_the_device_keeps_its_pages_until_all_ranks_have_them(self, gate: str) -> None:
        s = under_way(2, gate)
        computed(s, tokens(1, 4))
        assert s.reference.evict_device(4) == 0
        assert s.events("stored") == [], "nothing is backed up that is not on the host"
        assert s.reference.observe()["ranks"][0]["queues"]["backup"] == 0
        assert [len(cache.lanes["write"]) for cache in s.reference.caches] == [1, 1], "rank 0 waits for rank 1"
        s.runtime.release_all()
        s.turn()
        assert [len(cache.lanes["write"]) for cache in s.reference.caches] == [0, 0]
        assert s.reference.evict_device(4) == 4
        s.finish()

    def test_its_host_pages_are_resident_and_stay(self) -> None:
        s = under_way()
        computed(s, tokens(1, 4))
        seen = s.reference.observe()
        assert (seen["resident_pages"], seen["evictable_pages"], seen["host_refs"]) == (4, 0, 1)
        s.finish()

    def test_a_node_is_split_while_it_is_written(self) -> None:
        s = under_way(2)
        computed(s, tokens(1, 4))
        computed(s, [*tokens(1, 2), 5, 6])
        assert s.reference.evict_device(6) == 0
        s.runtime.release_all()
        s.reference.quiesce()
        assert [(e.data["pages"], e.data["failed"]) for e in s.events("stored")] == [(4, 0), (2, 0)]
        assert s.reference.evict_device(6) == 6
        assert s.reference.audit_stores() == []
        s.finish()

    def test_without_a_store_it_lands_all_the_same(self) -> None:
        s = under_way()
        assert s.reference.detach()
        s.runtime.hold("write.take", 0)
        computed(s, tokens(1, 2))
        s.runtime.release_all()
        s.turn()
        assert [(e.data["pages"], e.data["failed"]) for e in s.events("stored")] == [(2, 2)], "by nobody"
        s.finish()

    @pytest.mark.parametrize("detached", [False, True])
    def test_flush_waits_for_what_is_under_way(self, detached: bool) -> None:
        s = under_way(2)
        start = s.reference.observe()
        if detached:
            assert s.reference.detach()
            s.runtime.hold("write.take", 1)
        computed(s, tokens(1, 2))
        assert s.reference.flush(), "it opens the gates"
        assert s.reference.observe() == start
        assert s.reference.audit() == []
        s.finish()

    def test_detach_gives_up_when_a_copy_does_not_land(self) -> None:
        s = under_way(2, timeout_s=1)
        computed(s, tokens(1, 2))
        assert not s.reference.detach()
        s.runtime.release_all()
        assert s.reference.detach()
        s.finish()

    def test_close_gives_everything_back(self) -> None:
        s = under_way()
        computed(s, tokens(1, 2))
        cache = s.reference.caches[0]
        s.reference.close()
        assert cache.tree.audit() == []
        assert not cache.tree.protected
        assert cache.copies_under_way() == 0
        assert s.runtime.workers() == {}

    def test_a_dead_thread_is_reported(self) -> None:
        s = under_way()
        s.reference.prefill(tokens(1, 2))
        s.reference.caches[0].device.data.resize_(0)
        s.runtime.release_all()
        with pytest.raises(WorkerDied, match="a worker of rank 0 died"):
            s.turn()
        assert s.events("died")[0].data["thread"] == "write"
        assert s.reference.threads_of(0) == ("query-0", "io-0", "backup-0", "write-0", "load-0", "scheduler-0")
        s.runtime.release_all()
        with pytest.raises(WorkerDied):
            s.reference.close()


class TestLoading:
    def loading(self, ranks: int = 1, **config: Any) -> tuple[Scenario, list[Any]]:
        """A prompt on the host, and its load-back under way on each rank."""
        s = Scenario(ranks=ranks, async_copies=True, **config)
        s.fetch("a", tokens(1, 4))
        s.turn()
        s.runtime.hold("load.take", ranks - 1)
        key = s.reference.key(tokens(1, 4))
        pages = [cache.load_back(cache.match(key)) for cache in s.reference.caches]
        s.turn()
        return s, pages

    def test_it_is_locked_and_protected_until_all_ranks_have_it(self) -> None:
        s, pages = self.loading(2)
        assert [len(loaded) for loaded in pages] == [4, 4]
        assert s.reference.evict_device(4) == 0
        seen = s.reference.observe()
        assert (seen["host_refs"], seen["evictable_pages"]) == (1, 0)
        s.runtime.release_all()
        s.turn()
        assert s.reference.observe()["host_refs"] == 0
        assert s.reference.evict_device(4) == 4
        s.finish()

    def test_a_model_begins_with_the_first_layer(self) -> None:
        s, pages = self.loading()
        cache = s.reference.caches[0]
        s.runtime.hold("load.layer")
        s.runtime.step("load.take")
        s.reference.settle()
        s.runtime.step("load.layer")
        cache.wait_layer(0)
        s.reference.settle()
        first, second = cache.device.view(pages[0][0])
        assert first.any()
        assert not second.any()
        s.runtime.release_all()
        cache.wait_layer(1)
        assert second.any()
        s.finish()

    def test_no_more_than_the_quota(self) -> None:
        s = Scenario(load_back_pages_max=4, async_copies=True)
        for rid, name, pages in (("a", 1, 3), ("b", 2, 2), ("c", 3, 2)):
            s.fetch(rid, tokens(name, pages))
        s.runtime.hold("load.take")
        cache = s.reference.caches[0]

        def load(name: int, pages: int) -> list[int] | None:
            return cache.load_back(cache.match(s.reference.key(tokens(name, pages))))

        assert len(load(1, 3) or ()) == 3
        assert load(2, 2) is None, "5 pages would be on their way"
        s.runtime.release_all()
        s.turn()
        assert len(load(2, 2) or ()) == 2
        s.finish()

    def test_what_is_loaded_at_once_is_not_under_way(self) -> None:
        s = Scenario(load_back_pages_max=2)
        s.fetch("a", tokens(1, 2))
        s.fetch("b", tokens(2, 3))
        assert s.reference.prefill(tokens(1, 2)).host_pages == 2
        assert s.reference.prefill(tokens(2, 3)).host_pages == 0, "3 pages are too many at a time"
        s.finish()


class TestPolicies:
    def written(self, s: Scenario) -> list[int]:
        return [event.data["pages"] for event in s.events("written")]

    @pytest.mark.parametrize("async_copies", [False, True])
    def test_selective_writes_what_is_used_again(self, async_copies: bool) -> None:
        s = Scenario(ranks=2, write_policy="write_through_selective", async_copies=async_copies)
        s.reference.prefill(tokens(1, 4))
        assert self.written(s) == []
        s.reference.prefill([*tokens(1, 2), 5])
        assert self.written(s) == [2], "the half that both have"
        s.reference.prefill(tokens(1, 4))
        assert self.written(s) == [2, 2]
        s.reference.quiesce()
        assert s.reference.audit_stores() == []
        s.finish()

    def test_selective_forgets_what_is_evicted_before(self) -> None:
        s = Scenario(write_policy="write_through_selective", write_through_hits=3)
        for _ in range(2):
            s.reference.prefill(tokens(1, 2))
        assert s.reference.evict_device(2) == 2
        s.reference.prefill(tokens(1, 2))
        assert self.written(s) == []
        s.finish()

    def test_write_back_writes_when_the_device_forgets(self) -> None:
        s = Scenario(ranks=2, write_policy="write_back")
        s.reference.prefill(tokens(1, 3))
        assert self.written(s) == []
        assert s.reference.evict_device(3) == 3
        assert self.written(s) == [3]
        assert s.reference.prefill(tokens(1, 3)).host_pages == 3
        assert s.reference.evict_device(3) == 3
        assert self.written(s) == [3], "it is on the host already"
        s.finish()

    def test_write_back_evicts_when_the_copy_has_landed(self) -> None:
        s = under_way(2, write_policy="write_back")
        s.reference.prefill(tokens(1, 3))
        assert s.reference.evict_device(3) == 0
        assert s.reference.evict_device(3) == 0
        assert self.written(s) == [3], "what is being written is not written again"
        s.turn()
        assert s.reference.observe()["device_resident_pages"] == 3
        s.runtime.release_all()
        s.turn()
        seen = s.reference.observe()
        assert (seen["device_resident_pages"], seen["resident_pages"]) == (0, 3)
        s.finish()

    def test_what_is_used_meanwhile_stays(self) -> None:
        s = under_way(write_policy="write_back")
        s.reference.prefill(tokens(1, 3))
        s.reference.prefill(tokens(2, 3))
        s.reference.evict_device(3)
        s.reference.prefill(tokens(1, 3))
        s.runtime.release_all()
        s.turn()
        assert s.reference.observe()["device_resident_pages"] == 6
        s.finish()

    def test_the_parents_are_written_first(self) -> None:
        s = Scenario(write_policy="write_back")
        s.reference.prefill(tokens(1, 2))
        s.reference.prefill(tokens(1, 4))
        assert s.reference.evict_device(2) == 2
        assert [(e.data["node"], e.data["pages"]) for e in s.events("written")] == [(1, 2), (2, 2)]
        s.finish()

    def test_without_room_on_the_host_it_is_dropped(self) -> None:
        s = Scenario(write_policy="write_back", host_pages=2)
        s.reference.prefill(tokens(1, 3))
        assert s.reference.evict_device(3) == 3
        assert self.written(s) == []
        assert s.reference.prefill(tokens(1, 3)).computed_pages == 3
        s.finish()

    def test_a_child_is_dropped_where_its_parents_have_no_room(self) -> None:
        s = Scenario(write_policy="write_back", host_pages=3)
        s.reference.prefill(tokens(1, 2))
        s.reference.prefill(tokens(1, 4))
        assert s.reference.evict_device(2) == 2
        assert self.written(s) == [], "not even the parent"
        assert s.reference.evict_device(2) == 2
        assert self.written(s) == [2]
        s.finish()

    def test_who_needs_device_pages_waits_for_what_is_written(self) -> None:
        s = Scenario(ranks=2, write_policy="write_back", async_copies=True, device_pages=4)
        s.reference.prefill(tokens(1, 2))
        s.reference.prefill(tokens(1, 4))
        assert s.reference.prefill(tokens(2, 3)).computed_pages == 3
        assert self.written(s) == [2, 2]
        s.reference.quiesce()
        assert s.reference.audit() == []
        assert s.reference.prefill(tokens(1, 4)).host_pages == 4
        s.finish()

    def test_room_for_a_load_back_is_not_made_of_what_is_loaded(self) -> None:
        s = Scenario(write_policy="write_back", host_pages=4, device_pages=4)
        s.fetch("a", tokens(1, 4))
        s.reference.prefill(tokens(2, 4))
        assert s.reference.prefill(tokens(2, 4)).device_pages == 4
        loaded = s.reference.prefill(tokens(1, 4))
        assert (loaded.host_pages, loaded.computed_pages, loaded.wrong) == (4, 0, ())
        assert self.written(s) == [], "the host has no room besides"
        s.finish()

    def test_no_such_policy(self) -> None:
        with pytest.raises(ValueError, match="write_policy must be one of write_through, "):
            CacheConfig(host_pages=1, device_pages=1, write_policy="never")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="async_copies must be true or false"):
            CacheConfig(host_pages=1, device_pages=1, async_copies=1)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="write_through_hits"):
            CacheConfig(host_pages=1, device_pages=1, write_through_hits=0)


class TestHeld:
    """The target `reference.tiers` holds copies back for whoever asks."""

    def opened(self, **more: Any) -> WithTiers:
        target = tiers()
        assert {"copies", "variants"} <= target.capabilities()
        target.reset({**SIZES, **{name: values[0] for name, values in target.variants().items()}, **more})
        return target

    def test_what_is_held_is_under_way(self) -> None:
        target = self.opened()
        target.hold_copies()
        target.prefill(tokens(1, 2))
        target.tick()
        assert target.evict_device(2) == 0
        target.release_copies()
        target.settle()
        target.tick()
        assert target.evict_device(2) == 2
        target.close()

    def test_nobody_waits_for_what_is_held(self) -> None:
        target = self.opened(write_policy="write_back", device_pages=2)
        target.hold_copies()
        target.prefill(tokens(1, 2))
        assert target.prefill(tokens(2, 2)).computed_pages == 2
        target.close()

    def test_close_lets_go(self) -> None:
        target = self.opened(timeout_s_base=0.5)
        target.hold_copies()
        target.prefill(tokens(1, 2))
        target.close()


@pytest.mark.heavy
@pytest.mark.parametrize("async_copies", [False, True])
@pytest.mark.parametrize("write_policy", WRITE_POLICIES)
def test_every_policy_conforms(write_policy: str, async_copies: bool) -> None:
    settings = {"write_policy": write_policy, "async_copies": async_copies, "host_layout": "layer_first"}
    run = run_stateful(lambda: Reference(settings=settings), 2, "wait_complete", 150)
    assert run.failure is None, run.failure
    assert not {"written", "stored", "loaded", "evicted", "fetched: all"} - run.outcomes.keys()


@pytest.mark.heavy
def test_every_order_of_threads_conforms() -> None:
    """Under simulation, with all that a system may be told of its tiers."""
    outcomes: Counter[str] = Counter()
    with opened("hicache_impl.targets:tiers", simulate=True) as target:
        for number in range(150):
            result, _ = run_numbered(target, SearchOptions(2), number)
            assert result.finding is None, f"schedule {number}: {result.finding}"
            outcomes.update(result.outcomes)
    assert not {"written", "stored", "loaded", "evicted", "fetched: all"} - outcomes.keys()
