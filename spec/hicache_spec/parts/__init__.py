"""The parts of the system beyond prefetch: those that are designs of their own, and the bounds to explore them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..language import Design
from .groups_design import GROUPS, GROUPS_BOUNDS

OWN_DESIGNS: Mapping[str, Design] = {GROUPS.name: GROUPS}
"""Parts that are not joined to a design: they have a small state of their own."""

BOUNDS_OF_PARTS: Mapping[str, tuple[Any, ...]] = {GROUPS.name: GROUPS_BOUNDS}
"""Named sets of configurations; those of a part are explored with designs that have it."""
