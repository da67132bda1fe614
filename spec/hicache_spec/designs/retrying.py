"""§8.11 Retries: a request whose look-up came to nothing asks again while it waits. Their state, words and properties.

A request is *put down* to ask again where its operation was revoked, or declined by the limiter. A retry is a further
attempt: it asks for what the tree then lacks of the same chain. A submission has a budget of retries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..bounds import TIMEOUT
from ..events import ON_DECLINED, ON_REVOKED, ON_SUBMITTED
from ..language import (
    NONE,
    State,
    action,
    constant,
    emit,
    emitted,
    field,
    invariant,
    leads_to,
    optional,
    require,
    sometimes,
    step_property,
    upto,
)
from ..pipeline import admit, revoke, submit, why_declined
from ..properties import newly
from ..state import (
    ALLOCATED,
    ATTEMPTS,
    CHAINS,
    LENGTH,
    LIMITED,
    OPS,
    POLICY_NOW,
    REQUEST_OF,
    REQUESTS,
    TIMEOUT_TICKS,
    TOO_SHORT,
    WAS_ABORTED,
    WAS_STOPPED,
)
from .acknowledging import WithAcks, at_rest_with_acks

RETRIES = constant(lambda b: min(1, b.attempts - 1), "retries")
"""The budget of a submission: one retry, if the bounds have an attempt for it. The releases allow eight."""


class WithRetries(WithAcks):
    """§8.11 The state with acks, and who is to ask again."""

    missed = field(optional(CHAINS), REQUESTS)  # the chain that the request is put down to ask for again
    retried = field(upto(ATTEMPTS), REQUESTS)  # how often it did, since it was submitted


# ---- who is put down, and who asks again


def put_down(s: State, request: int, chain: int) -> None:
    """The request is to ask again for this chain, if its budget is not used up."""
    if s.retried[request] < RETRIES and s.attempts[request] < ATTEMPTS:
        s.missed[request] = chain


def submit_anew(s: State, request: int, chain: int) -> None:
    """§8.11 A new submission takes the place of a retry and has a budget of its own; if the limiter declines it, it is
    put down.

    Ref: sglang 0.5.21 unified_radix_cache.py::prefetch_from_storage
    """
    limited = why_declined(s, request, LENGTH - s.resident[chain]) == LIMITED
    if s.record[request] == NONE:
        s.missed[request] = NONE
        s.retried[request] = 0
    submit(s, request, chain)
    if limited:
        put_down(s, request, chain)


def revoke_and_put_down(s: State, op: int, reason: int) -> None:
    """§8.11 Whose operation is revoked is put down: but not if the request is gone, or if its time is over.

    Ref: sglang 0.5.23 unified_radix_cache.py::check_prefetch_progress, _drain_storage_control_queues_impl
    """
    chain = s.chain[op]
    is_late = reason == WAS_STOPPED and POLICY_NOW == TIMEOUT and s.waited[op] >= TIMEOUT_TICKS
    revoke(s, op, reason)
    if reason != WAS_ABORTED and not is_late:
        put_down(s, REQUEST_OF[op], chain)


@action(fairness="weak", request=REQUESTS)
def sched_retry(s: State, request: int) -> None:
    """§8.11 A request that is put down asks again; if there is too little left to ask for, it goes on without.

    Why not while the limiter is full: nothing would be looked up, and the budget pays for look-ups.
    Ref: sglang 0.5.21 scheduler.py::_process_storage_prefetch_retries, _retry_storage_prefetch
    """
    require(s.missed[request] != NONE, "the request is put down to ask again")
    chain = s.missed[request]
    reason = why_declined(s, request, LENGTH - s.resident[chain])
    require(reason != LIMITED, "the limiter is not full")
    s.missed[request] = NONE
    if reason == NONE:
        s.retried[request] += 1
        admit(s, request, chain, LENGTH - s.resident[chain])
    else:
        emit(s, ON_DECLINED, request, reason, LENGTH - s.resident[chain])


@action(request=REQUESTS)
def sched_let_go(s: State, request: int) -> None:
    """§8.11 A request that is put down leaves the waiting queue: it runs with what it has, or is aborted.

    Ref: sglang 0.5.21 storage_prefetch.py::cancel
    """
    require(s.missed[request] != NONE, "the request is put down to ask again")
    s.missed[request] = NONE


def at_rest_with_retries(s: State) -> bool:
    """§3.0 No operation is pending, every queue is empty, and nobody is put down to ask again."""
    return at_rest_with_acks(s) and all(s.missed[request] == NONE for request in REQUESTS)


# ---- properties


@invariant
def inv_who_asks_again_waits(s: State) -> bool:
    """§8.11 P10. A request that is put down has no pending operation."""
    return all(s.missed[request] == NONE or s.record[request] == NONE for request in REQUESTS)


@invariant
def inv_retries_are_bounded(s: State) -> bool:
    """§8.11 P26. No submission makes more retries than its budget has, and who has none left is not put down."""
    return all(
        s.retried[request] <= RETRIES and (s.missed[request] == NONE or s.retried[request] < RETRIES)
        for request in REQUESTS
    )


@step_property
def step_budget_pays_for_a_look_up(s: State, t: State) -> bool:
    """§8.11 P26. A retry is counted only if it is looked up: if an operation of the request is submitted."""
    return all(
        t.retried[request] <= s.retried[request]
        or any(REQUEST_OF[op] == request and emitted(t, ON_SUBMITTED, op=op) for op in OPS)
        for request in REQUESTS
    )


@step_property
def step_put_down_for_cause(s: State, t: State) -> bool:
    """§8.11 P10, P26, P27. A request is put down only where its operation is revoked and it lives on, or where the
    limiter declines it."""
    return all(
        t.missed[request] == NONE
        or s.missed[request] == t.missed[request]
        or emitted(t, ON_DECLINED, request=request, reason=LIMITED)
        or any(REQUEST_OF[op] == request and is_revoked_alive(s, t, op) for op in OPS)
        for request in REQUESTS
    )


def is_revoked_alive(s: State, t: State, op: int) -> bool:
    """The step revokes this operation, and its request still waits."""
    return emitted(t, ON_REVOKED, op=op) and not emitted(t, ON_REVOKED, op=op, reason=WAS_ABORTED)


def is_not_put_down(s: State, request: int) -> bool:
    """The request has asked again, or goes on without."""
    return s.missed[request] == NONE


@leads_to(is_not_put_down, request=REQUESTS)
def live_who_is_put_down_asks_again(s: State, request: int) -> bool:
    """§8.11 P26. A request that is put down asks again, unless it leaves the queue."""
    return s.missed[request] != NONE


# ---- outcomes


@sometimes
def sometimes_a_retry_is_looked_up(s: State, t: State) -> bool:
    """§8.11 A request asks again."""
    return any(t.retried[request] > s.retried[request] for request in REQUESTS)


@sometimes
def sometimes_a_retry_hits(s: State, t: State) -> bool:
    """§8.11 What a retry asks for is allocated."""
    return any(newly(s, t, op, ALLOCATED) and s.retried[REQUEST_OF[op]] > 0 for op in OPS)


@sometimes
def sometimes_the_budget_is_used_up(s: State, t: State) -> bool:
    """§8.11 The last retry misses as well, and the request goes on without."""
    return any(
        RETRIES > 0
        and s.retried[REQUEST_OF[op]] == RETRIES
        and is_revoked_alive(s, t, op)
        and t.missed[REQUEST_OF[op]] == NONE
        for op in OPS
    )


@sometimes
def sometimes_the_limiter_puts_down(s: State, t: State) -> bool:
    """§8.11 The limiter declines a request, which is put down to ask again."""
    return any(emitted(t, ON_DECLINED, request=q, reason=LIMITED) and t.missed[q] != NONE for q in REQUESTS)


@sometimes
def sometimes_a_retry_is_too_short(s: State, t: State) -> bool:
    """§8.11 What a retry would ask for has come to the tree meanwhile."""
    return any(s.missed[q] != NONE and emitted(t, ON_DECLINED, request=q, reason=TOO_SHORT) for q in REQUESTS)


RETRIES_WHAT_WAS_MISSED: Mapping[str, Callable[..., Any]] = {
    "submit": submit_anew,
    "revoke": revoke_and_put_down,
    "at_rest": at_rest_with_retries,
}
"""What every design with retries replaces."""
