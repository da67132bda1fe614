"""Mutants of the designs that bring properties of their own: one rule or helper of theirs replaced by a faulty one.

As for the canonical design (`spec_mutants.py`): the configuration, the first property to break, and in how many steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hicache_checks.mutants import faulty_acks, faulty_retries
from hicache_checks.mutants.faulty_liveness import LivenessMutant
from hicache_checks.mutants.spec_mutants import SpecMutant
from hicache_spec.bounds import AGAIN, SOLO_CHURN
from hicache_spec.designs import ATTEMPTS, PROGRESS_ACK
from hicache_spec.designs.attempts_by_handle import sched_retry_whatever_comes
from hicache_spec.designs.decide_at_drain_by_rid import find_record_by_request_id
from hicache_spec.designs.findings import AGAIN_WITH_ROOM, LIMITED_AGAIN

STEADY = replace(SOLO_CHURN, name="steady", churn=False, aborts=False, stops=False)
MISSED_THRICE = replace(LIMITED_AGAIN, name="missed_thrice", requests=1, attempts=3, stored_pages=(0,), churn=False)

DESIGN_MUTANTS: Mapping[str, tuple[SpecMutant, ...]] = {
    PROGRESS_ACK.name: (
        SpecMutant(
            "io_acknowledges_no_page_that_is_not_read",
            {"pass_over_the_rest": faulty_acks.acknowledge_no_page_that_is_not_read},
            SOLO_CHURN,
            "inv_ranks_sync_alike",
            13,
        ),
        SpecMutant(
            "io_acknowledges_before_the_copy",
            {
                "io_start_page": faulty_acks.acknowledge_before_the_copy,
                "io_land_page": faulty_acks.land_what_is_acknowledged,
            },
            STEADY,
            "inv_counted_pages_are_filled",
            13,
        ),
        SpecMutant(
            "io_acknowledges_after_termination",
            {"io_land_page": faulty_acks.acknowledge_after_termination},
            SOLO_CHURN,
            "step_no_page_read_after_termination",
            12,
        ),
        SpecMutant(
            "sync_agrees_on_the_most",
            {"agreed_ack": faulty_acks.most_that_a_rank_has_read},
            SOLO_CHURN,
            "step_ack_is_everywhere",
            14,
        ),
        SpecMutant(
            "sync_keeps_back_what_is_less_than_read",
            {"sync_agree": faulty_acks.keep_back_what_is_less_than_read},
            SOLO_CHURN,
            "inv_ranks_acknowledge_alike",
            15,
        ),
        SpecMutant(
            "sched_finds_acks_by_request_id",
            {"find_acknowledged": find_record_by_request_id},
            AGAIN,
            "step_ack_moves_its_own_operation",
            17,
        ),
        SpecMutant(
            "sched_counts_for_ended_operations",
            {"count_acknowledged": faulty_acks.count_for_ended_operations},
            SOLO_CHURN,
            "step_ack_moves_its_own_operation",
            16,
        ),
        SpecMutant(
            "sched_ends_what_is_not_complete",
            {"may_end": faulty_acks.end_before_the_last_ack},
            SOLO_CHURN,
            "step_waits_for_the_verdict",
            2,
        ),
        SpecMutant(
            "sched_releases_the_tail_of_what_it_publishes_only",
            {"carry_out_last_ack": faulty_acks.release_the_tail_of_what_is_published_only},
            SOLO_CHURN,
            "step_tail_goes_with_the_last_ack",
            16,
        ),
        SpecMutant(
            "sched_aborts_and_releases_the_tail",
            {"abort": faulty_acks.abort_and_release_the_tail},
            SOLO_CHURN,
            "step_tail_goes_with_the_last_ack",
            10,
        ),
        SpecMutant(
            "sched_drops_the_tail",
            {"release_tail": faulty_acks.drop_the_tail},
            SOLO_CHURN,
            "step_tail_goes_with_the_last_ack",
            16,
        ),
    ),
    ATTEMPTS.name: (
        SpecMutant(
            "sched_puts_down_without_a_budget",
            {"put_down": faulty_retries.put_down_without_a_budget},
            MISSED_THRICE,
            "inv_retries_are_bounded",
            12,
        ),
        SpecMutant(
            "sched_submits_what_stays_put_down",
            {"submit": faulty_retries.submit_and_stay_put_down},
            LIMITED_AGAIN,
            "inv_who_asks_again_waits",
            7,
        ),
        SpecMutant(
            "sched_pays_for_a_retry_that_is_declined",
            {"sched_retry": sched_retry_whatever_comes},
            LIMITED_AGAIN,
            "step_budget_pays_for_a_look_up",
            3,
        ),
        SpecMutant(
            "sched_puts_down_what_is_too_short",
            {"submit": faulty_retries.put_down_what_is_too_short},
            LIMITED_AGAIN,
            "step_put_down_for_cause",
            13,
        ),
        SpecMutant(
            "sched_puts_down_what_is_aborted",
            {"revoke": faulty_retries.put_down_what_is_aborted},
            AGAIN_WITH_ROOM,
            "step_put_down_for_cause",
            2,
        ),
    ),
}
"""By design. `sched_puts_down_what_is_too_short` is what sglang 0.5.19 and 0.5.20 do."""

STARVING_DESIGNS: Mapping[str, tuple[LivenessMutant, ...]] = {
    PROGRESS_ACK.name: (
        LivenessMutant(
            "sched_puts_acks_of_ended_operations_back",
            {"count_acknowledged": faulty_acks.put_acks_of_ended_operations_back},
            AGAIN,
            "live_acks_are_taken",
            17,
            1,
        ),
    ),
    ATTEMPTS.name: (
        LivenessMutant(
            "sched_retries_in_vain",
            {"sched_retry": faulty_retries.retry_in_vain},
            MISSED_THRICE,
            "live_who_is_put_down_asks_again",
            6,
            1,
        ),
    ),
}
"""By design: faults that break no safety property (`faulty_liveness.py`)."""
