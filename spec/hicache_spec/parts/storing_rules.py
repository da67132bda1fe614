"""§11 Storing: what has come to the host is put into storage by a backup thread on every rank, and storage remembers.

A *job* has captured a range of host pages (§10.1). The schedulers queue it on every rank; each rank's thread puts the
pages of its own shard, one after the other, and acknowledges the job; when every rank has, the schedulers take the ack.
"""

from __future__ import annotations

from ..language import EventKind, State, action, emit, field, fifo, flag, initial, require, switch, table, upto
from ..state import CHAINS, CHURN, LENGTH, RANKS, RESIDENT_AT_START, SKIPPING, STORED
from .copying_rules import attach_below_the_anchor, finish_copy, keep, run
from .copying_state import (
    CHAIN_OF,
    FIRST_OF,
    NOWHERE,
    POSITIONS,
    RANGES,
    READABLE,
    WithDevice,
    at_rest_with_copies,
    forget_from,
    is_within,
    node_end,
    refresh_leaf,
)

REPLICATED = switch("replicated")
PUT_FAILS = switch("put_fails")
FORGETS = switch("forgets")
OWNER = table("owner", lambda b: tuple(0 if b.replicated else r for r in range(b.ranks)))
"""OWNER[rank]: the rank under whose keys this rank's pages are stored: its own, or rank 0's if all have the same."""

ON_STORED = EventKind("stored", ("chain", "pages", "failed"))
ON_BACKUP_PUT = EventKind("backup_put", ("rank",))


class WithStorage(WithDevice):
    """§11.1 The state with a device tier, and storage that remembers."""

    # storage
    stored = field(flag(), RANKS, CHAINS, POSITIONS)  # the page is in storage, under the keys of this rank
    # the schedulers, in lockstep: once
    known_stored = field(flag(), CHAINS, POSITIONS)  # the tree's page was acknowledged as stored, or fetched from there
    job_pages = field(upto(LENGTH), RANGES)  # how many pages a job has captured
    # each rank's backup thread
    backup_queue = field(fifo(RANGES), RANKS)  # its head is in work
    put = field(upto(LENGTH), RANKS)  # pages of the head that storage has taken
    backup_acks = field(fifo(RANGES), RANKS)  # backup thread -> scheduler
    taken = field(upto(LENGTH), RANKS, RANGES)  # so many pages of an acknowledged job this rank's storage has taken


@initial
def start_with_storage(s: State) -> None:
    """§11.1 Storage has the beginning of some chains, for every rank."""
    for chain in CHAINS:
        for p in POSITIONS:
            s.known_stored[chain][p] = p < STORED[chain] and p < RESIDENT_AT_START[chain]
            for r in RANKS:
                s.stored[r][chain][p] = OWNER[r] == r and p < STORED[chain]


# ---- words


def is_in_a_job(s: State, chain: int, p: int) -> bool:
    """Has a job under way captured this page?"""
    return any(CHAIN_OF[x] == chain and is_within(x, s.job_pages[x], p) for x in RANGES)


def is_stored(s: State, rank: int, chain: int, p: int) -> bool:
    """Does storage have this page for the rank?"""
    return s.stored[OWNER[rank]][chain][p]


def forget_what_is_stored(s: State, chain: int, depth: int) -> None:
    """What is no longer in the tree is not known there to be stored."""
    forget_from(s, chain, depth)
    for p in POSITIONS:
        if p >= depth:
            s.known_stored[chain][p] = False


def at_rest_with_backups(s: State) -> bool:
    """§3.0 Nothing is pending, on its way, being copied or being stored."""
    return at_rest_with_copies(s) and all(s.job_pages[x] == 0 for x in RANGES)


# ---- §11.2 the schedulers queue jobs


def store_what_was_copied(s: State, x: int) -> None:
    """§11.2 What a copy has brought to the host is due to be stored."""
    finish_copy(s, x)
    queue_due(s, CHAIN_OF[x])


