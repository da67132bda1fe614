"""Mutants of the part *pools* (SPEC.md §12): what each replaces, where it is looked for, what breaks first, and when.

Several are what was found in releases: an operation that is over when its pages are (the pool is still being read, in
sglang up to 0.5.13), a wait for a pool that failed (fixed before sglang 0.5.13), a slot that an abort releases while it
is being filled (sglang 0.5.18), and an agreement on one number a rank, which may name a prefix that no rank can use.
"""

from __future__ import annotations

from dataclasses import replace

from hicache_checks.mutants import faulty_pools
from hicache_checks.mutants.faulty_liveness import LivenessMutant
from hicache_checks.mutants.spec_mutants import SpecMutant
from hicache_spec.parts.pool_bounds import (
    POOL_KNOWN,
    POOL_OPTIONAL,
    POOL_SCARCE,
    POOL_SIDECAR,
    POOL_STATE,
    POOL_WRITES,
    sidecar,
    state,
)
from hicache_spec.parts.turnover import TURNOVER_SIDECAR, TURNOVER_STATE

ROOMY = replace(POOL_SCARCE, name="roomy", host_pages=2, pools=(sidecar(4, (1, 2), (1, 2)), state(3, (1, 2), (1, 2))))
TWO_STATES = replace(POOL_STATE, name="two_states", pools=(state(2, (1, 2)),))

POOL_MUTANTS = (
    SpecMutant(
        "query_forgets_the_clamp",
        {"agreed_hit": faulty_pools.agree_on_the_pages_alone},
        POOL_SIDECAR,
        "step_hit_is_everywhere",
        6,
    ),
    SpecMutant(
        "query_agrees_on_one_number_a_rank",
        {"agreed_hit": faulty_pools.agree_on_the_least_of_each_rank},
        POOL_STATE,
        "step_hit_is_everywhere",
        6,
    ),
    SpecMutant(
        "sched_grants_pages_without_a_state",
        {"fits": faulty_pools.fit_without_a_slot, "wanted_slots": faulty_pools.want_a_slot_if_there_is_one},
        POOL_WRITES,
        "inv_pools_are_granted_together",
        11,
    ),
    SpecMutant(
        "sched_keeps_the_slots_of_a_refused_grant",
        {"allocate": faulty_pools.take_slots_for_a_refused_grant},
        ROOMY,
        "inv_pools_are_granted_together",
        11,
    ),
    SpecMutant(
        "sched_refuses_before_it_evicts_for_a_pool",
        {"fits": faulty_pools.fit_without_eviction},
        POOL_SCARCE,
        "step_refusal_is_needed",
        6,
    ),
    SpecMutant(
        "sched_grants_up_to_where_no_state_is",
        {"fits": faulty_pools.fit_whatever_was_agreed},
        POOL_SCARCE,
        "step_grant_ends_where_its_states_are",
        18,
    ),
    SpecMutant(
        "sched_evicts_a_page_too_many_for_a_sidecar",
        {"make_room": faulty_pools.make_more_room_than_is_needed},
        POOL_SCARCE,
        "step_eviction_is_needed",
        6,
    ),
    SpecMutant(
        "sched_evicts_a_state_for_a_free_slot",
        {"make_room": faulty_pools.make_room_for_a_state_that_has_it},
        POOL_WRITES,
        "step_state_eviction_is_needed",
        6,
    ),
    SpecMutant(
        "sched_evicts_the_state_of_an_anchor",
        {"evict_state": faulty_pools.evict_any_state},
        POOL_WRITES,
        "inv_anchors_have_their_states",
        17,
    ),
    SpecMutant(
        "sched_evicts_pages_without_their_sidecars",
        {"cut_sidecars": faulty_pools.leave_sidecars_behind},
        ROOMY,
        "inv_tree_pages_have_their_sidecars",
        6,
    ),
    SpecMutant(
        "sched_evicts_pages_without_their_states",
        {"cut_states": faulty_pools.leave_states_behind},
        ROOMY,
        "inv_states_end_a_resident_prefix",
        6,
    ),
    SpecMutant(
        "sched_reclaims_slots_by_its_own_count",
        {"sched_reclaim_slots": faulty_pools.reclaim_what_each_rank_has},
        POOL_SIDECAR,
        "inv_ranks_have_pools_alike",
        12,
    ),
    SpecMutant(
        "sched_reclaims_slots_by_the_count_of_the_pages",
        {"slots_everywhere": faulty_pools.count_of_the_pages},
        POOL_STATE,
        "state_in_bounds",
        13,
    ),
    SpecMutant(
        "io_counts_a_page_ahead_of_its_sidecars",
        {
            "has_landed": faulty_pools.count_a_page_ahead_of_its_sidecars,
            "io_land_slot": faulty_pools.land_without_counting_again,
        },
        POOL_SIDECAR,
        "inv_counted_slots_are_filled",
        11,
    ),
    SpecMutant(
        "io_starts_a_slot_after_termination",
        {"io_start_slot": faulty_pools.start_a_slot_after_termination},
        POOL_SIDECAR,
        "step_no_slot_read_after_termination",
        13,
    ),
    SpecMutant(
        "io_counts_a_state_after_termination",
        {"io_land_slot": faulty_pools.land_a_state_after_termination},
        POOL_STATE,
        "step_no_slot_read_after_termination",
        14,
    ),
    SpecMutant(
        "io_leaves_an_operation_without_its_state",
        {"is_read": faulty_pools.leave_without_the_states},
        POOL_STATE,
        "inv_ended_operations_hold_no_slot",
        11,
    ),
    SpecMutant(
        "io_drops_a_slot",
        {"give_slot": faulty_pools.drop_a_slot},
        POOL_STATE,
        "inv_slots_conserved",
        12,
    ),
    SpecMutant(
        "sched_ends_the_wait_with_the_pages",
        {"is_complete": faulty_pools.complete_with_the_pages_alone},
        POOL_STATE,
        "step_waits_for_the_verdict",
        14,
    ),
    SpecMutant(
        "sched_waits_for_a_state_that_failed",
        {"is_complete": faulty_pools.complete_when_every_state_landed},
        POOL_OPTIONAL,
        "deadlock",
        17,
    ),
    SpecMutant(
        "sched_publishes_pages_without_their_state",
        {"agreed_pages": faulty_pools.publish_the_pages_alone},
        POOL_STATE,
        "step_published_landed_everywhere",
        15,
    ),
    SpecMutant(
        "sched_publishes_a_state_for_a_shorter_prefix",
        {"hand_over_state": faulty_pools.keep_the_state_of_a_shorter_prefix},
        POOL_STATE,
        "step_state_is_published_with_its_prefix",
        22,
    ),
    SpecMutant(
        "sched_publishes_a_state_that_one_rank_has",
        {"hand_over_state": faulty_pools.keep_a_state_that_did_not_land_everywhere},
        POOL_OPTIONAL,
        "step_state_is_published_with_its_prefix",
        17,
    ),
    SpecMutant(
        "sched_releases_a_state_that_is_being_read",
        {"release_state": faulty_pools.release_whatever_is_held},
        POOL_STATE,
        "inv_no_slot_freed_under_a_writer",
        13,
    ),
    SpecMutant(
        "sched_releases_a_state_twice",
        {"release_state": faulty_pools.release_a_state_twice},
        TWO_STATES,
        "inv_no_slot_freed_twice",
        14,
    ),
    SpecMutant(
        "sched_aborts_and_keeps_the_slots",
        {"release_landed": faulty_pools.release_pages_alone},
        POOL_SIDECAR,
        "inv_ended_operations_hold_no_slot",
        14,
    ),
    SpecMutant(
        "sched_loses_known_sidecars",
        {"hand_over_sidecars": faulty_pools.lose_known_sidecars},
        POOL_KNOWN,
        "inv_slots_conserved",
        25,
    ),
    SpecMutant(
        "sched_frees_the_sidecars_of_published_pages",
        {"hand_over_sidecars": faulty_pools.free_sidecars_of_published_pages},
        POOL_SIDECAR,
        "inv_tree_pages_have_their_sidecars",
        18,
    ),
)

