"""Two ranks that fare differently: what one of them meets, both of them decide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from cache_scenario import Scenario, tokens
from hicache_impl.adapter import Disagreement
from hicache_impl.cache import HiCache, Submission
from hicache_impl.controller import Controller, WorkerDied
from hicache_impl.events import LOCKSTEP_FIELDS
from hicache_impl.keys import PrefixKey
from hicache_impl.operation import Operation
from hicache_impl.ranks import Desync, GroupAborted, solo_groups
from hicache_impl.runtime import Stalled


def page_of(s: Scenario, prompt: Sequence[int], page: int, rank: int) -> Callable[[str], bool]:
    """Picks the store's name of one page of a prompt on one rank."""
    name = s.reference.storage_keys(prompt, rank)[page]
    return lambda key: key == name


class TestDifferentProgress:
    def test_hits_are_cut_to_the_shortest(self) -> None:
        s = Scenario(ranks=2)
        s.reference.store(tokens(1, 6))
        s.reference.faults[1].miss("exists", page_of(s, tokens(1, 6), 3, 1))
        s.submit("a", tokens(1, 6))
        s.turn()
        assert [[event.data["hit"] for event in s.events("query_asked", rank=rank)] for rank in s.ranks] == [[6], [3]]
        assert s.poll("a") == (True, "fetched", "complete", 3)
        s.finish()

    def test_only_what_landed_everywhere_is_published(self) -> None:
        s = Scenario(ranks=2, policy="best_effort")
        s.runtime.hold("io.page", 1)
        s.submit("a", tokens(1, 5))
        s.turn()
        for _ in range(2):
            s.runtime.step("io.page", 1)
            s.reference.settle()
        assert [seen["counted"]["a", 1] for seen in s.reference.observe()["ranks"]] == [5, 2]
        assert s.poll("a") == (True, "fetched", "policy", 2)
        assert [seen["releasing_pages"] for seen in s.reference.observe()["ranks"]] == [3, 0]
        s.turn()
        assert s.free() == 3, "rank 1 has nothing to take yet, so rank 0 takes nothing"
        s.runtime.hold("io.release", 1)
        s.runtime.release("io.page", 1)
        s.turn()
        s.runtime.step("io.release", 1)
        s.turn()
        assert s.free() == 4
        s.runtime.release("io.release", 1)
        s.turn()
        assert s.free() == 6
        s.finish()

    def test_one_rank_that_waits_makes_both_wait(self) -> None:
        s = Scenario(ranks=2)
        s.runtime.hold("io.copied", 1)
        s.submit("a", tokens(1, 2))
        s.turn()
        assert s.poll("a")[0] is False
        s.runtime.release("io.copied", 1)
        s.reference.settle()
        assert s.poll("a") == (True, "fetched", "complete", 2)
        assert s.reference.counters()[0]["passed_terminated"] == 0
        s.finish()

    def test_a_policy_stop_is_one_on_the_complete_rank_too(self) -> None:
        s = Scenario(ranks=2, policy="timeout")
        s.runtime.hold("io.page", 1)
        s.submit("a", tokens(1, 2))
        s.turn()
        s.runtime.advance(60)
        assert s.poll("a") == (True, "fetched", "policy", 0)
        assert [c["passed_terminated"] for c in s.reference.counters()] == [1, 1]
        s.finish()

    def test_abort_when_one_rank_is_ahead(self) -> None:
        s = Scenario(ranks=2)
        s.runtime.hold("io.page", 1)
        s.submit("a", tokens(1, 4))
        s.turn()
        assert s.reference.abort("a")
        s.turn()
        assert s.free() == 4
        s.runtime.release("io.page", 1)
        s.turn()
        assert s.free() == 8
        s.finish()