def run_and_store(s: State, chain: int, depth: int) -> None:
    """§11.2 What a request runs on is due to be stored, if it is on the host and storage has refused it before."""
    run(s, chain, depth)
    queue_due(s, chain)


def queue_due(s: State, chain: int) -> None:
    """Every page of the chain that is due is queued, a node's rest at a time, from the root on."""
    for p in POSITIONS:
        if is_due_to_be_stored(s, chain, p):
            queue_job(s, chain, p, node_end(s, chain, p) - p)


def is_due_to_be_stored(s: State, chain: int, p: int) -> bool:
    """The page is readable on the host, not known to be stored, in no job, and what it follows is stored or in one.

    Why the last: a page in storage is of use only after those before it.
    """
    return (
        s.host[chain][p] == READABLE
        and not s.known_stored[chain][p]
        and not is_in_a_job(s, chain, p)
        and (p == 0 or s.known_stored[chain][p - 1] or is_in_a_job(s, chain, p - 1))
    )


def queue_job(s: State, chain: int, first: int, pages: int) -> None:
    """The pages are kept until the ack, and the job is in the queue of every rank.

    Why kept page by page: the node may be split before the ack comes.
    """
    for p in POSITIONS:
        if first <= p < first + pages:
            keep(s, chain, p)
    s.job_pages[chain * LENGTH + first] = pages
    for r in RANKS:
        s.backup_queue[r].append(chain * LENGTH + first)
    refresh_leaf(s, chain)


# ---- §11.3 the backup thread


@action(fairness="weak", rank=RANKS)
def backup_put_page(s: State, rank: int) -> None:
    """§11.3 The backup thread puts the next page of the job under its rank's key, after the page that it follows."""
    require(has_job(s, rank), "a job waits")
    require(is_page_next(s, rank), "the pages are stored by this rank")
    require(may_put(s, rank, s.backup_queue[rank][0]), "the page before is stored")
    x = s.backup_queue[rank][0]
    for p in POSITIONS:
        if p == FIRST_OF[x] + s.put[rank]:
            s.stored[rank][CHAIN_OF[x]][p] = True
    has_put_page(s, rank)


def has_put_page(s: State, rank: int) -> None:
    """Storage has taken the next page of the job."""
    count_put(s, rank)


def count_put(s: State, rank: int) -> None:
    """A page more of the job is stored, and with the last one the job is done."""
    s.put[rank] += 1
    emit(s, ON_BACKUP_PUT, rank)
    if s.put[rank] == s.job_pages[s.backup_queue[rank][0]]:
        end_job(s, rank, s.put[rank])


def has_job(s: State, rank: int) -> bool:
    """A job stands in the queue of the backup thread."""
    return len(s.backup_queue[rank]) > 0


def is_page_next(s: State, rank: int) -> bool:
    """The next thing to be put is a page: always, where this rank puts pages."""
    return OWNER[rank] == rank


def has_nothing_to_put(s: State, rank: int) -> bool:
    """All that the rank has is put by another one."""
    return OWNER[rank] != rank


def may_put(s: State, rank: int, x: int) -> bool:
    """Does storage have the page before the next one of the job?"""
    return any(p == FIRST_OF[x] + s.put[rank] and (p == 0 or is_stored(s, rank, CHAIN_OF[x], p - 1)) for p in POSITIONS)


@action(fairness="weak", rank=RANKS)
def backup_stop_job(s: State, rank: int) -> None:
    """§11.3 The page before is not in storage: the rest of the job is not put, and the job is acknowledged as it is.

    Why not put all the same: nobody could find it.
    """
    require(has_job(s, rank), "a job waits")
    require(is_page_next(s, rank), "the pages are stored by this rank")
    require(not may_put(s, rank, s.backup_queue[rank][0]), "the page before is not stored")
    end_job(s, rank, s.put[rank])


@action(rank=RANKS)
def backup_fail_page(s: State, rank: int) -> None:
    """§11.3 Storage refuses a page, or raises: the rest of the job is not put, and the job is acknowledged as it is."""
    require(PUT_FAILS, "storage may refuse")
    require(has_job(s, rank), "a job waits")
    require(is_page_next(s, rank), "the pages are stored by this rank")
    end_job(s, rank, s.put[rank])


