"""Mutants of the part *copying* (§10): a rule or helper of it replaced by a faulty one, as in `spec_mutants.py`."""

from __future__ import annotations

from dataclasses import replace

from hicache_checks.mutants import faulty_copies as faulty
from hicache_checks.mutants.faulty_liveness import LivenessMutant
from hicache_checks.mutants.spec_mutants import SpecMutant
from hicache_spec.parts.copying import COPY_BACK, COPY_FETCH, COPY_PRESSURE, COPY_SELECTIVE, COPY_SOLO

COPY_ALONE = replace(COPY_SOLO, name="copy_alone", ranks=1)
COPY_ONE_PAGE = replace(COPY_ALONE, name="copy_one_page", host_pages=1)
COPY_ALONE_LOADED = replace(COPY_ALONE, name="copy_alone_loaded", load_quota=2)

COPYING_MUTANTS = (
    SpecMutant(
        "sched_takes_a_copy_that_landed_somewhere",
        {"sched_take_copy": faulty.take_a_copy_that_landed_somewhere},
        COPY_PRESSURE,
        "step_written_landed_everywhere",
        3,
    ),
    SpecMutant(
        "sched_takes_a_copy_by_the_first_rank",
        {"sched_take_copy": faulty.take_a_copy_by_the_first_rank},
        COPY_PRESSURE,
        "step_written_landed_everywhere",
        3,
    ),
    SpecMutant(
        "sched_takes_a_copy_now_and_then",
        {"sched_take_copy": faulty.take_a_copy_now_and_then},
        COPY_ALONE,
        "deadlock",
        2,
    ),
    SpecMutant(
        "sched_finishes_the_lower_half",
        {"finish_copy": faulty.finish_the_lower_half},
        COPY_ALONE,
        "step_one_event_for_each_copy",
        4,
    ),
    SpecMutant(
        "sched_unlocks_the_lower_half",
        {"finish_copy": faulty.finish_and_unlock_the_lower_half},
        COPY_ALONE,
        "inv_rest_restores_the_pool",
        4,
    ),
    SpecMutant(
        "sched_tells_of_the_lower_half",
        {"finish_copy": faulty.finish_and_tell_of_the_lower_half},
        COPY_ALONE,
        "step_one_event_for_each_copy",
        4,
    ),
    SpecMutant(
        "sched_writes_a_child_before_its_parent",
        {"is_due": faulty.write_a_child_before_its_parent},
        COPY_ONE_PAGE,
        "inv_written_without_a_gap",
        2,
    ),
    SpecMutant(
        "sched_writes_at_the_first_run",
        {"is_due": faulty.write_at_the_first_run},
        COPY_SELECTIVE,
        "step_copied_for_cause",
        1,
    ),
    SpecMutant(
        "sched_writes_single_pages_only",
        {"is_due": faulty.write_single_pages_only},
        COPY_ALONE,
        "step_copy_is_refused_for_want_of_room",
        1,
    ),
    SpecMutant(
        "sched_copies_without_a_lock",
        {"begin_copy": faulty.copy_without_a_lock},
        COPY_ALONE,
        "inv_locked_exactly",
        1,
    ),
    SpecMutant(
        "sched_shows_a_copy_at_once",
        {"begin_copy": faulty.copy_and_show_at_once},
        COPY_ALONE,
        "inv_arriving_exactly",
        1,
    ),
    SpecMutant(
        "sched_copies_without_room",
        {"begin_copy": faulty.copy_without_room},
        COPY_PRESSURE,
        "step_eviction_is_needed",
        6,
    ),
    SpecMutant(
        "sched_evicts_as_much_as_it_copies",
        {"begin_copy": faulty.evict_as_much_as_is_copied},
        COPY_PRESSURE,
        "step_eviction_is_needed",
        7,
    ),
    SpecMutant(
        "sched_copies_on_the_first_rank",
        {"begin_copy": faulty.copy_on_the_first_rank},
        COPY_PRESSURE,
        "inv_pages_conserved",
        1,
    ),
    SpecMutant(
        "sched_evicts_locked_pages",
        {"sched_evict_device": faulty.evict_locked_pages},
        COPY_ALONE,
        "inv_both_ends_stay",
        2,
    ),
    SpecMutant(
        "sched_evicts_without_a_copy",
        {"sched_evict_device": faulty.evict_without_a_copy},
        COPY_BACK,
        "step_dropped_for_want_of_room",
        2,
    ),
    SpecMutant(
        "sched_evicts_and_loses_the_page",
        {"sched_evict_device": faulty.evict_and_lose_the_page},
        COPY_ALONE,
        "inv_rest_restores_the_pool",
        4,
    ),
    SpecMutant(
        "sched_writes_back_and_evicts_at_once",
        {"sched_write_back": faulty.write_back_and_evict_at_once},
        COPY_BACK,
        "step_copied_for_cause",
        2,
    ),
    SpecMutant(
        "sched_gives_up_whatever_is_last",
        {"is_given_up": faulty.give_up_whatever_is_last},
        COPY_BACK,
        "step_dropped_for_want_of_room",
        2,
    ),
    SpecMutant(
        "sched_evicts_without_looking_at_the_leaves",
        {"sched_evict_device": faulty.evict_without_looking_at_the_leaves},
        COPY_ALONE,
        "inv_host_leaves_exact",
        4,
    ),
    SpecMutant(
        "sched_loads_whatever_is_asked_for",
        {"is_within_quota": faulty.load_whatever_is_asked_for},
        COPY_ALONE,
        "step_load_is_within_the_quota",
        6,
    ),
    SpecMutant(
        "sched_loads_without_keeping",
        {"keep": faulty.load_without_keeping},
        COPY_PRESSURE,
        "inv_kept_exactly",
        1,
    ),
    SpecMutant(
        "sched_loads_without_a_lock",
        {"begin_load": faulty.load_without_a_lock},
        COPY_PRESSURE,
        "inv_locked_exactly",
        1,
    ),
    SpecMutant(
        "sched_loads_into_pages_that_are_free",
        {"take_device_pages": faulty.load_without_taking_pages},
        COPY_PRESSURE,
        "inv_device_pages_conserved",
        1,
    ),
    SpecMutant(
        "sched_takes_a_load_that_landed_somewhere",
        {"sched_take_load": faulty.take_a_load_that_landed_somewhere},
        COPY_PRESSURE,
        "step_loaded_landed_everywhere",
        3,
    ),
    SpecMutant(
        "sched_evicts_what_is_loaded",
        {"evict": faulty.evict_what_is_loaded},
        COPY_PRESSURE,
        "step_eviction_is_needed",
        6,
    ),
    SpecMutant(
        "sched_computes_into_the_last_node",
        {"run": faulty.run_in_the_last_node},
        COPY_ALONE,
        "inv_nodes_are_whole",
        2,
    ),
    SpecMutant(
        "sched_evicts_below_an_anchor",
        {"evict": faulty.evict_below_an_anchor},
        COPY_FETCH,
        "inv_anchors_alive",
        14,
    ),
    SpecMutant(
        "sched_hangs_an_operation_below_the_device",
        {"submit": faulty.submit_below_the_device},
        COPY_FETCH,
        "inv_anchors_alive",
        2,
    ),
    SpecMutant(
        "sched_declines_what_is_on_the_device",
        {"submit": faulty.decline_what_is_on_the_device},
        COPY_FETCH,
        "step_declined_for_an_anchor",
        2,
    ),
    SpecMutant(
        "sched_knows_only_what_is_readable",
        {"known_pages": faulty.know_only_what_is_readable},
        COPY_FETCH,
        "inv_pages_conserved",
        10,
    ),
    SpecMutant(
        "sched_publishes_below_the_device",
        {"known_pages": faulty.know_what_is_on_the_device, "attach": faulty.attach_at_the_end},
        COPY_FETCH,
        "inv_written_without_a_gap",
        13,
    ),
    SpecMutant(
        "sched_attaches_what_cannot_be_found",
        {"attach": faulty.attach_and_know_less},
        COPY_FETCH,
        "inv_every_known_page_is_somewhere",
        9,
    ),
    SpecMutant(
        "sched_unprotects_without_looking_at_the_leaves",
        {"unprotect": faulty.unprotect_without_looking_at_the_leaves},
        COPY_FETCH,
        "inv_host_leaves_exact",
        2,
    ),
)

STARVING_COPYING = (
    LivenessMutant(
        "sched_puts_split_copies_back",
        {"sched_take_copy": faulty.put_split_copies_back},
        COPY_ALONE,
        "live_copies_are_taken",
        3,
        1,
    ),
    LivenessMutant(
        "sched_puts_split_loads_back",
        {"sched_take_load": faulty.put_split_loads_back},
        COPY_ALONE_LOADED,
        "live_loads_are_taken",
        8,
        1,
    ),
)
