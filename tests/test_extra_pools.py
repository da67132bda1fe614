"""Operations on models that keep more than pages: sidecars, windows and states, from the look-up to the last slot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from cache_scenario import Scenario, tokens
from hicache_impl.audit import Synthetic
from hicache_impl.config import CacheConfig
from hicache_impl.keys import chain_hashes
from hicache_impl.page_pool import DoubleFree
from hicache_impl.pool_spec import PoolSpec
from hicache_impl.storage import open_storage
from hicache_impl.trees.components import HOST, TIERS

DRAFT = {"name": "draft", "kind": "sidecar", "layers": 2, "layer_bytes": 8}
INDEX = {"name": "index", "kind": "sidecar", "place": "packed"}
STATE: dict[str, Any] = {"name": "state", "kind": "state", "host_slots": 8, "device_slots": 8}
WINDOW = {"name": "window", "kind": "window", "window_pages": 2, "host_slots": 16, "device_slots": 16}
SIDECARS: dict[str, Any] = {"pools": [DRAFT, INDEX]}
STATES: dict[str, Any] = {"tree": "hi_mamba", "pools": [STATE]}
WINDOWS: dict[str, Any] = {"tree": "unified", "pools": [WINDOW]}
ALL: dict[str, Any] = {"tree": "unified", "pools": [DRAFT, INDEX, WINDOW, STATE]}
MODELS = {"sidecars": SIDECARS, "states": STATES, "windows": WINDOWS, "all": ALL}


def key_of(s: Scenario, pool: str, prompt: list[int], rank: int) -> str:
    """The name in storage of what is beside the last page of a prompt."""
    page_hash = chain_hashes(s.reference.key(prompt))[-1]
    return s.reference.caches[rank].extra[pool].key(page_hash, rank)


def lose(s: Scenario, call: Any, pool: str, prompt: list[int], rank: int = 0) -> None:
    """One rank's store no longer has what is beside the last page of a prompt."""
    s.reference.faults[rank].miss(call, where=key_of(s, pool, prompt, rank).__eq__)


def free_slots(s: Scenario, pool: str) -> int:
    """Free host slots, the same on all ranks."""
    free: int = s.reference.observe()["slots"][pool][0]
    return free


def allocated(s: Scenario) -> list[tuple[int, int]]:
    """(pages, hit) of each grant."""
    return [(event.data["pages"], event.data["hit"]) for event in s.events("allocated")]


# --- there and back ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("kind", ["memory", "file"])
def test_round_trip(kind: str, model: str, ranks: int, tmp_path: Path) -> None:
    """Device -> host -> storage in one life, storage -> host -> device in the next, with what is beside the pages."""
    store = open_storage("memory" if kind == "memory" else f"file:{tmp_path}")
    prompt = tokens(1, 6)
    first = Scenario(storage=store, ranks=ranks, **MODELS[model])
    assert first.reference.prefill(prompt).computed_pages == 6
    first.reference.quiesce()
    assert first.reference.audit_stores() == []
    first.finish()

    second = Scenario(storage=store, ranks=ranks, **MODELS[model])
    second.reference.submit("a", [*prompt, 7, 8])
    second.turn()
    assert second.poll("a") == (True, "fetched", "complete", 6)
    found = second.reference.prefill([*prompt, 7, 8])
    assert (found.device_pages, found.host_pages, found.computed_pages, found.wrong) == (0, 6, 2, ())
    assert second.reference.prefill(prompt[:6]).device_pages == 6
    second.finish()


@pytest.mark.parametrize("model", MODELS)
def test_write_through_and_load_back(model: str, scenario: Callable[..., Scenario]) -> None:
    s = scenario(**MODELS[model])
    s.reference.prefill(tokens(1, 4))
    s.reference.quiesce()
    assert s.reference.evict_device(4) == 4
    for pool, (_, _, device_free, on_device) in s.reference.observe()["slots"].items():
        assert on_device == 0, pool
        assert device_free == s.reference.caches[0].extra[pool].device.pages, pool
    back = s.reference.prefill(tokens(1, 5))
    assert (back.device_pages, back.host_pages, back.computed_pages, back.wrong) == (0, 4, 1, ())


