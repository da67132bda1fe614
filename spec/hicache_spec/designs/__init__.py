"""§8 The designs: the canonical one, and others as *what differs* from it."""

from __future__ import annotations

from ..language import Design
from .alloc_first import ALLOC_FIRST
from .alloc_first_by_rid import ALLOC_FIRST_BY_RID
from .attempts import ATTEMPTS
from .attempts_by_handle import ATTEMPTS_BY_HANDLE
from .decide_at_drain import DECIDE_AT_DRAIN
from .decide_at_drain_by_rid import DECIDE_AT_DRAIN_BY_RID
from .progress_ack import PROGRESS_ACK
from .progress_ack_by_rid import PROGRESS_ACK_BY_RID
from .revoke_queue import REVOKE_QUEUE
from .revoke_queue_by_rid import REVOKE_QUEUE_BY_RID
from .revoke_queue_sampled import REVOKE_QUEUE_SAMPLED

DESIGNS: dict[str, Design] = {
    d.name: d
    for d in (
        DECIDE_AT_DRAIN,
        DECIDE_AT_DRAIN_BY_RID,
        REVOKE_QUEUE,
        REVOKE_QUEUE_BY_RID,
        REVOKE_QUEUE_SAMPLED,
        ALLOC_FIRST,
        ALLOC_FIRST_BY_RID,
        PROGRESS_ACK,
        PROGRESS_ACK_BY_RID,
        ATTEMPTS,
        ATTEMPTS_BY_HANDLE,
    )
}

__all__ = [
    "DECIDE_AT_DRAIN",
    "DECIDE_AT_DRAIN_BY_RID",
    "REVOKE_QUEUE",
    "REVOKE_QUEUE_BY_RID",
    "REVOKE_QUEUE_SAMPLED",
    "ALLOC_FIRST",
    "ALLOC_FIRST_BY_RID",
    "PROGRESS_ACK",
    "PROGRESS_ACK_BY_RID",
    "ATTEMPTS",
    "ATTEMPTS_BY_HANDLE",
    "DESIGNS",
]