class TestFailingStore:
    @pytest.mark.parametrize("fault", ["miss", "raise_on", "short"])
    def test_failed_page_on_one_rank_ends_both(self, fault: str) -> None:
        s = Scenario(ranks=2)
        s.reference.store(tokens(1, 5))
        getattr(s.reference.faults[1], fault)("get", page_of(s, tokens(1, 5), 3, 1))
        s.submit("a", tokens(1, 5))
        s.turn()
        assert s.live("a") == ["allocated", "terminated"]
        assert s.poll("a") == (True, "fetched", "failed_page", 3)
        reason = "raised" if fault == "raise_on" else "miss"
        assert [event.data for event in s.events("io_failed", rank=1)] == [{"page": 3, "reason": reason}]
        assert [c["passed_terminated"] for c in s.reference.counters()] == [1, 1]
        s.turn()
        assert s.free() == 5
        s.finish()

    def test_two_ranks_fail_at_different_pages(self) -> None:
        s = Scenario(ranks=2)
        s.reference.store(tokens(1, 6))
        for rank, page in ((0, 4), (1, 1)):
            s.reference.faults[rank].miss("get", page_of(s, tokens(1, 6), page, rank))
        s.submit("a", tokens(1, 6))
        s.turn()
        s.turn()
        assert s.free() == 4, "what both gave up comes back before anybody polls"
        assert s.poll("a") == (True, "fetched", "failed_page", 1)
        s.finish()

    def test_a_stop_of_an_operation_that_failed_on_one_rank(self) -> None:
        s = Scenario(ranks=2)
        s.reference.store(tokens(1, 4))
        s.reference.faults[0].miss("get", page_of(s, tokens(1, 4), 2, 0))
        s.submit("a", tokens(1, 4))
        s.turn()
        assert s.reference.stop("a")
        assert s.poll("a") == (True, "fetched", "stopped", 2)
        s.finish()

    def test_exists_raises_on_one_rank(self) -> None:
        s = Scenario(ranks=2)
        s.reference.faults[1].raise_on("exists", times=1)
        s.submit("a", tokens(1, 4))
        s.submit("b", tokens(2, 4))
        s.turn()
        assert s.ends() == [(("a", 1), "revoked", "below_threshold")]
        assert s.poll("b") == (True, "fetched", "complete", 4)
        assert [c["storage_errors"]["exists"] for c in s.reference.counters()] == [0, 1]
        s.finish()

    def test_get_raises_on_one_rank(self) -> None:
        s = Scenario(ranks=2)
        s.reference.faults[1].raise_on("get", times=1)
        s.submit("a", tokens(1, 4))
        s.submit("b", tokens(2, 4))
        s.turn()
        assert s.poll("a") == (True, "fetched", "failed_page", 0)
        assert s.poll("b") == (True, "fetched", "complete", 4)
        assert [c["storage_errors"]["get"] for c in s.reference.counters()] == [0, 1]
        s.finish()

    def test_put_raises_on_one_rank(self) -> None:
        s = Scenario(ranks=2)
        s.reference.faults[1].raise_on("put", times=1)
        s.reference.prefill(tokens(1, 3))
        s.reference.prefill(tokens(2, 3))
        s.reference.quiesce()
        stored = [[event.data["failed"] for event in s.events("stored", rank=rank)] for rank in s.ranks]
        assert stored == [[0, 0], [3, 0]]
        assert [c["storage_errors"]["put"] for c in s.reference.counters()] == [0, 1]
        s.finish()

    def test_exists_that_answers_nonsense_is_no_hit(self) -> None:
        class Nonsense:
            def exists(self, keys: Sequence[str]) -> int:
                return len(keys) + 1

        s = Scenario(ranks=2)
        s.reference.faults[0].exists = Nonsense().exists  # type: ignore[method-assign]
        s.submit("a", tokens(1, 4))
        s.turn()
        assert s.ends() == [(("a", 1), "revoked", "below_threshold")]
        s.finish()

    def test_every_call_raises(self) -> None:
        s = Scenario(ranks=2)
        for faults in s.reference.faults:
            for call in ("exists", "get", "put"):
                faults.raise_on(call)
        for turn in range(4):
            s.reference.submit(f"r{turn}", tokens(turn, 4))
            s.reference.prefill(tokens(turn, 2))
            s.turn()
            assert s.poll(f"r{turn}")[0] is True
        s.finish()

    def test_batches_of_the_query_stop_at_the_first_miss(self) -> None:
        s = Scenario(ranks=2, query_batch_pages=2)
        s.submit("a", tokens(1, 7), stored=5)
        s.turn()
        assert s.poll("a") == (True, "fetched", "complete", 5)
        s.finish()

    def test_wrong_bytes_are_seen(self) -> None:
        s = Scenario(ranks=2)
        s.reference.store(tokens(1, 4))
        s.reference.faults[1].wrong_bytes(page_of(s, tokens(1, 4), 2, 1))
        s.fetch("a", tokens(1, 4))
        assert [line.split(" in ")[0] for line in s.reference.audit()] == ["rank 1: P6 wrong bytes"]
        s.reference.close()


