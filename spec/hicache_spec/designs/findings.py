"""§8 What is wrong with the other designs, as exploration finds it: data for tests, reports and the page.

A *finding* is a property that a design violates, the configuration in which that is seen, and the length of a shortest
run. Some violations only follow from another one of the same design: they go when that one goes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..bounds import AGAIN, PRESSURE, SOLO_CHURN, Bounds
from .alloc_first import ALLOC_FIRST
from .alloc_first_by_rid import ALLOC_FIRST_BY_RID
from .attempts import ATTEMPTS
from .attempts_by_handle import ATTEMPTS_BY_HANDLE
from .decide_at_drain_by_rid import DECIDE_AT_DRAIN_BY_RID
from .progress_ack import PROGRESS_ACK
from .progress_ack_by_rid import PROGRESS_ACK_BY_RID
from .revoke_queue_by_rid import REVOKE_QUEUE_BY_RID

AGAIN_WITH_ROOM = replace(AGAIN, name="again_with_room", host_pages=2, churn=True)
"""A request id used twice, with memory for both attempts and storage that may answer anything.

`again` has one host page. In `alloc_first` the first attempt holds it until its look-up is over, so that the second
finds no memory; and with storage that always has the page, nothing is below the threshold.
"""

LIMITED_AGAIN = Bounds(
    "limited_again",
    attempts=2,
    ranks=1,
    host_pages=1,
    chain_pages=1,
    limit_pages=1,
    resident_pages=(0,),
    stored_pages=(1,),
    churn=True,
    aborts=False,
)
"""Two requests for one page, of which the limiter declines the second, with storage that may answer anything.

