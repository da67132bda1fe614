"""Extra pools in a log: their slots are counted, and a hit is shortened for want of room only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from typing import Any

import pytest

from cache_scenario import Scenario, tokens
from edited_logs import Edit, Logs, another, lost, twice
from hicache_checks.conformance.monitor import Monitor
from hicache_checks.conformance.observation import Event
from hicache_impl.beside import Beside
from hicache_impl.cache import HiCache
from hicache_impl.operation import Operation, Shortage
from recorded_trace import config_of, explain, logs_of, recorded_clamp

OF_POOLS = ("clamped", "slots_taken", "slots_freed")
# What a single rank says of a shortage is compared with nobody's.
FREE = {("clamped", name) for name in ("pool", "wanted", "evictable")}
STATE = {"name": "state", "kind": "state", "host_slots": 1, "device_slots": 4}


def lived(ranks: int, cache_class: type[HiCache] = HiCache) -> Logs:
    """A state is fetched, evicted for another one, refused to a third, and written by a model."""
    host_pages = config_of(ranks).host_pages
    scenario = Scenario(
        ranks=ranks, host_pages=host_pages, threshold_pages=1, tree="hi_mamba", pools=[STATE], cache_class=cache_class
    )
    reference = scenario.reference
    with suppress(Exception):
        scenario.fetch("first", tokens(1, 1))
        scenario.fetch("second", tokens(2, 1))
        scenario.runtime.hold("io.take")
        scenario.submit("third", tokens(3, 1))
        scenario.submit("fourth", tokens(4, 1))
        scenario.turn()
        reference.abort("third")
        scenario.runtime.release_all()
        reference.quiesce()
        reference.prefill(tokens(5, 1))
        reference.quiesce()
    with suppress(Exception):
        reference.close()
    return logs_of(reference)


@cache
def sound(ranks: int) -> Logs:
    return lived(ranks)


@pytest.mark.parametrize("ranks", [1, 2])
def test_what_pools_do_is_explained_and_nothing_is_taken_on_trust(ranks: int) -> None:
    for logs in (sound(ranks), recorded_clamp(ranks)):
        assert explain(logs, config_of(ranks)) is None
        assert {event.kind for event in logs[0]} >= {"clamped", "slots_taken"}
    monitor = Monitor(config_of(1))
    for event in sound(1)[0]:
        monitor.feed(event)
    assert monitor.unobserved == 0


def test_a_hit_is_shortened_to_nothing_where_a_window_reaches_back() -> None:
    """What the window of no page at all would take is not asked."""
    window = {"name": "window", "kind": "window", "window_pages": 2, "host_slots": 3, "device_slots": 3}
    scenario = Scenario(ranks=1, threshold_pages=1, tree="unified", pools=[window])
    scenario.reference.prefill(tokens(1, 2))
    scenario.submit("a", tokens(1, 3))
    scenario.turn()
    (clamped,) = scenario.events("clamped")
    assert clamped.data == {"pages": 0, "pool": "window", "wanted": 2, "free": 1, "evictable": 0}
    assert scenario.ends() == [(("a", 1), "revoked", "below_threshold")]
    scenario.finish()


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("edits", [lost, twice, another], ids=["lost", "twice", "another"])
def test_every_event_that_differs_is_noticed(ranks: int, edits: Callable[..., Iterator[Edit]]) -> None:
    logs = sound(ranks)
    last = {rank: _last(log) for rank, log in enumerate(logs)}
    for edit in edits(logs, OF_POOLS, FREE if ranks == 1 else ()):
        if ranks == 1 and edit.place in (last[0], _first(logs[0])):
            # Nothing is known of a pool before, and nothing follows.
            continue
        assert explain(edit.logs, config_of(ranks)) is not None, edit.what


def _first(log: list[Event]) -> int:
    return next(place for place, event in enumerate(log) if event.kind in OF_POOLS)


def _last(log: list[Event]) -> int:
    return max(place for place, event in enumerate(log) if event.kind in OF_POOLS)


# ---- faulty caches


class ShortensForNothing(HiCache):
    """A hit is shortened although there is room."""

    def _shortage(self, op: Operation, pages: int) -> Shortage | None:
        found = super()._shortage(op, pages)
        return Shortage("state", 1, self.extra["state"].host.allocator.available, 1) if pages and not found else found


class GivesOneTwice(HiCache):
    """A slot is said to be given back twice."""

    def _free_on_host(self, slots: Any) -> None:
        Beside._free_on_host(self, slots)
        for name, given in slots.items():
            self._log_slots("slots_freed", name, len(given))


@pytest.mark.parametrize(
    ("broken", "faulty"),
    [
        (None, HiCache),
        ("grantable_in_every_pool (§12.2)", ShortensForNothing),
        ("inv_slots_conserved", GivesOneTwice),
    ],
)
def test_a_faulty_cache_is_refused(broken: str | None, faulty: type[HiCache]) -> None:
    finding = explain(lived(2, faulty), config_of(2))
    assert (None if finding is None else finding.property) == broken