@action(fairness="weak", rank=RANKS)
def backup_pass_job(s: State, rank: int) -> None:
    """§11.3 All ranks have the same pages, and another rank puts them: the job is acknowledged, so that all agree."""
    require(has_job(s, rank), "a job waits")
    require(has_nothing_to_put(s, rank), "another rank stores the pages")
    end_job(s, rank, s.job_pages[s.backup_queue[rank][0]])


def end_job(s: State, rank: int, pages: int) -> None:
    """The thread is done with the head of its queue, of which `pages` pages are not in the way of being stored."""
    x = s.backup_queue[rank].pop(0)
    s.put[rank] = 0
    s.taken[rank][x] = pages
    s.backup_acks[rank].append(x)


# ---- §11.4 the schedulers take acks


@action(fairness="weak")
def sched_take_backup_ack(s: State) -> None:
    """§11.4 The oldest job is acknowledged on every rank: its pages are let go, and what all ranks stored is known."""
    require(is_acknowledged_everywhere(s), "a job is acknowledged on every rank")
    x = s.backup_acks[0][0]
    pages = agreed_stored(s, x)
    whole = pages == s.job_pages[x]
    for r in RANKS:
        s.backup_acks[r].pop(0)
        s.taken[r][x] = 0
    finish_job(s, x, pages)
    if whole:
        queue_due(s, CHAIN_OF[x])


def is_acknowledged_everywhere(s: State) -> bool:
    """An ack waits on every rank: MIN of the lengths of their queues."""
    return all(len(s.backup_acks[r]) > 0 for r in RANKS)


def agreed_stored(s: State, x: int) -> int:
    """The pages of a job that every rank has stored: MIN of their counts."""
    return min(s.taken[r][x] for r in RANKS)


def finish_job(s: State, x: int, pages: int) -> None:
    """The end of a job, for the pages that it captured, whatever nodes they are in by now."""
    for p in POSITIONS:
        if is_within(x, s.job_pages[x], p):
            s.kept[CHAIN_OF[x]][p] -= 1
        if is_within(x, pages, p):
            s.known_stored[CHAIN_OF[x]][p] = True
    emit(s, ON_STORED, CHAIN_OF[x], pages, s.job_pages[x] - pages)
    s.job_pages[x] = 0
    refresh_leaf(s, CHAIN_OF[x])


# ---- §11.5 storage, and the prefetch pipeline


@action(rank=RANKS, x=RANGES)
def env_forget_page(s: State, rank: int, x: int) -> None:
    """§11.5 Storage drops a page, of any rank, any place, at any time."""
    require(FORGETS, "storage forgets")
    require(s.stored[rank][CHAIN_OF[x]][FIRST_OF[x]], "storage has the page")
    s.stored[rank][CHAIN_OF[x]][FIRST_OF[x]] = False


def may_answer_what_is_stored(s: State, rank: int, op: int, hit: int) -> bool:
    """§11.5 A rank finds the leading pages of the span that storage has for it now; a failing look-up finds none."""
    if s.stage[rank] == SKIPPING:
        return hit == 0
    return hit == stored_pages(s, rank, op) or (CHURN and hit == 0)


def stored_pages(s: State, rank: int, op: int) -> int:
    """How many leading pages of the operation's span storage has for the rank."""
    end = s.base[op] + s.span[op]
    return (
        min(p if s.base[op] <= p < end and not is_stored(s, rank, s.chain[op], p) else end for p in POSITIONS)
        - s.base[op]
    )


def attach_what_is_stored(s: State, op: int, pages: int) -> None:
    """§11.5 What was fetched is known to be stored."""
    chain = s.chain[op]
    left = pages
    for p in POSITIONS:
        if left > 0 and p >= s.base[op] and s.host[chain][p] == NOWHERE:
            s.known_stored[chain][p] = True
            left -= 1
    attach_below_the_anchor(s, op, pages)
