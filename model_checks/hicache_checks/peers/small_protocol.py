"""A smaller protocol than ours, for comparing tools: prefetch of several requests on several ranks, page by page.

`small_protocol.pml` is the same protocol by hand, packed as tightly as Promela allows. Both have the same states.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from hicache_spec.language import (
    Design,
    State,
    StateShape,
    action,
    constant,
    enumeration,
    field,
    fifo,
    flag,
    index,
    invariant,
    member,
    quiescent,
    require,
    upto,
)

PROMELA = Path(__file__).with_name("small_protocol.pml")


@dataclass(frozen=True)
class SmallBounds:
    """The sizes; those of `small_protocol.pml` are the defaults."""

    name: str = "small_protocol"
    requests: int = 3
    ranks: int = 2
    pages: int = 2
    pool_pages: int = 3


PHASE = enumeration("phase", "new queued allocated stopping revoked fetched terminated")
NEW, QUEUED, ALLOCATED, STOPPING, REVOKED, FETCHED, TERMINATED = PHASE
REQUESTS = index("request", "requests", symmetric=True)
RANKS = index("rank", "ranks", symmetric=True)
PAGES = constant("pages")
ANSWERS = index("answer", lambda b: b.pages + 1)
POOL_PAGES = constant("pool_pages")


class SmallProtocol(StateShape):
    """§1 Schedulers in lockstep; a query thread and an IO thread on every rank."""

    phase = field(member(PHASE), REQUESTS)
    aborted = field(flag(), REQUESTS)
    granted = field(upto(PAGES), REQUESTS)
    query_queue = field(fifo(REQUESTS), RANKS)
    hit_queue = field(fifo(REQUESTS), RANKS)
    buffer = field(fifo(REQUESTS), RANKS)
    release_queue = field(fifo(REQUESTS), RANKS)
    hit = field(upto(PAGES), RANKS, REQUESTS)
    landed = field(upto(PAGES), RANKS, REQUESTS)
    released = field(flag(), RANKS, REQUESTS)


@quiescent
def at_rest(s: State) -> bool:
    """§1 Every request is new or has ended."""
    return all(s.phase[q] not in (QUEUED, ALLOCATED, STOPPING) for q in REQUESTS)


@action(request=REQUESTS)
def sched_submit(s: State, request: int) -> None:
    """§2.1 A request is queued on every rank."""
    require(s.phase[request] == NEW, "the request is new")
    s.phase[request] = QUEUED
    for r in RANKS:
        s.query_queue[r].append(request)


@action(request=REQUESTS)
def sched_abort(s: State, request: int) -> None:
    """§2.2 The request is gone."""
    require(s.phase[request] in (QUEUED, ALLOCATED), "the request waits")
    require(not s.aborted[request], "it is not yet aborted")
    s.aborted[request] = True
    if s.phase[request] == ALLOCATED:
        s.phase[request] = STOPPING


@action(request=REQUESTS)
def sched_stop(s: State, request: int) -> None:
    """§2.3 The policy waits no longer."""
    require(s.phase[request] == ALLOCATED, "the request has pages")
    s.phase[request] = STOPPING


@action(fairness="weak", chosen=("answer",), rank=RANKS, answer=ANSWERS)
def query_answer(s: State, rank: int, answer: int) -> None:
    """§3.1 A rank's storage may hold any number of pages."""
    require(len(s.query_queue[rank]) > 0, "a request waits for its look-up")
    request = s.query_queue[rank].pop(0)
    s.hit[rank][request] = answer
    s.hit_queue[rank].append(request)


@action(fairness="weak", rank=RANKS)
def io_read(s: State, rank: int) -> None:
    """§3.2 A page lands, or the operation is found to be stopping; a finished one is handed back."""
    require(len(s.buffer[rank]) > 0, "a request waits for its pages")
    request = s.buffer[rank][0]
    if s.phase[request] != STOPPING:
        s.landed[rank][request] += 1
    if s.phase[request] == STOPPING or s.landed[rank][request] == s.granted[request]:
        s.buffer[rank].pop(0)
        s.release_queue[rank].append(request)


@action(fairness="weak")
def sched_drain_hits(s: State) -> None:
    """§4.1 All answers that every rank has are decided, in queue order."""
    require(all(len(s.hit_queue[r]) > 0 for r in RANKS), "every rank has an answer")
    count = min(len(s.hit_queue[r]) for r in RANKS)
    for _ in range(count):
        decide(s)


def decide(s: State) -> None:
    """The next answer: refused if the request is gone, if nothing was found or if the pool is too small."""
    request = s.hit_queue[0][0]
    agreed = min(s.hit[r][request] for r in RANKS)
    for r in RANKS:
        s.hit_queue[r].pop(0)
        s.hit[r][request] = 0
    if s.aborted[request] or agreed == 0 or agreed + sum(s.granted[q] for q in REQUESTS) > POOL_PAGES:
        s.phase[request] = REVOKED
    else:
        s.phase[request] = ALLOCATED
        s.granted[request] = agreed
        for r in RANKS:
            s.buffer[r].append(request)


@action(fairness="weak")
def sched_drain_releases(s: State) -> None:
    """§4.2 What every rank has handed back, up to the shortest queue; what all ranks handed back has ended."""
    require(all(len(s.release_queue[r]) > 0 for r in RANKS), "every rank has handed something back")
    count = min(len(s.release_queue[r]) for r in RANKS)
    for _ in range(count):
        for r in RANKS:
            request = s.release_queue[r].pop(0)
            s.released[r][request] = True
    for q in REQUESTS:
        if all(s.released[r][q] for r in RANKS):
            end(s, q)


def end(s: State, request: int) -> None:
    """Fetched if every page landed on every rank."""
    s.phase[request] = FETCHED if min(s.landed[r][request] for r in RANKS) == s.granted[request] else TERMINATED
    s.granted[request] = 0
    for r in RANKS:
        s.released[r][request] = False
        s.landed[r][request] = 0


@invariant
def inv_pool(s: State) -> bool:
    """§5.1 No more pages are granted than there are."""
    return sum(s.granted[q] for q in REQUESTS) <= POOL_PAGES


@invariant
def inv_aborted_are_not_allocated(s: State) -> bool:
    """§5.2 An aborted request is not among those that are read for."""
    return all(not (s.phase[q] == ALLOCATED and s.aborted[q]) for q in REQUESTS)


SMALL_PROTOCOL = Design(
    "small_protocol", "prefetch without a tree, for comparing tools", SmallProtocol, (sys.modules[__name__],), {}
)
