"""Mutants of the part *depositing* (§12.9): what goes wrong where what belongs to pages is stored with them."""

from __future__ import annotations

from hicache_checks.mutants.faulty_carrying import spare_what_is_loaded
from hicache_checks.mutants.spec_mutants import SpecMutant
from hicache_spec.bounds import SIDECAR
from hicache_spec.language import State, action, require
from hicache_spec.parts.depositing import (
    DEPOSIT_FETCH,
    DEPOSIT_RANKS,
    DEPOSIT_SHARED,
    DEPOSIT_SIDECAR,
    DEPOSIT_STATE,
)
from hicache_spec.parts.depositing_rules import POOL_OWNER, belongs_to_the_next_page, is_slot_next
from hicache_spec.parts.pool_state import KIND, POOLS
from hicache_spec.parts.storing_rules import (
    OWNER,
    PUT_FAILS,
    count_put,
    end_job,
    has_job,
    has_nothing_to_put,
    queue_job,
)
from hicache_spec.state import LENGTH, RANKS

# ---- the schedulers


def queue_job_without_keeping_states(s: State, chain: int, first: int, pages: int) -> None:
    """The states of a job may leave the tree before they are stored."""
    queue_job(s, chain, first, pages)
    for pool in POOLS:
        if s.states[pool][chain][first + pages]:
            s.job_states[pool][chain * LENGTH + first] = True


# ---- the backup thread


def count_the_page_alone(s: State, rank: int) -> None:
    """A page counts as stored when storage has taken it, and what belongs to it is not put."""
    count_put(s, rank)


def has_no_page_to_put(s: State, rank: int) -> bool:
    """A rank that stores no pages stores nothing."""
    return has_nothing_to_put(s, rank)


def is_slot_next_on_every_rank(s: State, rank: int, pool: int) -> bool:
    """Every rank puts what belongs to pages, also where all ranks have the same."""
    return (
        (OWNER[rank] != rank or s.page_put[rank])
        and not s.slot_put[rank][pool]
        and belongs_to_the_next_page(s, rank, pool)
    )


def is_slot_next_before_its_page(s: State, rank: int, pool: int) -> bool:
    """What belongs to a page is put in any order with it."""
    return POOL_OWNER[pool][rank] == rank and not s.slot_put[rank][pool] and belongs_to_the_next_page(s, rank, pool)


def every_page_has_a_state(s: State, rank: int, pool: int) -> bool:
    """A state is put for every page, as if it were a sidecar."""
    return True


def no_page_has_a_state(s: State, rank: int, pool: int) -> bool:
    """States stay on the host."""
    return KIND[pool] == SIDECAR


@action(rank=RANKS, pool=POOLS)
def count_a_refused_slot(s: State, rank: int, pool: int) -> None:
    """A page counts, though storage has refused what belongs to it."""
    require(PUT_FAILS, "storage may refuse")
    require(has_job(s, rank), "a job waits")
    require(is_slot_next(s, rank, pool), "the pool is next")
    end_job(s, rank, s.put[rank] + 1)


# ---- the look-up


def can_have_what_the_pages_have(s: State, rank: int, pool: int, length: int) -> bool:
    """Where there is a page, there is what belongs to it."""
    return True


def can_lack_nothing(s: State, rank: int, pool: int, length: int) -> bool:
    """Nothing is looked up but pages."""
    return False


DEPOSITING_MUTANTS = (
    SpecMutant(
        "sched_stores_states_without_keeping_them",
        {"queue_job": queue_job_without_keeping_states},
        DEPOSIT_STATE,
        "inv_states_kept_exactly",
        4,
    ),
    SpecMutant(
        "sched_evicts_a_state_that_is_stored",
        {"is_spare": spare_what_is_loaded},
        DEPOSIT_STATE,
        "inv_stored_states_stay_on_the_host",
        5,
    ),
    SpecMutant(
        "backup_passes_the_shards_of_replicated_pages",
        {"has_nothing_to_put": has_no_page_to_put},
        DEPOSIT_RANKS,
        "step_counted_as_stored_was_taken",
        9,
    ),
    SpecMutant(
        "backup_counts_a_refused_sidecar",
        {"backup_fail_slot": count_a_refused_slot},
        DEPOSIT_SIDECAR,
        "step_counted_as_stored_was_taken",
        6,
    ),
    SpecMutant(
        "backup_counts_a_page_without_its_sidecar",
        {"has_put_page": count_the_page_alone},
        DEPOSIT_SIDECAR,
        "inv_known_pages_have_stored_sidecars",
        6,
    ),
    SpecMutant(
        "backup_puts_shared_sidecars_on_every_rank",
        {"is_slot_next": is_slot_next_on_every_rank},
        DEPOSIT_SHARED,
        "inv_each_slot_has_a_writer",
        10,
    ),
    SpecMutant(
        "backup_puts_a_sidecar_before_its_page",
        {"is_slot_next": is_slot_next_before_its_page},
        DEPOSIT_SIDECAR,
        "step_slot_is_stored_after_its_page",
        5,
    ),
    SpecMutant(
        "backup_puts_a_state_for_every_page",
        {"belongs_to_the_next_page": every_page_has_a_state},
        DEPOSIT_STATE,
        "step_slot_is_stored_from_the_host",
        6,
    ),
    SpecMutant(
        "backup_leaves_the_states_of_a_job",
        {"belongs_to_the_next_page": no_page_has_a_state},
        DEPOSIT_STATE,
        "step_whole_job_has_its_states",
        6,
    ),
    SpecMutant(
        "query_finds_states_with_every_page",
        {"can_have": can_have_what_the_pages_have, "can_lack": can_lack_nothing},
        DEPOSIT_FETCH,
        "step_agreed_slots_were_stored",
        14,
    ),
)