TURNOVER_MUTANTS = (
    SpecMutant(
        "sched_lets_go_of_the_pages_alone",
        {"take_leftover_slots": faulty_pools.take_no_slots},
        TURNOVER_STATE,
        "inv_detached_pools_are_at_rest",
        16,
    ),
    SpecMutant(
        "sched_drops_the_slots_that_are_left",
        {"take_leftover_slots": faulty_pools.drop_the_slots},
        TURNOVER_STATE,
        "inv_slots_conserved",
        16,
    ),
    SpecMutant(
        "sched_begins_again_with_the_slots_of_before",
        {"free_every_slot": faulty_pools.keep_the_slots_of_before},
        TURNOVER_SIDECAR,
        "step_begins_again_with_empty_pools",
        24,
    ),
    SpecMutant(
        "sched_begins_again_with_the_sidecars_of_before",
        {"empty_pool": faulty_pools.keep_what_a_pool_has},
        TURNOVER_SIDECAR,
        "step_begins_again_with_empty_pools",
        29,
    ),
    SpecMutant(
        "sched_begins_again_with_the_states_of_before",
        {"empty_pool": faulty_pools.keep_what_a_pool_has},
        TURNOVER_STATE,
        "step_begins_again_with_empty_pools",
        29,
    ),
    SpecMutant(
        "io_ends_while_a_slot_is_filled",
        {"io_end": faulty_pools.end_while_a_slot_is_filled},
        TURNOVER_STATE,
        "inv_no_slot_freed_under_a_writer",
        15,
    ),
    SpecMutant(
        "sched_reclaims_slots_by_its_own_count_before_a_detach",
        {"sched_reclaim_slots": faulty_pools.reclaim_what_each_rank_has},
        TURNOVER_STATE,
        "inv_ranks_have_pools_alike",
        13,
    ),
    SpecMutant(
        "sched_evicts_a_state_that_nobody_needs",
        {"make_room": faulty_pools.make_room_for_a_state_that_has_it},
        POOL_WRITES,
        "step_state_eviction_is_needed",
        6,
    ),
)

STARVING_POOLS = (
    LivenessMutant(
        "sched_puts_released_slots_back",
        {"sched_reclaim_slots": faulty_pools.put_slots_back},
        POOL_SIDECAR,
        "live_released_slots_are_reclaimed",
        13,
        1,
    ),
    LivenessMutant(
        "io_reads_a_failed_state_again",
        {"io_fail_slot": faulty_pools.read_a_failed_state_again},
        POOL_OPTIONAL,
        "live_submitted_operations_end",
        13,
        4,
    ),
)
