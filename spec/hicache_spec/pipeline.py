"""§3 The prefetch pipeline of one server: scheduler, query thread and IO thread of every rank, as guarded actions."""

from __future__ import annotations

from .bounds import BEST_EFFORT, TIMEOUT
from .events import (
    ON_ALLOCATED,
    ON_DECLINED,
    ON_FETCHED,
    ON_IO_FAILED,
    ON_IO_LANDED,
    ON_IO_RELEASED,
    ON_IO_STARTED,
    ON_IO_UNCOUNTED,
    ON_QUERY_AGREED,
    ON_QUERY_ASKED,
    ON_QUERY_PUT,
    ON_QUERY_TAKEN,
    ON_RECLAIMED,
    ON_REVOKED,
    ON_SKIPPED,
    ON_STOPPED,
    ON_SUBMITTED,
    ON_WRITTEN,
)
from .language import NONE, State, action, emit, require
from .state import (
    ABORTS,
    AGREED,
    ALLOCATE,
    ALLOCATED,
    ANSWERED,
    ATTEMPTS,
    BELOW_THRESHOLD,
    CHAINS,
    CHURN,
    DEPTHS,
    FETCH,
    HITS,
    IDLE,
    LENGTH,
    LIMIT,
    LIMITED,
    LOOKING,
    NO_MEMORY,
    OPS,
    PAGES,
    PENDING,
    POLICY_NOW,
    QUERY,
    QUEUED,
    RANKS,
    REQUEST_OF,
    REQUESTS,
    REVOKE,
    SKIPPING,
    STOPS,
    STORED,
    TERMINATE,
    TERMINATED,
    THRESHOLD,
    TIMEOUT_TICKS,
    TOO_SHORT,
    WAS_ABORTED,
    WAS_STOPPED,
    WRITES,
    advance,
    is_complete,
    is_pending,
    is_terminated,
    retire,
)
from .tree import anchor_depth, attach, evict, known_pages, protect, room, unprotect

# ---- §3.1 submit


@action(request=REQUESTS, chain=CHAINS)
def sched_submit(s: State, request: int, chain: int) -> None:
    """§3.1 (new) -> queued. A request asks for the rest of a chain; it may be declined, and then leaves nothing behind.

    Why: no host memory is taken before the hit count is known; until then only the anchor is protected.
    """
    require(s.attempts[request] < ATTEMPTS, "bound: the request id is not used up")
    submit(s, request, chain)


def submit(s: State, request: int, chain: int) -> None:
    """What is submitted is declined or becomes an operation."""
    span = LENGTH - anchor_depth(s, chain)
    reason = why_declined(s, request, span)
    if reason != NONE:
        emit(s, ON_DECLINED, request, reason, span)
    else:
        admit(s, request, chain, span)


def why_declined(s: State, request: int, span: int) -> int:
    """Why there is nothing to be done for this request now; NONE if there is."""
    if s.record[request] != NONE:
        return PENDING
    if span < THRESHOLD:
        return TOO_SHORT
    if s.occupied >= LIMIT:
        return LIMITED
    return NONE


def admit(s: State, request: int, chain: int, span: int) -> None:
    """The operation of a new attempt: recorded, its anchor protected, its span accounted, queued on every rank."""
    op = request * ATTEMPTS + s.attempts[request]
    s.attempts[request] += 1
    s.record[request] = op
    s.phase[op] = QUEUED
    s.chain[op] = chain
    s.base[op] = anchor_depth(s, chain)
    s.span[op] = span
    s.occupied += span
    protect(s, op)
    emit(s, ON_SUBMITTED, op, span)
    for r in RANKS:
        s.query_queue[r].append(op)


# ---- §3.2 the query thread: take, look up, agree, put


@action(fairness="weak", rank=RANKS)
def query_take(s: State, rank: int) -> None:
    """§3.2 The query thread takes the next operation and reads its terminated flag, once."""
    require(len(s.query_queue[rank]) > 0, "an operation waits for its look-up")
    require(is_free(s, rank), "the thread is free")
    op = s.query_queue[rank][0]
    s.stage[rank] = SKIPPING if s.stopped[rank][op] else LOOKING
    emit(s, ON_QUERY_TAKEN, rank, op)


