"""Between the tiers: what is written through, backed up, fetched and loaded back is the same, byte for byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cache_scenario import Scenario, tokens
from hicache_impl.storage import open_storage


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("kind", ["memory", "file"])
def test_round_trip(kind: str, ranks: int, tmp_path: Path) -> None:
    """Device -> host -> storage in one life, storage -> host -> device in the next."""
    store = open_storage("memory" if kind == "memory" else f"file:{tmp_path}")
    prompt = tokens(1, 6)
    first = Scenario(storage=store, ranks=ranks)
    computed = first.reference.prefill(prompt)
    assert (computed.device_pages, computed.host_pages, computed.computed_pages) == (0, 0, 6)
    first.finish()
    assert first.reference.counters()[0]["stored_pages"] == 6

    second = Scenario(storage=store, ranks=ranks)
    second.reference.submit("a", [*prompt, 7, 8])
    second.turn()
    assert second.poll("a") == (True, "fetched", "complete", 6)
    found = second.reference.prefill([*prompt, 7, 8])
    assert (found.device_pages, found.host_pages, found.computed_pages, found.wrong) == (0, 6, 2, ())
    assert second.reference.prefill(prompt).device_pages == 6
    second.finish()
    counters = second.reference.counters()[0]
    assert counters["hit_pages"] == {"storage": 6, "host": 6, "device": 6}
    assert counters["pages_verified"] == 6 + 2 * 8


@pytest.mark.parametrize("ranks", [1, 2])
def test_write_through_and_load_back(ranks: int) -> None:
    s = Scenario(ranks=ranks)
    s.reference.prefill(tokens(1, 4))
    s.reference.quiesce()
    assert s.reference.evict_device(4) == 4
    assert s.reference.observe()["device_free_pages"] == 16
    back = s.reference.prefill(tokens(1, 5))
    assert (back.device_pages, back.host_pages, back.computed_pages, back.wrong) == (0, 4, 1, ())
    assert [event.data["pages"] for event in s.events("loaded")] == [4]
    assert [event.data["pages"] for event in s.events("written")] == [4, 1]
    s.finish()


def test_pages_are_protected_until_the_store_has_them() -> None:
    s = Scenario(ranks=2, host_pages=4)
    s.runtime.hold("backup.take")
    s.reference.prefill(tokens(1, 4))
    s.reference.evict_device(4)
    s.reference.prefill(tokens(2, 2))
    assert [event.data["pages"] for event in s.events("written")] == [4], "nothing may be evicted for the second"
    assert s.reference.observe()["host_refs"] == 1
    s.runtime.release("backup.take")
    s.reference.quiesce()
    assert s.reference.observe()["host_refs"] == 0
    s.reference.prefill(tokens(3, 2))
    assert [event.data["pages"] for event in s.events("evicted")] == [4]
    s.finish()


def test_a_node_that_was_not_written_is_written_with_its_child() -> None:
    s = Scenario(ranks=2, host_pages=6)
    s.runtime.hold("io.take")
    s.submit("a", tokens(9, 4))
    s.turn()
    s.reference.prefill(tokens(1, 3))
    assert s.events("written") == []
    s.reference.abort("a")
    s.runtime.release("io.take")
    s.turn()
    s.reference.prefill(tokens(1, 5))
    assert [event.data["pages"] for event in s.events("written")] == [3, 2]
    s.finish()


def test_a_backed_up_node_that_is_split_is_unprotected_whole() -> None:
    s = Scenario(ranks=2)
    s.runtime.hold("backup.put")
    s.reference.prefill(tokens(1, 4))
    s.reference.prefill([*tokens(1, 2), 5, 6])
    assert s.reference.observe()["host_refs"] == 2
    s.finish()
    assert s.reference.counters()[0]["stored_pages"] == 6


def test_a_prompt_that_the_device_cannot_hold() -> None:
    s = Scenario(ranks=2, device_pages=4)
    s.fetch("a", tokens(1, 6))
    left = s.reference.prefill(tokens(1, 6))
    assert (left.device_pages, left.host_pages, left.computed_pages) == (0, 0, 0)
    assert s.reference.prefill(tokens(2, 3)).computed_pages == 3
    s.finish()


class TestLoadBack:
    """On one rank, below the adapter."""

    def open(self, **config: Any) -> tuple[Scenario, Any]:
        s = Scenario(ranks=1, **config)
        return s, s.reference.caches[0]

    def test_nothing_to_load(self) -> None:
        s, cache = self.open()
        assert cache.load_back(cache.match(s.reference.key(tokens(1, 3)))) == []
        s.finish()

    def test_a_match_that_is_out_of_date(self) -> None:
        s, cache = self.open(host_pages=6)
        s.fetch("a", tokens(1, 4))
        match = cache.match(s.reference.key(tokens(1, 4)))
        s.fetch("b", tokens(2, 5))
        assert cache.load_back(match) is None
        s.finish()

    def test_a_match_that_was_loaded_meanwhile(self) -> None:
        s, cache = self.open()
        s.fetch("a", tokens(1, 4))
        match = cache.match(s.reference.key(tokens(1, 4)))
        assert cache.load_back(match) is not None
        assert cache.load_back(match) is None
        s.finish()

    def test_what_it_hangs_from_is_not_evicted_for_it(self) -> None:
        s, cache = self.open(device_pages=5)
        s.fetch("a", tokens(1, 6))
        assert cache.load_back(cache.match(s.reference.key(tokens(1, 3)))) is not None
        match = cache.match(s.reference.key(tokens(1, 6)))
        assert (len(match.device_pages), len(match.host_pages)) == (3, 3)
        assert cache.load_back(match) is None
        assert len(cache.match(s.reference.key(tokens(1, 6))).device_pages) == 3
        s.finish()

    def test_locked_pages_stay(self) -> None:
        s, cache = self.open(device_pages=4)
        s.reference.prefill(tokens(1, 4))
        node = cache.match(s.reference.key(tokens(1, 4))).device_node
        cache.lock(node)
        assert cache.alloc_device(1) is None
        cache.unlock(node)
        pages = cache.alloc_device(1)
        assert pages is not None
        cache.free_device(pages)
        s.finish()
