"""§8 Designs that are watched, so that two of them can be compared.

A *watched* variant of a design accepts every input in every state: a call that one design refuses and another takes
would tell them apart though nothing has happened. A call that finds nothing to act on has no effect. And the variant
remembers what each operation published, so that the outcome can be read at rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from . import assumptions
from .bounds import TIMEOUT, Bounds
from .designs.retrying import WithRetries
from .designs.revoking import WithRevokeQueue
from .designs.sampling import Sampled
from .events import ON_QUERY_ASKED
from .language import NONE, Design, SpecError, State, action, emit, field, require, upto
from .pipeline import abort, advance_clock, finish, may_end, publish, stop, submit, write_through
from .state import (
    ABORTS,
    ANSWERED,
    ATTEMPTS,
    CHAINS,
    DEPTHS,
    LENGTH,
    LOOKING,
    OPS,
    POLICY_NOW,
    RANKS,
    REQUESTS,
    SKIPPING,
    STOPS,
    WRITES,
)


@action(request=REQUESTS, chain=CHAINS)
def submit_any_time(s: State, request: int, chain: int) -> None:
    """§3.1 Submitted at most once an attempt. Requests are interchangeable: they are numbered as they first come."""
    require(s.asked[request] < ATTEMPTS, "bound: the request id is not used up")
    require(all(s.asked[earlier] > 0 for earlier in REQUESTS if earlier < request), "bound: earlier requests came")
    s.asked[request] += 1
    submit(s, request, chain)


@action(request=REQUESTS)
def abort_any_time(s: State, request: int) -> None:
    """§3.10 Without effect if nothing is pending."""
    require(ABORTS, "callers abort requests")
    require(s.asked[request] > 0, "the request exists")
    if s.record[request] != NONE:
        abort(s, s.record[request])


@action(request=REQUESTS)
def stop_any_time(s: State, request: int) -> None:
    """§3.9 Without effect if nothing is pending."""
    require(STOPS, "callers stop requests")
    require(s.asked[request] > 0, "the request exists")
    if s.record[request] != NONE:
        stop(s, s.record[request])


@action(chain=CHAINS)
def write_any_time(s: State, chain: int) -> None:
    """§3.11 Without effect if the chain has no next page or no page is free."""
    require(WRITES, "requests write through")
    if s.resident[chain] < LENGTH and s.free[0] > 0:
        write_through(s, chain)


@action(fairness="weak", chosen=("hit",), rank=RANKS, hit=DEPTHS)
def answer_any_length(s: State, rank: int, hit: int) -> None:
    """§3.3 Churning storage answers any length, whatever the span; a terminated operation counts as none."""
    require(s.stage[rank] in (SKIPPING, LOOKING), "an operation is taken and not yet looked up")
    require(s.stage[rank] != SKIPPING or hit == 0, "a terminated operation is not looked up")
    s.answer[rank] = min(hit, s.span[s.query_queue[rank][0]])
    s.stage[rank] = ANSWERED
    emit(s, ON_QUERY_ASKED, rank, s.query_queue[rank][0], s.answer[rank])


@action(fairness="weak", request=REQUESTS)
def poll_any_time(s: State, request: int) -> None:
    """§3.8 Without effect if nothing is pending, or if the policy still waits."""
    require(s.asked[request] > 0, "the request exists")
    if s.record[request] != NONE and may_end(s, s.record[request]):
        finish(s, s.record[request])


@action(fairness="weak")
def advance_clock_any_time(s: State) -> None:
    """§3.12 Time passes whether or not somebody waits."""
    require(POLICY_NOW == TIMEOUT, "the policy has a time limit")
    advance_clock(s)


def publish_and_remember(s: State, op: int, pages: int) -> None:
    """§3.8 What was published is seen at rest."""
    s.published[op] = pages
    publish(s, op, pages)


_WATCHED: Mapping[str, Callable[..., Any]] = {
    "sched_submit": submit_any_time,
    "sched_abort": abort_any_time,
    "sched_stop": stop_any_time,
    "sched_write_through": write_any_time,
    "publish": publish_and_remember,
}
_VISIBLE_POLLS: Mapping[str, Callable[..., Any]] = {
    "sched_poll": poll_any_time,
    "env_advance_clock": advance_clock_any_time,
}
_CHURNING: Mapping[str, Callable[..., Any]] = {"query_ask_storage": answer_any_length}


def watched(design: Design, bounds: Bounds, polls: str) -> Design:
    """The design with every input of these bounds enabled in every state, and what was published remembered.

    `polls`: visible or hidden; visible ones are inputs, and so is time. The functions that assumptions name are among
    its helpers. Raises SpecError for a design that itself replaces a rule which watching has to replace, and for one
    that would use up attempts which nobody asked for.
    """
    replaces = {**_WATCHED, **(_VISIBLE_POLLS if polls == "visible" else {}), **(_CHURNING if bounds.churn else {})}
    lost = sorted(design.replaces.keys() & replaces.keys())
    if lost:
        raise SpecError(f"{design.name} cannot be watched: it replaces {', '.join(lost)} itself")
    if issubclass(design.shape, WithRetries) and bounds.attempts > 1:
        raise SpecError(f"{design.name} cannot be watched: its retries are attempts that nobody asked for")
    if issubclass(design.shape, WithRevokeQueue):
        replaces["waits_to_be_revoked"] = assumptions.stands_in_the_revoke_queue
        if not issubclass(design.shape, Sampled):  # which takes the revokes that it has read, whatever waits
            replaces["nothing_waits"] = assumptions.nothing_waits_in_either_queue
    remembers = {"asked": field(upto(ATTEMPTS), REQUESTS), "published": field(upto(LENGTH), OPS)}
    shape = type(f"Watched{design.shape.__name__}", (design.shape,), remembers)
    judged = design.variant(design.name, design.summary, {}, modules=(assumptions,))
    return judged.variant(design.name, design.summary, replaces, shape=shape)