def is_free(s: State, rank: int) -> bool:
    """The query thread is between two operations."""
    return s.stage[rank] == IDLE


@action(fairness="weak", chosen=("hit",), rank=RANKS, hit=DEPTHS)
def query_ask_storage(s: State, rank: int, hit: int) -> None:
    """§3.3 A rank looks up how many leading pages of the span its storage holds; a terminated operation counts as none.

    Why: ranks store their shards under keys of their own, so their answers may differ. A failing look-up answers 0.
    """
    require(s.stage[rank] in (SKIPPING, LOOKING), "an operation is taken and not yet looked up")
    require(may_answer(s, rank, s.query_queue[rank][0], hit), "storage can give this answer")
    note_answer(s, rank, hit)


def note_answer(s: State, rank: int, hit: int) -> None:
    """The rank has its answer and goes to the all-reduce."""
    s.stage[rank] = ANSWERED
    s.answer[rank] = hit
    emit(s, ON_QUERY_ASKED, rank, s.query_queue[rank][0], hit)


def may_answer(s: State, rank: int, op: int, hit: int) -> bool:
    """Churning storage may hold anything; steady storage holds STORED pages of each chain on every rank."""
    if s.stage[rank] == SKIPPING:
        return hit == 0
    if CHURN:
        return hit <= s.span[op]
    return hit == min(s.span[op], max(0, STORED[s.chain[op]] - s.base[op]))


@action(fairness="weak")
def query_agree(s: State) -> None:
    """§3.4 queued -> queried. The ranks take the MIN of their answers in one all-reduce.

    Why: one rank's page is useless without the other ranks' shards. A terminated operation keeps its state.
    """
    require(all(s.stage[r] == ANSWERED for r in RANKS), "every rank has its answer and is in the all-reduce")
    op = s.query_queue[0][0]
    for r in RANKS:
        take_agreed(s, r, op)
        s.stage[r] = AGREED
    if s.phase[op] == QUEUED:
        advance(s, op, QUERY)
    emit(s, ON_QUERY_AGREED, op, s.hit[0][op])


def take_agreed(s: State, rank: int, op: int) -> None:
    """A rank notes what comes out of the all-reduce."""
    s.hit[rank][op] = agreed_hit(s, rank)


def agreed_hit(s: State, rank: int) -> int:
    """The hit that a rank takes out of the all-reduce."""
    return min(s.answer[r] for r in RANKS)


@action(fairness="weak", rank=RANKS)
def query_put(s: State, rank: int) -> None:
    """§3.5 A rank hands the answered operation to its scheduler, whatever the answer: the scheduler decides."""
    require(s.stage[rank] == AGREED, "the hit count is agreed")
    op = s.query_queue[rank].pop(0)
    s.stage[rank] = IDLE
    forget_answer(s, rank)
    emit(s, ON_QUERY_PUT, rank, op)
    s.hit_queue[rank].append(op)


def forget_answer(s: State, rank: int) -> None:
    """The thread's own answer is of no use any more."""
    s.answer[rank] = 0


# ---- §3.6 the drain


@action(fairness="weak", chosen=("hits", "pages"), hits=HITS, pages=PAGES)
def sched_drain(s: State, hits: int, pages: int) -> None:
    """§3.6 Every rank takes the same number of answered operations and of released pages, in queue order.

    Why: the lengths are sampled and MIN-reduced first, so what arrives in between waits for the next tick. All
    changes of pool and tree then happen at the same logical point on every rank.
    """
    require(hits + pages > 0, "there is something to take")
    require(hits <= answers_everywhere(s), "every rank has that many answered operations")
    require(pages <= released_everywhere(s), "every rank has that many released pages")
    for _ in range(hits):
        decide(s, take_answered(s))
    if pages > 0:
        reclaim(s, pages)


def answers_everywhere(s: State) -> int:
    """So many answered operations wait on every rank."""
    return min(len(s.hit_queue[r]) for r in RANKS)


def released_everywhere(s: State) -> int:
    """So many released pages wait on every rank."""
    return min(s.releasing[r] for r in RANKS)


