"""§10.11 The part *resetting*: a reset (§13) where there is a device tier. It needs *copying* and *control* beneath."""

from __future__ import annotations

from dataclasses import replace

from ..language import Part
from . import resetting_rules
from .control_rules import WithControl
from .copying import COPY_FETCH
from .copying_state import WithDevice


class WithDeviceAndControl(WithControl, WithDevice):
    """§10.11 The state with a device tier and life-cycle control; nothing is added."""


RESETTING = Part(
    name="resetting",
    summary="a reset waits for the copies under way, and empties the device too",
    shape=WithDeviceAndControl,
    modules=(resetting_rules,),
    replaces={
        "is_serving": resetting_rules.is_serving_between_calls,
        "sched_begin_again": resetting_rules.sched_begin_again_after_the_copies,
        "forget_everything": resetting_rules.forget_both_tiers,
        "inv_pages_conserved": resetting_rules.inv_pages_conserved_with_copies_on_each_rank,
        "step_eviction_is_needed": resetting_rules.step_eviction_is_needed_but_for_a_reset,
    },
)

RESET_SOLO = replace(
    COPY_FETCH,
    name="reset_solo",
    chain_pages=1,
    host_pages=1,
    resident_pages=(0,),
    stored_pages=(1,),
    device_pages=1,
    load_quota=1,
    aborts=False,
    detaches=True,
    resets=True,
)
RESET_RANKS = replace(RESET_SOLO, name="reset_ranks", ranks=2, threshold_pages=2)
RESET_PAGES = replace(RESET_SOLO, name="reset_pages", chain_pages=2, host_pages=2, device_pages=2, stored_pages=(2,))

RESETTING_BOUNDS = (RESET_SOLO, RESET_RANKS, RESET_PAGES)
