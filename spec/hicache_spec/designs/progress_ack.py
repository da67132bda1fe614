"""§8.9 sglang 0.5.19, but for attempts: the scheduler learns by acks what was read, and frees the tail by the last one.

The release knows an operation by its request id alone (§8.10). Here it is known by its attempt, as in the canonical
design, so that the difference is the acks and nothing else.
"""

from __future__ import annotations

from ..bounds import BEST_EFFORT, TIMEOUT
from ..events import ON_IO_FAILED, ON_IO_LANDED, ON_IO_UNCOUNTED
from ..language import State, action, emit, require
from ..pipeline import has_work
from ..state import CHURN, POLICY_NOW, RANKS, TIMEOUT_TICKS, is_terminated
from . import acknowledging
from .acknowledging import KNOWS_THE_ACKS, WithAcks, ack_of, leave_with_the_last_ack, pass_over_the_rest
from .decide_at_drain import DECIDE_AT_DRAIN


@action(fairness="weak", rank=RANKS)
def io_land_page_and_acknowledge(s: State, rank: int) -> None:
    """§8.9 The bytes are in place; the page is acknowledged unless the operation was terminated meanwhile.

    Ref: sglang 0.5.19 cache_controller.py::_page_transfer
    """
    require(s.writing[rank], "a page is being read")
    op = s.buffer[rank][0]
    s.writing[rank] = False
    if s.stopped[rank][op]:
        emit(s, ON_IO_UNCOUNTED, rank, op, s.filled[rank])
        pass_over_the_rest(s, rank, op)
    else:
        emit(s, ON_IO_LANDED, rank, op, s.filled[rank])
        s.filled[rank] += 1
        s.sync_queue[rank].append(ack_of(op, s.filled[rank]))
        if s.filled[rank] == s.granted[op]:
            leave_with_the_last_ack(s, rank, op)


@action(rank=RANKS)
def io_fail_page_and_pass_over(s: State, rank: int) -> None:
    """§8.9 A page cannot be read on this rank. It reads no further, and only its acks tell: no flag is set.

    Ref: sglang 0.5.19 cache_controller.py::_page_transfer
    """
    require(CHURN, "storage churns")
    require(s.writing[rank], "a page is being read")
    op = s.buffer[rank][0]
    s.writing[rank] = False
    emit(s, ON_IO_FAILED, rank, op, s.filled[rank])
    pass_over_the_rest(s, rank, op)


@action(fairness="weak", rank=RANKS)
def io_pass_over_a_terminated_operation(s: State, rank: int) -> None:
    """§8.9 The IO thread passes over the unread pages of a terminated operation. It gives nothing back.

    Ref: sglang 0.5.19 cache_controller.py::_page_transfer, prefetch_io_aux_func
    """
    require(has_work(s, rank), "an operation is in work")
    require(not s.writing[rank], "no page is being read")
    require(s.stopped[rank][s.buffer[rank][0]], "the operation is terminated")
    pass_over_the_rest(s, rank, s.buffer[rank][0])


def may_end_before_the_last_ack(s: State, op: int) -> bool:
    """§8.9 Terminated by a scheduler, or the policy gives up; what is complete ends by its last ack.

    Ref: sglang 0.5.19 unified_radix_cache.py::_can_terminate_prefetch
    """
    if is_terminated(s, op) or POLICY_NOW == BEST_EFFORT:
        return True
    return POLICY_NOW == TIMEOUT and s.waited[op] >= TIMEOUT_TICKS


PROGRESS_ACK = DECIDE_AT_DRAIN.variant(
    name="progress_ack",
    summary="the scheduler learns by acks that all ranks agree on what was read, and releases the tail by the last one",
    shape=WithAcks,
    modules=(acknowledging,),
    replaces={
        "io_land_page": io_land_page_and_acknowledge,
        "io_fail_page": io_fail_page_and_pass_over,
        "io_release_page": io_pass_over_a_terminated_operation,
        "may_end": may_end_before_the_last_ack,
        **KNOWS_THE_ACKS,
    },
)
