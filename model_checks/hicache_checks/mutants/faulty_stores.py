"""Faulty rules of §11: what goes wrong where host pages are put into storage."""

from __future__ import annotations

from hicache_spec.bounds import WRITE_BACK
from hicache_spec.events import ON_EVICTED
from hicache_spec.language import State, action, emit, require
from hicache_spec.parts.copying_rules import finish_copy, run
from hicache_spec.parts.copying_state import (
    CHAIN_OF,
    FIRST_OF,
    NOWHERE,
    POSITIONS,
    WRITE_POLICY_NOW,
    forget_from,
    is_within,
    node_start,
    refresh_leaf,
)
from hicache_spec.parts.storing_rules import (
    ON_BACKUP_PUT,
    ON_STORED,
    OWNER,
    PUT_FAILS,
    end_job,
    finish_job,
    is_in_a_job,
    may_put,
    queue_due,
    queue_job,
    stored_pages,
)
from hicache_spec.state import CHAINS, LENGTH, RANKS, SKIPPING
from hicache_spec.tree import protected_depth

# ---- the schedulers


def store_the_lower_half(s: State, x: int) -> None:
    """The ack of a copy names a node, and only what that is by now is stored."""
    last = FIRST_OF[x] + s.copy_pages[x] - 1
    finish_copy(s, x)
    first = node_start(s, CHAIN_OF[x], last)
    if not s.known_stored[CHAIN_OF[x]][first]:
        queue_job(s, CHAIN_OF[x], first, last + 1 - first)


def store_what_is_written_through(s: State, x: int) -> None:
    """What is written back comes to the host, and nobody stores it."""
    finish_copy(s, x)
    if WRITE_POLICY_NOW != WRITE_BACK:
        queue_due(s, CHAIN_OF[x])


def run_and_store_nothing(s: State, chain: int, depth: int) -> None:
    """What storage has refused once is never stored."""
    run(s, chain, depth)


def let_go_of_the_lower_half(s: State, x: int, pages: int) -> None:
    """The ack of a job names a node, and only what that is by now is let go."""
    last = FIRST_OF[x] + s.job_pages[x] - 1
    for p in POSITIONS:
        if is_within(x, s.job_pages[x], p) and p >= node_start(s, CHAIN_OF[x], last):
            s.kept[CHAIN_OF[x]][p] -= 1
        if is_within(x, pages, p):
            s.known_stored[CHAIN_OF[x]][p] = True
    emit(s, ON_STORED, CHAIN_OF[x], pages, s.job_pages[x] - pages)
    s.job_pages[x] = 0
    refresh_leaf(s, CHAIN_OF[x])


def store_without_keeping(s: State, chain: int, first: int, pages: int) -> None:
    """The host pages of a job may leave the host before they are stored, and need not be let go."""
    s.job_pages[chain * LENGTH + first] = pages
    for r in RANKS:
        s.backup_queue[r].append(chain * LENGTH + first)


def know_what_is_queued(s: State, chain: int, first: int, pages: int) -> None:
    """Pages are taken for stored as soon as their job is queued."""
    queue_job(s, chain, first, pages)
    for p in POSITIONS:
        if first <= p < first + pages:
            s.known_stored[chain][p] = True


def queue_on_the_first_rank(s: State, chain: int, first: int, pages: int) -> None:
    """Only rank 0 gets the job, since it is the one that writes."""
    queue_job(s, chain, first, pages)
    for r in RANKS:
        if r > 0 and len(s.backup_queue[r]) == 1:
            s.backup_queue[r].pop(0)


def store_what_is_arriving(s: State, chain: int, p: int) -> bool:
    """A page is due as soon as it has a host page, be its bytes there or not."""
    return (
        s.host[chain][p] != NOWHERE
        and not s.known_stored[chain][p]
        and not is_in_a_job(s, chain, p)
        and (p == 0 or s.known_stored[chain][p - 1] or is_in_a_job(s, chain, p - 1))
    )


def finish_and_tell_of_all(s: State, x: int, pages: int) -> None:
    """The event says that all pages of the job are stored."""
    for p in POSITIONS:
        if is_within(x, s.job_pages[x], p):
            s.kept[CHAIN_OF[x]][p] -= 1
        if is_within(x, pages, p):
            s.known_stored[CHAIN_OF[x]][p] = True
    emit(s, ON_STORED, CHAIN_OF[x], s.job_pages[x], 0)
    s.job_pages[x] = 0
    refresh_leaf(s, CHAIN_OF[x])


def most_that_a_rank_has_stored(s: State, x: int) -> int:
    """What some rank has stored counts as stored."""
    return max(s.taken[r][x] for r in RANKS)


@action(fairness="weak")
def take_an_ack_of_any_rank(s: State) -> None:
    """A job ends when the first rank acknowledges it; the acks of the others are thrown away when they come."""
    require(any(len(s.backup_acks[r]) > 0 for r in RANKS), "some rank has acknowledged a job")
    x = max(s.backup_acks[r][0] if len(s.backup_acks[r]) > 0 else 0 for r in RANKS)
    pages = max(s.taken[r][x] for r in RANKS)
    ended = s.job_pages[x] == 0
    for r in RANKS:
        if len(s.backup_acks[r]) > 0:
            s.backup_acks[r].pop(0)
            s.taken[r][x] = 0
    if not ended:
        finish_job(s, x, pages)


