"""A small specification for liveness: two workers at one door, which one of them may lock for ever."""

from __future__ import annotations

from dataclasses import dataclass

from hicache_spec.language import (
    State,
    StateShape,
    action,
    field,
    flag,
    index,
    leads_to,
    quiescent,
    require,
    switch,
)


@dataclass(frozen=True)
class TurnBounds:
    workers: int = 2
    locks: bool = False
    """May the environment lock and unlock the door?"""


WORKERS = index("worker", "workers")
LOCKS = switch("locks")


class Turns(StateShape):
    """Who has asked, and whether the door is locked."""

    asks = field(flag(), WORKERS)
    locked = field(flag())
    dark = field(flag())


@action(worker=WORKERS)
def env_ask(s: State, worker: int) -> None:
    """§1 A worker wants in. Nobody promises that it asks."""
    require(not s.asks[worker], "the worker has not asked")
    s.asks[worker] = True


@action(fairness="weak", worker=WORKERS)
def sched_serve(s: State, worker: int) -> None:
    """§2 A worker is served, if the door is open."""
    require(s.asks[worker], "the worker has asked")
    require(not s.locked, "the door is open")
    s.asks[worker] = False


@action()
def env_turn_key(s: State) -> None:
    """§3 The door is locked or unlocked, as somebody likes."""
    require(LOCKS, "somebody has a key")
    s.locked = not s.locked


@action()
def env_switch_light(s: State) -> None:
    """§4 It gets dark, and stays dark."""
    require(not s.dark, "there is light")
    s.dark = True


@quiescent
def nobody_asks(s: State) -> bool:
    """§1 Nobody has asked."""
    return not any(s.asks[w] for w in WORKERS)


def is_served(s: State, worker: int) -> bool:
    """The worker is not waiting."""
    return not s.asks[worker]


@leads_to(is_served, worker=WORKERS)
def live_asking_is_served(s: State, worker: int) -> bool:
    """§5.1 Who asks is served."""
    return s.asks[worker]


def it_is_dark(s: State) -> bool:
    """It is dark."""
    return s.dark


@leads_to(it_is_dark)
def live_it_gets_dark(s: State) -> bool:
    """§5.2 It gets dark in the end."""
    return not s.dark
