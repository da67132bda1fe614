"""§11.10 Storing and control together: a detach and a reset cut off what is being stored, and nothing of it is lost."""

from __future__ import annotations

from ..language import State, action, emitted, field, initial, invariant, require, sometimes, step_property, upto
from ..state import CHAINS, DEPTHS, RANKS
from .control_rules import (
    ATTACHED,
    DETACHED,
    DRAINING,
    ON_ATTACHED,
    ON_DETACHED,
    ON_DETACHING,
    ON_RESETTING,
    QUERY_THREAD,
    STARTING,
    STOPPING,
    THREADS_MAX,
    all_are,
    are_in_their_loop,
    has_ended,
    start_thread,
    take_leftovers,
)
from .copying_state import CHAIN_OF, FIRST_OF, POSITIONS, RANGES, READABLE
from .resetting import WithDeviceAndControl
from .storing_properties import (
    ends,
    has_every_job,
    is_newly_known,
    step_acknowledged_everywhere,
    step_due_is_queued,
    step_one_event_for_each_job,
)
from .storing_rules import (
    ON_BACKUP_PUT,
    ON_STORED,
    OWNER,
    WithStorage,
    end_job,
    finish_job,
    has_job,
    is_acknowledged_everywhere,
    is_stored,
    queue_due,
)


class WithStorageAndControl(WithDeviceAndControl, WithStorage):
    """§11.10 The state with storage that remembers and life-cycle control."""

    # each rank's threads
    backup_living = field(upto(THREADS_MAX), RANKS)  # threads that take from the rank's backup queue


@initial
def start_with_backup_threads(s: State) -> None:
    """§11.10 Every backup queue has its thread."""
    for r in RANKS:
        s.backup_living[r] = 1


# ---- the backup thread


@action(rank=RANKS)
def backup_cut_job_off(s: State, rank: int) -> None:
    """§11.10 A backup thread that is told to stop puts no further page: the job is acknowledged as it is.

    Why acknowledged: its pages are kept until then.
    """
    require(s.place[rank] == STOPPING, "the thread is told to stop")
    require(has_job(s, rank), "a job waits")
    require(OWNER[rank] == rank, "the pages are stored by this rank")
    end_job(s, rank, s.put[rank])


@action(fairness="weak", rank=RANKS)
def backup_end(s: State, rank: int) -> None:
    """§11.10 The backup thread comes to the last item of its queue: every job is acknowledged."""
    require(s.place[rank] == STOPPING, "the thread is told to stop")
    require(s.backup_living[rank] > 0, "the thread lives")
    require(len(s.backup_queue[rank]) == 0, "everything that was queued is acknowledged")
    s.backup_living[rank] -= 1


def has_job_and_lives(s: State, rank: int) -> bool:
    """There is a backup thread, and a job stands in its queue."""
    return s.backup_living[rank] > 0 and has_job(s, rank)


# ---- the schedulers


def has_ended_with_its_backups(s: State, rank: int) -> bool:
    """No thread of the rank lives, not the backup thread either."""
    return s.backup_living[rank] == 0 and has_ended(s, rank)


def start_thread_and_its_backups(s: State, rank: int, thread: int) -> None:
    """The backup thread is started with the query thread."""
    start_thread(s, rank, thread)
    if thread == QUERY_THREAD:
        s.backup_living[rank] += 1


def is_acknowledged_in_the_loop(s: State) -> bool:
    """A scheduler that waits for its threads takes no ack with the others."""
    return are_in_their_loop(s) and is_acknowledged_everywhere(s)


def queue_due_if_attached(s: State, chain: int) -> None:
    """Without storage, or while it is being detached or attached, no job is queued; what is due stays so."""
    if all_are(s, ATTACHED):
        queue_due(s, chain)


def take_leftovers_and_acks(s: State, rank: int) -> None:
    """Acks, too, that nobody has taken. The last rank's end every job, and what is known of this storage."""
    take_leftovers(s, rank)
    for _ in range(len(s.backup_acks[rank])):
        take_leftover_ack(s, rank)
    if is_last_to_let_go(s, rank):
        forget_storage(s)


def take_leftover_ack(s: State, rank: int) -> None:
    """A rank takes an ack by itself. How many pages it is for counts for nothing, for nobody has asked the others."""
    x = s.backup_acks[rank].pop(0)
    s.taken[rank][x] = 0


def is_last_to_let_go(s: State, rank: int) -> bool:
    """No other rank still has threads of the storage that is being detached."""
    return all(r == rank or has_let_go(s, r) for r in RANKS)


