"""§8.1 The canonical design: the scheduler revokes or allocates while it drains answered operations in queue order."""

from __future__ import annotations

from .. import outcomes, pipeline, properties, state, tree
from ..language import Design

DECIDE_AT_DRAIN = Design(
    name="decide_at_drain",
    summary="the scheduler decides at the drain; an operation is known by request id and attempt",
    shape=state.Pipeline,
    modules=(state, tree, pipeline, properties, outcomes),
    replaces={},
)
