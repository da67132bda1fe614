"""The end of a program: turns until nothing moves any more, and every one of them where something is missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from hicache_checks.conformance.nobody import Nobody
from hicache_checks.conformance.observation import UNOBSERVED, is_all_back
from hicache_checks.conformance.program import Setup
from hicache_checks.conformance.schedule import SimulatedPlace
from hicache_checks.conformance.session import ROUNDS_TO_END, Session
from hicache_checks.simulation.choices import Plainest
from hicache_checks.simulation.world import World

SETUP = Setup(host_pages=6)
REST: Mapping[str, Any] = {"operations": {}, "free_pages": 6, "resident_pages": 0}


class Counted:
    """Counts its turns; `shows(turns)` is what it is seen to be after so many."""

    def __init__(self, shows: Callable[[int], Mapping[str, Any]]) -> None:
        self.turns = 0
        self._shows = shows

    def tick(self) -> None:
        self.turns += 1

    def poll(self, rids: Any) -> dict[str, Any]:
        return {}

    def observe(self) -> Mapping[str, Any]:
        return self._shows(self.turns)


@pytest.mark.parametrize(
    ("shows", "turns"),
    [
        (lambda turns: REST, 2),
        (lambda turns: {**REST, "queues": max(0, 3 - turns)}, 4),
        (lambda turns: {**REST, "free_pages": 5}, ROUNDS_TO_END),
        (lambda turns: {**REST, "operations": {("a", 1): 0}}, ROUNDS_TO_END),
        (lambda turns: {**REST, "free_pages": UNOBSERVED}, ROUNDS_TO_END),
        (lambda turns: {**REST, "queues": turns}, ROUNDS_TO_END),
    ],
    ids=["at_rest", "soon_at_rest", "a_page_is_lost", "somebody_waits", "unseen", "never_at_rest"],
)
def test_turns(shows: Callable[[int], Mapping[str, Any]], turns: int) -> None:
    target, world = Counted(shows), World(Plainest())
    world.run(lambda: Session(target, SETUP, Nobody(), SimulatedPlace(world), ()).run_out())
    assert target.turns == turns


@pytest.mark.parametrize("name", REST)
def test_what_is_not_seen_is_not_back(name: str) -> None:
    assert is_all_back(REST, 6)
    assert not is_all_back(REST, 7)
    assert not is_all_back({**REST, name: UNOBSERVED}, 6)
    assert not is_all_back({key: value for key, value in REST.items() if key != name}, 6)
