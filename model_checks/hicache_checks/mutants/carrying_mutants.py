"""Mutants of the part *carrying* (§12.8): a rule or helper of it replaced by a faulty one."""

from __future__ import annotations

from dataclasses import replace

from hicache_checks.mutants import faulty_carrying as faulty
from hicache_checks.mutants import faulty_pools
from hicache_checks.mutants.spec_mutants import SpecMutant
from hicache_spec.bounds import WRITE_BACK
from hicache_spec.parts.carrying import CARRY_FETCH_STATE, CARRY_PRESSURE, CARRY_SIDECAR, CARRY_STATE
from hicache_spec.parts.pool_bounds import state

CARRY_BACK_PRESSURE = replace(CARRY_PRESSURE, name="carry_back_pressure", write_policy=WRITE_BACK)
CARRY_PRESSURE_STATES = replace(CARRY_PRESSURE, name="carry_pressure_states", pools=(state(2, (), (1,)),))
CARRY_FETCH_TWO = replace(
    CARRY_FETCH_STATE,
    name="carry_fetch_two",
    chain_pages=1,
    resident_pages=(0, 1),
    stored_pages=(1, 1),
    device_pages=1,
    load_quota=1,
    pools=(state(1, (1,), (1,)),),
)

CARRYING_MUTANTS = (
    SpecMutant(
        "sched_copies_pages_without_their_sidecars",
        {"cover": faulty.cover_nothing},
        CARRY_SIDECAR,
        "inv_tree_pages_have_their_sidecars",
        1,
    ),
    SpecMutant(
        "sched_refuses_a_copy_before_it_evicts_for_a_sidecar",
        {"fits_on_host": faulty.fit_without_evicting_for_a_sidecar},
        CARRY_PRESSURE,
        "step_copy_is_refused_for_want_of_room",
        1,
    ),
    SpecMutant(
        "sched_gives_up_a_page_before_it_evicts_for_a_sidecar",
        {"fits_on_host": faulty.fit_without_evicting_for_a_sidecar},
        CARRY_BACK_PRESSURE,
        "step_dropped_for_want_of_room",
        2,
    ),
    SpecMutant(
        "sched_evicts_a_page_for_each_copy",
        {"begin_copy": faulty.copy_and_evict_a_page},
        CARRY_PRESSURE,
        "step_eviction_is_needed",
        1,
    ),
    SpecMutant(
        "sched_refuses_what_the_host_can_give_up",
        {"fits": faulty_pools.fit_without_eviction},
        CARRY_FETCH_TWO,
        "step_refusal_is_needed",
        6,
    ),
    SpecMutant(
        "sched_leaves_states_on_pages_that_left_the_host",
        {"cut_states": faulty_pools.leave_states_behind},
        CARRY_PRESSURE_STATES,
        "inv_states_end_a_resident_prefix",
        1,
    ),
    SpecMutant(
        "sched_leaves_a_state_before_it_evicts_one",
        {"begin_copy": faulty.begin_copy_with_a_free_slot},
        CARRY_STATE,
        "step_copy_carries_its_states",
        8,
    ),
    SpecMutant(
        "sched_evicts_a_state_for_each_copy",
        {"carry_state": faulty.carry_a_state_in_place_of_another},
        CARRY_STATE,
        "step_state_eviction_is_needed",
        7,
    ),
    SpecMutant(
        "sched_keeps_the_slot_of_a_known_state",
        {"receive_state": faulty.keep_the_slot_of_a_known_state},
        CARRY_FETCH_STATE,
        "inv_slots_conserved",
        15,
    ),
    SpecMutant(
        "sched_takes_a_copy_before_its_slots",
        {
            "has_landed_on_host": faulty.has_landed_without_its_slots,
            "take_landed": faulty.take_landed_and_what_there_is,
        },
        CARRY_SIDECAR,
        "step_written_with_its_slots",
        4,
    ),
    SpecMutant(
        "sched_gives_the_state_to_the_upper_half",
        {"finish_copy": faulty.finish_copy_of_the_first_node},
        CARRY_STATE,
        "step_state_is_published_with_its_prefix",
        7,
    ),
    SpecMutant(
        "sched_runs_on_in_the_state_that_is_copied",
        {"run": faulty.run_on_in_the_same_states},
        CARRY_STATE,
        "inv_copied_states_are_on_the_device",
        2,
    ),
    SpecMutant(
        "sched_evicts_from_the_device_without_the_state",
        {"evict_device": faulty.evict_pages_alone},
        CARRY_STATE,
        "inv_device_states_end_a_device_prefix",
        7,
    ),
    SpecMutant(
        "sched_loads_what_has_no_state",
        {"is_usable": faulty.use_without_states},
        CARRY_STATE,
        "step_load_ends_at_its_states",
        9,
    ),
    SpecMutant(
        "sched_evicts_a_state_that_is_loaded",
        {"is_spare": faulty.spare_what_is_loaded},
        CARRY_PRESSURE,
        "inv_loaded_states_stay_on_the_host",
        2,
    ),
    SpecMutant(
        "sched_loads_without_keeping_the_state",
        {"keep_state_for_a_reader": faulty.load_without_keeping_the_state},
        CARRY_STATE,
        "inv_states_kept_exactly",
        8,
    ),
    SpecMutant(
        "sched_forgets_a_loaded_state",
        {"finish_load": faulty.finish_load_without_states},
        CARRY_STATE,
        "step_loaded_states_are_on_the_device",
        11,
    ),
)
