"""§8 The designs in circulation: the canonical one, and others as *what differs* from it."""

from __future__ import annotations

from ..language import Design
from .decide_at_drain import DECIDE_AT_DRAIN
from .decide_at_drain_by_rid import DECIDE_AT_DRAIN_BY_RID

DESIGNS: dict[str, Design] = {d.name: d for d in (DECIDE_AT_DRAIN, DECIDE_AT_DRAIN_BY_RID)}

__all__ = ["DECIDE_AT_DRAIN", "DECIDE_AT_DRAIN_BY_RID", "DESIGNS"]
