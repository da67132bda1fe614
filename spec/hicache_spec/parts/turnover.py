"""§12.7 What extra pools and control have to know of each other, as a part that is joined after both."""

from __future__ import annotations

from dataclasses import replace

from ..bounds import Bounds
from ..language import Part
from . import turnover_rules
from .pool_bounds import sidecar, state

TURNOVER = Part(
    name="turnover",
    summary="a detach and a reset leave nothing in any pool",
    shape=turnover_rules.WithPoolsAndControl,
    modules=(turnover_rules,),
    replaces={
        "forget_everything": turnover_rules.forget_everything_in_every_pool,
        "free_every_page": turnover_rules.free_every_page_and_slot,
        "inv_no_slot_freed_under_a_writer": turnover_rules.inv_no_slot_freed_under_a_writer_across_control,
        "inv_ranks_have_pools_alike": turnover_rules.inv_ranks_have_pools_alike_in_their_loop,
        "inv_rest_restores_every_pool": turnover_rules.inv_rest_restores_every_pool_of_all,
        "inv_slots_conserved": turnover_rules.inv_slots_conserved_on_each_rank,
        "slots_everywhere": turnover_rules.slots_in_the_loop,
        "step_state_eviction_is_needed": turnover_rules.step_state_eviction_is_needed_until_a_reset,
        "take_leftovers": turnover_rules.take_leftovers_of_every_pool,
    },
)

_ONE_PAGE = Bounds(
    requests=1,
    chain_pages=1,
    host_pages=1,
    resident_pages=(0,),
    stored_pages=(1,),
    aborts=False,
    detaches=True,
    resets=True,
    churn=True,
)

TURNOVER_SIDECAR = replace(_ONE_PAGE, name="turnover_sidecar", pools=(sidecar(1, (1,)),))
TURNOVER_STATE = replace(_ONE_PAGE, name="turnover_state", pools=(state(1, (1,)),))
TURNOVER_MIXED = replace(_ONE_PAGE, name="turnover_mixed", pools=(sidecar(1, (1,)), state(1, (1,))), churn=False)

BOUNDS = (TURNOVER_SIDECAR, TURNOVER_STATE, TURNOVER_MIXED)