Of the configurations before, none has both a limiter and a second attempt.
"""


@dataclass(frozen=True)
class Finding:
    """A property that a design violates, where, in how many steps at least; `because_of` names the cause, if not
    itself."""

    design: str
    property: str
    bounds: Bounds
    steps: int
    because_of: str = ""


_MIXED_UP = "step_drain_decides_its_own_attempt"
_MIXED_UP_ACKS = "step_ack_moves_its_own_operation"
_EARLY = "inv_no_memory_before_verdict"
_EARLY_MEMORY = (
    (_EARLY, SOLO_CHURN, 1, ""),
    ("step_eviction_is_needed", PRESSURE, 1, _EARLY),
    ("inv_ended_operations_hold_nothing", SOLO_CHURN, 2, _EARLY),
)

FINDINGS = (
    Finding(DECIDE_AT_DRAIN_BY_RID.name, _MIXED_UP, AGAIN, 11),
    Finding(DECIDE_AT_DRAIN_BY_RID.name, "inv_life_cycle_is_legal", AGAIN, 11, _MIXED_UP),
    Finding(DECIDE_AT_DRAIN_BY_RID.name, "step_waits_for_the_verdict", AGAIN, 11, _MIXED_UP),
    Finding(REVOKE_QUEUE_BY_RID.name, _MIXED_UP, AGAIN, 11),
    Finding(REVOKE_QUEUE_BY_RID.name, "inv_life_cycle_is_legal", AGAIN, 11, _MIXED_UP),
    Finding(REVOKE_QUEUE_BY_RID.name, "step_waits_for_the_verdict", AGAIN, 11, _MIXED_UP),
    Finding(REVOKE_QUEUE_BY_RID.name, "inv_rest_restores_the_pool", AGAIN, 23, _MIXED_UP),
    Finding(REVOKE_QUEUE_BY_RID.name, "inv_ended_operations_hold_nothing", AGAIN_WITH_ROOM, 23, _MIXED_UP),
    Finding(REVOKE_QUEUE_BY_RID.name, "deadlock", AGAIN_WITH_ROOM, 24, _MIXED_UP),
    *(Finding(ALLOC_FIRST.name, *early) for early in _EARLY_MEMORY),
    *(Finding(ALLOC_FIRST_BY_RID.name, *early) for early in _EARLY_MEMORY),
    Finding(ALLOC_FIRST_BY_RID.name, _MIXED_UP, AGAIN_WITH_ROOM, 11),
    Finding(ALLOC_FIRST_BY_RID.name, "inv_life_cycle_is_legal", AGAIN_WITH_ROOM, 11, _MIXED_UP),
    Finding(ALLOC_FIRST_BY_RID.name, "step_waits_for_the_verdict", AGAIN_WITH_ROOM, 11, _MIXED_UP),
    Finding(ALLOC_FIRST_BY_RID.name, "inv_rest_restores_the_pool", AGAIN_WITH_ROOM, 22, _MIXED_UP),
    Finding(ALLOC_FIRST_BY_RID.name, "deadlock", AGAIN_WITH_ROOM, 23, _MIXED_UP),
    Finding(PROGRESS_ACK_BY_RID.name, _MIXED_UP, AGAIN, 11),
    Finding(PROGRESS_ACK_BY_RID.name, "inv_life_cycle_is_legal", AGAIN, 11, _MIXED_UP),
    Finding(PROGRESS_ACK_BY_RID.name, "step_waits_for_the_verdict", AGAIN, 11, _MIXED_UP),
    Finding(PROGRESS_ACK_BY_RID.name, _MIXED_UP_ACKS, AGAIN, 17),
    Finding(PROGRESS_ACK_BY_RID.name, "step_tail_goes_with_the_last_ack", AGAIN, 19, _MIXED_UP_ACKS),
    Finding(PROGRESS_ACK_BY_RID.name, "inv_ended_operations_hold_nothing", AGAIN, 19, _MIXED_UP_ACKS),
    Finding(PROGRESS_ACK_BY_RID.name, "inv_rest_restores_the_pool", AGAIN, 27, _MIXED_UP_ACKS),
    Finding(PROGRESS_ACK_BY_RID.name, "step_published_landed_everywhere", AGAIN_WITH_ROOM, 27, _MIXED_UP_ACKS),
    Finding(PROGRESS_ACK_BY_RID.name, "inv_no_free_under_a_writer", AGAIN_WITH_ROOM, 28, _MIXED_UP_ACKS),
    Finding(PROGRESS_ACK_BY_RID.name, "inv_no_page_freed_twice", AGAIN_WITH_ROOM, 35, _MIXED_UP_ACKS),
    Finding(PROGRESS_ACK_BY_RID.name, "inv_pages_conserved", AGAIN_WITH_ROOM, 35, _MIXED_UP_ACKS),
    Finding(ATTEMPTS_BY_HANDLE.name, _MIXED_UP, AGAIN, 11),
    Finding(ATTEMPTS_BY_HANDLE.name, "inv_life_cycle_is_legal", AGAIN, 11, _MIXED_UP),
    Finding(ATTEMPTS_BY_HANDLE.name, "step_waits_for_the_verdict", AGAIN, 11, _MIXED_UP),
    Finding(ATTEMPTS_BY_HANDLE.name, "step_budget_pays_for_a_look_up", LIMITED_AGAIN, 3),
)

NEVER_HAPPENS = {
    DECIDE_AT_DRAIN_BY_RID.name: ("live_submitted_operations_end",),
    REVOKE_QUEUE_BY_RID.name: ("live_submitted_operations_end", "live_control_queues_drain"),
    ALLOC_FIRST_BY_RID.name: ("live_submitted_operations_end", "live_control_queues_drain"),
    PROGRESS_ACK_BY_RID.name: ("live_submitted_operations_end",),
    ATTEMPTS_BY_HANDLE.name: ("live_submitted_operations_end",),
}
"""For each design, the liveness properties that it loses by mixing up attempts, as seen in AGAIN_WITH_ROOM."""

_NO_MEMORY_AT_THE_DRAIN = {
    "sometimes_drain_revokes_a_terminated_operation": "there is no hit queue in which it could be met",
    "sometimes_drain_evicts_and_retries": "what has to be evicted is evicted at submission",
    "sometimes_drain_allocates_a_shorter_prefix": "the span itself is shortened, at submission",
    "sometimes_drain_refuses_for_memory": "without memory the submission is declined",
    "sometimes_drain_takes_only_a_part": "there is no hit queue of which it could take a part",
    "sometimes_aborted_before_allocation": "every pending operation has memory",
}

_NO_TAIL_AT_THE_IO_THREAD = {
    "sometimes_tail_released_page_by_page": "the scheduler releases the tail, in one piece, when it takes the last ack",
}

UNREACHED = {
    **dict.fromkeys((ALLOC_FIRST.name, ALLOC_FIRST_BY_RID.name), _NO_MEMORY_AT_THE_DRAIN),
    **dict.fromkeys(
        (PROGRESS_ACK.name, PROGRESS_ACK_BY_RID.name, ATTEMPTS.name, ATTEMPTS_BY_HANDLE.name), _NO_TAIL_AT_THE_IO_THREAD
    ),
}
"""For each design, the outcomes of §6 that it cannot have, and why. A design that is not named has them all."""


def findings_of(design: str) -> Iterator[Finding]:
    """The findings of a design, those that follow from others included."""
    return (f for f in FINDINGS if f.design == design)