def test_a_packed_sidecar_is_part_of_the_page(scenario: Callable[..., Scenario]) -> None:
    s = scenario(pools=[{**INDEX, "layers": 3}])
    (pool, *_) = (cache.host for cache in s.reference.caches)
    assert pool.data.shape == (8, 2 + 3, 8), "two layers of the page, and three of its sidecar"
    assert s.reference.caches[0].extra == {}
    s.fetch("a", tokens(1, 3))


# --- the look-up ---------------------------------------------------------------------------------------------------


def test_a_hit_ends_where_a_state_is_stored(scenario: Callable[..., Scenario]) -> None:
    s = scenario(**STATES)
    s.reference.store(tokens(1, 2))
    s.submit("a", tokens(1, 5), stored=3)
    s.turn()
    assert allocated(s) == [(3, 3)]
    assert s.poll("a") == (True, "fetched", "complete", 3)
    assert s.reference.prefill(tokens(1, 5)).host_pages == 3


def test_pages_without_a_state_are_no_hit(scenario: Callable[..., Scenario]) -> None:
    s = scenario(**STATES)
    s.reference.store(tokens(1, 4))
    s.submit("a", tokens(1, 3), stored=0)
    s.turn()
    assert s.ends() == [(("a", 1), "revoked", "below_threshold")]


def test_the_ranks_agree_on_an_end_that_serves_on_all_of_them() -> None:
    """MIN over the last ends would be 3, of which rank 1 has no state."""
    s = Scenario(ranks=2, **STATES)
    for pages in (2, 3, 4):
        s.reference.store(tokens(1, pages))
    lose(s, "exists", "state", tokens(1, 4), rank=0)
    lose(s, "exists", "state", tokens(1, 3), rank=1)
    s.reference.submit("a", tokens(1, 4))
    s.turn()
    assert allocated(s) == [(2, 2)]
    assert [event.data["hit"] for rank in (0, 1) for event in s.events("query_asked", rank=rank)] == [2, 2]
    assert s.poll("a") == (True, "fetched", "complete", 2)
    s.finish()


def test_a_missing_sidecar_shortens_the_hit(scenario: Callable[..., Scenario]) -> None:
    s = scenario(**SIDECARS)
    lose(s, "exists", "draft", tokens(1, 3), rank=s.ranks[-1])
    s.submit("a", tokens(1, 5))
    s.turn()
    assert allocated(s) == [(2, 2)]
    assert s.poll("a") == (True, "fetched", "complete", 2)


def test_a_window_reaches_back_over_what_is_known(scenario: Callable[..., Scenario]) -> None:
    """Of the last three pages two are known; what was beside them is gone, so all three are fetched."""
    s = scenario(tree="unified", pools=[{**WINDOW, "window_pages": 3}], threshold_pages=1)
    s.fetch("a", tokens(1, 4))
    s.submit("b", tokens(1, 5))
    for cache in s.reference.caches:
        evicted = cache.tree.evict_slots("window", HOST, 3)
        cache.extra["window"].host.allocator.free(evicted)
    s.turn()
    assert s.poll("b") == (True, "fetched", "complete", 1)
    assert s.reference.prefill(tokens(1, 5)).host_pages == 5


def test_a_window_page_that_is_known_is_taken_once(scenario: Callable[..., Scenario]) -> None:
    s = scenario(**WINDOWS, threshold_pages=1)
    s.fetch("a", tokens(1, 4))
    free = free_slots(s, "window")
    s.fetch("b", tokens(1, 5))
    assert free_slots(s, "window") == free - 1
    assert s.reference.prefill(tokens(1, 5)).host_pages == 5


def test_a_store_that_raises_has_nothing_beside_the_pages(scenario: Callable[..., Scenario]) -> None:
    s = scenario(**ALL)
    rank = s.ranks[-1]
    s.reference.store(tokens(1, 3))
    s.reference.faults[rank].raise_on("exists", where=key_of(s, "state", tokens(1, 3), rank).__eq__)
    s.reference.submit("a", tokens(1, 3))
    s.turn()
    assert s.ends() == [(("a", 1), "revoked", "below_threshold")]
    assert s.reference.counters()[rank]["storage_errors"]["exists"] == 1


