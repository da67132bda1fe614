"""Mutants of the part *resetting* (§10.11): what goes wrong where a reset comes under copies."""

from __future__ import annotations

from hicache_checks.mutants.spec_mutants import SpecMutant
from hicache_spec.language import State, action, emit, require
from hicache_spec.parts.control_rules import (
    DETACHED,
    ON_BEGUN_AGAIN,
    STARTING,
    attaches,
    forget_everything,
    take_leftovers,
)
from hicache_spec.parts.copying_state import DEVICE_PAGES, POSITIONS, forget_from, refresh_leaf
from hicache_spec.parts.resetting import RESET_PAGES, RESET_RANKS, RESET_SOLO
from hicache_spec.state import CHAINS, HOST_PAGES, RANKS
from hicache_spec.tree import evict, evictable_pages


@action(fairness="weak", rank=RANKS)
def begin_again_under_a_copy(s: State, rank: int) -> None:
    """What is being copied does not count: no operation is pending, and no thread lives."""
    require(s.resetting, "a reset is under way")
    require(s.place[rank] == DETACHED, "the rank is detached")
    s.place[rank] = STARTING
    s.free[rank] = HOST_PAGES
    if all(attaches(s, r) for r in RANKS):
        s.resetting = False
        forget_everything(s)
    emit(s, ON_BEGUN_AGAIN, rank)


@action(fairness="weak", rank=RANKS)
def begin_again_without_the_host(s: State, rank: int) -> None:
    """The host pages of the tree are not given back."""
    require(s.resetting, "a reset is under way")
    require(s.place[rank] == DETACHED, "the rank is detached")
    require(len(s.copies) + len(s.loads) == 0, "nothing is being copied")
    s.place[rank] = STARTING
    if all(attaches(s, r) for r in RANKS):
        s.resetting = False
        forget_everything(s)
    emit(s, ON_BEGUN_AGAIN, rank)


def forget_the_copies(s: State) -> None:
    """Copies under way are forgotten with the rest, and what has landed of them is left for the next ones."""
    for _ in range(len(s.copies)):
        s.copy_pages[s.copies[0]] = 0
        s.copies.pop(0)
    for chain in CHAINS:
        s.on_device[chain] = 0
        forget_from(s, chain, 0)
        for p in POSITIONS:
            s.locked[chain][p] = 0
        refresh_leaf(s, chain)
    s.device_free = DEVICE_PAGES
    forget_everything(s)


def forget_the_host_alone(s: State) -> None:
    """The host is empty, and the device is as it was."""
    for chain in CHAINS:
        forget_from(s, chain, 0)
    forget_everything(s)


def serve_during_a_call(s: State) -> bool:
    """Requests run whatever the schedulers are doing."""
    return True


def let_go_of_the_tree(s: State, rank: int) -> None:
    """With storage, what the host has goes too."""
    take_leftovers(s, rank)
    if evictable_pages(s) > 0:
        evict(s, 1)


RESETTING_MUTANTS = (
    SpecMutant(
        "sched_begins_again_without_the_host",
        {"sched_begin_again": begin_again_without_the_host},
        RESET_RANKS,
        "step_begins_again_as_at_the_start",
        10,
    ),
    SpecMutant(
        "sched_begins_again_under_a_copy",
        {"sched_begin_again": begin_again_under_a_copy},
        RESET_SOLO,
        "step_reset_empties_both_tiers",
        7,
    ),
    SpecMutant(
        "sched_begins_again_and_drops_the_copies",
        {"sched_begin_again": begin_again_under_a_copy, "forget_everything": forget_the_copies},
        RESET_SOLO,
        "step_reset_empties_both_tiers",
        8,
    ),
    SpecMutant(
        "sched_begins_again_without_the_device",
        {"forget_everything": forget_the_host_alone},
        RESET_SOLO,
        "step_reset_empties_both_tiers",
        9,
    ),
    SpecMutant(
        "sched_serves_during_a_call",
        {"is_serving": serve_during_a_call},
        RESET_SOLO,
        "step_nothing_runs_during_a_call",
        2,
    ),
    SpecMutant(
        "sched_lets_go_of_the_tree",
        {"take_leftovers": let_go_of_the_tree},
        RESET_PAGES,
        "step_eviction_is_needed",
        9,
    ),
)
