"""Who judges a target: every event by itself where there are logs, else what its callers see; that is explained by the
canonical design, or held to what every design promises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from hicache_checks.conformance.adapter_checks import ADAPTER, CheckedAdapter
from hicache_checks.conformance.black_box_judge import PAUSE_S, BlackBoxJudge
from hicache_checks.conformance.explainer import CANONICAL, FOLLOWED
from hicache_checks.conformance.findings import HARNESS, Broken
from hicache_checks.conformance.program import Setup
from hicache_checks.conformance.promises import Promises
from hicache_checks.conformance.session import Judge, first_line
from hicache_checks.conformance.white_box import WhiteBox
from hicache_checks.simulation.world import NotSimulated

WRITE_POLICY = "write_policy"


class Judging(Judge, Protocol):
    """A judge that keeps account.

    `states`: those of the specification that were met, as keys; `outcomes`: what happened, counted; `unobserved`: what
    could not be seen, or was taken on trust, counted.
    """

    states: set[bytes]
    outcomes: Counter[str]

    @property
    def unobserved(self) -> Counter[str]: ...


class CallJudge(Judging, Protocol):
    """One who looks at calls and at what can be observed. `possible`: what could have been seen instead, in lines."""

    @property
    def possible(self) -> Sequence[str]: ...


class Rest(NamedTuple):
    """Whether a target is known to be at rest when a session says so; if not, how long a turn waits for it."""

    can_settle: bool
    pause_s: float = PAUSE_S


MakeJudge = Callable[[Any, Setup, Rest], Judging]


def judge_for(target: Any, setup: Setup, rest: Rest, profile: str = CANONICAL) -> Judging:
    """The judge that a target's capabilities allow. `profile`: the design that it is held to."""
    return (
        WhiteBox(target, setup, profile)
        if has_events(target, profile)
        else call_judge_for(target, setup, rest, profile)
    )


def call_judge_for(target: Any, setup: Setup, rest: Rest, profile: str = CANONICAL) -> CallJudge:
    """The judge of a target without logs. The specification's tiers write through."""
    is_followed = profile == CANONICAL and WRITE_POLICY not in dict(setup.more)
    return BlackBoxJudge(target, setup, *rest) if is_followed else Promises(target, setup)


def has_events(target: Any, profile: str = CANONICAL) -> bool:
    """Can its logs be read? Broken: they can, and cannot be held to this profile."""
    if "events" not in target.capabilities():
        return False
    if profile not in FOLLOWED:
        names = ", ".join(FOLLOWED)
        raise Broken(ADAPTER, f"its logs can be held to {names} only, not to {profile}", HARNESS, "its profile")
    return True


def built(build: Callable[[], Any]) -> CheckedAdapter:
    """A new adapter. Broken: there is none, or it lacks something."""
    place = "the factory"
    try:
        target = build()
        place = "capabilities"
        return CheckedAdapter(target)
    except (Broken, NotSimulated):
        raise
    except Exception as error:
        raise Broken(ADAPTER, f"{type(error).__name__}: {first_line(error)}", HARNESS, place) from error
