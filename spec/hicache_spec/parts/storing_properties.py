"""§11.6 What must hold where pages are stored, and §11.7 what must be reachable."""

from __future__ import annotations

from ..bounds import WRITE_BACK
from ..events import ON_QUERY_AGREED
from ..language import State, emitted, invariant, leads_to, sometimes, step_property
from ..properties import inv_rest_restores_the_pool, newly
from ..state import ALLOCATED, CHAINS, DEPTHS, FETCHED, OPS, QUERIED, RANKS
from .copying_properties import has_run, is_written, loads_of
from .copying_state import (
    CHAIN_OF,
    FIRST_OF,
    POSITIONS,
    RANGES,
    READABLE,
    WRITE_POLICY_NOW,
    is_within,
)
from .storing_rules import (
    FORGETS,
    ON_BACKUP_PUT,
    ON_STORED,
    OWNER,
    is_due_to_be_stored,
    is_in_a_job,
    is_stored,
    may_put,
)

# ---- restated


def inv_rest_restores_the_pools_with_backups(s: State) -> bool:
    """§4.15 P4, P14, P15. At rest, with nothing being stored, every page of either pool is free or in the tree, and
    nothing is protected, locked, kept or accounted."""
    return any(s.job_pages[x] > 0 for x in RANGES) or inv_rest_restores_the_pool(s)


def inv_kept_exactly_by_loads_and_jobs(s: State) -> bool:
    """§10.7 P14. A host page is kept once for each load, and once for the job, that has captured it."""
    return all(all(s.kept[c][p] == loads_of(s, c, p) + is_in_a_job(s, c, p) for p in POSITIONS) for c in CHAINS)


# ---- §11.6 invariants


@invariant
def inv_stored_pages_stay_on_the_host(s: State) -> bool:
    """§11.6 P18, P6. As long as a job is under way, the host pages that it has captured are readable."""
    return all(
        all(not is_within(x, s.job_pages[x], p) or s.host[CHAIN_OF[x]][p] == READABLE for p in POSITIONS)
        for x in RANGES
    )


@invariant
def inv_jobs_are_everywhere(s: State) -> bool:
    """§11.6 P2, P7. A job under way is on every rank exactly once: in the queue of the thread, or among its acks."""
    return all(has_every_job(s, r) for r in RANKS)


def has_every_job(s: State, rank: int) -> bool:
    """The jobs that the rank stores, or has acknowledged, are those under way, each of them once."""
    return all((x in s.backup_queue[rank]) + (x in s.backup_acks[rank]) == (s.job_pages[x] > 0) for x in RANGES)


@invariant
def inv_ranks_store_alike(s: State) -> bool:
    """§11.6 P7. The schedulers of all ranks get the acks of the same jobs in the same order."""
    return all(
        all(
            s.backup_acks[r][i] == s.backup_acks[0][i] for i in range(min(len(s.backup_acks[r]), len(s.backup_acks[0])))
        )
        for r in RANKS
    )


@invariant
def inv_known_stored_is_stored(s: State) -> bool:
    """§11.6 P32. What was acknowledged as stored is in storage for every rank, unless storage has dropped it since."""
    return FORGETS or all(
        all(not s.known_stored[c][p] or all(is_stored(s, r, c, p) for r in RANKS) for p in POSITIONS) for c in CHAINS
    )


@invariant
def inv_known_stored_is_on_the_host(s: State) -> bool:
    """§11.6 P10. The schedulers know only of pages of the tree that they are stored."""
    return all(all(not s.known_stored[c][p] or s.host[c][p] == READABLE for p in POSITIONS) for c in CHAINS)


@invariant
def inv_each_shard_has_a_writer(s: State) -> bool:
    """§11.6 P32, P7. Pages of which every rank has its own shard are stored under each rank's keys; where all ranks
    have the same, nobody writes under any keys but rank 0's."""
    return all(all(all(OWNER[r] == r or not s.stored[r][c][p] for p in POSITIONS) for c in CHAINS) for r in RANKS)


# ---- §11.6 step properties


@step_property
def step_stored_after_what_it_follows(s: State, t: State) -> bool:
    """§11.6 P28. A page is put into storage only when storage has the page before it."""
    return all(
        all(
            all(not t.stored[r][c][p] or s.stored[r][c][p] or p == 0 or s.stored[r][c][p - 1] for p in POSITIONS)
            for c in CHAINS
        )
        for r in RANKS
    )


@step_property
def step_stored_from_the_host(s: State, t: State) -> bool:
    """§11.6 P6, P30. What is put into storage is a page that the rank's job has captured, the next one."""
    return all(
        all(all(not t.stored[r][c][p] or s.stored[r][c][p] or is_next(s, r, c, p) for p in POSITIONS) for c in CHAINS)
        for r in RANKS
    )


