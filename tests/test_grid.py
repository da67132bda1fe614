"""Ranks in a grid: who agrees with whom, and in which order; the first stage decides; replicas share nothing."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from cache_scenario import Scenario, tokens
from hicache_checks.conformance.stateful import run_stateful
from hicache_impl.adapter import Reference
from hicache_impl.events import EventLog
from hicache_impl.gated import GatedRuntime
from hicache_impl.grid import thread_groups
from hicache_impl.layout import AXES, Layout, checked_layout
from hicache_impl.ranks import Desync, GroupAborted, Groups
from hicache_impl.runtime import Stalled
from hicache_impl.storage import is_key
from hicache_impl.storage.memory import MemoryStorage

SQUARE = Layout(tp=2, cp=2)
STAGES = Layout(tp=2, pp=2)
CUBE = Layout(tp=2, cp=2, pp=2)
LINE = Layout(pp=3)
STATE = {"name": "state", "kind": "state", "host_slots": 2, "device_slots": 2}
DRAFT = {"name": "draft", "kind": "sidecar"}


class Threads:
    """Runs one call on each rank's own thread, and waits for rest."""

    def __init__(self, layout: Layout) -> None:
        self.runtime = GatedRuntime()
        self.logs = [EventLog(rank) for rank in range(layout.world)]
        self.groups: list[Groups] = thread_groups(layout, self.runtime, self.logs)

    def run(self, calls: Sequence[Callable[[Groups], Any] | None]) -> list[Any]:
        """The answer or the exception of each rank; None where it still waits, or has nothing to do."""
        answers: list[Any] = [None] * len(calls)

        def target(rank: int, call: Callable[[Groups], Any]) -> Callable[[], None]:
            def run() -> None:
                try:
                    answers[rank] = call(self.groups[rank])
                except Exception as error:
                    answers[rank] = error

            return run

        for rank, call in enumerate(calls):
            if call is not None:
                self.runtime.thread(f"rank-{rank}", target(rank, call)).start()
        self.runtime.wait_idle()
        return answers


# ---- the layout


@pytest.mark.parametrize("layout", [SQUARE, STAGES, CUBE, Layout(tp=3, dp=2), Layout(tp=2, cp=3, pp=2, dp=2)])
def test_groups_are_the_ranks_that_differ_in_one_coordinate(layout: Layout) -> None:
    for axis in AXES:
        lines = layout.lines(axis)
        assert sorted(rank for line in lines for rank in line) == list(range(layout.world))
        assert lines == sorted(lines)
        for line in lines:
            assert len(line) == getattr(layout, axis)
            places = [layout.coordinates(rank) for rank in line]
            assert [place.pop(axis) for place in places] == list(range(len(line)))
            assert all(place == places[0] for place in places)


def test_ranks_are_numbered_with_tp_fastest() -> None:
    layout = Layout(tp=2, cp=3, pp=2, dp=2)
    at = itertools.product(range(2), range(2), range(3), range(2))
    assert [tuple(layout.coordinates(r)[n] for n in ("dp", "pp", "cp", "tp")) for r in range(24)] == list(at)


@pytest.mark.parametrize("replicated", [False, True])
def test_every_shard_has_one_name_and_one_writer(replicated: bool) -> None:
    layout = Layout(tp=2, cp=2, pp=2, dp=2)
    for replica in range(2):
        mine = [rank for rank in range(layout.world) if layout.coordinates(rank)["dp"] == replica]
        writers = [layout.shard(rank, replicated) for rank in mine if layout.is_writer(rank, replicated)]
        assert len(writers) == len(set(writers)) == (4 if replicated else 8)
        assert set(writers) == {layout.shard(rank, replicated) for rank in mine}
    assert all(is_key(name) for name in writers)
    assert layout.shard(5) == "1_2_0_2_1_2"
    assert Layout(tp=4).shard(1) != Layout(tp=2, cp=2).shard(1), "another shape, other bytes, another name"


@pytest.mark.parametrize("sizes", [{"tp": 0}, {"pp": True}, {"dp": -1}])
def test_impossible_layouts_are_refused_in_one_line(sizes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=rf"^{next(iter(sizes))} must be an integer >= 1"):
        Layout(**sizes)
    with pytest.raises(ValueError, match=r"^rank must lie in 0 \.\. 3, not 4$"):
        SQUARE.coordinates(4)


def test_a_layout_is_also_given_by_its_sizes() -> None:
    assert checked_layout({"tp": 2, "pp": 3}) == Layout(tp=2, pp=3)
    for wrong in ({"ranks": 2}, 2):
        with pytest.raises(ValueError, match=r"^layout must have sizes of tp, cp, pp and dp, not "):
            checked_layout(wrong)  # type: ignore[arg-type]


