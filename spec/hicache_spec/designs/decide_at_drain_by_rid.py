"""§8.2 As sglang 0.5.18 shipped it: the scheduler finds the operation of an answer by the request id alone.

A late answer of an earlier attempt then decides the fate of the next one (P11).
"""

from __future__ import annotations

from ..language import State
from ..state import REQUEST_OF
from .decide_at_drain import DECIDE_AT_DRAIN


def find_record_by_request_id(s: State, op: int) -> int:
    """Whatever operation is pending under the request id of the answer.

    Ref: sglang 0.5.18 hiradix_cache.py::_drain_storage_control_queues_impl
    """
    return s.record[REQUEST_OF[op]]


DECIDE_AT_DRAIN_BY_RID = DECIDE_AT_DRAIN.variant(
    name="decide_at_drain_by_rid",
    summary="an operation is known by its request id alone, as sglang 0.5.18 shipped it",
    replaces={"find_record": find_record_by_request_id},
    violates=("step_drain_decides_its_own_attempt",),
)
