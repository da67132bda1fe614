"""§8.12 Retries as sglang 0.5.21 to 0.5.23 shipped them: a retry goes by the name of the attempt that missed.

A *handle* is a request id and a number that counts on when a server that does nothing but prefill starts a request
over, and at no other time. So the answer of what was given up decides for the retry. An ack is compared with the
operation itself.
"""

from __future__ import annotations

from ..events import ON_DECLINED
from ..language import NONE, State, action, emit, require
from ..pipeline import admit, why_declined
from ..state import LENGTH, LIMITED, REQUEST_OF, REQUESTS
from .attempts import ATTEMPTS
from .decide_at_drain_by_rid import find_record_by_request_id
from .retrying import put_down


def find_record_by_operation(s: State, op: int) -> int:
    """The operation that the ack is of, if it is pending.

    Ref: sglang 0.5.20 unified_radix_cache.py::_drain_storage_control_queues_impl
    """
    if s.record[REQUEST_OF[op]] == op:
        return op
    return NONE


@action(fairness="weak", request=REQUESTS)
def sched_retry_whatever_comes(s: State, request: int) -> None:
    """§8.12 A request that is put down asks again, and its budget pays, also where the limiter declines.

    Ref: sglang 0.5.21 scheduler.py::_retry_storage_prefetch
    """
    require(s.missed[request] != NONE, "the request is put down to ask again")
    chain = s.missed[request]
    reason = why_declined(s, request, LENGTH - s.resident[chain])
    s.missed[request] = NONE
    s.retried[request] += 1
    if reason == NONE:
        admit(s, request, chain, LENGTH - s.resident[chain])
    else:
        emit(s, ON_DECLINED, request, reason, LENGTH - s.resident[chain])
        if reason == LIMITED:
            put_down(s, request, chain)


ATTEMPTS_BY_HANDLE = ATTEMPTS.variant(
    name="attempts_by_handle",
    summary="retries that share the name of the attempt that missed, and that count where nothing is looked up, as "
    "sglang 0.5.21 to 0.5.23 shipped them",
    replaces={
        "find_record": find_record_by_request_id,
        "find_acknowledged": find_record_by_operation,
        "sched_retry": sched_retry_whatever_comes,
    },
    violates=("step_drain_decides_its_own_attempt", "step_budget_pays_for_a_look_up"),
)
