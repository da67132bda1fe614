"""§8.9 Acks: how the scheduler learns what was read. Their queues, their words and their properties.

For designs in which a scheduler does not look at the counts of its IO thread. That thread puts an *ack* for each page,
with the number of pages that it has read so far, and a *last ack* when it is done with an operation. A sync thread on
every rank takes them in order; the ranks agree on the MIN of each, and what they have agreed on goes to the scheduler.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..events import ON_REVOKED
from ..language import (
    NONE,
    State,
    action,
    constant,
    emitted,
    field,
    fifo,
    index,
    invariant,
    leads_to,
    require,
    sometimes,
    step_property,
    table,
)
from ..pipeline import find_record, publish
from ..properties import newly, policy_gives_up
from ..state import (
    ALLOCATED,
    CHAINS,
    FETCHED,
    HOST_PAGES,
    OPS,
    RANKS,
    REQUESTS,
    WAS_STOPPED,
    Pipeline,
    at_rest,
    held,
    is_complete,
    is_ended,
    is_terminated,
    is_travelling,
    retire,
)
from ..tree import protected_depth, resident_pages

ACKS_OF_OP = constant(lambda b: b.chain_pages + 2, "acks_of_op")
ACKS = index("ack", lambda b: b.requests * b.attempts * (b.chain_pages + 2), blocks_of=REQUESTS)
"""Every ack that there can be: of each operation, so many pages (0 .. chain_pages), and the last one."""
OP_OF = table(
    "op_of", lambda b: tuple(ack // (b.chain_pages + 2) for ack in range(b.requests * b.attempts * (b.chain_pages + 2)))
)
ACKS_MAX = constant(lambda b: b.host_pages + b.requests * b.attempts, "acks_max")
"""Acks on the way to one scheduler: for each but a last one, the operation holds a page that is not yet counted."""


class WithAcks(Pipeline):
    """§8.9 The state of the pipeline, and two queues more on every rank."""

    sync_queue = field(fifo(ACKS, ACKS_MAX), RANKS)  # IO thread -> sync thread: what this rank has read
    ack_queue = field(fifo(ACKS, ACKS_MAX), RANKS)  # sync thread -> scheduler: what every rank has read


def ack_of(op: int, pages: int) -> int:
    """The ack that says that so many pages of the operation are read."""
    return op * ACKS_OF_OP + pages


def last_ack_of(op: int) -> int:
    """The ack that says that the IO thread is done with the operation."""
    return op * ACKS_OF_OP + ACKS_OF_OP - 1


def pages_of(ack: int) -> int:
    """How many pages an ack says are read, if it is not a last one."""
    return ack - OP_OF[ack] * ACKS_OF_OP


# ---- the IO thread


def pass_over_the_rest(s: State, rank: int, op: int) -> None:
    """The IO thread reads no further page of the operation."""
    acknowledge_unread_pages(s, rank, op)
    leave_with_the_last_ack(s, rank, op)


def acknowledge_unread_pages(s: State, rank: int, op: int) -> None:
    """An ack for each page that is not read, saying no more than before.

    Why one for each: the ranks agree on every ack in turn, so all have to put equally many.
    """
    for _ in range(s.granted[op] - s.filled[rank]):
        s.sync_queue[rank].append(ack_of(op, s.filled[rank]))


def leave_with_the_last_ack(s: State, rank: int, op: int) -> None:
    """The IO thread is done with the operation."""
    s.sync_queue[rank].append(last_ack_of(op))
    s.buffer[rank].pop(0)
    s.filled[rank] = 0


# ---- the sync thread, and what the scheduler does with an ack


@action(fairness="weak")
def sync_agree(s: State) -> None:
    """§8.9 The ranks take the MIN of their next acks in one all-reduce, and hand it to their schedulers.

    Why here and not in the scheduler: a poll then has nothing to reduce, and what it publishes does not depend on how
    far each rank is at that moment.
    Ref: sglang 0.5.19 cache_controller.py::prefetch_sync_thread_func
    """
    require(all(len(s.sync_queue[r]) > 0 for r in RANKS), "every rank has an ack and is in the all-reduce")
    for r in RANKS:
        s.ack_queue[r].append(agreed_ack(s, r))
    for r in RANKS:
        s.sync_queue[r].pop(0)


def agreed_ack(s: State, rank: int) -> int:
    """What a rank takes out of the all-reduce. The acks are of one operation, so the least has the fewest pages."""
    return min(s.sync_queue[r][0] for r in RANKS)


@action(fairness="weak")
def sched_take_ack(s: State) -> None:
    """§8.9 Every rank takes the next ack: so many pages have landed everywhere; or that was the last, and the operation
    ends, if it has not.

    Why one at a time: a tick takes as many as every rank has, and nothing in between shows.
    Ref: sglang 0.5.19 unified_radix_cache.py::_drain_storage_control_queues_impl
    """
    require(all(len(s.ack_queue[r]) > 0 for r in RANKS), "every rank has an ack")
    ack = take_ack(s)
    if ack == last_ack_of(OP_OF[ack]):
        carry_out_last_ack(s, OP_OF[ack])
    else:
        count_acknowledged(s, OP_OF[ack], pages_of(ack))


def take_ack(s: State) -> int:
    """The next ack, taken from the queue of every rank."""
    ack = s.ack_queue[0][0]
    for r in RANKS:
        s.ack_queue[r].pop(0)
    return ack


def count_acknowledged(s: State, op: int, pages: int) -> None:
    """So many pages of the operation have landed on every rank; of no interest if it has ended."""
    if find_acknowledged(s, op) != NONE:
        for r in RANKS:
            s.counted[r][op] = pages


def carry_out_last_ack(s: State, op: int) -> None:
    """§8.9 An operation that nobody has ended is published, and its unread tail is released, in one piece.

    Why now: its IO thread is done with it, on every rank, so nobody writes to the tail any more.
    Ref: sglang 0.5.19 unified_radix_cache.py::_drain_storage_control_queues_impl, _handle_prefetch_result
    """
    found = find_acknowledged(s, op)
    if found != NONE:
        publish(s, found, acknowledged_pages(s, found, op))
    release_tail(s, op)
    retire(s, op)


def find_acknowledged(s: State, op: int) -> int:
    """The pending operation that an ack belongs to; NONE if it has ended."""
    return find_record(s, op)


def acknowledged_pages(s: State, found: int, op: int) -> int:
    """The prefix to publish for `found`, when the last ack of `op` is taken."""
    return s.counted[0][op]


def release_tail(s: State, op: int) -> None:
    """What was granted and not counted goes to the release queue, on every rank."""
    for r in RANKS:
        s.releasing[r] += s.granted[op] - s.counted[r][op]
        s.given[r][op] += s.granted[op] - s.counted[r][op]


# ---- words of the state that have to know of the acks


def is_acknowledged(s: State, rank: int, op: int) -> bool:
    """An ack of the operation is on its way to the scheduler of this rank."""
    return any(OP_OF[s.sync_queue[rank][i]] == op for i in range(len(s.sync_queue[rank]))) or any(
        OP_OF[s.ack_queue[rank][i]] == op for i in range(len(s.ack_queue[rank]))
    )


def is_travelling_with_acks(s: State, op: int) -> bool:
    """Some thread still has the operation in a queue, or an ack of it is on its way."""
    return is_travelling(s, op) or any(is_acknowledged(s, r, op) for r in RANKS)


def no_ack_waits(s: State) -> bool:
    """No ack is on its way."""
    return all(len(s.sync_queue[r]) + len(s.ack_queue[r]) == 0 for r in RANKS)


def at_rest_with_acks(s: State) -> bool:
    """§3.0 No operation is pending and every queue is empty, those of acks too."""
    return at_rest(s) and no_ack_waits(s)


# ---- properties that are restated: in their canonical words an operation is over when no IO thread works on it, and a
# count is read from the IO thread itself


def inv_ended_operations_hold_nothing_after_the_last_ack(s: State) -> bool:
    """§4.10 P4. An ended operation of which no ack is to come holds no page."""
    return all(
        all(not is_ended(s, op) or op in s.buffer[r] or is_acknowledged(s, r, op) or held(s, r, op) == 0 for op in OPS)
        for r in RANKS
    )


def inv_rest_restores_the_pool_after_the_last_ack(s: State) -> bool:
    """§4.15 P4, P14, P15. At rest, with no ack on its way, every host page is free or in the tree, no anchor is
    protected and nothing is accounted."""
    return (
        not at_rest(s)
        or not no_ack_waits(s)
        or (
            s.occupied == 0
            and all(protected_depth(s, c) == 0 and s.protected[c][0] == 0 for c in CHAINS)
            and all(s.free[r] + resident_pages(s) == HOST_PAGES for r in RANKS)
        )
    )


def step_waits_for_the_verdict_or_the_last_ack(s: State, t: State) -> bool:
    """§5.8 P1, P5. A poll ends an operation only if it is terminated or complete, or its policy gives up waiting; else
    it ends by its last ack."""
    return all(
        not (newly(s, t, op, FETCHED) or emitted(t, ON_REVOKED, op=op, reason=WAS_STOPPED))
        or is_terminated(s, op)
        or policy_gives_up(s, op)
        or (s.phase[op] == ALLOCATED and is_complete(s, op))
        or takes_last_ack(s, t, op)
        for op in OPS
    )


def step_no_page_acknowledged_after_termination(s: State, t: State) -> bool:
    """§5.9 P18. The IO thread begins no page of a terminated operation, and acknowledges none that lands later."""
    return all(
        len(s.buffer[r]) == 0
        or not s.stopped[r][s.buffer[r][0]]
        or (
            not (t.writing[r] and not s.writing[r])
            and all(
                i < len(s.sync_queue[r])
                or t.sync_queue[r][i] in (ack_of(s.buffer[r][0], s.filled[r]), last_ack_of(s.buffer[r][0]))
                for i in range(len(t.sync_queue[r]))
            )
        )
        for r in RANKS
    )


def takes_ack(s: State, t: State, op: int) -> bool:
    """The step takes an ack of this operation."""
    return len(t.ack_queue[0]) < len(s.ack_queue[0]) and OP_OF[s.ack_queue[0][0]] == op


def takes_last_ack(s: State, t: State, op: int) -> bool:
    """The step takes the last ack of this operation."""
    return len(t.ack_queue[0]) < len(s.ack_queue[0]) and s.ack_queue[0][0] == last_ack_of(op)


# ---- properties of the acks


@invariant
def inv_ranks_sync_alike(s: State) -> bool:
    """§8.9 P7. Ranks that meet in the all-reduce of an ack speak of the same operation, and all or none of its last
    ack."""
    return any(len(s.sync_queue[r]) == 0 for r in RANKS) or all(
        OP_OF[s.sync_queue[r][0]] == OP_OF[s.sync_queue[0][0]]
        and (s.sync_queue[r][0] == last_ack_of(OP_OF[s.sync_queue[r][0]]))
        == (s.sync_queue[0][0] == last_ack_of(OP_OF[s.sync_queue[0][0]]))
        for r in RANKS
    )


@invariant
def inv_ranks_acknowledge_alike(s: State) -> bool:
    """§8.9 P7. The schedulers of all ranks get the same acks in the same order."""
    return all(
        all(s.ack_queue[r][i] == s.ack_queue[0][i] for i in range(min(len(s.ack_queue[r]), len(s.ack_queue[0]))))
        for r in RANKS
    )


@step_property
def step_ack_is_everywhere(s: State, t: State) -> bool:
    """§8.9 P6, P12. What a rank acknowledges to its scheduler is the lowest of what the ranks have read."""
    return all(
        len(t.ack_queue[r]) <= len(s.ack_queue[r])
        or t.ack_queue[r][len(s.ack_queue[r])] == min(s.sync_queue[q][0] for q in RANKS)
        for r in RANKS
    )


@step_property
def step_ack_moves_its_own_operation(s: State, t: State) -> bool:
    """§8.9 P11. An ack counts pages for its own operation, and only if that has not ended; it ends no other."""
    return all(
        all(t.counted[r][op] <= s.counted[r][op] or (takes_ack(s, t, op) and not is_ended(s, op)) for r in RANKS)
        and (len(t.ack_queue[0]) >= len(s.ack_queue[0]) or t.phase[op] == s.phase[op] or takes_last_ack(s, t, op))
        for op in OPS
    )


@step_property
def step_tail_goes_with_the_last_ack(s: State, t: State) -> bool:
    """§8.9 P4, P13. The step that takes the last ack of an operation releases all that it still holds, and no other
    step releases an unread page."""
    return all(
        all(
            (t.given[r][op] == t.granted[op])
            if takes_last_ack(s, t, op)
            else (t.given[r][op] <= max(s.given[r][op], s.counted[r][op]))
            for r in RANKS
        )
        for op in OPS
    )


def acks_are_taken(s: State) -> bool:
    """No ack is on its way."""
    return no_ack_waits(s)


@leads_to(acks_are_taken)
def live_acks_are_taken(s: State) -> bool:
    """§8.9 P3. Whatever the IO threads acknowledge comes to the schedulers and is taken."""
    return not no_ack_waits(s)


# ---- outcomes


@sometimes
def sometimes_the_last_ack_publishes(s: State, t: State) -> bool:
    """§8.9 An operation that no poll has ended ends by its last ack."""
    return any(takes_last_ack(s, t, op) and newly(s, t, op, FETCHED) for op in OPS)


@sometimes
def sometimes_an_ack_comes_after_the_end(s: State, t: State) -> bool:
    """§8.9 A page has landed everywhere of an operation that has ended before that was known."""
    return any(takes_ack(s, t, op) and not takes_last_ack(s, t, op) and is_ended(s, op) for op in OPS)


@sometimes
def sometimes_ranks_read_differently(s: State, t: State) -> bool:
    """§8.9 The ranks agree on less than some rank has read."""
    return any(
        len(t.ack_queue[r]) > len(s.ack_queue[r]) and t.ack_queue[r][len(s.ack_queue[r])] < s.sync_queue[r][0]
        for r in RANKS
    )


@sometimes
def sometimes_a_tail_is_released_at_once(s: State, t: State) -> bool:
    """§8.9 The scheduler releases more than one unread page in one step."""
    return any(takes_last_ack(s, t, op) and s.counted[0][op] + 1 < s.granted[op] for op in OPS)


KNOWS_THE_ACKS: Mapping[str, Callable[..., Any]] = {
    "is_travelling": is_travelling_with_acks,
    "at_rest": at_rest_with_acks,
    "inv_ended_operations_hold_nothing": inv_ended_operations_hold_nothing_after_the_last_ack,
    "inv_rest_restores_the_pool": inv_rest_restores_the_pool_after_the_last_ack,
    "step_waits_for_the_verdict": step_waits_for_the_verdict_or_the_last_ack,
    "step_no_page_read_after_termination": step_no_page_acknowledged_after_termination,
}
"""What every design with acks replaces: the words and the properties that speak of who still works on an operation."""