class TestDefects:
    """What is no fault of the store is reported, not survived."""

    def test_a_worker_that_dies_is_reported_by_every_rank(self) -> None:
        class Dies(Controller):
            def _agree_hit(self, hit: int) -> int:
                if self.rank == 1:
                    raise RuntimeError("a defect")
                return super()._agree_hit(hit)

        s = Scenario(ranks=2, controller_class=Dies)
        s.reference.submit("a", tokens(1, 4))
        s.reference.settle()
        with pytest.raises(WorkerDied, match="a worker of rank"):
            s.reference.tick()
        assert [[event.data["thread"] for event in s.events("died", rank=rank)] for rank in s.ranks] == [["query"]] * 2
        assert any("P31 a worker died: RuntimeError('a defect')" in line for line in s.reference.audit())
        with pytest.raises(WorkerDied):
            s.reference.close()
        s.reference.close()

    def test_a_rank_that_skips_a_collective_is_a_desync(self) -> None:
        class Skips(HiCache):
            def _agree_lengths(self) -> list[int]:
                return [0, 0, 0] if self.rank == 1 else super()._agree_lengths()

        s = Scenario(ranks=2, cache_class=Skips)
        with pytest.raises(Desync, match="P7 tick: some rank waits"):
            s.reference.tick()
        with pytest.raises(GroupAborted):
            s.reference.tick()
        s.reference.reset(s.reference.config)
        assert s.reference.observe()["free_pages"] == 8
        s.reference.close()

    def test_ranks_that_answer_differently_disagree(self) -> None:
        class Declines(HiCache):
            def submit(self, rid: str, key: PrefixKey) -> Submission:
                return super().submit(rid, key.first(len(key) - self.rank))

        s = Scenario(ranks=2, cache_class=Declines)
        with pytest.raises(Disagreement, match="P7 submit"):
            s.reference.submit("a", tokens(1, 4))
        s.reference.close()

    def test_a_lost_tail_is_found(self) -> None:
        class Loses(Controller):
            def _release_tail(self, op: Operation) -> None:
                pass

        s = Scenario(ranks=2, controller_class=Loses)
        s.reference.store(tokens(1, 4))
        s.reference.faults[0].miss("get", page_of(s, tokens(1, 4), 2, 0))
        s.submit("a", tokens(1, 4))
        s.turn()
        s.poll("a")
        s.turn()
        assert any(line.startswith("rank 0: P4 host pages") for line in s.reference.audit())
        s.reference.close()


