"""A tree for hybrid models with mamba layers: pages, and one state for the end of a prefix."""

from __future__ import annotations

from hicache_impl.trees.components import Sidecar, State
from hicache_impl.trees.core import RadixTree


class HiMambaTree(RadixTree):
    """Pages and states."""

    kinds = (Sidecar, State)
