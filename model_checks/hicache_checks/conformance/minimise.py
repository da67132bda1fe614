"""Making a failing run small: Hypothesis's shrinker on its choices, the program's and the switches apart.

What is shrunk is a list of switches, each so many switch choices after the one before, and then the choices of the
program as they are drawn. So a request can go without moving the switches, and a switch without moving the requests.
The smallest failing run has the fewest requests and the fewest switches.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from random import Random

from hypothesis import HealthCheck, Verbosity, settings
from hypothesis.errors import Flaky
from hypothesis.internal.conjecture.data import ConjectureData, ConjectureResult, Status
from hypothesis.internal.conjecture.engine import ConjectureRunner

from hicache_checks.simulation.choices import Choices

GAP_MAX = 1 << 14
TASKS_MAX = 64
Switch = tuple[int, int]
"""How many switch choices go by before it, and whom it chooses."""


class _TimeIsUp(BaseException):
    pass


class Parts(Choices):
    """A program from one source, and the few switches of a run; between them everybody goes on."""

    def __init__(self, switches: Iterable[Switch], program: Callable[[int], int]) -> None:
        super().__init__()
        self._at: dict[int, int] = {}
        place = -1
        for gap, whom in switches:
            place += gap + 1
            self._at[place] = whom
        self._program = program

    def _next(self, count: int) -> int:
        return self._program(count)

    def _next_switch(self, count: int) -> int:
        return min(self._at.get(len(self.switches), 0), count - 1)


def parts_of(choices: Choices) -> tuple[list[Switch], list[int]]:
    """The switches and the program of a recorded run."""
    switches, gap = [], 0
    for place in choices.switches:
        if choices.taken[place]:
            switches.append((gap, choices.taken[place]))
            gap = 0
        else:
            gap += 1
    of_switch = set(choices.switches)
    return switches, [choice for place, choice in enumerate(choices.taken) if place not in of_switch]


def minimise(fails: Callable[[Choices], bool], choices: Choices, seconds_max: float) -> Choices:
    """The simplest choices found, within the time, for which `fails` says True, as they were then recorded.

    `choices`: a recorded run for which it does.
    """
    deadline = time.monotonic() + seconds_max
    switches, program = parts_of(choices)

    def fails_in_time(tried: Choices) -> bool:
        if time.monotonic() > deadline:
            raise _TimeIsUp
        return fails(tried)

    switches = _needed(lambda some: fails_in_time(Parts(some, _from(program))), switches)
    recorded = Parts(switches, _from(program))
    if fails(recorded):
        # Without the switches that went, the program may have asked for more than it did before.
        switches, program = parts_of(recorded)
    switches, program = _shrunk(fails_in_time, switches, program)
    simplest = Parts(switches, _from(program))
    return simplest if fails(simplest) else choices


def _shrunk(
    fails: Callable[[Choices], bool], switches: Sequence[Switch], program: Sequence[int]
) -> tuple[list[Switch], list[int]]:
    def draw_switches(data: ConjectureData) -> list[Switch]:
        drawn = []
        while data.draw_boolean(0.5):
            drawn.append((data.draw_integer(0, GAP_MAX), data.draw_integer(0, TASKS_MAX)))
        return drawn

    def test(data: ConjectureData) -> None:
        if fails(Parts(draw_switches(data), lambda count: data.draw_integer(0, count - 1))):
            data.mark_interesting(("fails",))  # type: ignore[arg-type]

    runner = ConjectureRunner(
        test,
        settings=settings(
            database=None, deadline=None, verbosity=Verbosity.quiet, suppress_health_check=list(HealthCheck)
        ),
        random=Random(0),
        ignore_limits=True,
    )
    drawn = [choice for gap, whom in switches for choice in (True, gap, whom)]
    try:
        found = runner.cached_test_function([*drawn, False, *program])
    except _TimeIsUp:
        return list(switches), list(program)
    if not isinstance(found, ConjectureResult) or found.status is not Status.INTERESTING:
        return list(switches), list(program)
    # Hypothesis says Flaky of a run that the end of the time cut short, and of a target that is not deterministic.
    with contextlib.suppress(_TimeIsUp, Flaky):
        runner.shrink(found, lambda case: case.status is Status.INTERESTING)
    (case,) = runner.interesting_test_cases.values()
    smallest, end = list(case.choices), 0
    while smallest[end]:  # one more switch follows
        end += 3
    pairs = [(int(smallest[i + 1]), int(smallest[i + 2])) for i in range(0, end, 3)]
    return pairs, [int(choice) for choice in smallest[end + 1 :]]


def _needed(fails: Callable[[Sequence[Switch]], bool], switches: list[Switch]) -> list[Switch]:
    """Without the stretches of switches that do not matter, long ones first: most of a random run do not."""
    length = len(switches)
    while length:
        for start in range(len(switches) - length, -1, -length):
            fewer = _leave_out(switches, start, start + length)
            try:
                switches = fewer if fails(fewer) else switches
            except _TimeIsUp:
                return switches
        length = min(length, len(switches)) // 2 if length > 1 else 0
    return switches


def _leave_out(switches: Sequence[Switch], first: int, end: int) -> list[Switch]:
    """The others stay where they are."""
    gap = sum(gap + 1 for gap, _ in switches[first:end])
    rest = list(switches[end:])
    if rest:
        rest[0] = (rest[0][0] + gap, rest[0][1])
    return [*switches[:first], *rest]


def _from(recorded: Sequence[int]) -> Callable[[int], int]:
    """What was recorded, then 0."""
    left = iter(recorded)
    return lambda count: min(next(left, 0), count - 1)


__all__ = ["Parts", "minimise", "parts_of"]
