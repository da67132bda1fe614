"""Steps that only scenarios take, each where all is well and where it is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from hicache_checks.conformance.findings import Broken, Finding
from hicache_checks.conformance.nobody import Nobody
from hicache_checks.conformance.program import Setup, Step
from hicache_checks.conformance.scenario_session import ScenarioSession
from hicache_checks.conformance.schedule import SimulatedPlace
from hicache_checks.simulation.choices import Plainest
from hicache_checks.simulation.world import World


class Told:
    """A target that does as it is told: `waits`, for so many turns a request is not ready; `evicts`, so many pages go
    when somebody comes; `says`, what it answers when it is asked what is wrong.
    """

    def __init__(self, waits: int = 0, evicts: int = 0, says: Sequence[str] = ()) -> None:
        self.turns = self.full_turns = 0
        self._waits, self._evicts, self._says, self._resident = waits, evicts, says, 4

    def submit(self, rid: str, tokens: Sequence[int]) -> Mapping[str, Any]:
        self._resident -= self._evicts
        return {"accepted": True}

    def tick(self) -> None:
        self.turns += 1

    def poll(self, rids: Sequence[str]) -> dict[str, dict[str, Any]]:
        return {rid: {"ready": rid != "b" or self.turns > self._waits} for rid in rids}

    def observe(self) -> dict[str, Any]:
        return {"resident_pages": self._resident}

    def full_turn(self) -> list[str]:
        self.full_turns += 1
        return []

    def look(self, rid: str) -> dict[str, Any]:
        return {"polled": {"ready": True}, "taken": [], "problems": self._says}

    def _wrong(self) -> Sequence[str]:
        return self._says

    neglected = audit_written = audit_consumers = _wrong


def done(target: Told, *steps: Step) -> Finding | None:
    """What is found when these steps are done."""
    world, found = World(Plainest()), []

    def main() -> None:
        session = ScenarioSession(target, Setup(), Nobody(), SimulatedPlace(world), ())
        try:
            for step in steps:
                session.do(step)
        except Broken as broken:
            found.append(broken.finding)

    world.run(main)
    return found[0] if found else None


def test_turns_end_when_nobody_waits() -> None:
    target = Told(waits=2)
    assert done(target, Step("turns", (5,))) is None
    assert target.turns == 3
    finding = done(Told(waits=9), Step("turns", (5,)))
    assert finding is not None
    assert str(finding) == "P2 live_submitted_operations_end: b still waits after 5 turns at turns"


def test_a_miss_evicts_nothing() -> None:
    step = Step("miss", ("b", (5, 6)))
    assert done(Told(), step) is None
    finding = done(Told(evicts=2), step)
    assert finding is not None
    assert finding.message == "2 pages are evicted for b, of which the store holds nothing"
    assert finding.property.startswith("P9")


@pytest.mark.parametrize(
    ("step", "property_"),
    [
        (Step("full_turns", (3,)), "P3"),
        (Step("look", ("b",)), "P26"),
        (Step("audit_written"), "P32"),
        (Step("audit_consumers"), "P16"),
    ],
    ids=lambda value: value.kind if isinstance(value, Step) else value,
)
def test_what_the_target_says_is_a_finding(step: Step, property_: str) -> None:
    target = Told()
    assert done(target, step) is None
    assert target.full_turns == (3 if step.kind == "full_turns" else 0)
    finding = done(Told(says=(f"{property_} it is so",)), step)
    assert finding is not None
    assert (finding.property, finding.message) == (property_, "it is so")
