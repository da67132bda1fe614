"""§12 The configurations in which extra pools are explored."""

from __future__ import annotations

from dataclasses import replace

from ..bounds import BEST_EFFORT, OPTIONAL_STATE, SIDECAR, STATE, Bounds, ExtraPool

_ALONE = Bounds(requests=1, host_pages=2, resident_pages=(0,), stored_pages=(2,), churn=True, stops=True)
_TWO = Bounds(requests=2, ranks=1, host_pages=2, resident_pages=(0, 1), stored_pages=(2, 2))
_PAIR = Bounds(requests=2, chain_pages=1, host_pages=1, resident_pages=(0,), stored_pages=(1,), churn=True)


def sidecar(slots: int, *stored: tuple[int, ...]) -> ExtraPool:
    """A pool with a slot for each page; `stored`: the depths of each chain for which storage has it."""
    return ExtraPool(SIDECAR, slots, stored)


def state(slots: int, *stored: tuple[int, ...]) -> ExtraPool:
    """A pool without whose slot, for the end of a prefix, the prefix is of no use."""
    return ExtraPool(STATE, slots, stored)


def optional_state(slots: int, *stored: tuple[int, ...]) -> ExtraPool:
    """A pool with one slot for the end of a prefix, which is of use without it."""
    return ExtraPool(OPTIONAL_STATE, slots, stored)


POOL_SIDECAR = replace(_ALONE, name="pool_sidecar", pools=(sidecar(2, (1, 2)),))
POOL_SIDECARS = replace(_ALONE, name="pool_sidecars", ranks=1, pools=(sidecar(2, (1, 2)), sidecar(2, (1, 2))))
POOL_STATE = replace(_ALONE, name="pool_state", pools=(state(1, (1, 2)),))
POOL_OPTIONAL = replace(_ALONE, name="pool_optional", pools=(optional_state(1, (1, 2)),))
POOL_MIXED = replace(_ALONE, name="pool_mixed", pools=(sidecar(2, (1, 2)), state(1, (1, 2))))
POOL_PAIR = replace(_PAIR, name="pool_pair", pools=(state(1, (1,)),))
POOL_KNOWN = replace(_PAIR, name="pool_known", ranks=1, host_pages=2, pools=(sidecar(2, (1,)), state(2, (1,))))
POOL_SCARCE = replace(
    _TWO, name="pool_scarce", host_pages=3, pools=(sidecar(2, (1, 2), (1, 2)), state(1, (2,), (1, 2)))
)
POOL_WRITES = replace(_TWO, name="pool_writes", host_pages=3, writes=True, pools=(state(2, (1, 2), (1, 2)),))
POOL_BEST_EFFORT = replace(
    _ALONE, name="pool_best_effort", policy=BEST_EFFORT, churn=False, pools=(sidecar(2, (1, 2)), state(1, (2,)))
)

BOUNDS = (
    POOL_SIDECAR,
    POOL_SIDECARS,
    POOL_STATE,
    POOL_OPTIONAL,
    POOL_MIXED,
    POOL_PAIR,
    POOL_KNOWN,
    POOL_SCARCE,
    POOL_WRITES,
    POOL_BEST_EFFORT,
)