def is_next(s: State, rank: int, chain: int, p: int) -> bool:
    """Is this the page that the rank's thread puts next?"""
    return any(
        len(s.backup_queue[rank]) > 0
        and s.backup_queue[rank][0] == x
        and CHAIN_OF[x] == chain
        and p == FIRST_OF[x] + s.put[rank]
        for x in RANGES
    )


@step_property
def step_counted_as_stored_was_taken(s: State, t: State) -> bool:
    """§11.6 P32. A rank acknowledges as many pages of a job as its storage has taken; one that does not write, all."""
    return all(
        all(
            x not in t.backup_acks[r]
            or x in s.backup_acks[r]
            or t.taken[r][x] == (s.put[r] + emitted(t, ON_BACKUP_PUT, rank=r) if OWNER[r] == r else s.job_pages[x])
            for x in RANGES
        )
        for r in RANKS
    )


@step_property
def step_acknowledged_everywhere(s: State, t: State) -> bool:
    """§11.6 P7, P32. A job ends only when every rank has acknowledged it, and what is known to be stored then is what
    the rank with the fewest pages has."""
    return all(
        t.job_pages[x] > 0
        or s.job_pages[x] == 0
        or (
            all(len(s.backup_acks[r]) > 0 and s.backup_acks[r][0] == x for r in RANKS)
            and all(
                is_newly_known(s, t, CHAIN_OF[x], p) == is_within(x, min(s.taken[r][x] for r in RANKS), p)
                for p in POSITIONS
                if not s.known_stored[CHAIN_OF[x]][p]
            )
        )
        for x in RANGES
    )


def is_newly_known(s: State, t: State, chain: int, p: int) -> bool:
    """The step lets the schedulers know that this page is stored."""
    return t.known_stored[chain][p] and not s.known_stored[chain][p]


@step_property
def step_one_event_for_each_job(s: State, t: State) -> bool:
    """§11.6 P29. The end of a job is told once, with all pages that it captured, and nothing else is told so."""
    return all(
        all(
            all(emitted(t, ON_STORED, chain=c, pages=n, failed=m) == is_the_end(s, t, c, n, m) for m in DEPTHS)
            for n in DEPTHS
        )
        for c in CHAINS
    )


def is_the_end(s: State, t: State, chain: int, pages: int, failed: int) -> bool:
    """Does the step end a job of this chain of which every rank has stored `pages` pages, and not the other ones?"""
    return any(
        CHAIN_OF[x] == chain
        and ends(s, t, x)
        and s.job_pages[x] == pages + failed
        and pages == min(s.taken[r][x] for r in RANKS)
        for x in RANGES
    )


def ends(s: State, t: State, x: int) -> bool:
    """The step ends this job."""
    return s.job_pages[x] > 0 and t.job_pages[x] == 0


@step_property
def step_due_is_queued(s: State, t: State) -> bool:
    """§11.6 P32. What a copy has brought to the host, and what a request runs on, is on its way to storage or stored,
    unless what it follows is neither."""
    return all(
        all(not (is_written(s, t, c, p) or has_run(s, t, c)) or not is_due_to_be_stored(t, c, p) for p in POSITIONS)
        for c in CHAINS
    )


@step_property
def step_hit_was_stored(s: State, t: State) -> bool:
    """§11.6 P12. An agreed hit is in storage on every rank, unless storage forgets."""
    return FORGETS or all(
        not newly(s, t, op, QUERIED)
        or all(
            all(not s.base[op] <= p < s.base[op] + t.hit[0][op] or is_stored(s, r, s.chain[op], p) for p in POSITIONS)
            for r in RANKS
        )
        for op in OPS
    )


# ---- §11.6 liveness


def job_is_done(s: State, x: int) -> bool:
    """No job of this range is under way."""
    return s.job_pages[x] == 0


@leads_to(job_is_done, x=RANGES)
def live_jobs_are_done(s: State, x: int) -> bool:
    """§11.6 P2, P3, P31. Every job ends, whatever storage does, and its pages are let go."""
    return s.job_pages[x] > 0


# ---- §11.7 outcomes


@sometimes
def sometimes_a_job_is_stored(s: State, t: State) -> bool:
    """§11.7 A job ends, and all of its pages are stored."""
    return any(emitted(t, ON_STORED, failed=0) for c in CHAINS)


@sometimes
def sometimes_a_part_of_a_job_is_stored(s: State, t: State) -> bool:
    """§11.7 A job ends of which some pages are stored and others are not."""
    return any(any(emitted(t, ON_STORED, pages=n, failed=m) for n in DEPTHS if n > 0) for m in DEPTHS if m > 0)


