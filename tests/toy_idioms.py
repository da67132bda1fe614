"""A small specification in which rules are written in every way that the language allows: carriers and parcels."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from hicache_spec.language import (
    NONE,
    Design,
    State,
    StateShape,
    action,
    constant,
    discard,
    enumeration,
    field,
    fifo,
    flag,
    index,
    initial,
    insert,
    invariant,
    leads_to,
    member,
    optional,
    quiescent,
    require,
    step_property,
    subset,
    table,
    upto,
)


@dataclass(frozen=True)
class IdiomBounds:
    name: str = "idioms"
    parcels: int = 3
    carriers: int = 2
    weights: tuple[int, ...] = (1, 2, 1)


PLACE = enumeration("place", "shelf hand door")
SHELF, HAND, DOOR = PLACE
PARCELS = index("parcel", "parcels")
CARRIERS = index("carrier", "carriers")
COUNTS = index("count", lambda b: b.parcels + 1)
STRENGTH = constant(lambda b: 3, "strength")
WEIGHT = table("weight", lambda b: b.weights)
TOLL = table("toll", lambda b: ((0, 1, 2), (1, 1, 0)))


class Idioms(StateShape):
    shelf = field(fifo(PARCELS))
    held = field(fifo(PARCELS), CARRIERS)
    load = field(upto(9), CARRIERS)
    place = field(member(PLACE), PARCELS)
    last = field(optional(PARCELS), CARRIERS)
    gone = field(subset(PARCELS))
    tired = field(flag(), CARRIERS)
    marks = field(upto(2), CARRIERS, PARCELS)


@initial
def start(s: State) -> None:
    """§1 All parcels are on the shelf, and the marks of the first carrier are set."""
    for parcel in PARCELS:
        s.shelf.append(parcel)
        s.marks[0][parcel] = 1


@quiescent
def all_gone(s: State) -> bool:
    """§1 Every parcel is gone."""
    return len(s.gone) == len(PARCELS)


def lightest(s: State, carrier: int) -> int:
    """The lightest parcel in hand; NONE if there is none. A loop with a local name that changes, and two returns."""
    if len(s.held[carrier]) == 0:
        return NONE
    found = s.held[carrier][0]
    for i in range(len(s.held[carrier])):
        if WEIGHT[s.held[carrier][i]] < WEIGHT[found]:
            found = s.held[carrier][i]
    return found


def fits(s: State, carrier: int, parcel: int) -> bool:
    """Strong enough? The answer to one question more than asked."""
    total = s.load[carrier]
    total += WEIGHT[parcel]
    return 0 <= total <= STRENGTH and not s.tired[carrier]


def take_next(s: State) -> int:
    """The next parcel of the shelf: changes the state and returns a value."""
    if len(s.shelf) == 0:
        return NONE
    parcel = s.shelf.pop(0)
    s.place[parcel] = HAND
    return parcel


def carry(s: State, carrier: int, parcel: int) -> None:
    """A return from the middle, and a parameter that is assigned."""
    if parcel == NONE:
        s.tired[carrier] = True
        return
    s.held[carrier].append(parcel)
    parcel = WEIGHT[parcel]
    s.load[carrier] += parcel


@action(fairness="weak", chosen=("count",), carrier=CARRIERS, count=COUNTS)
def carrier_take(s: State, carrier: int, count: int) -> None:
    """§2.1 A carrier takes parcels, one after the other. The guard stands in a condition."""
    require(count > 0, "at least one")
    if count > 1:
        require(not s.tired[carrier], "several parcels are for the rested")
    first = s.shelf[0] if len(s.shelf) > 0 else NONE
    require(first != NONE and fits(s, carrier, first), "the first parcel fits")
    require(count <= len(s.shelf) and count <= 2, "there are so many")
    for _ in range(count):
        carry(s, carrier, take_next(s))
    s.last[carrier] = lightest(s, carrier)


@action(fairness="weak", carrier=CARRIERS)
def carrier_deliver(s: State, carrier: int) -> None:
    """§2.2 A choice after which both ways go on together, with a local name that either sets."""
    require(len(s.held[carrier]) > 0, "a parcel is in hand")
    parcel = s.held[carrier].pop(0)
    if parcel == 0:
        toll = 0
        s.tired[carrier] = False
    elif s.load[carrier] > 2:
        toll = 2
    else:
        toll = TOLL[carrier][parcel]
        s.marks[carrier][parcel] = min(2, s.marks[carrier][parcel] + abs(toll - 1))
    s.load[carrier] -= WEIGHT[parcel]
    insert(s.gone, parcel)
    s.place[parcel] = DOOR
    s.last[carrier] = s.held[carrier][0] if len(s.held[carrier]) > 0 else NONE
    if toll > 1:
        s.tired[carrier] = True


@action(parcel=PARCELS)
def env_return(s: State, parcel: int) -> None:
    """§2.3 A parcel comes back, once for each mark; marks of all carriers are wiped in a loop that carries a sum."""
    require(parcel in s.gone, "the parcel is gone")
    left = 2
    for carrier in CARRIERS:
        out = min(left, s.marks[carrier][parcel])
        if out > 0:
            left -= out
            s.marks[carrier][parcel] -= out
    if left < 2:
        discard(s.gone, parcel)
        s.shelf.append(parcel)
        s.place[parcel] = SHELF
    for carrier in CARRIERS:
        s.tired[carrier] = s.tired[carrier] and left > 0


@invariant
def inv_a_parcel_is_in_one_place(s: State) -> bool:
    """§3.1 On the shelf, in a hand, or gone."""
    return all(
        (p in s.shelf) + sum(p in s.held[c] for c in CARRIERS) + (p in s.gone) == 1
        and (p in s.gone) == (s.place[p] == DOOR)
        for p in PARCELS
    )


@invariant
def inv_load_is_the_weight_in_hand(s: State) -> bool:
    """§3.2 The load is the sum of the weights."""
    return all(s.load[c] == sum(WEIGHT[p] for p in PARCELS if p in s.held[c]) for c in CARRIERS)


@invariant
def inv_not_all_marks_are_wiped(s: State) -> bool:
    """§3.3 Not true: the toll may be paid often enough."""
    return any(any(s.marks[c][p] > 0 for p in PARCELS if p != 1) for c in CARRIERS)


@step_property
def step_one_parcel_goes(s: State, t: State) -> bool:
    """§4.1 At most one parcel goes in a step."""
    return len(t.gone) <= len(s.gone) + 1


def is_gone(s: State, parcel: int) -> bool:
    """The parcel is gone."""
    return parcel in s.gone


@leads_to(is_gone, parcel=PARCELS)
def live_parcels_go(s: State, parcel: int) -> bool:
    """§5.1 A parcel in a hand will go."""
    return s.place[parcel] == HAND


def carry_twice(s: State, carrier: int, parcel: int) -> None:
    """A replacement that calls what it replaces, and then does more."""
    carry(s, carrier, parcel)
    s.marks[carrier][0] = 2


IDIOMS = Design("idioms", "carriers and parcels", Idioms, (sys.modules[__name__],), {})
MARKING = IDIOMS.variant("marking", "who carries leaves a mark", {"carry": carry_twice})
