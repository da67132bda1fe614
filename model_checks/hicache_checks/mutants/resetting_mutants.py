"""Mutants of the part *resetting* (§10.11): what goes wrong where a reset comes under copies."""

from __future__ import annotations

from hicache_checks.mutants.spec_mutants import SpecMutant
from hicache_spec.language import State, action, emit, require
from hicache_spec.parts.control_rules import DETACHED, ON_BEGUN_AGAIN, STARTING, all_are, begin_again, take_leftovers
from hicache_spec.parts.copying_state import POSITIONS, forget_from
from hicache_spec.parts.resetting import RESET_PAGES, RESET_SOLO
from hicache_spec.state import CHAINS, RANKS
from hicache_spec.tree import evict, evictable_pages


@action(fairness="weak")
def begin_again_under_a_copy(s: State) -> None:
    """What is being copied does not count: no operation is pending, and no thread lives."""
    require(s.resetting, "a reset is under way")
    require(all_are(s, DETACHED), "storage is detached")
    s.resetting = False
    begin_again(s)
    for r in RANKS:
        s.place[r] = STARTING
    emit(s, ON_BEGUN_AGAIN)


@action(fairness="weak")
def begin_again_and_drop_the_copies(s: State) -> None:
    """Copies under way are forgotten, and what has landed of them is left for the next ones."""
    require(s.resetting, "a reset is under way")
    require(all_are(s, DETACHED), "storage is detached")
    require(len(s.loads) == 0, "nothing is loaded back")
    s.resetting = False
    for _ in range(len(s.copies)):
        s.copy_pages[s.copies[0]] = 0
        s.copies.pop(0)
    for chain in CHAINS:
        for p in POSITIONS:
            s.locked[chain][p] = 0
    begin_again(s)
    for r in RANKS:
        s.place[r] = STARTING
    emit(s, ON_BEGUN_AGAIN)


def begin_again_without_the_device(s: State) -> None:
    """The host is empty, and the device is as it was."""
    for chain in CHAINS:
        forget_from(s, chain, 0)
    begin_again(s)


def serve_during_a_call(s: State) -> bool:
    """Requests run whatever the schedulers are doing."""
    return True


def let_go_of_the_tree(s: State) -> None:
    """With storage, what the host has goes too."""
    take_leftovers(s)
    if evictable_pages(s) > 0:
        evict(s, 1)


RESETTING_MUTANTS = (
    SpecMutant(
        "sched_begins_again_under_a_copy",
        {"sched_begin_again": begin_again_under_a_copy},
        RESET_SOLO,
        "step_reset_empties_both_tiers",
        7,
    ),
    SpecMutant(
        "sched_begins_again_and_drops_the_copies",
        {"sched_begin_again": begin_again_and_drop_the_copies},
        RESET_SOLO,
        "step_reset_empties_both_tiers",
        8,
    ),
    SpecMutant(
        "sched_begins_again_without_the_device",
        {"begin_again": begin_again_without_the_device},
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