def has_let_go(s: State, rank: int) -> bool:
    """The rank has taken what the threads of its storage left, and may be on its way to attach again."""
    return s.place[rank] not in (ATTACHED, DRAINING, STOPPING)


def forget_storage(s: State) -> None:
    """What all ranks have let go by now, one after the other; it is written once (§3.0)."""
    for x in RANGES:
        if s.job_pages[x] > 0:
            finish_job(s, x, 0)
    for chain in CHAINS:
        for p in POSITIONS:
            s.known_stored[chain][p] = False


# ---- storage


@action()
def env_replace_storage(s: State) -> None:
    """§11.10 While nothing is attached, another storage takes the place of the old one, and it is empty."""
    require(all_are(s, DETACHED), "storage is detached")
    for r in RANKS:
        for chain in CHAINS:
            for p in POSITIONS:
                s.stored[r][chain][p] = False


# ---- what must hold: restated


def inv_jobs_are_everywhere_until_let_go(s: State) -> bool:
    """§11.6 P2, P7. A job under way is exactly once on every rank that has not let go of its storage: in the queue of
    the thread, or among its acks."""
    return all(has_let_go(s, r) or has_every_job(s, r) for r in RANKS)


def step_acknowledged_everywhere_or_let_go(s: State, t: State) -> bool:
    """§11.6 P7, P32. A job ends only when every rank has acknowledged it, and what is known to be stored then is what
    the rank with the fewest pages has; or the last rank lets go of the storage."""
    return is_let_go(s, t) or step_acknowledged_everywhere(s, t)


def is_let_go(s: State, t: State) -> bool:
    """The step is the one by which the last rank lets go of its storage."""
    return all(has_let_go(t, r) for r in RANKS) and any(emitted(t, ON_DETACHED, rank=r) for r in RANKS)


def step_one_event_for_each_job_or_cut_off(s: State, t: State) -> bool:
    """§11.6 P29. The end of a job is told once, with all pages that it captured; one that ends with its storage as not
    stored."""
    if not is_let_go(s, t):
        return step_one_event_for_each_job(s, t)
    return all(
        all(
            all(
                emitted(t, ON_STORED, chain=c, pages=n, failed=m) == (n == 0 and ends_whole(s, t, c, m)) for m in DEPTHS
            )
            for n in DEPTHS
        )
        for c in CHAINS
    )


def ends_whole(s: State, t: State, chain: int, pages: int) -> bool:
    """Does the step end a job that has captured so many pages of this chain?"""
    return any(CHAIN_OF[x] == chain and ends(s, t, x) and s.job_pages[x] == pages for x in RANGES)


def step_due_is_queued_if_attached(s: State, t: State) -> bool:
    """§11.6 P32. Where storage is attached, what a copy has brought to the host, and what a request runs on, is on its
    way to storage or stored, unless what it follows is neither."""
    return not all_are(t, ATTACHED) or step_due_is_queued(s, t)


# ---- what must hold: invariants


@invariant
def inv_attached_ranks_have_one_backup_thread(s: State) -> bool:
    """§11.10 P16. At most one thread takes from a backup queue, and one does while storage is attached."""
    return all(
        s.backup_living[r] <= 1 and (s.place[r] not in (ATTACHED, DRAINING) or s.backup_living[r] == 1) for r in RANKS
    )


@invariant
def inv_no_backup_thread_outlives_its_storage(s: State) -> bool:
    """§11.10 P15, P16, P18. Where storage is detached, and where it is about to be attached, no backup thread lives."""
    return all(s.place[r] not in (DETACHED, STARTING) or s.backup_living[r] == 0 for r in RANKS)


@invariant
def inv_no_job_outlives_its_storage(s: State) -> bool:
    """§11.10 P2, P15. A rank that has let go of its storage has no job and no ack left; when all have, no job is under
    way."""
    return all(not has_let_go(s, r) or has_no_job(s, r) for r in RANKS) and (
        any(not has_let_go(s, r) for r in RANKS) or all(s.job_pages[x] == 0 for x in RANGES)
    )


def has_no_job(s: State, rank: int) -> bool:
    """Nothing is being stored on this rank, or waits to be told of."""
    return (
        len(s.backup_queue[rank]) + len(s.backup_acks[rank]) + s.put[rank] == 0
        and sum(s.taken[rank][x] for x in RANGES) == 0
    )


