"""A run that never ends as it should: a stem, then a loop that goes on for ever."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from hicache_checks.reporting.screen import Screen
from hicache_checks.reporting.tables import print_rows


class Told(Protocol):
    """A step as it is told."""

    @property
    def number(self) -> int: ...
    @property
    def actor(self) -> str: ...
    @property
    def action(self) -> str: ...
    @property
    def changes(self) -> tuple[str, ...]: ...


def print_lasso(screen: Screen, headline: str, title: str, stem: Sequence[Told], loop: Sequence[Told]) -> None:
    """Print a lasso as a table; the steps of the loop are marked, and what follows it is said below."""
    screen.say(headline)
    screen.say(f"  {title}")
    rows = [row for step in stem for row in _rows("", step)] + [row for step in loop for row in _rows("loop", step)]
    print_rows(screen.console, ("", "step", "actor", "action", "what changed"), rows, right=frozenset({1}))
    if loop:
        first, last = loop[0].number, loop[-1].number
        again = f"step {first} again" if first == last else f"steps {first} to {last} again"
        screen.say(f"  and then {again}, for ever")
    else:
        screen.say("  and then nothing: nothing that must go on can go on")
    screen.say("")


def _rows(mark: str, step: Told) -> list[tuple[str, str, str, str, str]]:
    return [
        (mark, str(step.number), step.actor, step.action, change) if first == 0 else (mark, "", "", "", change)
        for first, change in enumerate(step.changes or ("nothing",))
    ]