# ---- agreements


@pytest.mark.parametrize("layout", [SQUARE, STAGES, CUBE, LINE, Layout(tp=3)], ids=str)
def test_a_call_is_one_of_all_ranks(layout: Layout) -> None:
    threads = Threads(layout)
    size = layout.world
    assert threads.run([lambda g: g.sched.all_min([g.rank, -g.rank])] * size) == [[0, 1 - size]] * size
    assert threads.run([lambda g: g.query.all_max([g.rank, -g.rank])] * size) == [[size - 1, 0]] * size
    assert threads.run([lambda g: g.sched.barrier() or "met"] * size) == ["met"] * size  # type: ignore[func-returns-value]
    for log in threads.logs:
        calls = [(e.data["group"], e.data["number"], e.data["call"]) for e in log.take_since(0) if e.kind == "joined"]
        assert calls == [("sched", 0, "min"), ("query", 0, "max"), ("sched", 1, "barrier")]


@pytest.mark.parametrize("missing", range(8))
def test_a_barrier_waits_for_every_rank(missing: int) -> None:
    threads = Threads(CUBE)
    call = lambda g: g.sched.barrier() or "met"  # noqa: E731
    calls: list[Any] = [call] * 8
    calls[missing] = None
    assert threads.run(calls) == [None] * 8
    assert threads.run([call if rank == missing else None for rank in range(8)])[missing] == "met"


def test_the_first_stage_decides_and_the_others_are_told() -> None:
    threads = Threads(STAGES)
    have = [[4, 1], [2, 3], [0, 0], [9, 9]]
    told = threads.run([lambda g: g.sched.first_min(have[g.rank])] * 4)
    assert told == [[2, 1]] * 4, "what the second stage has does not count"


def test_the_first_stage_does_not_wait_for_the_last() -> None:
    threads = Threads(LINE)
    ask = lambda g: g.sched.first_min([g.rank + 5])  # noqa: E731
    assert threads.run([ask, None, None]) == [[5], None, None]
    assert threads.run([ask, None, None]) == [[5], None, None]
    assert threads.run([None, ask, ask]) == [None, [5], [5]]
    assert threads.run([None, None, ask]) == [None, None, None], "the second stage has not made its second call"
    assert threads.run([None, ask, None])[1] == [5]


def test_without_stages_the_first_stage_is_everybody() -> None:
    threads = Threads(SQUARE)
    assert threads.run([lambda g: g.sched.first_min([g.rank + 1])] * 4) == [[1]] * 4


def test_replicas_do_not_wait_for_each_other() -> None:
    threads = Threads(Layout(tp=2, dp=2))
    met = threads.run([lambda g: g.sched.all_max([g.rank]), lambda g: g.sched.all_max([7]), None, None])
    assert met == [[7], [7], None, None]
    assert [group.rank for group in threads.groups] == [0, 1, 0, 1]
    assert {group.size for group in threads.groups} == {2}


@pytest.mark.parametrize("layout", [SQUARE, STAGES], ids=str)
def test_a_rank_in_another_call_is_reported(layout: Layout) -> None:
    threads = Threads(layout)
    calls: list[Callable[[Groups], Any]] = [lambda g: g.sched.all_min([1])] * 3
    answers = threads.run([*calls, lambda g: g.sched.all_max([1])])
    assert sum(isinstance(answer, Desync) for answer in answers) >= 2


def test_a_stage_in_another_call_is_reported() -> None:
    threads = Threads(LINE)
    threads.run([lambda g: g.sched.first_min([1, 2]), None, None])
    answer = threads.run([None, lambda g: g.sched.first_min([1]), None])[1]
    assert isinstance(answer, Desync)
    assert "here call 1 of 1 values, from above call 1 of 2" in str(answer)


@pytest.mark.parametrize("layout", [SQUARE, CUBE, LINE], ids=str)
def test_who_is_told_of_an_end_ends_and_tells_the_others(layout: Layout) -> None:
    """§14.7: nobody waits for ever, whoever dies, and nobody goes on with fewer members."""

    def go_on_or_tell(groups: Groups) -> Any:
        try:
            return groups.sched.all_min([1])
        except GroupAborted as told:
            groups.abort(f"{groups.rank} was told: {told}")
            raise

    for dead in range(layout.world):
        threads = Threads(layout)
        calls: list[Any] = [go_on_or_tell] * layout.world
        calls[dead] = lambda g: g.abort("it died")
        answers = threads.run(calls)
        assert [rank for rank, answer in enumerate(answers) if answer is None] == [dead]
        assert all(isinstance(a, GroupAborted) and "it died" in str(a) for a in answers if a is not None)