def take_answered(s: State) -> int:
    """The next answered operation, taken from the queue of every rank."""
    op = s.hit_queue[0][0]
    for r in RANKS:
        s.hit_queue[r].pop(0)
    return op


def decide(s: State, op: int) -> None:
    """§3.6 One answered operation: skipped, revoked or given host pages."""
    found = find_record(s, op)
    if found == NONE:
        emit(s, ON_SKIPPED, op)
    elif s.stopped[0][op]:
        revoke(s, found, WAS_STOPPED)
    elif s.hit[0][op] < THRESHOLD:
        revoke(s, found, BELOW_THRESHOLD)
    else:
        allocate(s, found, s.hit[0][op])
    for r in RANKS:
        forget_agreed(s, r, op)
    retire(s, op)


def forget_agreed(s: State, rank: int, op: int) -> None:
    """The drain has used what the ranks agreed on."""
    s.hit[rank][op] = 0


def find_record(s: State, op: int) -> int:
    """The pending operation that an answer belongs to, by request id *and attempt*; NONE if it has ended."""
    if s.record[REQUEST_OF[op]] == op:
        return op
    return NONE


def allocate(s: State, op: int, hit: int) -> None:
    """§3.6 queried -> allocated or revoked. Exactly the hit; with eviction if need be; else the longest prefix that
    fits.

    Why: nothing is evicted before it is known to be enough, so that a refused operation leaves no trace.
    """
    pages = grantable_pages(s, op, hit)
    if pages < THRESHOLD:
        revoke(s, op, NO_MEMORY)
    else:
        make_room(s, op, pages)
        grant(s, op, pages, hit)


def grantable_pages(s: State, op: int, hit: int) -> int:
    """The longest prefix of the hit for which memory can be had."""
    return min(hit, room(s))


def make_room(s: State, op: int, pages: int) -> None:
    """What `pages` pages lack leaves the tree."""
    if s.free[0] < pages:
        evict(s, pages - s.free[0])


def grant(s: State, op: int, pages: int, hit: int) -> None:
    """The operation owns `pages` host pages on every rank and goes to the IO threads."""
    s.granted[op] = pages
    advance(s, op, ALLOCATE)
    for r in RANKS:
        s.free[r] -= pages
        s.buffer[r].append(op)
    emit(s, ON_ALLOCATED, op, pages, hit, room(s))


def reclaim(s: State, pages: int) -> None:
    """Released pages return to the pool, the same number on every rank."""
    for r in RANKS:
        s.releasing[r] -= pages
        s.free[r] += pages
    emit(s, ON_RECLAIMED, pages)


def revoke(s: State, op: int, reason: int) -> None:
    """The operation ends without publishing anything; its record and its protection go."""
    advance(s, op, REVOKE)
    emit(s, ON_REVOKED, op, reason, room(s))
    drop_record(s, op)
    retire(s, op)


def drop_record(s: State, op: int) -> None:
    """The scheduler forgets the operation: the anchor is unprotected, the span no longer accounted."""
    s.record[REQUEST_OF[op]] = NONE
    s.occupied -= s.span[op]
    unprotect(s, op)


# ---- §3.7 the IO thread, page by page


@action(fairness="weak", rank=RANKS)
def io_start_page(s: State, rank: int) -> None:
    """§3.7.1 The IO thread begins to read the next page into its host page."""
    require(has_work(s, rank), "an operation waits for its pages")
    require(not s.writing[rank], "no page is being read")
    require(not s.stopped[rank][s.buffer[rank][0]], "the operation is not terminated")
    s.writing[rank] = True
    emit(s, ON_IO_STARTED, rank, s.buffer[rank][0], s.filled[rank])


def has_work(s: State, rank: int) -> bool:
    """An operation stands in the buffer of the IO thread."""
    return len(s.buffer[rank]) > 0


@action(fairness="weak", rank=RANKS)
def io_land_page(s: State, rank: int) -> None:
    """§3.7.2 The bytes are in place; the page is counted unless the operation was terminated meanwhile.

    Why: the count is what the scheduler publishes, so it follows the bytes and stops with the flag, under one lock.
    """
    require(s.writing[rank], "a page is being read")
    op = s.buffer[rank][0]
    s.writing[rank] = False
    s.filled[rank] += 1
    has_landed(s, rank, op)
    leave_io(s, rank, op)


