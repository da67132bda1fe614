"""§8 The designs: the canonical one, and others as *what differs* from it."""

from __future__ import annotations

from ..language import Design
from .alloc_first import ALLOC_FIRST
from .alloc_first_by_rid import ALLOC_FIRST_BY_RID
from .decide_at_drain import DECIDE_AT_DRAIN
from .decide_at_drain_by_rid import DECIDE_AT_DRAIN_BY_RID
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
    "DESIGNS",
]