def test_who_waits_for_a_word_is_told() -> None:
    threads = Threads(LINE)
    answers = threads.run([lambda g: g.abort("it died"), lambda g: g.sched.first_min([1]), None])
    assert str(answers[1]) == "it died"


def test_numbers_begin_again_in_every_group() -> None:
    threads = Threads(STAGES)
    threads.run([lambda g: g.sched.first_min([1])] * 4)
    for groups in threads.groups:
        groups.restart()
    assert threads.run([lambda g: g.sched.first_min([2])] * 4) == [[2]] * 4
    assert [e.data["number"] for e in threads.logs[3].take_since(0)] == [0, 0, 0, 0]


# ---- a cache on a grid


@pytest.mark.parametrize("replicated", [False, True])
@pytest.mark.parametrize("layout", [SQUARE, STAGES, CUBE, Layout(cp=2)], ids=str)
def test_each_shard_is_stored_once_and_found_by_who_holds_it(layout: Layout, replicated: bool) -> None:
    """P19, P32. Of ranks with the same bytes one stores them; no other name is ever used."""
    store = MemoryStorage()
    pools = [{**DRAFT, "replicated": not replicated}]
    s = Scenario(store, layout=layout, replicated=replicated, pools=pools)
    s.reference.prefill(tokens(1, 3))
    s.reference.quiesce()
    shards = {layout.shard(rank, replicated) for rank in s.ranks}
    draft_shards = {layout.shard(rank, not replicated) for rank in s.ranks}
    assert store.stats()["puts"] == 3 * (len(shards) + len(draft_shards))
    assert len(shards) == layout.ranks // (layout.tp if replicated else 1)
    stored = [counters["stored_pages"] for counters in s.reference.counters()]
    assert stored == [3 if layout.is_writer(rank, replicated) else 0 for rank in s.ranks]
    assert s.reference.audit_stores() == []
    again = Scenario(store, layout=layout, replicated=replicated, pools=pools)
    again.submit("a", tokens(1, 3), stored=0)
    again.turn()
    assert again.poll("a") == (True, "fetched", "complete", 3)
    again.finish()
    other = Scenario(store, layout=Layout(tp=3), pools=pools)
    other.submit("a", tokens(1, 3), stored=0)
    other.turn()
    assert other.ends() == [(("a", 1), "revoked", "below_threshold")], "pages of another shape are other pages"
    other.finish()
    s.finish()


def test_replicas_are_systems_of_their_own() -> None:
    with pytest.raises(ValueError, match=r"^dp must be 1, not 2: replicas are systems of their own$"):
        Scenario(layout=Layout(tp=2, dp=2))


@pytest.mark.heavy
@pytest.mark.parametrize("axis", ["cp", "tp"])
def test_a_grid_conforms(axis: str) -> None:
    run = run_stateful(lambda: Reference(arrange=lambda ranks: Layout(**{axis: ranks})), 2, "wait_complete", 40)
    assert run.failure is None, run.failure


GRIDS = (SQUARE, STAGES, Layout(pp=4), Layout(cp=4))


def calls_of(s: Scenario) -> list[list[tuple[Any, ...]]]:
    """The collectives of each rank's scheduler, in order."""
    return [
        [(e.data["number"], e.data["call"]) for e in s.events("joined", rank=rank) if e.data["group"] == "sched"]
        for rank in s.ranks
    ]


@pytest.mark.parametrize("layout", GRIDS, ids=str)
def test_a_prefetch_on_a_grid(layout: Layout) -> None:
    s = Scenario(layout=layout)
    s.submit("a", tokens(1, 6))
    s.submit("b", tokens(2, 2))
    s.turn()
    assert s.poll("a") == (True, "fetched", "complete", 6)
    assert s.poll("b") == (True, "fetched", "complete", 2)
    s.finish()
    calls = calls_of(s)
    assert calls[0]
    assert calls == [calls[0]] * 4


@pytest.mark.parametrize("layout", GRIDS, ids=str)
@pytest.mark.parametrize("rank", range(4))
def test_one_rank_of_a_grid_decides_for_all(layout: Layout, rank: int) -> None:
    s = Scenario(layout=layout, policy="best_effort")
    name = s.reference.storage_keys(tokens(1, 5), rank)[4]
    s.reference.store(tokens(1, 5))
    s.reference.faults[rank].miss("exists", lambda key: key == name)
    s.runtime.hold("io.page", rank)
    s.submit("a", tokens(1, 5))
    s.turn()
    for _ in range(2):
        s.runtime.step("io.page", rank)
        s.reference.settle()
    assert [e.data["hit"] for r in s.ranks for e in s.events("query_agreed", rank=r)] == [4] * 4
    assert s.poll("a") == (True, "fetched", "policy", 2)
    s.runtime.release("io.page", rank)
    s.finish()


