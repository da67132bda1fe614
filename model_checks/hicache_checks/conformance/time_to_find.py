"""How soon a target is found out: one run after the other, by one of several finders, until something is wrong.

A finder is a way of making runs. Those by simulation choose every switch; those with real threads choose the program,
and the threads run as they like.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import count, islice
from typing import Any

from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import strategies as st

from hicache_checks.conformance import frontrun_peer
from hicache_checks.conformance.findings import Finding
from hicache_checks.conformance.real_threads import run_real
from hicache_checks.conformance.schedule import Result, run_schedule
from hicache_checks.conformance.search import SIMULATE, THREADS, SearchOptions, run_numbered
from hicache_checks.conformance.target import Target, opened
from hicache_checks.simulation.choices import Drawn, Seeded
from hicache_checks.simulation.exhaustive import Exhaustive
from hicache_spec.bounds import POLICY

EXAMPLES_MAX = 10**9
PREEMPTIONS_MAX = 2
SHORT_STEPS_MAX = 12
RUNS_MAX = 10
"""Of a program of at most so many steps, and for each number of preemptions, so many schedules are run before the next
has its turn."""
PROGRESS_S = 0.5


@dataclass(frozen=True)
class Hunt:
    """On how many ranks to look, in turns, and for how long. Equal seeds, equal programs; simulated, equal runs."""

    ranks: tuple[int, ...]
    seconds_max: float
    seed: int = 0


@dataclass
class Found:
    """What a hunt came to. No `finding`: the time was up, or `note` says why.

    `ranks` and `number`: of the run that shows it.
    """

    schedules: int = 0
    seconds: float = 0.0
    finding: Finding | None = None
    ranks: int = 0
    number: int = 0
    note: str = ""


class _Hunting:
    """The runs of one hunt, as they are made. `note` is told before each."""

    def __init__(self, hunt: Hunt, note: Callable[[Found], None]) -> None:
        self.found = Found()
        self._hunt = hunt
        self._note = note
        self._start = time.monotonic()

    def goes_on(self) -> bool:
        """Nothing is found, and there is time."""
        self._note(self.found)
        return self.found.finding is None and self.found.seconds <= self._hunt.seconds_max

    def take(self, result: Result, ranks: int, number: int) -> None:
        """A run more."""
        found = self.found
        found.schedules += 1
        found.seconds = time.monotonic() - self._start
        if result.finding is not None:
            found.finding, found.ranks, found.number = result.finding, ranks, number

    def turns(self) -> Iterator[tuple[int, int]]:
        """Numbers count up, and each has its turn on each number of ranks: (number, ranks)."""
        return ((number, ranks) for number in count() for ranks in self._hunt.ranks)


Finder = Callable[[Target, Hunt, _Hunting], None]


def by_search(mode: str, strategy: str = "mixed") -> Finder:
    """The runs of `hicheck conform`."""

    def find(target: Target, hunt: Hunt, hunting: _Hunting) -> None:
        for number, ranks in hunting.turns():
            if not hunting.goes_on():
                return
            options = SearchOptions(ranks, POLICY.members, mode=mode, strategy=strategy, seed=hunt.seed)
            hunting.take(run_numbered(target, options, number)[0], ranks, number)

    return find


def by_exhaustion(target: Target, hunt: Hunt, hunting: _Hunting) -> None:
    """Short programs, and of each the schedules with no preemption, in order, then those with one, and so on."""
    for number, ranks in hunting.turns():
        policy = POLICY.members[number % len(POLICY.members)]

        def schedule(strategy: Any, number: int = number, ranks: int = ranks, policy: str = policy) -> Result:
            choices = Seeded(f"{hunt.seed}/{number}")
            return run_schedule(target.build, ranks, policy, choices, strategy, SHORT_STEPS_MAX, judge=target.judge)

        for preemptions in range(PREEMPTIONS_MAX + 1):
            for result in islice(Exhaustive(preemptions).run(schedule), RUNS_MAX):
                hunting.take(result, ranks, number)
                if not hunting.goes_on():
                    return


class _Enough(BaseException):
    """Hypothesis lets it pass, and neither shrinks nor tries again: threads may do something else the next time."""


def by_hypothesis(target: Target, hunt: Hunt, hunting: _Hunting) -> None:
    """Programs that Hypothesis draws, on real threads without gates. `number` counts its examples."""

    @settings(
        max_examples=EXAMPLES_MAX,
        phases=[Phase.generate],
        derandomize=True,
        database=None,
        deadline=None,
        verbosity=Verbosity.quiet,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def run(data: st.DataObject) -> None:
        ranks = data.draw(st.sampled_from(hunt.ranks))
        policy = data.draw(st.sampled_from(POLICY.members))
        choices = Drawn(lambda count: data.draw(st.integers(0, count - 1)))
        hunting.take(
            run_real(target.build, ranks, policy, choices, make_judge=target.judge), ranks, hunting.found.schedules
        )
        if not hunting.goes_on():
            raise _Enough

    with contextlib.suppress(_Enough):
        run()


def by_frontrun(target: Target, hunt: Hunt, hunting: _Hunting) -> None:
    """One seeded program, whose threads another scheduler is to explore."""
    ranks, policy = hunt.ranks[0], POLICY.members[hunt.seed % len(POLICY.members)]

    def run() -> Finding | None:
        return run_real(target.build, ranks, policy, Seeded(f"{hunt.seed}/0"), make_judge=target.judge).finding

    explored = frontrun_peer.explore(run, hunt.seconds_max)
    hunting.found = Found(
        explored.interleavings, explored.seconds, explored.finding, ranks, hunt.seed, note=explored.note
    )


FINDERS: dict[str, tuple[str, Finder]] = {
    "hypothesis": (THREADS, by_hypothesis),
    "threads": (THREADS, by_search(THREADS)),
    "walk": (SIMULATE, by_search(SIMULATE, "walk")),
    "pct": (SIMULATE, by_search(SIMULATE, "pct")),
    "exhaustive": (SIMULATE, by_exhaustion),
    "mixed": (SIMULATE, by_search(SIMULATE, "mixed")),
    "frontrun": (THREADS, by_frontrun),
}
"""By name, each with the mode that the target is opened in."""


def find(finder: str, name: str, hunt: Hunt, note: Callable[[Found], None]) -> Found:
    """Hunt for what is wrong with a target. Raises InputError when it cannot be loaded."""
    mode, look = FINDERS[finder]
    with opened(name, simulate=mode == SIMULATE) as target:
        hunting = _Hunting(hunt, note)
        look(target, hunt, hunting)
        return hunting.found


def find_each(job: Mapping[str, Any], running: Callable[[int], None], say: Callable[[Mapping[str, Any]], None]) -> None:
    """The job of a worker: `finder` on each of `sought`. `running` is told which."""
    said = time.monotonic()

    def note(found: Found) -> None:
        nonlocal said
        if time.monotonic() - said > PROGRESS_S:
            said = time.monotonic()
            say({"number": number, "schedules": found.schedules})

    for number, sought in enumerate(job["sought"]):
        running(number)
        hunt = Hunt(**{**sought["hunt"], "ranks": tuple(sought["hunt"]["ranks"])})
        say({"number": number, "found": asdict(find(job["finder"], sought["target"], hunt, note))})
