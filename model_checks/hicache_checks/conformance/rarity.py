"""How rare is the timing that a finding needs? Its program runs again, uninterrupted, and in random orders."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from hicache_checks.conformance.findings import Finding
from hicache_checks.conformance.program import Setup, Step
from hicache_checks.conformance.properties import shows_the_same
from hicache_checks.conformance.schedule import run_script
from hicache_checks.conformance.search import STRATEGIES
from hicache_checks.conformance.target import Target
from hicache_checks.simulation.choices import Choices, Plainest, Seeded
from hicache_checks.simulation.world import Strategy

ORDERS = 50
SECONDS_MAX = 0.4


@dataclass(frozen=True)
class Rarity:
    """`plain`: it shows when every thread goes on until it waits; `shown` of `tried` random orders show it."""

    plain: bool
    shown: int
    tried: int

    def __str__(self) -> str:
        plain = "shows without any interruption, and" if self.plain else "needs an interruption: shows"
        return f"{plain} in {self.shown} of {self.tried} random orders of its program"


def rarity(target: Target, setup: Setup, steps: Sequence[Step], finding: Finding) -> Rarity:
    """Of the same finding, wherever it shows; as many orders as there is time for."""

    def shows(choices: Choices, strategy: Strategy | None) -> bool:
        found = run_script(target.build, setup, steps, choices, strategy, target.judge).finding
        return found is not None and shows_the_same(found, finding)

    plain = shows(Plainest(), None)
    kinds = STRATEGIES["walk"]
    until = time.monotonic() + SECONDS_MAX
    shown = tried = 0
    while tried < ORDERS and (time.monotonic() < until or not tried):
        choices = Seeded(f"rarity/{tried}")
        shown += shows(choices, kinds[tried % len(kinds)](choices.random))
        tried += 1
    return Rarity(plain, shown, tried)
