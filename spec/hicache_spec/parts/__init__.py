"""The parts of the system that are joined to a design, by name; and the designs and bounds that can be explored.

`decide_at_drain+copying` is the design *decide_at_drain* with the part *copying*. A part may need others before it.
"""

from __future__ import annotations

from ..bounds import BOUNDS, Bounds
from ..designs import DECIDE_AT_DRAIN, DESIGNS
from ..language import Design, Part
from .copying import COPYING, COPYING_BOUNDS
from .storing import STORING, STORING_BOUNDS

PARTS: dict[str, Part] = {p.name: p for p in (COPYING, STORING)}

JOINED: dict[str, Design] = {
    d.name: d for d in (DECIDE_AT_DRAIN.joined(COPYING), DECIDE_AT_DRAIN.joined(COPYING, STORING))
}

PART_BOUNDS: dict[str, tuple[Bounds, ...]] = {"copying": COPYING_BOUNDS, "storing": STORING_BOUNDS}

EXPLORED = {**DESIGNS, **JOINED}
"""Every design by its name, alone and joined."""

EXPLORED_BOUNDS = {**BOUNDS, **PART_BOUNDS}
"""Every named set of configurations."""

__all__ = ["COPYING", "EXPLORED", "EXPLORED_BOUNDS", "JOINED", "PARTS", "PART_BOUNDS", "STORING"]