# --- reading -------------------------------------------------------------------------------------------------------


def test_a_page_counts_only_with_its_sidecar(scenario: Callable[..., Scenario]) -> None:
    s = scenario(**SIDECARS)
    rank = s.ranks[-1]
    lose(s, "get", "draft", tokens(1, 3), rank=rank)
    s.submit("a", tokens(1, 5))
    s.turn()
    assert s.poll("a") == (True, "fetched", "failed_page", 2)
    s.reference.quiesce()
    assert free_slots(s, "draft") == s.free() == 6
    assert s.reference.prefill(tokens(1, 5)).host_pages == 2


@pytest.mark.parametrize(("model", "pool"), [("states", "state"), ("windows", "window"), ("all", "draft")])
def test_of_a_prefix_that_cannot_be_read_whole_nothing_is_published(
    model: str, pool: str, scenario: Callable[..., Scenario]
) -> None:
    s = scenario(**MODELS[model])
    lose(s, "get", pool, tokens(1, 4), rank=s.ranks[-1])
    s.submit("a", tokens(1, 4))
    s.turn()
    assert s.poll("a") == (True, "fetched", "failed_page", 0)
    s.reference.quiesce()
    assert s.free() == 8
    for name, (free, resident, *_) in s.reference.observe()["slots"].items():
        assert (free, resident) == (s.reference.caches[0].extra[name].host.pages, 0), name


def test_a_stop_in_the_middle_publishes_nothing_of_a_model_with_states(scenario: Callable[..., Scenario]) -> None:
    s = scenario(**ALL, policy="best_effort")
    s.runtime.hold("io.beside", s.ranks[-1])
    s.submit("a", tokens(1, 4))
    s.turn()
    assert s.poll("a") == (True, "fetched", "policy", 0)
    s.runtime.release_all()
    s.reference.quiesce()
    assert s.free() == 8
    assert free_slots(s, "state") == 8


def test_a_store_that_raises_while_a_state_is_read_fails_the_operation(scenario: Callable[..., Scenario]) -> None:
    s = scenario(**STATES)
    rank = s.ranks[-1]
    s.reference.faults[rank].raise_on("get", where=key_of(s, "state", tokens(1, 3), rank).__eq__)
    s.submit("a", tokens(1, 3))
    s.turn()
    assert s.poll("a") == (True, "fetched", "failed_page", 0)
    assert s.reference.counters()[rank]["storage_errors"]["get"] == 1


# --- the grant -----------------------------------------------------------------------------------------------------


def test_without_a_slot_for_the_state_nothing_is_granted(scenario: Callable[..., Scenario]) -> None:
    s = scenario(tree="hi_mamba", pools=[{**STATE, "host_slots": 1}])
    s.runtime.hold("io.take")
    s.submit("a", tokens(1, 2))
    s.submit("b", tokens(2, 3))
    s.turn()
    assert [(event.op, event.data["pages"]) for event in s.events("clamped")] == [(("b", 1), 0)]
    assert s.ends() == [(("b", 1), "revoked", "below_threshold")]
    assert s.free() == 6, "no page is kept of an operation that is refused"
    s.runtime.release_all()
    s.turn()
    assert s.poll("a") == (True, "fetched", "complete", 2)


def test_the_last_slot_is_taken_from_who_used_it_least(scenario: Callable[..., Scenario]) -> None:
    s = scenario(tree="hi_mamba", pools=[{**STATE, "host_slots": 2}])
    s.fetch("a", tokens(1, 2))
    s.fetch("b", tokens(2, 2))
    s.fetch("c", tokens(3, 2))
    assert s.events("clamped", "evicted") == [], "a state goes alone, its pages stay"
    assert s.reference.counters()[0]["evicted_slots"] == 1
    assert s.reference.prefill(tokens(2, 2)).host_pages == 2
    assert s.reference.prefill(tokens(1, 2)).host_pages == 0


