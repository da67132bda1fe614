"""§8.5 The revoke queue, with the lengths of the queues sampled one after the other.

`revoke_queue` lets a drain take any numbers up to what is there (S7), also numbers that no sampling gives. This design
allows what the releases can do and no more, for the questions in which that makes a difference.
"""

from __future__ import annotations

from ..language import State, action, require
from ..pipeline import decide, reclaim, take_answered
from ..state import RANKS
from . import sampling
from .revoke_queue import REVOKE_QUEUE
from .revoking import carry_out_revoke, take_revoke
from .sampling import Sampled, look


@action(fairness="weak")
def sched_drain_what_was_seen(s: State) -> None:
    """§8.5 Every rank takes the revokes that were seen, then every hit and every page that all ranks have by now.

    Ref: sglang 0.5.17 hiradix_cache.py::check_hicache_events, _drain_storage_control_queues_impl
    """
    revokes = s.seen_revokes
    hits = min(len(s.hit_queue[r]) for r in RANKS)
    pages = min(s.releasing[r] for r in RANKS)
    require(revokes + hits + pages > 0, "there is something to take")
    for _ in range(revokes):
        carry_out_revoke(s, take_revoke(s))
    for _ in range(hits):
        decide(s, take_answered(s))
    if pages > 0:
        reclaim(s, pages)
    look(s)


REVOKE_QUEUE_SAMPLED = REVOKE_QUEUE.variant(
    name="revoke_queue_sampled",
    summary="the revoke queue with the lengths of the queues sampled one after the other, the revokes first",
    shape=Sampled,
    modules=(sampling,),
    replaces={
        "sched_drain": sched_drain_what_was_seen,
        "admit": sampling.admit_and_look,
        "terminate": sampling.terminate_and_look,
        "drop_record": sampling.drop_record_and_look,
    },
)
