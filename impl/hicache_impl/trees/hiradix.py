"""A tree for full attention: a page is all that a model needs of a page."""

from __future__ import annotations

from hicache_impl.trees.components import Sidecar
from hicache_impl.trees.core import RadixTree
from hicache_impl.trees.node import Inserted, Match, Node, Published, TreeError

__all__ = ["HiRadixTree", "Inserted", "Match", "Node", "Published", "TreeError"]


class HiRadixTree(RadixTree):
    """Pages, and what is beside each of them."""

    kinds = (Sidecar,)