def test_short_of_pages_an_earlier_state_is_fetched(scenario: Callable[..., Scenario]) -> None:
    s = scenario(**STATES)
    s.runtime.hold("io.take")
    s.submit("full", tokens(9, 4))
    s.reference.store(tokens(1, 2))
    s.submit("a", tokens(1, 5))
    s.turn()
    assert [event.data["pages"] for event in s.events("clamped")] == [2], "four pages are free, and no state is there"
    assert allocated(s) == [(4, 4), (2, 2)]
    s.runtime.release_all()
    s.turn()
    assert s.poll("a") == (True, "fetched", "complete", 2)
    assert s.poll("full") == (True, "fetched", "complete", 4)


def test_pages_whose_state_is_gone_are_known_when_they_are_fetched_again(scenario: Callable[..., Scenario]) -> None:
    s = scenario(tree="hi_mamba", pools=[{**STATE, "host_slots": 1}])
    s.fetch("a", tokens(1, 3))
    s.fetch("b", tokens(2, 2))
    s.fetch("a", tokens(1, 3))
    fetched = [(event.data["pages"], event.data["known"]) for event in s.events("fetched")]
    assert fetched == [(3, 0), (2, 0), (3, 3)]
    assert s.free() == 3
    assert s.reference.prefill(tokens(1, 3)).host_pages == 3


# --- giving back ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gate", ["io.take", "io.page", "io.copied", "io.beside", "none"])
@pytest.mark.parametrize("model", MODELS)
def test_an_abort_gives_everything_back(model: str, gate: str, scenario: Callable[..., Scenario]) -> None:
    s = scenario(**MODELS[model])
    if gate != "none":
        s.runtime.hold(gate, s.ranks[-1])
    s.submit("a", tokens(1, 4))
    s.turn()
    assert s.reference.abort("a")
    s.runtime.release_all()
    s.reference.quiesce()
    assert s.free() == 8
    for name, (free, *_) in s.reference.observe()["slots"].items():
        assert free == s.reference.caches[0].extra[name].host.pages, name


def test_what_landed_on_one_rank_alone_goes_back_by_each_pool_s_queue() -> None:
    s = Scenario(ranks=2, **ALL)
    s.runtime.hold("io.page", 1)
    s.submit("a", tokens(1, 4))
    s.turn()
    s.reference.stop("a")
    assert s.poll("a") == (True, "fetched", "stopped", 0)
    queues = [cache.controller.queue_lengths() for cache in s.reference.caches]
    assert {name: length for name, length in queues[0].items() if length} == {
        "release": 4,
        "release draft": 4,
        "release window": 2,
        "release state": 1,
    }
    s.reference.tick()
    assert s.free() == 4, "rank 1 has nothing to give back yet, so rank 0 keeps it queued"
    s.runtime.release_all()
    s.reference.quiesce()
    assert s.free() == 8
    assert s.reference.counters()[0]["reclaimed_slots"] == 4 + 2 + 1
    s.finish()


@pytest.mark.parametrize("model", MODELS)
def test_detach_and_reset_give_everything_back(model: str, scenario: Callable[..., Scenario]) -> None:
    s = scenario(**MODELS[model])
    before = s.reference.observe()
    s.fetch("a", tokens(1, 2))
    s.submit("b", tokens(2, 3))
    s.reference.tick()
    assert s.reference.detach()
    assert s.reference.audit() == []
    assert s.reference.attach()
    s.fetch("c", tokens(2, 3))
    s.submit("d", tokens(3, 3))
    assert s.reference.flush()
    assert s.reference.observe() == before
    s.fetch("a", tokens(1, 2))


@pytest.mark.parametrize("gate", ["query.agreed", "io.copied", "io.beside", "backup.take"])
def test_close_gives_everything_back(gate: str) -> None:
    s = Scenario(ranks=2, **ALL)
    s.runtime.hold(gate)
    s.reference.prefill(tokens(2, 3))
    s.submit("a", tokens(1, 4))
    s.turn()
    s.reference.close()
    for cache in s.reference.caches:
        for name, pool in cache.extra.items():
            in_tree = cache.tree.slots_resident[name, HOST]
            assert pool.host.allocator.available + in_tree == pool.host.pages, name
        assert cache.tree.held == {}


