"""All schedules of one short program with a bounded number of preemptions: what `--strategy exhaustive` runs.

Two requests come, each for two pages that are in storage; a tick comes while they are on their way; then everybody has
the time that he needs, until both have ended (see `Session.run_out`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hicache_checks.conformance.minimise import Parts
from hicache_checks.conformance.program import MENU, PROMPTS
from hicache_checks.conformance.schedule import Result
from hicache_checks.simulation.choices import Choices
from hicache_checks.simulation.exhaustive import Exhaustive
from hicache_checks.simulation.world import Strategy

WANTED = ((1, 2), (5, 6))
"""The prompts of the two requests."""
AFTERWARDS = ("tick", "settle")
STEPS_NEEDED = len(WANTED) + len(AFTERWARDS)

RunOnce = Callable[[str, Choices, Strategy], Result]
"""A schedule by policy, choices of the program, and who says who runs."""


@dataclass(frozen=True)
class Ordered:
    """A schedule. No `result`: it was cut, because what follows is known."""

    policy: str
    choices: Choices
    result: Result | None


class Orders:
    """The schedules of the program under each policy, which take turns."""

    def __init__(self, run: RunOnce, policies: Sequence[str], preemptions_max: int, can_store: bool) -> None:
        self._run = run
        self._can_store = can_store
        self._searches = {policy: Exhaustive(preemptions_max) for policy in policies}
        self._turns = deque(policies)

    @property
    def is_complete(self) -> bool:
        """There is no other schedule."""
        return not self._turns

    @property
    def cut(self) -> int:
        """Schedules that were not run to the end."""
        return sum(search.cut for search in self._searches.values())

    @property
    def asleep(self) -> int:
        """Steps that were not tried."""
        return sum(search.asleep for search in self._searches.values())

    @property
    def traces(self) -> set[int]:
        """Hashes of the runs to the end that differ in more than the order of what commutes."""
        return {hash((policy, end)) for policy, search in self._searches.items() for end in search.ends}

    def run_next(self) -> Ordered:
        """The next schedule, which there must be. Diverged: the target does not do the same again."""
        policy = self._turns.popleft()
        choices = short_program(self._can_store)
        search = self._searches[policy]
        results = search.run_next(lambda strategy: self._run(policy, choices, strategy))
        if not search.is_complete:
            self._turns.append(policy)
        return Ordered(policy, choices, results[0] if results else None)


def short_program(can_store: bool) -> Choices:
    """The choices that draw the program; who runs is not among them. `can_store`: of the target."""
    prompts = [PROMPTS.index(prompt) for prompt in WANTED]
    setup = [0, 0, 0, *([len(prompts), *prompts] if can_store else [])]
    submits = [choice for rid, prompt in enumerate(prompts) for choice in (_drawn_by("submit"), rid, prompt)]
    left = iter([*setup, *submits, *map(_drawn_by, AFTERWARDS)])
    return Parts((), lambda count: next(left, 0))


def _drawn_by(kind: str) -> int:
    """The choice that draws a step of a kind that stands in the menu before all that not every target can do."""
    before = [item.kind for item in MENU].index(kind)
    return sum(item.weight for item in MENU[:before])
