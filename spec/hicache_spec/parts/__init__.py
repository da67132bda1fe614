"""Parts of the system that are joined to the canonical design: what each brings, and the bounds of its exploration."""

from __future__ import annotations

from ..bounds import Bounds
from ..designs import DECIDE_AT_DRAIN
from ..language import Design, Part
from . import pool_bounds
from .pools import POOLS

PARTS: dict[str, Part] = {part.name: part for part in (POOLS,)}

JOINED: dict[str, Design] = {
    design.name: design for design in (*(DECIDE_AT_DRAIN.joined(part) for part in PARTS.values()),)
}
"""The canonical design with each part alone, and with those that interact."""

BOUNDS_OF_PARTS: dict[str, tuple[Bounds, ...]] = {POOLS.name: pool_bounds.BOUNDS}

__all__ = ["BOUNDS_OF_PARTS", "JOINED", "PARTS", "POOLS"]