@sometimes
def sometimes_ranks_store_differently(s: State, t: State) -> bool:
    """§11.7 A job ends of which one rank has stored more than another."""
    return any(ends(s, t, x) and any(s.taken[r][x] != s.taken[0][x] for r in RANKS) for x in RANGES)


@sometimes
def sometimes_a_job_stops_for_its_parent(s: State, t: State) -> bool:
    """§11.7 Nothing of a job is put, because what it follows could not be stored."""
    return any(
        len(s.backup_queue[r]) > 0 and OWNER[r] == r and s.put[r] == 0 and not may_put(s, r, s.backup_queue[r][0])
        for r in RANKS
    )


@sometimes
def sometimes_a_node_is_split_while_it_is_stored(s: State, t: State) -> bool:
    """§11.7 A cut comes into the range of a job."""
    return any(
        any(
            t.cut[c][p] and not s.cut[c][p] and is_in_a_job(s, c, p) and is_in_a_job(s, c, p - 1)
            for p in POSITIONS
            if p > 0
        )
        for c in CHAINS
    )


@sometimes
def sometimes_two_jobs_wait(s: State, t: State) -> bool:
    """§11.7 A job is queued while another one is under way."""
    return any(len(t.backup_queue[r]) > 1 for r in RANKS)


@sometimes
def sometimes_what_was_refused_is_stored_later(s: State, t: State) -> bool:
    """§11.7 A page that storage had refused is queued again, because a request runs on it."""
    return len(t.copies) == len(s.copies) and any(
        any(is_in_a_job(t, c, p) and is_due_to_be_stored(s, c, p) for p in POSITIONS) for c in CHAINS
    )


@sometimes
def sometimes_what_follows_is_stored_after_its_parent(s: State, t: State) -> bool:
    """§11.7 Under write_back, a page that came to the host before the one that it follows is stored after it."""
    return WRITE_POLICY_NOW == WRITE_BACK and any(
        ends(s, t, x) and any(p == FIRST_OF[x] + s.job_pages[x] and is_in_a_job(t, CHAIN_OF[x], p) for p in POSITIONS)
        for x in RANGES
    )


@sometimes
def sometimes_a_job_keeps_the_last_page(s: State, t: State) -> bool:
    """§11.7 A page that only the host has cannot leave it, because it is being stored."""
    return any(
        not t.host_leaf[c] and t.resident[c] > t.on_device[c] and is_in_a_job(t, c, t.resident[c] - 1) for c in CHAINS
    )


@sometimes
def sometimes_it_is_loaded_and_stored_at_once(s: State, t: State) -> bool:
    """§11.7 A host page has two readers: it is loaded back while it is being stored."""
    return any(any(t.kept[c][p] > 1 for p in POSITIONS) for c in CHAINS)


@sometimes
def sometimes_storage_forgets_what_is_known(s: State, t: State) -> bool:
    """§11.7 Storage drops a page that the schedulers know to be stored."""
    return any(
        any(
            any(s.stored[r][c][p] and not t.stored[r][c][p] and s.known_stored[c][p] for p in POSITIONS) for c in CHAINS
        )
        for r in RANKS
    )


def is_dropped(s: State, t: State, r: int, c: int) -> bool:
    """The step drops a page of this chain from storage that is known to be there."""
    return any(s.stored[r][c][p] and not t.stored[r][c][p] and s.known_stored[c][p] for p in POSITIONS)


# ---- §11.7 with prefetch


@sometimes
def sometimes_what_was_stored_is_fetched(s: State, t: State) -> bool:
    """§11.7 Pages that were stored after the start come back to a tree that has lost them."""
    return any(
        newly(s, t, op, FETCHED)
        and any(p >= s.resident[s.chain[op]] and t.known_stored[s.chain[op]][p] for p in POSITIONS)
        for op in OPS
    )


@sometimes
def sometimes_a_span_is_fetched_while_it_is_stored(s: State, t: State) -> bool:
    """§11.7 An operation is given memory for pages that a job is storing."""
    return any(
        newly(s, t, op, ALLOCATED) and any(p >= s.base[op] and is_in_a_job(s, s.chain[op], p) for p in POSITIONS)
        for op in OPS
    )


@sometimes
def sometimes_a_span_is_stored_in_part_on_some_rank(s: State, t: State) -> bool:
    """§11.7 The ranks agree on less than some rank has, because another one has not yet stored as much."""
    return any(
        newly(s, t, op, QUERIED)
        and emitted(t, ON_QUERY_AGREED, op=op)
        and any(s.answer[r] > t.hit[0][op] for r in RANKS)
        for op in OPS
    )
