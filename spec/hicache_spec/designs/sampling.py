"""§8.5 How the releases read the lengths of their queues: one after the other, while the threads run on.

A tick reads how many revokes there are, then how many hits, then how many pages; the ranks agree on the three numbers,
and each drains exactly so many. So a tick may count a hit that was answered after a revoke that it does not count.

Only the reading of the revokes is kept in the state. What arrives after the readings of hits and pages may as well
arrive after the drain, so these two are read at the drain. The scheduler does nothing else within a tick, so a reading
is good until the scheduler acts: after each of its actions it reads anew, and then again whenever it likes.
"""

from __future__ import annotations

from ..language import State, action, constant, field, require, upto
from ..pipeline import admit, drop_record, terminate
from ..state import RANKS
from .revoking import WithRevokeQueue

REVOKES_MAX = constant(lambda b: b.requests * b.attempts, "revokes_max")


class Sampled(WithRevokeQueue):
    """§8.5 The state with a revoke queue, and what the scheduler last read of its length."""

    seen_revokes = field(upto(REVOKES_MAX))  # the scheduler: as many revokes will its next drain take


def look(s: State) -> None:
    """The ranks read the length of their revoke queue and agree on the MIN."""
    s.seen_revokes = min(len(s.revoke_queue[r]) for r in RANKS)


@action(fairness="weak")
def sched_look(s: State) -> None:
    """§8.5 A tick begins, or begins anew: the scheduler reads how many revokes there are.

    Why only if the number differs: reading the same number again changes nothing.
    Ref: sglang 0.5.17 hiradix_cache.py::_sync_hicache_ready_counts, drain_storage_control_queues
    """
    require(s.seen_revokes != min(len(s.revoke_queue[r]) for r in RANKS), "there are more than were seen")
    look(s)


# ---- what the scheduler does between two ticks ends with a look


def admit_and_look(s: State, request: int, chain: int, span: int) -> None:
    """A submission is over before the next tick begins."""
    admit(s, request, chain, span)
    look(s)


def terminate_and_look(s: State, op: int) -> None:
    """A stop is over before the next tick begins."""
    terminate(s, op)
    look(s)


def drop_record_and_look(s: State, op: int) -> None:
    """The end of an operation, by a poll or an abort, is over before the next tick begins."""
    drop_record(s, op)
    look(s)