@invariant
def inv_nothing_is_known_of_storage_that_is_gone(s: State) -> bool:
    """§11.10 P10, P32. Where all ranks have let go of their storage, no page is known to be stored."""
    return any(not has_let_go(s, r) for r in RANKS) or all(
        all(not s.known_stored[c][p] for p in POSITIONS) for c in CHAINS
    )


# ---- what must hold: steps


@step_property
def step_no_job_begins_unless_attached(s: State, t: State) -> bool:
    """§11.10 P15. From the moment of a detach on, until storage is attached again, no job is queued."""
    return all_are(s, ATTACHED) or all(t.job_pages[x] <= s.job_pages[x] for x in RANGES)


@step_property
def step_late_acks_do_not_count(s: State, t: State) -> bool:
    """§11.10 P15, P32. As soon as a rank has told its threads to stop, nothing becomes known to be stored.

    Why: whoever waits for its threads cannot be asked how much it has.
    """
    return are_in_their_loop(s) or all(all(not is_newly_known(s, t, c, p) for p in POSITIONS) for c in CHAINS)


# ---- what must be reachable


def comes_under_a_job(s: State) -> bool:
    """Something is being stored, or waits to be told of."""
    return any(s.job_pages[x] > 0 for x in RANGES)


@sometimes
def sometimes_a_detach_comes_under_a_job(s: State, t: State) -> bool:
    """§11.10 Storage is to be detached while pages are being stored."""
    return emitted(t, ON_DETACHING) and comes_under_a_job(s)


@sometimes
def sometimes_a_reset_comes_under_a_job(s: State, t: State) -> bool:
    """§11.10 A reset is asked for while pages are being stored."""
    return emitted(t, ON_RESETTING) and comes_under_a_job(s)


@sometimes
def sometimes_a_job_ends_during_a_detach(s: State, t: State) -> bool:
    """§11.10 A detach has begun, and the schedulers still take an ack together: its pages are known to be stored."""
    return all_are(s, DRAINING) and emitted(t, ON_STORED, failed=0)


@sometimes
def sometimes_a_told_thread_still_stores(s: State, t: State) -> bool:
    """§11.10 A page is put by a thread that is told to stop."""
    return any(s.place[r] == STOPPING and emitted(t, ON_BACKUP_PUT, rank=r) for r in RANKS)


@sometimes
def sometimes_a_job_is_cut_off(s: State, t: State) -> bool:
    """§11.10 A job is acknowledged by a thread that is told to stop, with some of its pages put and some not."""
    return any(
        s.place[r] == STOPPING
        and s.put[r] > 0
        and len(t.backup_queue[r]) < len(s.backup_queue[r])
        and not emitted(t, ON_BACKUP_PUT, rank=r)
        for r in RANKS
    )


@sometimes
def sometimes_ranks_are_cut_off_apart(s: State, t: State) -> bool:
    """§11.10 Storage is let go with a job that one rank has stored, and another one has not."""
    return is_let_go(s, t) and any(
        s.job_pages[x] > 0
        and any(
            any(
                any(
                    p == FIRST_OF[x] and is_stored(s, r, CHAIN_OF[x], p) and not is_stored(s, q, CHAIN_OF[x], p)
                    for p in POSITIONS
                )
                for q in RANKS
            )
            for r in RANKS
        )
        for x in RANGES
    )


@sometimes
def sometimes_acks_are_left_over(s: State, t: State) -> bool:
    """§11.10 A rank lets go of its storage with an ack of pages that it has stored."""
    return any(emitted(t, ON_DETACHED, rank=r) and any(s.taken[r][x] > 0 for x in RANGES) for r in RANKS)


@sometimes
def sometimes_attached_storage_lacks_a_host_page(s: State, t: State) -> bool:
    """§11.10 Storage is attached that has on no rank a page which the host has."""
    return emitted(t, ON_ATTACHED) and any(
        any(s.host[c][p] == READABLE and all(not is_stored(s, r, c, p) for r in RANKS) for p in POSITIONS)
        for c in CHAINS
    )


@sometimes
def sometimes_a_page_is_stored_again(s: State, t: State) -> bool:
    """§11.10 A page is put that storage has: the same one was attached again, and nobody knows of the page."""
    return any(
        emitted(t, ON_BACKUP_PUT, rank=r)
        and any(
            any(
                s.backup_queue[r][0] == x and p == FIRST_OF[x] + s.put[r] and s.stored[r][CHAIN_OF[x]][p]
                for p in POSITIONS
            )
            for x in RANGES
        )
        for r in RANKS
    )
