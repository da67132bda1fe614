"""§12.9 What extra pools and storing have to know of each other, as a part that is joined after *carrying*."""

from __future__ import annotations

from dataclasses import replace

from ..language import Part
from . import depositing_properties, depositing_rules
from .pool_bounds import sidecar, state
from .storing import STORE_FETCH, STORE_SOLO

DEPOSITING = Part(
    name="depositing",
    summary="what belongs to pages is stored, and looked up, with them",
    shape=depositing_rules.WithStorageAndPools,
    modules=(depositing_rules, depositing_properties),
    replaces={
        "queue_job": depositing_rules.queue_job_with_states,
        "finish_job": depositing_rules.finish_job_with_states,
        "is_page_next": depositing_rules.is_page_next_before_its_slots,
        "has_nothing_to_put": depositing_rules.has_nothing_to_put_in_any_pool,
        "has_put_page": depositing_rules.has_put_page_before_its_slots,
        "end_job": depositing_rules.end_job_between_pages,
        "can_have": depositing_rules.can_have_what_is_stored,
        "can_lack": depositing_rules.can_lack_what_is_not_stored,
        "inv_states_kept_exactly": depositing_properties.inv_states_kept_exactly_by_loads_and_jobs,
        "step_counted_as_stored_was_taken": depositing_properties.step_counted_as_stored_was_taken_in_every_pool,
    },
)

_ONE_PAGE = replace(STORE_SOLO, chain_pages=1, threshold_pages=2, host_pages=1, device_pages=1)

DEPOSIT_RANKS = replace(_ONE_PAGE, name="deposit_ranks", replicated=True, pools=(sidecar(1, ()), state(1, ())))
DEPOSIT_SHARED = replace(
    _ONE_PAGE, name="deposit_shared", pools=(replace(sidecar(1, ()), replicated=True), state(1, ()))
)
DEPOSIT_SIDECAR = replace(STORE_SOLO, name="deposit_sidecar", ranks=1, pools=(sidecar(2, ()),))
DEPOSIT_STATE = replace(STORE_SOLO, name="deposit_state", ranks=1, pools=(state(1, ()),))
DEPOSIT_SHARDS = replace(DEPOSIT_STATE, name="deposit_shards", ranks=2, replicated=True)
DEPOSIT_FETCH = replace(
    STORE_FETCH, name="deposit_fetch", chain_pages=1, host_pages=1, device_pages=1, load_quota=1, pools=(state(1, ()),)
)
DEPOSIT_FETCH_SIDECAR = replace(
    STORE_FETCH, name="deposit_fetch_sidecar", ranks=1, put_fails=True, pools=(sidecar(2, ()),)
)
DEPOSIT_FORGETS = replace(DEPOSIT_SIDECAR, name="deposit_forgets", forgets=True)

DEPOSITING_BOUNDS = (
    *(DEPOSIT_RANKS, DEPOSIT_SHARED, DEPOSIT_SIDECAR, DEPOSIT_STATE, DEPOSIT_SHARDS),
    *(DEPOSIT_FETCH, DEPOSIT_FETCH_SIDECAR, DEPOSIT_FORGETS),
)
