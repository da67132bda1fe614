"""hicache_spec: an executable specification of the prefetch pipeline of a hierarchical KV cache. Start at SPEC.md."""

from __future__ import annotations

from .binding import BoundSpec
from .bounds import BOUNDS, Bounds
from .designs import DESIGNS
from .language import Design, Refused, SpecError

__all__ = ["BOUNDS", "DESIGNS", "BoundSpec", "Bounds", "Design", "Refused", "SpecError"]
