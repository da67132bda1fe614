"""§8.3 The revoke queue: a second way from the query thread to the scheduler, its words and its properties.

For designs in which the query thread itself compares the agreed hit with the threshold. An operation that is not worth
fetching then comes to the scheduler by this queue, and the scheduler ends it without looking at the hit again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..events import ON_ALLOCATED, ON_REVOKED, ON_SKIPPED
from ..language import NONE, State, emit, emitted, field, fifo, invariant, leads_to
from ..pipeline import find_record, forget_agreed, revoke
from ..properties import is_taken, takes_answers
from ..state import BELOW_THRESHOLD, OPS, RANKS, WAS_STOPPED, Pipeline, at_rest, is_travelling, retire


class WithRevokeQueue(Pipeline):
    """§8.3 The state of the pipeline, and one queue more on every rank."""

    revoke_queue = field(fifo(OPS), RANKS)  # query thread -> scheduler: operations that are not worth fetching


# ---- what the scheduler does with it


def take_revoke(s: State) -> int:
    """The next operation to revoke, taken from the queue of every rank."""
    op = s.revoke_queue[0][0]
    for r in RANKS:
        s.revoke_queue[r].pop(0)
    return op


def carry_out_revoke(s: State, op: int) -> None:
    """§8.3 An operation from the revoke queue: it ends here, unless it has ended already.

    Ref: sglang 0.5.17 hiradix_cache.py::_revoke_pending_prefetch
    """
    found = find_record(s, op)
    if found == NONE:
        emit(s, ON_SKIPPED, op)
    else:
        revoke(s, found, WAS_STOPPED if s.stopped[0][op] else BELOW_THRESHOLD)
    for r in RANKS:
        forget_agreed(s, r, op)
    retire(s, op)


# ---- words of the state that have to know of it


def is_travelling_with_revokes(s: State, op: int) -> bool:
    """Some thread still has the operation in a queue, or the revoke queue holds it."""
    return is_travelling(s, op) or any(op in s.revoke_queue[r] for r in RANKS)


def at_rest_with_revokes(s: State) -> bool:
    """§3.0 No operation is pending and every queue is empty, the revoke queue too."""
    return at_rest(s) and all(len(s.revoke_queue[r]) == 0 for r in RANKS)


# ---- properties


def step_drain_decides_its_own_attempt_by_either_queue(s: State, t: State) -> bool:
    """§5.1 P11. A drain revokes or allocates an operation only by that operation's own answer, from either queue."""
    return not (takes_answers(s, t) or takes_revokes(s, t)) or all(
        not (emitted(t, ON_REVOKED, op=op) or emitted(t, ON_ALLOCATED, op=op))
        or is_taken(s, t, op)
        or is_taken_to_revoke(s, t, op)
        for op in OPS
    )


def takes_revokes(s: State, t: State) -> bool:
    """The step is a drain that takes operations from the revoke queue."""
    return len(t.revoke_queue[0]) < len(s.revoke_queue[0])


def is_taken_to_revoke(s: State, t: State, op: int) -> bool:
    """The step takes this operation from the revoke queue."""
    return op in s.revoke_queue[0] and op not in t.revoke_queue[0]


@invariant
def inv_ranks_revoke_alike(s: State) -> bool:
    """§8.3 P7. The revoke queues of all ranks hold the same operations in the same order, as far as they go."""
    return all(
        all(
            s.revoke_queue[r][i] == s.revoke_queue[0][i]
            for i in range(min(len(s.revoke_queue[r]), len(s.revoke_queue[0])))
        )
        for r in RANKS
    )


def revoke_queues_are_empty(s: State) -> bool:
    """No revoke waits for the scheduler."""
    return all(len(s.revoke_queue[r]) == 0 for r in RANKS)


@leads_to(revoke_queues_are_empty)
def live_revokes_are_carried_out(s: State) -> bool:
    """§8.3 P3. Whatever the query thread puts on the revoke queue is taken."""
    return any(len(s.revoke_queue[r]) > 0 for r in RANKS)


KNOWS_THE_REVOKE_QUEUE: Mapping[str, Callable[..., Any]] = {
    "is_travelling": is_travelling_with_revokes,
    "at_rest": at_rest_with_revokes,
    "step_drain_decides_its_own_attempt": step_drain_decides_its_own_attempt_by_either_queue,
}
"""What every design with a revoke queue replaces: the words and the property that speak of all queues."""
