"""§8.4 The revoke queue as sglang 0.5.16 and 0.5.17 shipped it: an operation is known by its request id alone.

The revoke queue carries request ids and nothing else, so a late revoke of an earlier attempt ends the next one; so does
a late hit, as in 0.5.18 (§8.2).
Ref: sglang 0.5.17 cache_controller.py::prefetch_thread_func
"""

from __future__ import annotations

from .decide_at_drain_by_rid import find_record_by_request_id
from .revoke_queue import REVOKE_QUEUE

REVOKE_QUEUE_BY_RID = REVOKE_QUEUE.variant(
    name="revoke_queue_by_rid",
    summary="the revoke queue with operations known by request id alone, as sglang 0.5.16 and 0.5.17 shipped it",
    replaces={"find_record": find_record_by_request_id},
    violates=("step_drain_decides_its_own_attempt",),
)