class TestClose:
    @pytest.mark.parametrize("gate", ["query.take", "query.asked", "query.agreed", "io.take", "io.page", "io.copied"])
    def test_with_an_operation_anywhere(self, gate: str) -> None:
        s = Scenario(ranks=2)
        s.runtime.hold(gate)
        s.submit("a", tokens(1, 4))
        s.turn()
        s.submit("b", tokens(2, 4))
        s.turn()
        s.reference.close()
        s.reference.close()
        for cache in s.reference.caches:
            seen = cache.observe()
            assert seen["free_pages"] + seen["resident_pages"] == 8
            assert (seen["occupied_pages"], seen["host_refs"], seen["live"]) == (0, 0, {})
            assert cache.audit() == []
        assert s.runtime.workers() == {}

    def test_with_backups_on_their_way(self) -> None:
        s = Scenario(ranks=2)
        s.runtime.hold("backup.take")
        s.reference.prefill(tokens(1, 3))
        s.reference.prefill(tokens(2, 3))
        s.reference.close()
        assert [cache.audit() for cache in s.reference.caches] == [[], []]

    def test_a_worker_that_does_not_end_is_reported(self) -> None:
        s = Scenario(ranks=1)
        s.runtime.hold("io.page")
        s.submit("a", tokens(1, 4))
        s.turn()
        cache = s.reference.caches[0]
        with pytest.raises(WorkerDied, match="rank 0: io did not end"):
            cache.close(timeout_s=0.2)
        cache.close()
        s.reference.close()

    def test_closed_is_the_last_word_of_the_scheduler(self) -> None:
        s = Scenario(ranks=2)
        s.runtime.hold("io.page")
        s.submit("a", tokens(1, 4))
        s.turn()
        s.reference.close()
        kinds = [event.kind for event in s.reference.logs()[0].take_since(0)]
        assert not set(kinds[kinds.index("closed") + 1 :]) & set(LOCKSTEP_FIELDS)
        with pytest.raises(RuntimeError, match="after close"):
            s.reference.tick()


class TestAdapter:
    def test_capabilities(self) -> None:
        s = Scenario(ranks=1)
        assert {"gates", "clock", "settle", "events"} <= s.reference.capabilities()
        s.reference.close()

    def test_one_store_for_each_rank_or_an_error(self) -> None:
        one = Scenario(ranks=2).reference
        with pytest.raises(ValueError, match="1 stores for 2 ranks"):
            Scenario(storage=[one.faults[0].inner], ranks=2)
        one.close()

    def test_groups_of_another_size_are_refused(self) -> None:
        from hicache_impl.cache import open_rank

        s = Scenario(ranks=2)
        with pytest.raises(ValueError, match="ranks is 2, the group has 1"):
            open_rank(s.reference.config, s.reference.faults[0], solo_groups(), s.runtime)
        s.reference.close()

    def test_a_call_that_takes_too_long_says_where_everybody_is(self) -> None:
        s = Scenario(ranks=1)
        s.runtime.hold("backup.take")
        s.reference.prefill(tokens(1, 3))
        with pytest.raises(Stalled, match="did nothing for 0 s and do not rest"):
            s.reference._agreed("quiesce", lambda cache: cache.quiesce(0))
        s.reference.close()


def test_real_threads_without_gates(tmp_path: Any) -> None:
    """The same code on plain threads with files: many requests at once, then everything back in its place."""
    from hicache_impl.adapter import Reference
    from hicache_impl.runtime import ThreadRuntime

    config = {"host_pages": 40, "device_pages": 30, "threshold_pages": 2, "ranks": 2, "page_bytes": 64}
    reference = Reference(config, f"file:{tmp_path}", ThreadRuntime())
    assert "gates" not in reference.capabilities()
    for round_ in range(3):
        prompts = {f"{round_}-{name}": tokens(name % 7, 3 + name) for name in range(10)}
        for rid, prompt in prompts.items():
            reference.submit(rid, prompt)
        reference.abort(f"{round_}-3")
        waiting = dict(prompts)
        while waiting:
            reference.settle()
            reference.tick()
            for rid, poll in reference.poll(list(waiting)).items():
                if poll["ready"]:
                    assert reference.prefill(waiting.pop(rid)).wrong == ()
        reference.quiesce()
        assert reference.audit() == []
    counters = reference.counters()
    assert counters[0]["fetched"]["complete"] > 0
    assert {**counters[0], "pages_verified": 0} == {**counters[1], "pages_verified": 0}
    reference.close()