def evict_what_is_stored(s: State, missing: int) -> None:
    """A page may leave the host if it is neither on the device nor above an anchor: a job does not count."""
    left = missing
    for chain in CHAINS:
        out = min(left, s.resident[chain] - max(s.on_device[chain], protected_depth(s, chain)))
        if out > 0:
            left -= out
            forget_from(s, chain, s.resident[chain] - out)
            refresh_leaf(s, chain)
            emit(s, ON_EVICTED, chain, out)
            for r in RANKS:
                s.free[r] += out


def forget_and_know(s: State, chain: int, depth: int) -> None:
    """That a page is stored stays known when it leaves the tree, and counts for whatever takes its place."""
    s.resident[chain] = depth
    for p in POSITIONS:
        if p >= depth:
            s.host[chain][p] = NOWHERE
            s.cut[chain][p] = False
            s.runs[chain][p] = 0


# ---- the backup thread


def put_without_the_parent(s: State, rank: int, x: int) -> bool:
    """A page is put whatever storage has of those before it."""
    return True


@action(rank=RANKS)
def count_refused_pages_as_stored(s: State, rank: int) -> None:
    """What storage refuses is acknowledged as stored."""
    require(PUT_FAILS, "storage may refuse")
    require(len(s.backup_queue[rank]) > 0, "a job waits")
    require(OWNER[rank] == rank, "the pages are stored by this rank")
    end_job(s, rank, s.job_pages[s.backup_queue[rank][0]])


@action(rank=RANKS)
def drop_what_fails(s: State, rank: int) -> None:
    """A job of which storage refuses a page is never acknowledged: as if the thread had died of it."""
    require(PUT_FAILS, "storage may refuse")
    require(len(s.backup_queue[rank]) > 0, "a job waits")
    require(OWNER[rank] == rank, "the pages are stored by this rank")
    x = s.backup_queue[rank].pop(0)
    s.put[rank] = s.taken[rank][x]


@action(rank=RANKS)
def try_again_later(s: State, rank: int) -> None:
    """A job of which storage refuses a page is put behind the others, on this rank."""
    require(PUT_FAILS, "storage may refuse")
    require(len(s.backup_queue[rank]) > 1, "another job waits")
    require(OWNER[rank] == rank, "the pages are stored by this rank")
    x = s.backup_queue[rank].pop(0)
    s.put[rank] = 0
    s.backup_queue[rank].append(x)


@action(fairness="weak", rank=RANKS)
def put_on_every_rank(s: State, rank: int) -> None:
    """Every rank puts every page, also where all ranks have the same."""
    require(len(s.backup_queue[rank]) > 0, "a job waits")
    require(may_put(s, rank, s.backup_queue[rank][0]), "the page before is stored")
    x = s.backup_queue[rank][0]
    for p in POSITIONS:
        if p == FIRST_OF[x] + s.put[rank]:
            s.stored[rank][CHAIN_OF[x]][p] = True
    s.put[rank] += 1
    emit(s, ON_BACKUP_PUT, rank)
    if s.put[rank] == s.job_pages[x]:
        end_job(s, rank, s.put[rank])


@action(fairness="weak", rank=RANKS)
def put_on_the_first_rank(s: State, rank: int) -> None:
    """Rank 0 alone puts pages, also where every rank has its own shard; the others acknowledge."""
    require(len(s.backup_queue[rank]) > 0, "a job waits")
    require(rank > 0 or may_put(s, rank, s.backup_queue[rank][0]), "the page before is stored")
    x = s.backup_queue[rank][0]
    if rank == 0:
        for p in POSITIONS:
            if p == FIRST_OF[x] + s.put[rank]:
                s.stored[rank][CHAIN_OF[x]][p] = True
        emit(s, ON_BACKUP_PUT, rank)
    s.put[rank] += 1
    if s.put[rank] == s.job_pages[x]:
        end_job(s, rank, s.put[rank])


@action(fairness="weak", rank=RANKS)
def put_the_next_that_is_missing(s: State, rank: int) -> None:
    """A page that storage has already is passed over, and the one after it is put, be it of the job or not."""
    require(len(s.backup_queue[rank]) > 0, "a job waits")
    require(OWNER[rank] == rank, "the pages are stored by this rank")
    require(may_put(s, rank, s.backup_queue[rank][0]), "the page before is stored")
    x = s.backup_queue[rank][0]
    first = FIRST_OF[x] + s.put[rank]
    skips = any(p == first and s.stored[rank][CHAIN_OF[x]][p] for p in POSITIONS)
    for p in POSITIONS:
        if p == (first + 1 if skips else first):
            s.stored[rank][CHAIN_OF[x]][p] = True
    s.put[rank] += 1
    emit(s, ON_BACKUP_PUT, rank)
    if s.put[rank] == s.job_pages[x]:
        end_job(s, rank, s.put[rank])


# ---- the look-up


def ask_for_the_first_rank(s: State, rank: int, op: int, hit: int) -> bool:
    """Every rank asks for the pages of rank 0."""
    if s.stage[rank] == SKIPPING:
        return hit == 0
    return hit == stored_pages(s, 0, op)


# ---- liveness


@action(fairness="weak", rank=RANKS)
def wait_for_the_parent(s: State, rank: int) -> None:
    """A job whose page before is not in storage waits behind the others, and for ever if there are none."""
    require(len(s.backup_queue[rank]) > 0, "a job waits")
    require(OWNER[rank] == rank, "the pages are stored by this rank")
    require(not may_put(s, rank, s.backup_queue[rank][0]), "the page before is not stored")
    x = s.backup_queue[rank].pop(0)
    s.put[rank] = 0
    s.backup_queue[rank].append(x)