# --- between the tiers ---------------------------------------------------------------------------------------------


def test_a_state_that_comes_later_is_written_and_stored_alone(scenario: Callable[..., Scenario]) -> None:
    s = scenario(**STATES)
    s.reference.prefill(tokens(1, 4))
    s.reference.prefill([*tokens(1, 2), 77])
    s.reference.quiesce()
    s.reference.prefill(tokens(1, 2))
    s.reference.quiesce()
    assert [event.data["pages"] for event in s.events("written")] == [4, 1, 0]
    assert [event.data["pages"] for event in s.events("stored")] == [4, 1, 0]
    assert s.reference.counters()[0]["stored_slots"] == 3
    assert s.reference.audit_stores() == []


def test_slots_are_held_while_they_are_stored_also_above_a_split(scenario: Callable[..., Scenario]) -> None:
    s = scenario(tree="unified", pools=[{**WINDOW, "window_pages": 4, "host_slots": 4}], host_pages=16)
    s.runtime.hold("backup.take")
    s.reference.prefill(tokens(1, 4))
    s.reference.prefill([*tokens(1, 2), 7])
    s.reference.prefill(tokens(2, 4))
    assert [event.data["pages"] for event in s.events("written")] == [4], "there is no slot for the others"
    s.runtime.release_all()
    s.reference.quiesce()
    assert s.reference.audit_stores() == []
    s.reference.prefill(tokens(3, 4))
    assert [event.data["pages"] for event in s.events("written")] == [4, 4]


def test_what_the_device_has_no_slot_for_is_not_kept(scenario: Callable[..., Scenario]) -> None:
    """The state of the prefix that is being used is locked, so the longer one gets none."""
    s = scenario(tree="hi_mamba", pools=[{**STATE, "device_slots": 1}])
    s.reference.prefill(tokens(1, 2))
    assert s.reference.prefill(tokens(1, 4)).device_pages == 2
    assert s.reference.prefill(tokens(1, 4)).device_pages == 2
    assert s.reference.prefill(tokens(2, 2)).device_pages == 0, "nobody uses it now, so it makes room"
    found = s.reference.prefill(tokens(1, 2))
    assert (found.device_pages, found.host_pages, found.computed_pages) == (2, 0, 0)
    assert s.reference.counters()[0]["loaded_slots"] == 1, "the pages are there, and the state comes from the host"


@pytest.mark.parametrize("async_copies", [False, True])
def test_a_state_that_leaves_the_device_is_written_first(async_copies: bool, scenario: Callable[..., Scenario]) -> None:
    """By the policy write_back nothing of the first prompt is on the host when the second needs its slot."""
    one_state = {**STATE, "device_slots": 1}
    s = scenario(tree="hi_mamba", pools=[one_state], write_policy="write_back", async_copies=async_copies)
    s.reference.prefill(tokens(1, 3))
    s.reference.prefill(tokens(2, 2))
    assert [event.data["pages"] for event in s.events("written")] == [3]
    s.reference.quiesce()
    again = s.reference.prefill(tokens(1, 3))
    assert (again.device_pages, again.host_pages, again.computed_pages) == (3, 0, 0)


def test_making_room_on_the_device_does_not_take_what_is_to_be_loaded(scenario: Callable[..., Scenario]) -> None:
    """There is one slot on each tier. The first prompt's is on the device, the second's on the host."""
    s = scenario(tree="hi_mamba", pools=[{**STATE, "host_slots": 1, "device_slots": 1}])
    s.reference.prefill(tokens(3, 2))
    s.reference.quiesce()
    s.fetch("a", tokens(1, 2))
    found = s.reference.prefill(tokens(1, 2))
    assert (found.device_pages, found.host_pages, found.computed_pages, found.wrong) == (0, 2, 0, ())


