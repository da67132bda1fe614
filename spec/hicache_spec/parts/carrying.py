"""§12.8 What extra pools and the device tier have to know of each other, as a part that is joined after both."""

from __future__ import annotations

from dataclasses import replace

from ..bounds import WRITE_BACK
from ..language import Part
from . import carrying_outcomes, carrying_properties, carrying_rules
from .copying import COPY_SOLO
from .pool_bounds import sidecar, state

CARRYING = Part(
    name="carrying",
    summary="what belongs to pages is copied, evicted and loaded with them",
    shape=carrying_rules.WithDeviceAndPools,
    modules=(carrying_rules, carrying_properties, carrying_outcomes),
    replaces={
        "is_spare": carrying_rules.is_spare_and_unread,
        "run": carrying_rules.run_and_leave_states,
        "fits_on_host": carrying_rules.fits_on_host_with_sidecars,
        "begin_copy": carrying_rules.begin_copy_with_slots,
        "has_landed_on_host": carrying_rules.has_landed_with_its_slots,
        "take_landed": carrying_rules.take_landed_with_its_slots,
        "finish_copy": carrying_rules.finish_copy_with_states,
        "cut_sidecars": carrying_rules.cut_sidecars_of_host_pages,
        "evict_device": carrying_rules.evict_device_with_its_states,
        "is_usable": carrying_rules.is_usable_with_its_states,
        "begin_load": carrying_rules.begin_load_with_states,
        "finish_load": carrying_rules.finish_load_with_states,
        "inv_slots_conserved": carrying_properties.inv_slots_conserved_with_copies,
        "inv_tree_pages_have_their_sidecars": carrying_properties.inv_host_pages_have_their_sidecars,
        "inv_states_end_a_resident_prefix": carrying_properties.inv_states_end_a_host_prefix,
        "step_eviction_is_needed": carrying_properties.step_eviction_is_needed_in_some_pool_for_copies,
        "step_copy_is_refused_for_want_of_room": (
            carrying_properties.step_copy_is_refused_for_want_of_room_in_some_pool
        ),
        "step_dropped_for_want_of_room": carrying_properties.step_dropped_for_want_of_room_in_some_pool,
        "step_refusal_is_needed": carrying_properties.step_refusal_is_needed_on_the_host,
        "step_state_is_published_with_its_prefix": carrying_properties.step_state_comes_with_its_prefix,
        "step_state_eviction_is_needed": carrying_properties.step_state_eviction_is_needed_for_copies,
    },
)

_TWO_PAGES = replace(COPY_SOLO, chain_pages=2, threshold_pages=3, host_pages=2, device_pages=2, load_quota=2)
_FETCH = replace(_TWO_PAGES, threshold_pages=1, ranks=1, stored_pages=(2,))

CARRY_SIDECAR = replace(COPY_SOLO, name="carry_sidecar", pools=(sidecar(2, ()),))
CARRY_STATE = replace(COPY_SOLO, name="carry_state", pools=(state(2, ()),))
CARRY_BACK = replace(
    _TWO_PAGES, name="carry_back", ranks=1, write_policy=WRITE_BACK, pools=(sidecar(1, ()), state(1, ()))
)
CARRY_PRESSURE = replace(
    _TWO_PAGES,
    name="carry_pressure",
    ranks=1,
    resident_pages=(0, 1),
    stored_pages=(0, 1),
    pools=(sidecar(2, (), (1,)), state(1, (), (1,))),
)
CARRY_FETCH_SIDECAR = replace(_FETCH, name="carry_fetch_sidecar", pools=(sidecar(2, (1, 2)),))
CARRY_FETCH_STATE = replace(_FETCH, name="carry_fetch_state", pools=(state(2, (1,)),))

CARRYING_BOUNDS = (CARRY_SIDECAR, CARRY_STATE, CARRY_BACK, CARRY_PRESSURE, CARRY_FETCH_SIDECAR, CARRY_FETCH_STATE)
