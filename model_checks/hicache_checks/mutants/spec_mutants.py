"""Mutants of the specification: one rule or helper of the canonical design replaced by a faulty one.

Each is named for its fault and says in which configuration it is looked for, which property is the first to break,
and in how many steps: breadth-first exploration finds a shortest run, so the number is part of the claim.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hicache_checks.mutants import faulty_scheduler, faulty_threads
from hicache_spec.bounds import AGAIN, PRESSURE, SOLO_CHURN, Bounds
from hicache_spec.designs import DECIDE_AT_DRAIN
from hicache_spec.designs.decide_at_drain_by_rid import find_record_by_request_id
from hicache_spec.parts.grid import Grid

CANONICAL = DECIDE_AT_DRAIN.name


@dataclass(frozen=True)
class SpecMutant:
    """A fault: what it replaces, where it is looked for, and the first property that it breaks, in how many steps.

    `design`: in what, if not in the canonical design.
    """

    name: str
    replaces: Mapping[str, Callable[..., Any]]
    bounds: Bounds | Grid
    caught_by: str
    steps: int
    design: str = CANONICAL


TWO_RANKS = replace(PRESSURE, name="pair_pressure", ranks=2)
SOLO_LONG = Bounds(
    "solo_long", requests=1, host_pages=3, resident_pages=(0,), stored_pages=(2,), churn=True, stops=True
)
TIGHT = Bounds("tight", requests=1, ranks=1, chain_pages=3, host_pages=2, threshold_pages=3, stored_pages=(3, 3))
SPARE = replace(PRESSURE, name="spare", host_pages=3, resident_pages=(0, 2))
OWN_ANCHOR = Bounds("own_anchor", requests=1, ranks=1, host_pages=2, resident_pages=(1, 1))
ONE_PAGE = Bounds("one_page", chain_pages=1, host_pages=1, resident_pages=(0,), stored_pages=(1,))
LOW_LIMIT = replace(PRESSURE, name="low_limit", limit_pages=1, host_pages=4)
ROOM_FOR_ONE = Bounds(
    "room_for_one", requests=1, ranks=1, resident_pages=(0,), stored_pages=(2,), threshold_pages=2, host_pages=1
)
SHORT_HIT = Bounds("short_hit", requests=1, ranks=1, resident_pages=(0,), stored_pages=(1,))

SPEC_MUTANTS = (
    SpecMutant(
        "sched_revokes_without_unprotecting",
        {"drop_record": faulty_scheduler.revoke_without_unprotecting},
        SOLO_CHURN,
        "inv_anchors_protected_exactly",
        2,
    ),
    SpecMutant(
        "sched_unprotects_the_root",
        {"drop_record": faulty_scheduler.unprotect_at_the_root},
        PRESSURE,
        "state_in_bounds",
        2,
    ),
    SpecMutant(
        "sched_revokes_without_accounting",
        {"drop_record": faulty_scheduler.revoke_without_accounting},
        SOLO_CHURN,
        "inv_occupied_is_sum_of_spans",
        2,
    ),
    SpecMutant(
        "sched_keeps_an_ended_record",
        {"drop_record": faulty_scheduler.revoke_without_forgetting_the_record},
        SOLO_CHURN,
        "inv_records_name_their_attempt",
        2,
    ),
    SpecMutant(
        "sched_drains_by_its_own_count",
        {"sched_drain": faulty_scheduler.drain_by_own_count},
        ONE_PAGE,
        "deadlock",
        10,
    ),
    SpecMutant(
        "sched_reclaims_by_its_own_count",
        {"reclaim": faulty_scheduler.reclaim_by_own_count},
        SOLO_LONG,
        "inv_ranks_decide_alike",
        14,
    ),
    SpecMutant("sched_never_reclaims", {"sched_drain": faulty_scheduler.never_reclaim}, SOLO_CHURN, "deadlock", 12),
    SpecMutant(
        "sched_decides_without_the_flag",
        {"decide": faulty_scheduler.decide_without_the_flag},
        SOLO_CHURN,
        "step_refusal_is_needed",
        9,
    ),
    SpecMutant(
        "sched_finds_records_by_request_id",
        {"find_record": find_record_by_request_id},
        AGAIN,
        "step_drain_decides_its_own_attempt",
        11,
    ),
    SpecMutant(
        "sched_finds_ended_operations",
        {"find_record": faulty_scheduler.drain_ignores_a_fetching_operation},
        AGAIN,
        "step_ended_stays_ended",
        10,
    ),
    SpecMutant(
        "sched_grants_below_the_threshold",
        {"allocate": faulty_scheduler.grant_below_threshold},
        ROOM_FOR_ONE,
        "inv_grant_is_worth_it",
        6,
    ),
    SpecMutant(
        "sched_grants_the_whole_span",
        {"allocate": faulty_scheduler.grant_the_whole_span},
        SHORT_HIT,
        "step_grant_is_within_the_hit",
        6,
    ),
    SpecMutant(
        "sched_refuses_without_evicting",
        {"allocate": faulty_scheduler.refuse_without_evicting},
        PRESSURE,
        "step_refusal_is_needed",
        6,
    ),
    SpecMutant(
        "sched_evicts_for_every_grant",
        {"allocate": faulty_scheduler.evict_for_every_grant},
        replace(PRESSURE, host_pages=4),
        "step_eviction_is_needed",
        6,
    ),
    SpecMutant(
        "sched_evicts_before_a_refusal",
        {"allocate": faulty_scheduler.evict_before_a_refusal},
        TIGHT,
        "step_eviction_is_needed",
        6,
    ),
    SpecMutant(
        "sched_evicts_one_too_many", {"evict": faulty_scheduler.evict_one_too_many}, SPARE, "step_eviction_is_needed", 6
    ),
    SpecMutant(
        "sched_refuses_the_second_answer",
        {"allocate": faulty_scheduler.refuse_the_second_answer},
        PRESSURE,
        "step_refusal_is_needed",
        13,
    ),
    SpecMutant(
        "sched_grants_all_but_one",
        {"allocate": faulty_scheduler.grant_all_but_one},
        PRESSURE,
        "step_eviction_is_needed",
        6,
    ),
    SpecMutant(
        "sched_declines_too_early",
        {"why_declined": faulty_scheduler.decline_too_early},
        PRESSURE,
        "step_declined_for_cause",
        2,
    ),
    SpecMutant(
        "sched_publishes_without_memory",
        {"sched_poll": faulty_scheduler.publish_without_memory},
        SOLO_CHURN,
        "step_fetched_had_memory",
        3,
    ),
    SpecMutant(
        "sched_evicts_protected_pages",
        {"evict": faulty_scheduler.evict_protected_pages},
        OWN_ANCHOR,
        "inv_anchors_alive",
        6,
    ),
    SpecMutant(
        "sched_publishes_the_longest_prefix",
        {"agreed_pages": faulty_scheduler.longest_landed_prefix},
        SOLO_CHURN,
        "step_published_landed_everywhere",
        13,
    ),
    SpecMutant(
        "sched_aborts_and_releases_every_page",
        {"sched_abort": faulty_scheduler.abort_releases_every_page},
        SOLO_LONG,
        "inv_no_free_under_a_writer",
        11,
    ),
    SpecMutant(
        "sched_aborts_and_keeps_what_landed",
        {"sched_abort": faulty_scheduler.abort_keeps_what_landed},
        SOLO_CHURN,
        "inv_ended_operations_hold_nothing",
        12,
    ),
    SpecMutant(
        "sched_aborts_and_publishes",
        {"sched_abort": faulty_scheduler.abort_publishes_what_landed},
        SOLO_CHURN,
        "step_aborted_is_not_published",
        14,
    ),
    SpecMutant(
        "sched_completes_without_a_plan",
        {"is_complete": faulty_scheduler.complete_without_a_plan},
        SOLO_CHURN,
        "step_waits_for_the_verdict",
        2,
    ),
    SpecMutant(
        "sched_completes_on_the_first_rank",
        {"is_complete": faulty_scheduler.complete_on_the_first_rank},
        SOLO_CHURN,
        "step_waits_for_the_verdict",
        12,
    ),
    SpecMutant(
        "sched_needs_termination_everywhere",
        {"is_terminated": faulty_scheduler.terminated_on_every_rank},
        SOLO_CHURN,
        "deadlock",
        14,
    ),
    SpecMutant(
        "sched_marks_the_first_rank_only",
        {"mark": faulty_scheduler.mark_the_first_rank_only},
        SOLO_CHURN,
        "inv_ranks_decide_alike",
        2,
    ),
    SpecMutant(
        "sched_keeps_known_pages",
        {"publish": faulty_scheduler.publish_keeps_known_pages},
        replace(PRESSURE, host_pages=4),
        "inv_pages_conserved",
        17,
    ),
    SpecMutant(
        "sched_frees_unagreed_pages_at_once",
        {"publish": faulty_scheduler.publish_frees_unagreed_pages_at_once},
        SOLO_CHURN,
        "inv_ranks_decide_alike",
        13,
    ),
    SpecMutant(
        "sched_allocates_at_submit",
        {"admit": faulty_scheduler.allocate_at_submit},
        SOLO_CHURN,
        "inv_no_memory_before_verdict",
        1,
    ),
    SpecMutant(
        "sched_accounts_what_it_declines",
        {"sched_submit": faulty_scheduler.account_what_is_declined},
        LOW_LIMIT,
        "step_declined_leaves_nothing",
        2,
    ),
    SpecMutant(
        "sched_submits_out_of_order",
        {"admit": faulty_scheduler.submit_out_of_order},
        TWO_RANKS,
        "inv_ranks_query_alike",
        6,
    ),
    SpecMutant(
        "sched_sets_the_flag_only",
        {"terminate": faulty_scheduler.set_the_flag_only},
        SOLO_CHURN,
        "inv_life_cycle_is_legal",
        2,
    ),
    SpecMutant(
        "sched_admits_whatever_comes",
        {"why_declined": faulty_scheduler.admit_whatever_comes},
        LOW_LIMIT,
        "step_admitted_for_cause",
        2,
    ),
    SpecMutant(
        "sched_revokes_a_good_hit",
        {"allocate": faulty_scheduler.revoke_a_good_hit},
        SOLO_CHURN,
        "step_revoked_for_cause",
        9,
    ),
    SpecMutant(
        "sched_publishes_too_little",
        {"agreed_pages": faulty_scheduler.all_but_the_last_page},
        SOLO_CHURN,
        "step_published_landed_everywhere",
        14,
    ),
    SpecMutant(
        "query_agrees_on_too_little",
        {"agreed_hit": faulty_threads.less_than_the_lowest_answer},
        SOLO_CHURN,
        "step_hit_is_everywhere",
        6,
    ),
    SpecMutant(
        "query_skips_the_agreement", {"agreed_hit": faulty_threads.own_answer}, SOLO_CHURN, "step_hit_is_everywhere", 6
    ),
    SpecMutant(
        "query_agrees_on_the_highest",
        {"agreed_hit": faulty_threads.highest_answer},
        SOLO_CHURN,
        "step_hit_is_everywhere",
        6,
    ),
    SpecMutant(
        "io_releases_the_tail_twice",
        {"io_release_page": faulty_threads.release_the_tail_twice},
        SOLO_LONG,
        "inv_no_page_freed_twice",
        11,
    ),
    SpecMutant(
        "io_drops_the_tail",
        {"io_release_page": faulty_threads.drop_the_tail},
        SOLO_CHURN,
        "inv_ended_operations_hold_nothing",
        11,
    ),
    SpecMutant(
        "io_counts_before_the_copy",
        {"io_start_page": faulty_threads.count_before_the_copy},
        SOLO_CHURN,
        "inv_counted_pages_are_filled",
        10,
    ),
    SpecMutant(
        "io_starts_without_the_flag",
        {"io_start_page": faulty_threads.start_without_the_flag},
        SOLO_CHURN,
        "step_no_page_read_after_termination",
        11,
    ),
    SpecMutant(
        "io_counts_after_termination",
        {"io_land_page": faulty_threads.count_after_termination},
        SOLO_CHURN,
        "step_no_page_read_after_termination",
        12,
    ),
    SpecMutant(
        "io_counts_a_failed_page",
        {"io_fail_page": faulty_threads.count_a_failed_page},
        SOLO_CHURN,
        "inv_counted_pages_are_filled",
        11,
    ),
)
