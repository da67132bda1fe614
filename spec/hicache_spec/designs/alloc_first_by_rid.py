"""§8.7 Host pages first, as sglang 0.5.15 shipped it: an operation is known by its request id alone.

A late revoke of an earlier attempt ends the next one, which holds pages already. Nobody gives them back.
Ref: sglang 0.5.15 hiradix_cache.py::_drain_storage_control_queues_impl
"""

from __future__ import annotations

from .alloc_first import ALLOC_FIRST
from .decide_at_drain_by_rid import find_record_by_request_id

ALLOC_FIRST_BY_RID = ALLOC_FIRST.variant(
    name="alloc_first_by_rid",
    summary="host pages first, with operations known by request id alone, as sglang 0.5.15 shipped it",
    replaces={"find_record": find_record_by_request_id},
    violates=(*ALLOC_FIRST.violates, "step_drain_decides_its_own_attempt"),
)
