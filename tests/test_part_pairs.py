"""§11.10, §12.8, §12.9 Pairs of parts: why they have to know of each other, and what would follow if they did not."""

from __future__ import annotations

import pytest

from faulty_parts import shortest
from hicache_checks.engine.explore import explore
from hicache_spec import Bounds, BoundSpec
from hicache_spec.parts import design_named
from hicache_spec.parts.carrying import (
    CARRY_BACK,
    CARRY_FETCH_SIDECAR,
    CARRY_PRESSURE,
    CARRY_SIDECAR,
    CARRY_STATE,
    CARRYING,
)
from hicache_spec.parts.depositing import DEPOSIT_RANKS, DEPOSITING
from hicache_spec.parts.detaching import DETACH_REPLICATED, DETACH_SOLO, DETACHING

DETACHING_DESIGN = "decide_at_drain+copying+storing+control+resetting+detaching"
CARRYING_DESIGN = "decide_at_drain+copying+pools+carrying"
DEPOSITING_DESIGN = "decide_at_drain+copying+storing+pools+carrying+depositing"
STRONGER = {"inv_states_end_a_resident_prefix"}
"""Restated to say more than before."""

# design, property, configuration, the action that its words of before accuse
OF_BEFORE = [
    (DETACHING_DESIGN, "inv_jobs_are_everywhere", DETACH_REPLICATED, "sched_let_go"),
    (DETACHING_DESIGN, "step_acknowledged_everywhere", DETACH_SOLO, "sched_let_go"),
    (DETACHING_DESIGN, "step_one_event_for_each_job", DETACH_SOLO, "sched_let_go"),
    (DETACHING_DESIGN, "step_due_is_queued", DETACH_SOLO, "sched_take_copy"),
    (CARRYING_DESIGN, "inv_slots_conserved", CARRY_STATE, "sched_run"),
    (CARRYING_DESIGN, "inv_tree_pages_have_their_sidecars", CARRY_SIDECAR, "sched_run"),
    (CARRYING_DESIGN, "step_copy_is_refused_for_want_of_room", CARRY_SIDECAR, "sched_run"),
    (CARRYING_DESIGN, "step_dropped_for_want_of_room", CARRY_BACK, "sched_evict_device"),
    (CARRYING_DESIGN, "step_refusal_is_needed", CARRY_FETCH_SIDECAR, "sched_drain"),
    (CARRYING_DESIGN, "step_state_is_published_with_its_prefix", CARRY_STATE, "sched_take_copy"),
    (CARRYING_DESIGN, "step_state_eviction_is_needed", CARRY_STATE, "sched_run"),
    (CARRYING_DESIGN, "step_eviction_is_needed", CARRY_PRESSURE, "sched_run"),
    (DEPOSITING_DESIGN, "inv_states_kept_exactly", DEPOSIT_RANKS, "sched_take_copy"),
    (DEPOSITING_DESIGN, "step_counted_as_stored_was_taken", DEPOSIT_RANKS, "backup_fail_slot"),
]


@pytest.mark.heavy
@pytest.mark.parametrize(("design", "name", "bounds", "last"), OF_BEFORE)
def test_the_words_of_before_would_accuse_the_innocent(design: str, name: str, bounds: Bounds, last: str) -> None:
    """So each of them has to be restated for the pair."""
    before = {r.name: r.function for r in design_named(design.rpartition("+")[0]).rules()}
    spec = BoundSpec(design_named(design).variant("words_of_before", "", {name: before[name]}), bounds)
    violation = explore(spec, only={name}).violation
    assert violation is not None
    assert spec.steps[violation.run[-1]].rule.name == last


def test_every_restated_property_is_asked_whether_it_had_to_be() -> None:
    restated = {name for part in (DETACHING, CARRYING, DEPOSITING) for name in part.replaces}
    asked = {name for _, name, *_ in OF_BEFORE}
    assert {n for n in restated if n.startswith(("inv_", "step_"))} == asked | STRONGER


# ---- what would follow, if the first property to break did not stand in the way


def test_a_late_ack_counts_for_a_storage_that_has_nothing() -> None:
    run = shortest("sched_keeps_the_acks_of_before", "inv_known_stored_is_stored")
    assert run[-3:] == ["sched_let_go(rank=0)", "sched_take_backup_ack()", "env_replace_storage()"]


def test_what_the_old_storage_had_is_never_put_into_the_new_one() -> None:
    run = shortest("sched_knows_what_the_old_storage_had", "inv_known_stored_is_stored")
    assert "sched_take_backup_ack()" in run
    assert run[-2:] == ["sched_let_go(rank=0)", "env_replace_storage()"]


def test_a_thread_that_was_not_waited_for_shares_its_queue_with_the_next_one() -> None:
    run = shortest("sched_lets_go_beside_a_backup_thread", "inv_attached_ranks_have_one_backup_thread")
    assert run[-3:] == ["sched_let_go(rank=0)", "sched_attach()", "sched_start_query_thread(rank=0)"]


def test_a_state_that_made_room_for_another_is_stored_all_the_same() -> None:
    """Under its key storage has the bytes of whatever has the slot by then."""
    run = shortest("sched_evicts_a_state_that_is_stored", "step_slot_is_stored_from_the_host")
    assert run[-3:] == ["sched_run(chain=0, depth=2)", "backup_put_page(rank=0)", "backup_put_slot(rank=0, pool=0)"]
