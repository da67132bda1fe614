"""Mutants of the part *detaching* (§11.10): what goes wrong where storage is detached under backups."""

from __future__ import annotations

from hicache_checks.mutants.faulty_stores import run_and_store_nothing
from hicache_checks.mutants.spec_mutants import SpecMutant
from hicache_spec.language import State, action, require
from hicache_spec.parts.control_rules import STOPPING, has_ended, start_thread, take_leftovers
from hicache_spec.parts.copying_state import POSITIONS, RANGES
from hicache_spec.parts.detaching import DETACH_PAGES, DETACH_RANKS, DETACH_SOLO
from hicache_spec.parts.detaching_rules import forget_storage, is_last_to_let_go
from hicache_spec.parts.storing_rules import (
    OWNER,
    finish_job,
    has_job,
    is_acknowledged_everywhere,
    queue_due,
)
from hicache_spec.state import CHAINS, RANKS


@action(rank=RANKS)
def drop_what_is_cut_off(s: State, rank: int) -> None:
    """A thread that is told to stop leaves at once, and what stands in its queue is dropped."""
    require(s.place[rank] == STOPPING, "the thread is told to stop")
    require(has_job(s, rank), "a job waits")
    require(OWNER[rank] == rank, "the pages are stored by this rank")
    s.backup_queue[rank].pop(0)
    s.put[rank] = 0


def let_go_on_the_first_rank(s: State, rank: int) -> bool:
    """The first rank to let go ends every job, whatever the others still do."""
    return True


def forget_storage_and_tell_of_all(s: State) -> None:
    """Jobs that are cut off are told of as stored."""
    for x in RANGES:
        if s.job_pages[x] > 0:
            finish_job(s, x, s.job_pages[x])
    for chain in CHAINS:
        for p in POSITIONS:
            s.known_stored[chain][p] = False


def forget_jobs_alone(s: State) -> None:
    """What was known to be stored stays known, whatever is attached next."""
    for x in RANGES:
        if s.job_pages[x] > 0:
            finish_job(s, x, 0)


def start_thread_alone(s: State, rank: int, thread: int) -> None:
    """Nobody starts a backup thread at an attach."""
    start_thread(s, rank, thread)


def has_ended_but_for_its_backups(s: State, rank: int) -> bool:
    """A detach waits for the threads that read."""
    return has_ended(s, rank)


def leave_the_acks(s: State, rank: int) -> None:
    """Acks that nobody has taken are left for whoever attaches next."""
    take_leftovers(s, rank)
    if is_last_to_let_go(s, rank):
        forget_storage(s)


def is_acknowledged_wherever_the_ranks_are(s: State) -> bool:
    """Acks are taken whatever the schedulers are doing."""
    return is_acknowledged_everywhere(s)


def queue_due_at_any_time(s: State, chain: int) -> None:
    """Jobs are queued whatever the schedulers are doing."""
    queue_due(s, chain)


DETACHING_MUTANTS = (
    SpecMutant(
        "backup_drops_what_is_cut_off",
        {"backup_cut_job_off": drop_what_is_cut_off},
        DETACH_SOLO,
        "inv_jobs_are_everywhere",
        6,
    ),
    SpecMutant(
        "sched_lets_go_of_jobs_on_the_first_rank",
        {"is_last_to_let_go": let_go_on_the_first_rank},
        DETACH_RANKS,
        "step_acknowledged_everywhere",
        11,
    ),
    SpecMutant(
        "sched_tells_of_cut_off_jobs_as_stored",
        {"forget_storage": forget_storage_and_tell_of_all},
        DETACH_SOLO,
        "step_one_event_for_each_job",
        10,
    ),
    SpecMutant(
        "sched_never_stores_what_was_copied_while_detached",
        {"run": run_and_store_nothing},
        DETACH_PAGES,
        "step_due_is_queued",
        14,
    ),
    SpecMutant(
        "sched_attaches_without_a_backup_thread",
        {"start_thread": start_thread_alone},
        DETACH_SOLO,
        "inv_attached_ranks_have_one_backup_thread",
        10,
    ),
    SpecMutant(
        "sched_lets_go_beside_a_backup_thread",
        {"has_ended": has_ended_but_for_its_backups},
        DETACH_SOLO,
        "inv_no_backup_thread_outlives_its_storage",
        5,
    ),
    SpecMutant(
        "sched_keeps_the_acks_of_before",
        {"take_leftovers": leave_the_acks},
        DETACH_SOLO,
        "inv_no_job_outlives_its_storage",
        10,
    ),
    SpecMutant(
        "sched_knows_what_the_old_storage_had",
        {"forget_storage": forget_jobs_alone},
        DETACH_SOLO,
        "inv_nothing_is_known_of_storage_that_is_gone",
        11,
    ),
    SpecMutant(
        "sched_queues_jobs_during_a_detach",
        {"queue_due": queue_due_at_any_time},
        DETACH_SOLO,
        "step_no_job_begins_unless_attached",
        4,
    ),
    SpecMutant(
        "sched_takes_acks_of_told_threads",
        {"is_acknowledged_everywhere": is_acknowledged_wherever_the_ranks_are},
        DETACH_SOLO,
        "step_late_acks_do_not_count",
        7,
    ),
)
