"""What a scenario of a mutant is, how it is played, and how what it shows is told apart."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cache_scenario import Scenario, tokens


class Audited(AssertionError):
    """What the audit found at quiescence."""


class Diverged(AssertionError):
    """The ranks logged different lockstep events."""


class Unexpected(AssertionError):
    """An answer or an event is not what the protocol says."""


@dataclass(frozen=True)
class Case:
    """`caught`: the exception by which the mutant shows, and a part of its text."""

    run: Callable[[Scenario], None]
    config: dict[str, Any]
    caught: type[BaseException]
    text: str


class Cases(dict[str, Case]):
    """Scenarios by the name of the mutant that each shows."""

    def shows(
        self, caught: type[BaseException], text: str, **config: Any
    ) -> Callable[[Callable[[Scenario], None]], None]:
        """The function below is the scenario of the mutant of its name."""

        def register(run: Callable[[Scenario], None]) -> None:
            self[run.__name__] = Case(run, config, caught, text)

        return register


def expect(holds: object, what: str) -> None:
    if not holds:
        raise Unexpected(what)


def rest(s: Scenario) -> None:
    """Open the gates, tick as often as anything here needs, and look at everything."""
    s.runtime.release_all()
    for _ in range(4):
        s.turn()
    if found := s.reference.audit():
        raise Audited("; ".join(found))
    if any(s.lockstep(rank) != s.lockstep(0) for rank in s.ranks):
        raise Diverged("P7 the ranks logged different steps")
    s.reference.close()


def play(case: Case, ranks: int, builds: Mapping[str, Any]) -> None:
    """The scenario on what `builds` makes, down to the end of all threads."""
    sizes = {"host_pages": 4, "device_pages": 6, "threshold_pages": 1, "ranks": ranks}
    s = Scenario(**builds, **{**sizes, **case.config})
    try:
        case.run(s)
        rest(s)
    finally:
        # What a mutant breaks may also break its closing; the threads end all the same.
        with contextlib.suppress(Exception):
            s.reference.close()
        assert s.runtime.workers() == {}, "a scenario leaves no thread behind"


# What several scenarios have in common.


def bad_page(s: Scenario, prompt: list[int], page: int, call: Any = "get") -> None:
    """Everything is in the store, and the last rank misses one page of it in every `call`."""
    s.reference.store(prompt)
    rank = s.ranks[-1]
    name = s.reference.storage_keys(prompt, rank)[page]
    s.reference.faults[rank].miss(call, lambda key: key == name)


def fetch_with_a_bad_page(s: Scenario, pages: int = 2, page: int = 1) -> None:
    """Up to the poll, not included."""
    bad_page(s, tokens(1, pages), page)
    s.submit("a", tokens(1, pages))
    s.turn()


def publish_what_is_known(s: Scenario) -> None:
    """The pages of an operation are computed by somebody else while they travel."""
    s.runtime.hold("io.page")
    s.submit("a", tokens(1, 2))
    s.turn()
    s.reference.prefill(tokens(1, 2))
    s.runtime.release("io.page")
    s.turn()
    expect(s.poll("a") == (True, "fetched", "complete", 2), "it is fetched")
    s.turn()


def two_for_one_room(s: Scenario) -> None:
    """`old` is resident; then 2 pages of another prompt need its room."""
    s.fetch("old", tokens(9, 2))
    s.submit("a", tokens(1, 2))
    s.turn()
