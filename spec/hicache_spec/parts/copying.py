"""§10 The part *copying*: a device tier, copies to the host by three write policies, and loads back from there."""

from __future__ import annotations

from dataclasses import replace

from ..bounds import WRITE_BACK, WRITE_THROUGH_SELECTIVE, Bounds
from ..language import Part
from . import copying_outcomes, copying_properties, copying_rules, copying_state
from .copying_state import WithDevice

COPYING = Part(
    name="copying",
    summary="a device tier whose pages are copied to the host and loaded back",
    shape=WithDevice,
    modules=(copying_state, copying_rules, copying_properties, copying_outcomes),
    replaces={
        "at_rest": copying_state.at_rest_with_copies,
        "protect": copying_state.protect_and_refresh,
        "unprotect": copying_state.unprotect_and_refresh,
        "evictable_pages": copying_state.evictable_host_pages,
        "evict": copying_state.evict_from_host,
        "sched_write_through": copying_rules.sched_write_through_on_device,
        "submit": copying_rules.submit_below_the_host,
        "known_pages": copying_rules.known_on_host,
        "attach": copying_rules.attach_below_the_anchor,
        "inv_pages_conserved": copying_properties.inv_pages_conserved_with_copies,
        "inv_anchors_alive": copying_properties.inv_anchors_alive_on_host,
        "inv_rest_restores_the_pool": copying_properties.inv_rest_restores_both_pools,
        "step_eviction_is_needed": copying_properties.step_eviction_is_needed_for_copies,
    },
)

COPY_SOLO = Bounds(
    "copy_solo",
    requests=1,
    ranks=2,
    host_pages=3,
    chain_pages=3,
    threshold_pages=4,
    resident_pages=(0,),
    stored_pages=(0,),
    aborts=False,
    device_pages=3,
    load_quota=1,
)
"""One chain on two ranks, written through. The threshold is above the chain, so nothing is fetched."""

COPY_PRESSURE = replace(
    COPY_SOLO, name="copy_pressure", chain_pages=2, threshold_pages=3, resident_pages=(0, 1), stored_pages=(0, 0)
)
"""Two chains, and fewer host pages than their four."""

COPY_TIGHT = replace(COPY_PRESSURE, name="copy_tight", ranks=1, host_pages=2)
"""Fewer host pages than the device has: what the device holds cannot all be written."""

COPY_SELECTIVE = replace(COPY_TIGHT, name="copy_selective", write_policy=WRITE_THROUGH_SELECTIVE)
COPY_BACK = replace(COPY_TIGHT, name="copy_back", write_policy=WRITE_BACK, ranks=2)
COPY_BACK_LONG = replace(COPY_SOLO, name="copy_back_long", write_policy=WRITE_BACK, host_pages=2, load_quota=2)

COPY_FETCH = Bounds(
    "copy_fetch",
    requests=1,
    ranks=1,
    host_pages=3,
    chain_pages=2,
    resident_pages=(0, 1),
    stored_pages=(2, 2),
    device_pages=2,
    load_quota=2,
)
"""With prefetch: two chains, of which one begins on the host."""

COPY_FETCH_CHURN = replace(
    COPY_FETCH, name="copy_fetch_churn", ranks=2, host_pages=2, resident_pages=(0,), stored_pages=(2,), churn=True
)
COPY_FETCH_BACK = replace(
    COPY_FETCH,
    name="copy_fetch_back",
    chain_pages=3,
    resident_pages=(1,),
    stored_pages=(3,),
    device_pages=3,
    write_policy=WRITE_BACK,
)

COPY_FETCH_RANKS = replace(COPY_FETCH, name="copy_fetch_ranks", ranks=2, stops=True)
COPY_FETCH_PAIR = replace(
    COPY_FETCH, name="copy_fetch_pair", requests=2, host_pages=2, resident_pages=(0,), stored_pages=(2,)
)

COPYING_BOUNDS = (
    *(COPY_SOLO, COPY_PRESSURE, COPY_TIGHT, COPY_SELECTIVE, COPY_BACK, COPY_BACK_LONG),
    *(COPY_FETCH, COPY_FETCH_CHURN, COPY_FETCH_BACK, COPY_FETCH_RANKS, COPY_FETCH_PAIR),
)