def test_what_cannot_be_loaded_is_computed(scenario: Callable[..., Scenario]) -> None:
    s = scenario(tree="hi_mamba", pools=[{**STATE, "device_slots": 1}])
    s.fetch("a", tokens(1, 4))
    s.reference.prefill(tokens(2, 2))
    for cache in s.reference.caches:
        node = cache.match(s.reference.key(tokens(2, 2))).device_node
        cache.lock(node)
    found = s.reference.prefill(tokens(1, 4))
    assert (found.device_pages, found.host_pages, found.computed_pages) == (0, 0, 4)
    for cache in s.reference.caches:
        cache.unlock(cache.match(s.reference.key(tokens(2, 2))).device_node)


def test_a_failed_put_beside_the_pages_is_counted(scenario: Callable[..., Scenario]) -> None:
    s = scenario(**ALL)
    for rank in s.ranks:
        lose(s, "put", "draft", tokens(1, 2), rank)
    s.reference.prefill(tokens(1, 3))
    s.reference.quiesce()
    counters = s.reference.counters()[0]
    assert (counters["stored_pages"], counters["unstored_pages"]) == (3, 0)
    assert (counters["stored_slots"], counters["unstored_slots"]) == (3 + 2 + 1 - 1, 1)
    s.reference.heal_storage()
    assert s.reference.audit_stores() == []


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_replicated_pages_are_stored_once_and_their_sidecars_by_every_rank(ranks: int) -> None:
    store = open_storage("memory")
    states = {**STATE, "replicated": True}
    model: dict[str, Any] = {"tree": "unified", "pools": [DRAFT, states], "replicated": True}
    first = Scenario(storage=store, ranks=ranks, **model)
    first.reference.prefill(tokens(1, 4))
    first.reference.quiesce()
    assert store.stats()["puts"] == 4 + 1 + 4 * ranks
    counters = first.reference.counters()
    assert [each["stored_pages"] for each in counters] == [4] + [0] * (ranks - 1)
    assert [each["stored_slots"] for each in counters] == [5] + [4] * (ranks - 1)
    assert first.reference.audit_stores() == []
    first.finish()
    second = Scenario(storage=store, ranks=ranks, **model)
    second.reference.submit("a", tokens(1, 4))
    second.turn()
    assert second.poll("a") == (True, "fetched", "complete", 4)
    second.finish()


# --- the audit can fail --------------------------------------------------------------------------------------------

