"""Symmetry is declared in the specification and checked here: every step must commute with every permutation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hicache_checks.engine.compile.layout import Words
from hicache_checks.engine.compile.symmetry import Image
from hicache_checks.engine.kernel_steps import Kernels, Search, Steps
from hicache_spec.language import SpecError

STATES_MAX = 1 << 16
BATCH = 1 << 14


class NotSymmetric(SpecError):
    """A specification that declares a symmetry which it does not have; names what does not commute."""


def check_symmetry(kernels: Kernels, images: Sequence[Image], search: Search) -> tuple[int, int]:
    """Check the images of the states that a search found; how many states were checked, of how many.

    For every permutation p: the initial state is its own image; and for every checked state s, the steps from p(s) are
    the images of the steps from s, to the images of their targets, and properties and outcomes judge alike. Up to
    STATES_MAX states all are checked, else every n-th one. Raises NotSymmetric.
    """
    tally = search.tally()
    initial = np.array([kernels.compiled.initial], np.uint64)
    for image in images:
        if not np.array_equal(image.of(initial), initial):
            raise NotSymmetric(f"the initial state is not its own image under {_told(image)}")
    stride = -(-tally.states // STATES_MAX)
    checked, passed = 0, 0
    for depth in range(tally.depth + 1):
        states = search.level(depth)
        chosen = states[(-passed) % stride :: stride]
        passed += len(states)
        for first in range(0, len(chosen), BATCH):
            batch = chosen[first : first + BATCH]
            found, broken = kernels.successors(batch), kernels.broken_invariants(batch)
            for image in images:
                _check(kernels, image, batch, found, broken)
            checked += len(batch)
    return checked, tally.states


def _check(kernels: Kernels, image: Image, states: Words, found: Steps, broken: Words) -> None:
    spec = kernels.compiled.spec
    mirrored = image.of(states)
    got = kernels.successors(mirrored)
    steps = np.array(image.steps, np.int32)[found.steps]
    order = np.lexsort((steps, found.sources))
    targets = image.of(found.targets)
    targets[found.leaves != 0] = 0
    mine = found.sources[order].astype(np.int64) * len(spec.steps) + steps[order]
    other = got.sources.astype(np.int64) * len(spec.steps) + got.steps
    if not np.array_equal(mine, other):
        culprit = spec.steps[int(np.setxor1d(mine, other)[0]) % len(spec.steps)].rule.name
        raise NotSymmetric(f"{culprit} is not enabled alike under {_told(image)}")
    for what, wanted, seen in (
        ("leaves its types differently", found.leaves[order], got.leaves),
        ("does not act alike", targets[order], got.targets),
        ("is not judged alike", found.broken[order], got.broken),
        ("does not reach the same outcomes", found.reached[order], got.reached),
    ):
        unequal = np.any(wanted != seen, axis=1) if wanted.ndim == 2 else wanted != seen
        if unequal.any():
            raise NotSymmetric(
                f"{spec.steps[int(got.steps[np.argmax(unequal)])].rule.name} {what} under {_told(image)}"
            )
    if not np.array_equal(found.stuck, got.stuck):
        raise NotSymmetric(f"rest is not judged alike under {_told(image)}")
    unequal = broken ^ kernels.broken_invariants(mirrored)
    if unequal.any():
        number = int(unequal[np.argmax(unequal != 0)])
        name = spec.invariants[(number & -number).bit_length() - 1].rule.name
        raise NotSymmetric(f"{name} is not judged alike under {_told(image)}")


def _told(image: Image) -> str:
    sets = [f"{name} {', '.join(map(str, p))}" for name, p in image.permutation.items() if list(p) != sorted(p)]
    return f"the declared symmetry {'; '.join(sets)}"