def has_landed(s: State, rank: int, op: int) -> None:
    """The bytes of the latest page are in place."""
    count_page(s, rank, op)


def count_page(s: State, rank: int, op: int) -> None:
    """The latest page is counted, unless the operation is terminated."""
    if s.stopped[rank][op]:
        emit(s, ON_IO_UNCOUNTED, rank, op, s.filled[rank] - 1)
    else:
        s.counted[rank][op] += 1
        emit(s, ON_IO_LANDED, rank, op, s.filled[rank] - 1)


@action(rank=RANKS)
def io_fail_page(s: State, rank: int) -> None:
    """§3.7.3 allocated -> terminated. A page cannot be read on this rank (gone, short, wrong, or storage raised)."""
    require(CHURN, "storage churns")
    require(s.writing[rank], "a page is being read")
    op = s.buffer[rank][0]
    s.writing[rank] = False
    fail(s, rank, op)
    emit(s, ON_IO_FAILED, rank, op, s.filled[rank])


def fail(s: State, rank: int, op: int) -> None:
    """What could not be read ends the operation: the flag is set on this rank."""
    s.stopped[rank][op] = True
    if s.phase[op] == ALLOCATED:
        advance(s, op, TERMINATE)


@action(fairness="weak", rank=RANKS)
def io_release_page(s: State, rank: int) -> None:
    """§3.7.4 The IO thread puts the unread tail of a terminated operation on the release queue, page by page.

    Why: only the IO thread knows that no page of the tail is still being written.
    """
    require(has_work(s, rank), "an operation is in work")
    require(not s.writing[rank], "no page is being read")
    require(s.stopped[rank][s.buffer[rank][0]], "the operation is terminated")
    release_page(s, rank, s.buffer[rank][0])


def release_page(s: State, rank: int, op: int) -> None:
    """A page of the tail goes on the release queue."""
    s.tail[rank] += 1
    s.given[rank][op] += 1
    emit(s, ON_IO_RELEASED, rank, op)
    s.releasing[rank] += 1
    leave_io(s, rank, op)


def leave_io(s: State, rank: int, op: int) -> None:
    """The IO thread is done with an operation when every page of it is counted or released."""
    if is_read(s, rank, op):
        s.buffer[rank].pop(0)
        forget_read(s, rank)
        retire(s, op)


def is_read(s: State, rank: int, op: int) -> bool:
    """Every page of the operation is counted or released."""
    return s.counted[rank][op] + s.tail[rank] == s.granted[op]


def forget_read(s: State, rank: int) -> None:
    """The IO thread begins anew."""
    s.filled[rank] = 0
    s.tail[rank] = 0


# ---- §3.8 poll, stop, abort


@action(fairness="weak", request=REQUESTS)
def sched_poll(s: State, request: int) -> None:
    """§3.8 The scheduler asks whether a waiting request may go on; if so its operation ends here.

    Why: the flags are MAX-reduced, so terminated on any rank ends the wait on every rank.
    """
    require(s.record[request] != NONE, "the request has a pending operation")
    require(may_end(s, s.record[request]), "the policy waits no longer")
    finish(s, s.record[request])


def finish(s: State, op: int) -> None:
    """The end of an operation for which its policy waits no longer: published with memory, revoked without."""
    if not (s.phase[op] == ALLOCATED and is_complete(s, op)):
        terminate(s, op)
    if s.granted[op] == 0:
        revoke(s, op, WAS_STOPPED)
    else:
        mark(s, op)
        publish(s, op, agreed_pages(s, op))


def may_end(s: State, op: int) -> bool:
    """§3.8 Terminated anywhere, or the policy is content."""
    if is_terminated(s, op) or POLICY_NOW == BEST_EFFORT:
        return True
    return is_complete(s, op) or (POLICY_NOW == TIMEOUT and s.waited[op] >= TIMEOUT_TICKS)