DAMAGE: dict[str, tuple[str, Callable[[Any], object]]] = {
    "leak": (r"P4 host slots \[\d\] of state", lambda cache: cache.extra["state"].host.allocator.alloc(1)),
    "stray": ("P13 host slots", lambda cache: cache.extra["window"].host.allocator.free(
        [next(iter(next(cache.tree.nodes()).slots_of("window", HOST).values()))]
    )),
    "writer": ("P18 1 host slots of draft", lambda cache: cache.extra["draft"].host.allocator.begin_write(
        cache.extra["draft"].host.allocator.allocated_pages()[0]
    )),
    "bytes": ("P6 wrong bytes in device slots", lambda cache: cache.extra["state"].device.data.zero_()),
    "held": ("P14 slots are still held", lambda cache: cache.tree.hold_slots(next(cache.tree.nodes()))),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_audit_sees(name: str) -> None:
    expected, damage = DAMAGE[name]
    s = Scenario(**ALL)
    s.reference.prefill(tokens(1, 3))
    s.reference.quiesce()
    assert s.reference.audit() == []
    damage(s.reference.caches[0])
    with pytest.raises(AssertionError, match=expected):
        assert s.reference.audit() == [], "\n".join(s.reference.audit())
    s.reference.close()


class Zeros:
    """A model for which everything is zero."""

    def __init__(self, cache: Any) -> None:
        self._cache = cache

    def page(self, page_hash: bytes) -> torch.Tensor:
        return torch.zeros_like(self._cache.device.view(0))

    def slot(self, pool: str, page_hash: bytes) -> torch.Tensor:
        return torch.zeros_like(self._cache.extra[pool].device.view(0))


def test_the_audit_takes_what_a_model_has_computed() -> None:
    s = Scenario(**ALL)
    s.reference.prefill(tokens(1, 3))
    s.reference.quiesce()
    (cache,) = s.reference.caches
    problems = "\n".join(cache.audit(Zeros(cache)))
    for what in ("host pages", "device pages", *(f"{tier} slots" for tier in TIERS)):
        assert f"P6 wrong bytes in {what}" in problems
    for pool in (cache.host, cache.device, *(each.on(tier) for each in cache.extra.values() for tier in TIERS)):
        pool.data.zero_()
    assert cache.audit(Zeros(cache)) == []
    s.reference.close()


# --- slots that the model fills ------------------------------------------------------------------------------------


def test_a_model_has_slots_until_it_hands_them_over(scenario: Callable[..., Scenario]) -> None:
    s = scenario(tree="hi_mamba", pools=[{**STATE, "device_slots": 2}])
    key = s.reference.key(tokens(1, 2))
    for cache in s.reference.caches:
        pages, slots = cache.alloc_device(2), cache.alloc_device_slots("state", 2)
        assert pages is not None
        assert slots is not None
        assert cache.alloc_device_slots("state", 1) is None
        cache.free_device_slots("state", slots[:1])
        for page, page_hash in zip(pages, chain_hashes(key), strict=True):
            cache.device.view(page).copy_(Synthetic(cache).page(page_hash))
        cache.extra["state"].device.view(slots[1]).copy_(Synthetic(cache).slot("state", chain_hashes(key)[-1]))
        inserted = cache.insert(key, pages, {"state": {1: slots[1]}})
        assert cache.match(key).ready_pages == 2
        cache.lock(inserted.node)
        assert cache.alloc_device_slots("state", 2) is None
        cache.unlock(inserted.node)
    s.reference.quiesce()
    assert s.reference.audit() == []
    for cache in s.reference.caches:
        # What nobody uses makes room, and is on the host.
        slots = cache.alloc_device_slots("state", 2)
        assert slots is not None
        assert (cache.match(key).ready_pages, len(cache.match(key).device_pages)) == (0, 2)
        cache.free_device_slots("state", slots)
        with pytest.raises(KeyError):
            cache.alloc_device_slots("draft", 1)
        with pytest.raises(DoubleFree):
            cache.free_device_slots("state", slots)


# --- the configuration ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"tree": "radix"}, "tree must be one of"),
        ({"pools": [STATE]}, "HiRadixTree has no place for state"),
        ({"tree": "hi_mamba", "pools": [WINDOW]}, "HiMambaTree has no place for window"),
        ({"pools": [DRAFT, {**INDEX, "name": "draft"}]}, "two components of one name"),
        ({"pools": 3}, "pools must be a list"),
        ({"replicated": 1}, "replicated must be true or false"),
        ({"pools": [{**DRAFT, "replicated": 2}]}, "replicated of draft"),
        ({"pools": [{**DRAFT, "colour": 1}]}, "is no pool"),
        ({"pools": [{**DRAFT, "name": "../x"}]}, "name must be"),
        ({"pools": [{**DRAFT, "kind": "other"}]}, "kind must be one of"),
        ({"pools": [{**DRAFT, "place": "other"}]}, "place must be one of"),
        ({"pools": [{**DRAFT, "layers": 0}]}, "layers of draft"),
        ({"pools": [{**DRAFT, "host_slots": 3}]}, "is a sidecar"),
        ({"tree": "hi_mamba", "pools": [{**STATE, "place": "packed"}]}, "is no sidecar"),
        ({"tree": "hi_mamba", "pools": [{**STATE, "window_pages": 2}]}, "window_pages of state"),
        ({"tree": "unified", "pools": [{**WINDOW, "window_pages": 0}]}, "window_pages of window"),
        ({"tree": "unified", "pools": [{**WINDOW, "host_slots": 1}]}, "of window must be >= 2"),
    ],
)
def test_a_configuration_that_cannot_be(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        CacheConfig(host_pages=4, device_pages=4, **fields)


def test_pools_may_be_given_as_fields_or_as_they_are() -> None:
    given = CacheConfig(host_pages=4, device_pages=4, **STATES)
    assert given.pools == (PoolSpec(**STATE),)
    assert CacheConfig(host_pages=4, device_pages=4, tree="hi_mamba", pools=given.pools) == given
    assert CacheConfig(host_pages=4, device_pages=4).pools == ()
