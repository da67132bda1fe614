"""§10.11 A reset where there is a device tier: it waits for what is being copied, and both tiers are empty after it."""

from __future__ import annotations

from ..language import State, action, emit, emitted, require, sometimes, step_property
from ..properties import step_eviction_is_needed
from ..state import CHAINS, HOST_PAGES, OPS, RANKS, held
from .control_properties import forgets, is_empty
from .control_rules import (
    DETACHED,
    ON_BEGUN_AGAIN,
    ON_RESETTING,
    STARTING,
    all_are,
    attaches,
    control_rests,
    forget_everything,
)
from .copying_state import DEVICE_PAGES, NOWHERE, POSITIONS, forget_from, host_pages, refresh_leaf


def is_serving_between_calls(s: State) -> bool:
    """§10.11 While a control call is under way no request runs, and nothing is evicted for one: the scheduler is in the
    call."""
    return control_rests(s)


@action(fairness="weak", rank=RANKS)
def sched_begin_again_after_the_copies(s: State, rank: int) -> None:
    """§10.11 A rank begins again, as in §13.2, once no copy and no load is under way.

    Why: a copy that lands later would write into a page that is somebody else's by then, and its end would be taken for
    that of another one.
    """
    require(s.resetting, "a reset is under way")
    require(s.place[rank] == DETACHED, "the rank is detached")
    require(len(s.copies) + len(s.loads) == 0, "nothing is being copied")
    s.place[rank] = STARTING
    s.free[rank] = HOST_PAGES
    if all(attaches(s, r) for r in RANKS):
        s.resetting = False
        forget_everything(s)
    emit(s, ON_BEGUN_AGAIN, rank)


def forget_both_tiers(s: State) -> None:
    """§10.11 The device is empty, too, and nothing is a leaf."""
    for chain in CHAINS:
        s.on_device[chain] = 0
        forget_from(s, chain, 0)
    s.device_free = DEVICE_PAGES
    forget_everything(s)
    for chain in CHAINS:
        refresh_leaf(s, chain)


def inv_pages_conserved_with_copies_on_each_rank(s: State) -> bool:
    """§4.2 P4. On every rank, free, held, releasing, copied to and published pages together are the whole host pool;
    where a reset has begun again, nothing is published."""
    return all(
        s.free[r] + s.releasing[r] + sum(held(s, r, op) for op in OPS) + (0 if is_empty(s, r) else host_pages(s))
        == HOST_PAGES
        for r in RANKS
    )


def step_eviction_is_needed_but_for_a_reset(s: State, t: State) -> bool:
    """§5.4 P9. A drain evicts exactly the host pages that its grants lack, a copy those that it lacks; a reset empties
    the host, and no other step evicts."""
    return emitted(t, ON_BEGUN_AGAIN) or step_eviction_is_needed(s, t)


@step_property
def step_reset_empties_both_tiers(s: State, t: State) -> bool:
    """§10.11 P15. A reset ends with all pages of both pools free, and nothing locked, kept or on its way."""
    return not forgets(s, t) or (
        t.device_free == DEVICE_PAGES
        and all(t.free[r] == HOST_PAGES and t.copied[r] + t.loaded[r] == 0 for r in RANKS)
        and len(t.copies) + len(t.loads) == 0
        and all(all(t.locked[c][p] + t.kept[c][p] == 0 and t.host[c][p] == NOWHERE for p in POSITIONS) for c in CHAINS)
    )


@step_property
def step_nothing_runs_during_a_call(s: State, t: State) -> bool:
    """§10.11 P15. While a control call is under way no copy and no load begins, and the device gets no page."""
    return control_rests(s) or (
        len(t.copies) <= len(s.copies)
        and len(t.loads) <= len(s.loads)
        and all(t.on_device[c] <= s.on_device[c] for c in CHAINS)
    )


@sometimes
def sometimes_a_reset_comes_under_a_copy(s: State, t: State) -> bool:
    """§10.11 A reset is asked for while pages are being copied to the host."""
    return emitted(t, ON_RESETTING) and len(s.copies) > 0


@sometimes
def sometimes_a_reset_comes_under_a_load(s: State, t: State) -> bool:
    """§10.11 A reset is asked for while pages are being loaded back."""
    return emitted(t, ON_RESETTING) and len(s.loads) > 0


@sometimes
def sometimes_a_reset_waits_for_a_copy_alone(s: State, t: State) -> bool:
    """§10.11 All threads have ended, and a copy is still under way."""
    return t.resetting and all_are(t, DETACHED) and len(t.copies) + len(t.loads) > 0


@sometimes
def sometimes_a_reset_empties_the_device(s: State, t: State) -> bool:
    """§10.11 A reset ends that finds pages on the device."""
    return forgets(s, t) and any(s.on_device[c] > 0 for c in CHAINS)


@sometimes
def sometimes_copies_go_on_while_detached(s: State, t: State) -> bool:
    """§10.11 A copy begins while no storage is attached."""
    return all_are(s, DETACHED) and len(t.copies) > len(s.copies)
