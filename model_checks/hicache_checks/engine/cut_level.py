"""What a search that a budget has cut may still say of the level in which it was cut.

Engines notice a budget sooner or later within a level. All check that level to its end, so that they report the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from hicache_checks.engine.compile.layout import Words
from hicache_checks.engine.kernel_steps import Kernels, Search, Tally, batches


def finish_level(kernels: Kernels, search: Search, tally: Tally) -> Tally:
    """The tally as if the last level that is whole had been explored to its end; the states beyond it are not kept."""
    level = max(0, tally.depth - 1)
    found = replace(tally, step_depth=dict(tally.step_depth), invariant_depth=dict(tally.invariant_depth))
    for _, steps in batches(kernels, search.level(level)):
        for i in _bits(steps.broken):
            found.step_depth.setdefault(i, level + 1)
        for i in _bits(kernels.broken_invariants(steps.targets[steps.leaves == 0])):
            found.invariant_depth.setdefault(i, level + 1)
        if found.leaves_depth is None and steps.leaves.any():
            found.leaves_depth = level + 1
        if found.deadlock_depth is None and steps.stuck.any():
            found.deadlock_depth = level
        found.reached |= int(np.bitwise_or.reduce(steps.reached))
    return found


def _bits(words: Words) -> Iterator[int]:
    """The bits that are set in any of these."""
    together = int(np.bitwise_or.reduce(words))
    return (i for i in range(together.bit_length()) if together >> i & 1)
