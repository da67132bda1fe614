"""Every faulty implementation is caught by the state machine, and by what.

The machine draws the same programs every time. The scenarios of `test_impl_mutants.py` show each fault by itself; here
nothing is pinned but the policy and the number of ranks.
"""

from __future__ import annotations

import pytest

from hicache_checks.conformance.stateful import run_stateful
from hicache_impl.adapter import Reference
from hicache_impl.mutants import MUTANTS, ImplMutant

# Three times as many programs as the reference must pass; a mutant is caught long before, in seconds.
EXAMPLES = 1500
# A rank that waits for ever for another is given up after this time.
STALLED_S = 3

# mutant: policy, ranks, and what is reported first: a rule or a property, or what the implementation itself raises.
# Where ranks race, either of two may be first.
CAUGHT_BY: dict[str, tuple[str, int, tuple[str, ...]]] = {
    "query_skips_the_agreement": ("wait_complete", 2, ("query_agree (§3.4)",)),
    "query_dies_of_a_raising_store": ("wait_complete", 1, ("P31 threads_survive",)),
    "query_forgets_the_namespace": ("wait_complete", 1, ("P21",)),
    "io_counts_after_termination": ("wait_complete", 1, ("io_land_page (§3.7.2)",)),
    "io_waits_on_after_a_failed_page": ("wait_complete", 1, ("P5 may_end (§3.8)",)),
    "io_drops_the_tail": ("wait_complete", 1, ("P3 live_control_queues_drain",)),
    "io_releases_what_was_counted": ("wait_complete", 1, ("io_release_page (§3.7.4)",)),
    "sched_drains_by_its_own_count": ("wait_complete", 2, ("sched_drain (§3.6)",)),
    "sched_drains_the_longest_queue": ("wait_complete", 2, ("sched_drain (§3.6)",)),
    "sched_finds_records_by_request_id": ("wait_complete", 1, ("step_drain_decides_its_own_attempt",)),
    "sched_grants_the_whole_span": ("wait_complete", 1, ("decide (§3.6)",)),
    "sched_evicts_before_a_refusal": ("wait_complete", 1, ("step_eviction_is_needed",)),
    "sched_allocates_at_submit": ("wait_complete", 1, ("observed_state",)),
    "sched_publishes_without_unprotecting": ("wait_complete", 1, ("P14",)),
    "sched_does_not_protect_the_anchor": ("wait_complete", 1, ("inv_anchors_alive",)),
    "sched_publishes_without_accounting": ("wait_complete", 1, ("observed_state",)),
    "sched_keeps_an_ended_record": ("wait_complete", 1, ("observed_state",)),
    "sched_submits_out_of_order": ("wait_complete", 2, ("query_take (§3.2)",)),
    "sched_decides_by_its_own_flags": ("wait_complete", 2, ("step_aborted_is_not_published", "P7 lockstep")),
    "sched_needs_termination_everywhere": ("wait_complete", 2, ("P5 may_end (§3.8)",)),
    "sched_ignores_the_clock": ("timeout", 1, ("P5 may_end (§3.8)",)),
    "sched_publishes_its_own_count": ("wait_complete", 2, ("P7 lockstep",)),
    "sched_keeps_unagreed_pages": ("wait_complete", 2, ("P3 live_control_queues_drain",)),
    "query_agrees_on_the_highest": ("wait_complete", 2, ("step_hit_is_everywhere",)),
    "query_restarts_the_chain_at_the_anchor": ("wait_complete", 1, ("P21",)),
    "io_counts_before_the_copy": ("wait_complete", 1, ("io_fail_page (§3.7.3)",)),
    "io_starts_without_the_flag": ("wait_complete", 2, ("io_start_page (§3.7.1)",)),
    "io_counts_a_failed_page": ("wait_complete", 1, ("P6",)),
    "io_releases_the_tail_twice": ("wait_complete", 1, ("io_release_page (§3.7.4)",)),
    "io_dies_of_a_raising_store": ("wait_complete", 1, ("P31 threads_survive",)),
    "sched_reclaims_by_its_own_count": ("wait_complete", 2, ("sched_drain (§3.6)",)),
    "sched_decides_without_the_flag": ("wait_complete", 1, ("decide (§3.6)",)),
    "sched_grants_below_the_threshold": ("wait_complete", 1, ("decide (§3.6)",)),
    "sched_refuses_without_evicting": ("wait_complete", 1, ("inv_pages_conserved",)),
    "sched_evicts_for_every_grant": ("wait_complete", 1, ("step_eviction_is_needed",)),
    "sched_revokes_without_unprotecting": ("wait_complete", 1, ("P14",)),
    "sched_unprotects_the_root": ("wait_complete", 1, ("observed_state",)),
    "sched_revokes_without_accounting": ("wait_complete", 1, ("observed_state",)),
    "sched_accounts_what_it_declines": ("wait_complete", 1, ("observed_state",)),
    "sched_reuses_attempts": ("wait_complete", 1, ("inv_records_name_their_attempt",)),
    "sched_completes_without_a_plan": ("wait_complete", 1, ("sched_poll (§3.8)",)),
    "sched_completes_when_one_rank_has": ("wait_complete", 2, ("step_waits_for_the_verdict",)),
    "sched_skips_the_poll_without_a_record": ("wait_complete", 2, ("sched_drain (§3.6)",)),
    "sched_publishes_the_longest_prefix": ("wait_complete", 2, ("sched_poll (§3.8)",)),
    "sched_frees_unagreed_pages_at_once": ("wait_complete", 2, ("Disagreement",)),
    "sched_releases_the_page_being_written": ("wait_complete", 1, ("DoubleFree",)),
    "sched_frees_known_pages_twice": ("wait_complete", 1, ("DoubleFree",)),
    "sched_aborts_and_keeps_what_landed": ("wait_complete", 1, ("P3 live_control_queues_drain",)),
    "sched_sets_the_flag_only": ("wait_complete", 1, ("sched_poll (§3.8)",)),
    "sched_evicts_protected_nodes": ("wait_complete", 1, ("observed_state",)),
    "sched_writes_a_child_before_its_parent": ("wait_complete", 1, ("P23",)),
    "sched_acks_without_unprotecting": ("wait_complete", 1, ("P14",)),
    "backup_counts_refused_pages_as_stored": ("wait_complete", 1, ("P32",)),
    "store_keeps_no_copy": ("wait_complete", 1, ("P6",)),
    "store_keys_forget_the_rank": (
        "wait_complete",
        2,
        (
            "P30",
            "P6",
        ),
    ),
    "sched_keeps_known_pages": ("wait_complete", 1, ("observed_state",)),
    "sched_aborts_and_releases_every_page": ("wait_complete", 1, ("P3 live_control_queues_drain",)),
    "sched_aborts_and_publishes": ("wait_complete", 1, ("step_aborted_is_not_published",)),
    "sched_marks_the_first_rank_only": ("wait_complete", 2, ("P7 lockstep",)),
    "sched_evicts_inner_nodes": ("wait_complete", 1, ("P23",)),
    "sched_loads_without_copying": ("wait_complete", 1, ("P6",)),
    "sched_backs_up_unprotected_pages": ("wait_complete", 1, ("P32",)),
    "backup_dies_of_a_raising_store": ("wait_complete", 2, ("P31 threads_survive",)),
    "store_writes_after_its_answer": ("wait_complete", 1, ("P6",)),
    "sched_slices_the_counts_at_the_old_index": ("wait_complete", 1, ("Stalled",)),
    "sched_revokes_before_the_count_is_agreed": ("wait_complete", 2, ("step_drain_decides_its_own_attempt",)),
}


@pytest.mark.heavy
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_caught(mutant: ImplMutant) -> None:
    policy, ranks, reported = CAUGHT_BY[mutant.name]
    run = run_stateful(lambda: Reference(timeout_s=STALLED_S, **mutant.builds), ranks, policy, EXAMPLES, shrink=False)
    assert run.failure is not None, "the mutant survived"
    first = run.failure.splitlines()[0]
    assert any(name in first for name in reported), first


def test_every_mutant_has_its_row() -> None:
    assert CAUGHT_BY.keys() == {mutant.name for mutant in MUTANTS}
    assert len(MUTANTS) >= 12