@pytest.mark.parametrize("layout", GRIDS, ids=str)
@pytest.mark.parametrize("rank", range(4))
def test_an_abort_on_a_grid_returns_every_page(layout: Layout, rank: int) -> None:
    s = Scenario(layout=layout)
    s.runtime.hold("io.page", rank)
    s.submit("a", tokens(1, 4))
    s.turn()
    s.reference.abort("a")
    s.runtime.release("io.page", rank)
    s.turn()
    s.turn()
    assert s.free() == 8
    s.finish()
    calls = calls_of(s)
    assert ("barrier") in [call for _, call in calls[0]]
    assert calls == [calls[0]] * 4


@pytest.mark.parametrize("layout", GRIDS, ids=str)
@pytest.mark.parametrize("requests", [1, 6])
def test_no_call_makes_a_collective_for_each_request(layout: Layout, requests: int) -> None:
    """What a scheduler's call costs in collectives does not depend on how many requests it is about."""
    s = Scenario(layout=layout, host_pages=32)
    rids = [f"r{number}" for number in range(requests)]

    def cost(call: Callable[[], Any]) -> list[str]:
        before = len(calls_of(s)[0])
        call()
        made = [calls[before:] for calls in calls_of(s)]
        assert made == [made[0]] * len(s.ranks), "every rank makes the same"
        return [kind for _, kind in made[0]]

    tick = "tell" if layout.pp > 1 else "min"
    assert cost(lambda: [s.submit(rid, tokens(place, 2)) for place, rid in enumerate(rids)]) == []
    s.reference.settle()
    assert cost(s.reference.tick) == [tick], "it grants to all"
    s.reference.settle()
    assert cost(lambda: s.reference.poll(rids)) == ["max", "min"], "it publishes all"
    assert cost(lambda: s.reference.poll(rids)) == ["max"]
    assert cost(lambda: s.reference.prefill(tokens(0, 2))) == []
    assert cost(lambda: s.reference.evict_device(2)) == []
    for place, rid in enumerate(rids):
        s.submit(rid, tokens(9 + place, 2))
    assert cost(lambda: [s.reference.stop(rid) for rid in rids]) == []
    s.reference.settle()
    assert cost(s.reference.tick) == [tick], "it revokes all"
    for place, rid in enumerate(rids):
        s.submit(rid, tokens(20 + place, 2))
    s.turn()
    detached = cost(s.reference.detach)
    assert detached[0] == detached[-1] == "barrier", "it aborts all; all threads have ended"
    assert detached.count("barrier") == 2
    s.reference.close()


@pytest.fixture
def two_stages() -> Scenario:
    """Two stages of two ranks; the query thread of the last rank holds an agreed hit back."""
    s = Scenario(layout=STAGES)
    s.runtime.hold("query.agreed", 3)
    s.submit("a", tokens(1, 2))
    s.reference.settle()
    return s


def test_a_later_stage_waits_for_its_own_query_thread(two_stages: Scenario) -> None:
    """The first stage has the answer and says so; the second takes it when its own thread has put it."""
    s = two_stages
    assert [cache.controller.hit_queue.qsize() for cache in s.reference.caches] == [1, 1, 1, 0]
    threading.Timer(0.2, lambda: s.runtime.release("query.agreed", 3)).start()
    s.reference.tick()
    assert [len(s.events("allocated", rank=rank)) for rank in s.ranks] == [1, 1, 1, 1]
    s.reference.settle()
    assert s.poll("a") == (True, "fetched", "complete", 2)
    s.finish()


def test_no_stage_waits_for_what_is_not_given_up_there() -> None:
    """P5. The first stage gives up pages that have landed on the second, which gives them up when all agree."""
    s = Scenario(layout=Layout(pp=2), tree="hi_mamba", pools=[STATE, DRAFT])
    s.reference.break_storage(0, "get", "miss")
    s.submit("a", tokens(1, 4))
    s.turn()
    s.turn()
    caches = s.reference.caches
    assert [cache.controller.queue_lengths()["release"] for cache in caches] == [4, 0]
    assert [cache.controller.queue_lengths()["release draft"] for cache in caches] == [4, 0]
    s.reference.quiesce()
    assert s.poll("a") == (True, "fetched", "failed_page", 0)
    s.turn()
    s.turn()
    assert s.free() == 8
    assert [(cache.owed_pages, cache.owed_slots.total()) for cache in caches] == [(0, 0)] * 2
    s.finish()


def test_a_later_stage_does_not_wait_for_ever(two_stages: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hicache_impl.drain.HANDED_DOWN_S", 0.2)
    with pytest.raises(Stalled, match=r"rank 3 was told of more than its workers brought in 0\.2 s"):
        two_stages.reference.tick()
