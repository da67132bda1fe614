"""A poll of several requests: the black box follows only what leads to what is seen; nothing else explains it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hicache_checks.conformance.black_box import BlackBox
from hicache_checks.conformance.black_box_moves import Moves
from hicache_checks.conformance.black_box_sight import Sight
from hicache_checks.conformance.explainer import MonitorConfig
from hicache_checks.conformance.observation import UNOBSERVED
from hicache_checks.conformance.search import SearchOptions, run_numbered
from hicache_checks.conformance.target import opened

CONFIG = MonitorConfig(1, 8, 1, 16, "best_effort")


@pytest.fixture
def publishes(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many worlds were made by publishing since this was asked last."""
    count = 0
    publish = Moves.publish

    def counted(self: Moves, *args: Any) -> Any:
        nonlocal count
        count += 1
        return publish(self, *args)

    def since() -> int:
        nonlocal count
        so_many, count = count, 0
        return so_many

    monkeypatch.setattr(Moves, "publish", counted)
    return since


def follow_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on every world is followed."""
    monkeypatch.setattr(BlackBox, "_polled_to", lambda *_: set())


def fetched_two(resident: Any, free: Any) -> BlackBox:
    """Two requests for 4 pages each, granted, and then ready in one poll; so many pages are seen after it."""
    box = BlackBox(CONFIG)
    box.submitted("a", 4, {"accepted": True})
    box.submitted("b", 4, {"accepted": True})
    box.ticked({"operations": {("a", 1): 4, ("b", 1): 4}})
    box.polled({"a": {"ready": True}, "b": {"ready": True}}, {"resident_pages": resident, "free_pages": free})
    return box


@pytest.mark.parametrize("seen", [(8, 0), (6, 2), (5, 0), (0, 0), (UNOBSERVED, 0), (7, UNOBSERVED)])
def test_the_same_worlds_explain_it(
    seen: tuple[Any, Any], publishes: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen, few = fetched_two(*seen).worlds, publishes()
    follow_all(monkeypatch)
    assert fetched_two(*seen).worlds == chosen
    assert 0 < few < publishes()


def test_what_cannot_be_is_said_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    alarm = fetched_two(9, 0).alarm
    follow_all(monkeypatch)
    assert alarm is not None
    assert alarm == fetched_two(9, 0).alarm
    assert len(alarm.possible) > 1


def test_room_is_what_is_seen_and_not_there_yet() -> None:
    there = Sight(free_pages=2, resident_pages=3)
    assert Sight(free_pages=3, resident_pages=3).has_room(there, free_pages=1, resident_pages=0)
    assert not Sight(free_pages=3, resident_pages=3).has_room(there, free_pages=2, resident_pages=0)
    assert not Sight(free_pages=3, resident_pages=3).has_room(there, free_pages=0, resident_pages=1)
    assert Sight().has_room(there, free_pages=9, resident_pages=9)


@pytest.mark.heavy
def test_schedules_are_judged_alike(publishes: Callable[[], int], monkeypatch: pytest.MonkeyPatch) -> None:
    options = SearchOptions(ranks=1)
    with opened("toy_adapter:ToyAdapter", simulate=True) as target:

        def judged() -> list[Any]:
            results = [run_numbered(target, options, number)[0] for number in range(60)]
            return [(r.digest, r.finding, r.states, r.outcomes, r.unobserved) for r in results]

        chosen, few = judged(), publishes()
        follow_all(monkeypatch)
        assert judged() == chosen
        assert 0 < few < publishes()
