"""`revoke_queue_sampled` against the releases' tick written out: each rank reads three lengths, one after the other."""

from __future__ import annotations

import marshal
import sys
from operator import attrgetter

import pytest

from hicache_spec import Bounds, BoundSpec, Design, Refused, pipeline
from hicache_spec.bounds import AGAIN, PRESSURE_CHURN
from hicache_spec.designs import REVOKE_QUEUE, REVOKE_QUEUE_SAMPLED
from hicache_spec.designs.revoking import WithRevokeQueue, carry_out_revoke, take_revoke
from hicache_spec.designs.sampling import REVOKES_MAX
from hicache_spec.language import NONE, State, action, enumeration, field, member, require, upto
from hicache_spec.pipeline import abort, decide, finish, may_end, reclaim, stop, submit, take_answered
from hicache_spec.state import ABORTS, ATTEMPTS, HOST_PAGES, RANKS, STOPS

READ = enumeration("read", "nothing revokes hits all")
NOTHING, REVOKES, HITS, ALL = READ


class WrittenOut(WithRevokeQueue):
    read = field(member(READ), RANKS)  # how far the rank is with the readings of its tick
    revokes = field(upto(REVOKES_MAX), RANKS)
    hits = field(upto(REVOKES_MAX), RANKS)
    pages = field(upto(HOST_PAGES), RANKS)


@action(rank=RANKS)
def sched_read(s: State, rank: int) -> None:
    """§8.5 A rank reads the length of its revoke queue, then of its hit queue, then of its release queue."""
    require(s.read[rank] != ALL, "a length is not yet read")
    if s.read[rank] == NOTHING:
        s.revokes[rank] = len(s.revoke_queue[rank])
    elif s.read[rank] == REVOKES:
        s.hits[rank] = len(s.hit_queue[rank])
    else:
        s.pages[rank] = s.releasing[rank]
    s.read[rank] += 1


def drain_what_was_read(s: State, hits: int, pages: int) -> None:
    """§8.5 The ranks agree on the three numbers, and drain so many. What can be chosen elsewhere is given here."""
    require(all(s.read[r] == ALL for r in RANKS), "every rank has read the three lengths")
    require(hits == min(s.hits[r] for r in RANKS), "so many hits")
    require(pages == min(s.pages[r] for r in RANKS), "so many pages")
    revokes = min(s.revokes[r] for r in RANKS)
    for r in RANKS:
        s.read[r] = NOTHING
        s.revokes[r] = 0
        s.hits[r] = 0
        s.pages[r] = 0
    for _ in range(revokes):
        carry_out_revoke(s, take_revoke(s))
    for _ in range(hits):
        decide(s, take_answered(s))
    if pages > 0:
        reclaim(s, pages)


def is_between_ticks(s: State) -> bool:
    """No rank has begun a tick."""
    return all(s.read[r] == NOTHING for r in RANKS)


def submit_between_ticks(s: State, request: int, chain: int) -> None:
    """§3.1 The scheduler does one thing at a time."""
    require(is_between_ticks(s), "no tick is under way")
    require(s.attempts[request] < ATTEMPTS, "bound: the request id is not used up")
    submit(s, request, chain)


def poll_between_ticks(s: State, request: int) -> None:
    """§3.8 The scheduler does one thing at a time."""
    require(is_between_ticks(s), "no tick is under way")
    require(s.record[request] != NONE, "the request has a pending operation")
    require(may_end(s, s.record[request]), "the policy waits no longer")
    finish(s, s.record[request])


def stop_between_ticks(s: State, request: int) -> None:
    """§3.9 The scheduler does one thing at a time."""
    require(is_between_ticks(s), "no tick is under way")
    require(STOPS, "callers stop requests")
    require(s.record[request] != NONE, "the request has a pending operation")
    stop(s, s.record[request])


def abort_between_ticks(s: State, request: int) -> None:
    """§3.10 The scheduler does one thing at a time."""
    require(is_between_ticks(s), "no tick is under way")
    require(ABORTS, "callers abort requests")
    require(s.record[request] != NONE, "the request has a pending operation")
    abort(s, s.record[request])


WRITTEN_OUT = REVOKE_QUEUE.variant(
    "written_out",
    "",
    {
        "sched_drain": drain_what_was_read,
        "sched_submit": submit_between_ticks,
        "sched_poll": poll_between_ticks,
        "sched_stop": stop_between_ticks,
        "sched_abort": abort_between_ticks,
    },
    shape=WrittenOut,
    modules=(sys.modules[__name__],),
)


def reachable(design: Design, bounds: Bounds) -> set[bytes]:
    """The reachable states between ticks, without what a tick has read."""
    spec = BoundSpec(design, bounds)
    shared = attrgetter(*REVOKE_QUEUE.fields())
    seen: set[bytes] = set()
    found: set[bytes] = set()
    waiting = [spec.encode(spec.initial())]
    while waiting:
        key = waiting.pop()
        if key in seen:
            continue
        seen.add(key)
        s = spec.decode(key)
        if design is not WRITTEN_OUT or all(stage == NOTHING for stage in s.read):
            found.add(marshal.dumps(shared(s), 2))
        for step in spec.steps:
            try:
                step.run(s)
            except Refused:
                continue
            waiting.append(spec.encode(s))
            s = spec.decode(key)
    return found


CONFIGURATIONS = [
    AGAIN,
    PRESSURE_CHURN,
    Bounds("no_aborts", chain_pages=1, host_pages=1, resident_pages=(0,), stored_pages=(1,), churn=True, aborts=False),
]


@pytest.mark.heavy
@pytest.mark.parametrize("bounds", CONFIGURATIONS, ids=lambda b: b.name)
def test_one_reading_is_as_good_as_three_on_every_rank(bounds: Bounds) -> None:
    assert reachable(REVOKE_QUEUE_SAMPLED, bounds) == reachable(WRITTEN_OUT, bounds)


@pytest.mark.heavy
def test_a_reading_that_outlives_the_actions_of_the_scheduler_would_be_too_good() -> None:
    """The comparison can fail: such a tick reaches states that no tick of the releases does."""
    forgetful = {name: getattr(pipeline, name) for name in ("admit", "terminate", "drop_record")}
    too_good = REVOKE_QUEUE_SAMPLED.variant("too_good", "", forgetful)
    assert reachable(too_good, AGAIN) > reachable(WRITTEN_OUT, AGAIN)
    assert reachable(REVOKE_QUEUE, AGAIN) > reachable(WRITTEN_OUT, AGAIN), "any numbers, too (S7)"
