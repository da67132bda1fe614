"""Mutants of the part *control* (SPEC.md §13): what each replaces, where it is looked for, what breaks first, and when.

Several are what was found in releases: a stop flag that each rank's thread looks at by itself (flush-after-abort, in
sglang 0.5.21 to 0.5.23), an IO thread that a reset does not wait for (in sglang up to 0.5.18), pages of an aborted
operation that a detach forgets (detach-after-abort, in sglang 0.5.19 to 0.5.23).
"""

from __future__ import annotations

from hicache_checks.mutants import faulty_control, faulty_scheduler
from hicache_checks.mutants.faulty_liveness import LivenessMutant
from hicache_checks.mutants.spec_mutants import SpecMutant
from hicache_spec.parts.control import CONTROL_PAGES, CONTROL_PAIR, CONTROL_SOLO, CONTROL_TREE

CONTROL_MUTANTS = (
    SpecMutant(
        "sched_detaches_without_aborting",
        {"withdraw": faulty_control.detach_without_aborting},
        CONTROL_SOLO,
        "inv_nothing_is_pending_unless_attached",
        2,
    ),
    SpecMutant(
        "sched_withdraws_without_accounting",
        {"withdraw": faulty_control.withdraw_without_accounting},
        CONTROL_SOLO,
        "inv_occupied_is_sum_of_spans",
        2,
    ),
    SpecMutant(
        "sched_admits_while_it_detaches",
        {"why_declined": faulty_control.admit_while_detaching},
        CONTROL_SOLO,
        "inv_nothing_is_pending_unless_attached",
        2,
    ),
    SpecMutant(
        "sched_declines_until_everything_has_left",
        {"why_declined": faulty_control.decline_until_everything_has_left},
        CONTROL_PAIR,
        "step_declined_as_detached_for_cause",
        2,
    ),
    SpecMutant(
        "sched_gives_up_after_threads_were_told",
        {"sched_give_up_detaching": faulty_control.give_up_after_threads_were_told},
        CONTROL_SOLO,
        "inv_attached_queues_have_their_threads",
        4,
    ),
    SpecMutant(
        "query_ends_between_two_operations",
        {"query_end": faulty_control.end_between_two_operations},
        CONTROL_SOLO,
        "inv_nobody_waits_for_an_ended_thread",
        6,
    ),
    SpecMutant(
        "sched_takes_what_is_released_when_it_tells_its_threads",
        {"sched_tell_threads_to_stop": faulty_control.take_what_is_released_so_far},
        CONTROL_SOLO,
        "inv_stopped_ranks_hold_the_same",
        18,
    ),
    SpecMutant(
        "io_ends_with_work_left",
        {"io_end": faulty_control.end_with_work_left},
        CONTROL_SOLO,
        "inv_detached_is_at_rest",
        14,
    ),
    SpecMutant(
        "io_ends_during_a_read",
        {"io_end": faulty_control.end_during_a_read},
        CONTROL_SOLO,
        "inv_no_free_under_a_writer",
        13,
    ),
    SpecMutant(
        "sched_lets_go_without_the_io_thread",
        {"sched_let_go": faulty_control.let_go_without_the_io_thread},
        CONTROL_SOLO,
        "inv_no_thread_outlives_its_storage",
        4,
    ),
    SpecMutant(
        "sched_lets_go_during_the_look_up",
        {"sched_let_go": faulty_control.let_go_during_the_look_up},
        CONTROL_SOLO,
        "inv_no_thread_outlives_its_storage",
        4,
    ),
    SpecMutant(
        "sched_lets_go_when_all_is_taken",
        {"sched_let_go": faulty_control.let_go_when_all_is_taken},
        CONTROL_SOLO,
        "deadlock",
        15,
    ),
    SpecMutant(
        "sched_keeps_the_answers_of_before",
        {"take_leftovers": faulty_control.keep_the_answers},
        CONTROL_SOLO,
        "inv_detached_is_at_rest",
        12,
    ),
    SpecMutant(
        "sched_drops_the_released_pages",
        {"take_leftovers": faulty_control.drop_the_released_pages},
        CONTROL_SOLO,
        "inv_pages_conserved",
        15,
    ),
    SpecMutant(
        "sched_reclaims_by_its_own_count_before_it_detaches",
        {"reclaim": faulty_scheduler.reclaim_by_own_count},
        CONTROL_PAGES,
        "inv_ranks_decide_alike",
        14,
    ),
    SpecMutant(
        "sched_forgets_ids_when_it_lets_go",
        {"take_leftovers": faulty_control.forget_ids_with_the_leftovers},
        CONTROL_SOLO,
        "step_ended_stays_ended",
        12,
    ),
    SpecMutant(
        "sched_begins_again_beside_living_threads",
        {"sched_begin_again": faulty_control.begin_again_beside_living_threads},
        CONTROL_SOLO,
        "step_begins_again_as_at_the_start",
        3,
    ),
    SpecMutant(
        "sched_begins_again_with_the_old_pool",
        {"sched_begin_again": faulty_control.begin_again_with_the_old_pool},
        CONTROL_TREE,
        "step_begins_again_as_at_the_start",
        6,
    ),
    SpecMutant(
        "sched_begins_again_and_remembers_ids",
        {"forget_everything": faulty_control.remember_ids},
        CONTROL_SOLO,
        "step_begins_again_as_at_the_start",
        19,
    ),
    SpecMutant(
        "sched_begins_again_and_keeps_the_tree",
        {"forget_everything": faulty_control.keep_the_tree},
        CONTROL_TREE,
        "step_begins_again_as_at_the_start",
        11,
    ),
    SpecMutant(
        "sched_attaches_an_empty_tree",
        {"sched_attach": faulty_control.attach_an_empty_tree},
        CONTROL_TREE,
        "step_attaching_touches_nothing",
        10,
    ),
    SpecMutant(
        "sched_starts_a_thread_twice",
        {"sched_start_query_thread": faulty_control.start_the_query_thread_twice},
        CONTROL_SOLO,
        "inv_one_consumer_per_queue",
        8,
    ),
    SpecMutant(
        "sched_fails_without_telling_the_others",
        {"sched_fail_to_start": faulty_control.fail_without_telling_the_others},
        CONTROL_SOLO,
        "inv_ranks_are_attached_alike",
        11,
    ),
    SpecMutant(
        "sched_attaches_where_it_can",
        {"sched_agree_to_attach": faulty_control.attach_where_it_can},
        CONTROL_SOLO,
        "inv_ranks_are_attached_alike",
        14,
    ),
    SpecMutant(
        "sched_attaches_in_any_case",
        {"sched_agree_to_attach": faulty_control.attach_in_any_case},
        CONTROL_SOLO,
        "inv_attached_queues_have_their_threads",
        13,
    ),
    SpecMutant(
        "sched_forgets_what_was_started",
        {"sched_agree_to_attach": faulty_control.forget_what_was_started},
        CONTROL_SOLO,
        "inv_no_thread_outlives_its_storage",
        14,
    ),
)

STARVING_CONTROL = (
    LivenessMutant(
        "query_takes_nothing_while_draining",
        {"is_free": faulty_control.take_nothing_while_draining},
        CONTROL_SOLO,
        "live_agreements_end",
        4,
        2,
    ),
    LivenessMutant(
        "sched_tries_again_where_nothing_has_started",
        {"sched_agree_to_attach": faulty_control.try_again_where_nothing_has_started},
        CONTROL_SOLO,
        "live_control_calls_end",
        10,
        3,
    ),
)
