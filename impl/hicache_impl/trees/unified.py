"""A tree for all models: pages, windows, states, in any combination."""

from __future__ import annotations

from hicache_impl.trees.components import Sidecar, State, Window
from hicache_impl.trees.core import RadixTree


class UnifiedTree(RadixTree):
    """Pages, windows and states."""

    kinds = (Sidecar, Window, State)
