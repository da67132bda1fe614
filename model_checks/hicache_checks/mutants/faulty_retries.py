"""Faulty rules of the design with retries. `design_mutants.py` names what each replaces."""

from __future__ import annotations

from hicache_spec.designs.retrying import put_down
from hicache_spec.language import NONE, State, require
from hicache_spec.pipeline import revoke, submit, why_declined
from hicache_spec.state import ATTEMPTS, LENGTH, LIMITED, REQUEST_OF, TOO_SHORT


def put_down_without_a_budget(s: State, request: int, chain: int) -> None:
    if s.attempts[request] < ATTEMPTS:
        s.missed[request] = chain


def submit_and_stay_put_down(s: State, request: int, chain: int) -> None:
    limited = why_declined(s, request, LENGTH - s.resident[chain]) == LIMITED
    submit(s, request, chain)
    if limited:
        put_down(s, request, chain)


def put_down_what_is_too_short(s: State, request: int, chain: int) -> None:
    reason = why_declined(s, request, LENGTH - s.resident[chain])
    if s.record[request] == NONE:
        s.missed[request] = NONE
        s.retried[request] = 0
    submit(s, request, chain)
    if reason in (LIMITED, TOO_SHORT):
        put_down(s, request, chain)


def put_down_what_is_aborted(s: State, op: int, reason: int) -> None:
    chain = s.chain[op]
    revoke(s, op, reason)
    put_down(s, REQUEST_OF[op], chain)


def retry_in_vain(s: State, request: int) -> None:
    require(s.missed[request] != NONE, "the request is put down to ask again")
    put_down(s, request, s.missed[request])