def agreed_pages(s: State, op: int) -> int:
    """The prefix that landed on every rank: MIN of the counts."""
    return min(s.counted[r][op] for r in RANKS)


def publish(s: State, op: int, pages: int) -> None:
    """§3.8 -> fetched. The agreed prefix goes into the tree; pages the tree already has are freed at once, landed pages
    beyond the agreed ones go through the release queue, because their number differs between ranks."""
    known = known_pages(s, op, pages)
    attach(s, op, pages - known)
    for r in RANKS:
        s.free[r] += known
    part_with(s, op, pages)
    advance(s, op, FETCH)
    emit(s, ON_FETCHED, op, pages, known)
    drop_record(s, op)
    retire(s, op)


def part_with(s: State, op: int, pages: int) -> None:
    """Landed pages are no longer the operation's: `pages` of them are published, the rest is released."""
    for r in RANKS:
        s.releasing[r] += s.counted[r][op] - pages
        s.given[r][op] += s.counted[r][op]


@action(request=REQUESTS)
def sched_stop(s: State, request: int) -> None:
    """§3.9 -> terminated. The caller stops waiting: the flag is set, the record stays until a poll or the drain.

    Why no guard on the flag: a page that failed set it on one rank only, and a scheduler cannot ask the others.
    """
    require(STOPS, "callers stop requests")
    require(s.record[request] != NONE, "the request has a pending operation")
    stop(s, s.record[request])


def stop(s: State, op: int) -> None:
    """The caller's stop of a pending operation."""
    terminate(s, op)
    emit(s, ON_STOPPED, op)


@action(request=REQUESTS)
def sched_abort(s: State, request: int) -> None:
    """§3.10 -> terminated -> revoked. The request is gone: nothing is published, what landed is released.

    Why: an operation without memory may still travel through the queues; it is recognised there by its missing record.
    """
    require(ABORTS, "callers abort requests")
    require(s.record[request] != NONE, "the request has a pending operation")
    abort(s, s.record[request])


def abort(s: State, op: int) -> None:
    """The caller's abort of a pending operation."""
    terminate(s, op)
    release_landed(s, op)
    revoke(s, op, WAS_ABORTED)


def release_landed(s: State, op: int) -> None:
    """What has landed goes on the release queues."""
    for r in RANKS:
        s.releasing[r] += s.counted[r][op]
        s.given[r][op] += s.counted[r][op]


def terminate(s: State, op: int) -> None:
    """The terminated flag is set on every rank; counts are frozen from here on."""
    if s.phase[op] != TERMINATED:
        advance(s, op, TERMINATE)
    mark(s, op)


def mark(s: State, op: int) -> None:
    """Every rank's scheduler sets the flag that its threads read."""
    for r in RANKS:
        s.stopped[r][op] = True


# ---- §3.11 the rest of the server


@action(chain=CHAINS)
def sched_write_through(s: State, chain: int) -> None:
    """§3.11 A request computed the next page of a chain, and its copy goes to the host tree."""
    require(WRITES, "requests write through")
    require(s.resident[chain] < LENGTH, "the chain has a next page")
    require(may_write(s), "a host page is free")
    write_through(s, chain)


def may_write(s: State) -> bool:
    """There is memory for a page that is written through."""
    return s.free[0] > 0


def write_through(s: State, chain: int) -> None:
    """The chain's next page is in the tree, on every rank."""
    s.resident[chain] += 1
    for r in RANKS:
        s.free[r] -= 1
    emit(s, ON_WRITTEN, chain, 1)


@action(fairness="weak")
def env_advance_clock(s: State) -> None:
    """§3.12 Time passes for every waiting operation, up to the limit of the policy."""
    require(POLICY_NOW == TIMEOUT, "the policy has a time limit")
    require(
        any(is_pending(s, op) and s.waited[op] < TIMEOUT_TICKS for op in OPS),
        "an operation still waits within its limit",
    )
    advance_clock(s)


def advance_clock(s: State) -> None:
    """Every pending operation has waited one tick more."""
    for op in OPS:
        if is_pending(s, op):
            s.waited[op] = min(TIMEOUT_TICKS, s.waited[op] + 1)
