"""Prefix trees: which pages of which prefix are on device and on host.

`core` is what all share; `components` is what a model may need beside the pages; `hiradix`, `hi_mamba` and `unified`
say which of them they have a place for.
"""

from __future__ import annotations

from hicache_impl.trees.core import RadixTree
from hicache_impl.trees.hi_mamba import HiMambaTree
from hicache_impl.trees.hiradix import HiRadixTree
from hicache_impl.trees.unified import UnifiedTree

TREES: dict[str, type[RadixTree]] = {"hiradix": HiRadixTree, "unified": UnifiedTree, "hi_mamba": HiMambaTree}
"""By the name that a configuration gives them."""
