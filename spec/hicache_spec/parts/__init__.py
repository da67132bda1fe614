"""The parts of the system that are joined to a design, by name; and the designs and bounds that can be explored.

`decide_at_drain+copying` is the design *decide_at_drain* with the part *copying*. A part may need others before it.
"""

from __future__ import annotations

from ..bounds import BOUNDS, Bounds
from ..designs import DECIDE_AT_DRAIN, DESIGNS
from ..language import Design, Part
from .copying import COPYING, COPYING_BOUNDS

PARTS: dict[str, Part] = {p.name: p for p in (COPYING,)}

JOINED: dict[str, Design] = {d.name: d for d in (DECIDE_AT_DRAIN.joined(COPYING),)}

PART_BOUNDS: dict[str, tuple[Bounds, ...]] = {"copying": COPYING_BOUNDS}

EXPLORED = {**DESIGNS, **JOINED}
"""Every design by its name, alone and joined."""

EXPLORED_BOUNDS = {**BOUNDS, **PART_BOUNDS}
"""Every named set of configurations."""


def outcomes_of(design: str) -> list[str]:
    """The outcomes that must be reached where this design is explored: its own, or those of the part joined last.

    Why not all: what a part is joined to has outcomes enough elsewhere, and a part is explored with the rest switched
    off.
    """
    beneath = design.rpartition("+")[0]
    known = {r.name for r in EXPLORED[beneath].rules()} if beneath else set()
    return [r.name for r in EXPLORED[design].rules() if r.kind == "sometimes" and r.name not in known]


__all__ = ["COPYING", "EXPLORED", "EXPLORED_BOUNDS", "JOINED", "PARTS", "PART_BOUNDS", "outcomes_of"]
