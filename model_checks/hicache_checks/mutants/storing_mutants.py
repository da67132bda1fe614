"""Mutants of the part *storing* (§11): a rule or helper of it replaced by a faulty one, as in `spec_mutants.py`."""

from __future__ import annotations

from dataclasses import replace

from hicache_checks.mutants import faulty_stores as faulty
from hicache_checks.mutants.faulty_liveness import LivenessMutant
from hicache_checks.mutants.spec_mutants import SpecMutant
from hicache_spec.parts.storing import STORE_BACK, STORE_FETCH, STORE_REPLICATED, STORE_SOLO

STORE_ALONE = replace(STORE_SOLO, name="store_alone", ranks=1)
STORE_THREE = replace(
    STORE_ALONE,
    name="store_three",
    chain_pages=1,
    threshold_pages=2,
    resident_pages=(0, 1, 0),
    stored_pages=(0, 0, 0),
)

STORING_MUTANTS = (
    SpecMutant(
        "sched_stores_the_lower_half",
        {"finish_copy": faulty.store_the_lower_half},
        STORE_ALONE,
        "step_due_is_queued",
        4,
    ),
    SpecMutant(
        "sched_stores_nothing_that_is_written_back",
        {"finish_copy": faulty.store_what_is_written_through},
        STORE_BACK,
        "step_due_is_queued",
        5,
    ),
    SpecMutant(
        "sched_never_stores_what_was_refused",
        {"run": faulty.run_and_store_nothing},
        STORE_ALONE,
        "step_due_is_queued",
        6,
    ),
    SpecMutant(
        "sched_lets_go_of_the_lower_half",
        {"finish_job": faulty.let_go_of_the_lower_half},
        STORE_ALONE,
        "inv_rest_restores_the_pool",
        6,
    ),
    SpecMutant(
        "sched_stores_without_keeping",
        {"queue_job": faulty.store_without_keeping},
        STORE_ALONE,
        "inv_kept_exactly",
        3,
    ),
    SpecMutant(
        "sched_knows_what_is_queued",
        {"queue_job": faulty.know_what_is_queued},
        STORE_ALONE,
        "inv_known_stored_is_stored",
        3,
    ),
    SpecMutant(
        "sched_queues_jobs_on_the_first_rank",
        {"queue_job": faulty.queue_on_the_first_rank},
        STORE_REPLICATED,
        "inv_jobs_are_everywhere",
        4,
    ),
    SpecMutant(
        "sched_stores_what_is_arriving",
        {"is_due_to_be_stored": faulty.store_what_is_arriving},
        STORE_ALONE,
        "inv_stored_pages_stay_on_the_host",
        1,
    ),
    SpecMutant(
        "sched_tells_of_all_pages_of_a_job",
        {"finish_job": faulty.finish_and_tell_of_all},
        STORE_ALONE,
        "step_one_event_for_each_job",
        5,
    ),
    SpecMutant(
        "sched_knows_the_most_that_is_stored",
        {"agreed_stored": faulty.most_that_a_rank_has_stored},
        STORE_SOLO,
        "step_acknowledged_everywhere",
        7,
    ),
    SpecMutant(
        "sched_takes_an_ack_of_any_rank",
        {"sched_take_backup_ack": faulty.take_an_ack_of_any_rank},
        STORE_SOLO,
        "step_acknowledged_everywhere",
        6,
    ),
    SpecMutant(
        "sched_evicts_what_is_stored",
        {"evict": faulty.evict_what_is_stored},
        STORE_THREE,
        "inv_stored_pages_stay_on_the_host",
        5,
    ),
    SpecMutant(
        "sched_forgets_and_knows",
        {"forget_from": faulty.forget_and_know},
        STORE_THREE,
        "inv_known_stored_is_on_the_host",
        6,
    ),
    SpecMutant(
        "backup_puts_without_the_parent",
        {"may_put": faulty.put_without_the_parent},
        STORE_ALONE,
        "step_stored_after_what_it_follows",
        6,
    ),
    SpecMutant(
        "backup_counts_refused_pages_as_put",
        {"backup_fail_page": faulty.count_refused_pages_as_stored},
        STORE_ALONE,
        "step_counted_as_stored_was_taken",
        4,
    ),
    SpecMutant(
        "backup_drops_what_fails",
        {"backup_fail_page": faulty.drop_what_fails},
        STORE_ALONE,
        "inv_jobs_are_everywhere",
        4,
    ),
    SpecMutant(
        "backup_tries_again_later",
        {"backup_fail_page": faulty.try_again_later},
        STORE_SOLO,
        "inv_ranks_store_alike",
        8,
    ),
    SpecMutant(
        "backup_puts_on_every_rank",
        {"backup_put_page": faulty.put_on_every_rank},
        STORE_REPLICATED,
        "inv_each_shard_has_a_writer",
        5,
    ),
    SpecMutant(
        "backup_puts_on_the_first_rank",
        {"backup_put_page": faulty.put_on_the_first_rank},
        STORE_SOLO,
        "step_counted_as_stored_was_taken",
        5,
    ),
    SpecMutant(
        "backup_puts_the_next_that_is_missing",
        {"backup_put_page": faulty.put_the_next_that_is_missing},
        STORE_SOLO,
        "step_stored_from_the_host",
        9,
    ),
    SpecMutant(
        "query_asks_for_the_first_rank",
        {"may_answer": faulty.ask_for_the_first_rank},
        STORE_FETCH,
        "step_hit_was_stored",
        11,
    ),
)

STARVING_STORING = (
    LivenessMutant(
        "backup_waits_for_the_parent",
        {"backup_stop_job": faulty.wait_for_the_parent},
        STORE_ALONE,
        "live_jobs_are_done",
        4,
        4,
    ),
)
