"""§8.10 Acks as sglang 0.5.19 shipped them: an operation is known by its request id alone.

The last ack of an earlier attempt ends the next one, with the length of the earlier one: nobody has read these pages.
"""

from __future__ import annotations

from ..language import State, constant, field, upto
from ..state import OPS, RANKS
from .acknowledging import WithAcks
from .decide_at_drain_by_rid import find_record_by_request_id
from .progress_ack import PROGRESS_ACK

TWICE = constant(lambda b: 2 * b.chain_pages, "twice")


class FreedTwice(WithAcks):
    """§8.10 The state, with room for an operation that gives back each of its pages twice."""

    given = field(upto(TWICE), RANKS, OPS)


def pages_acknowledged_of_another(s: State, found: int, op: int) -> int:
    """As many as were counted for the attempt whose ack it is, of the pages that the found one has.

    Without any, the release slices what is not there and its scheduler dies; here the operation ends all the same.
    Ref: sglang 0.5.19 unified_radix_cache.py::_handle_prefetch_result
    """
    return min(s.counted[0][op], s.granted[found])


def part_with_what_is_published(s: State, op: int, pages: int) -> None:
    """So many pages are published, whatever was counted for this operation itself."""
    for r in RANKS:
        s.given[r][op] += pages


PROGRESS_ACK_BY_RID = PROGRESS_ACK.variant(
    name="progress_ack_by_rid",
    summary="acks with operations known by request id alone, as sglang 0.5.19 shipped them",
    shape=FreedTwice,
    replaces={
        "find_record": find_record_by_request_id,
        "acknowledged_pages": pages_acknowledged_of_another,
        "part_with": part_with_what_is_published,
    },
    violates=("step_drain_decides_its_own_attempt", "step_ack_moves_its_own_operation"),
)
