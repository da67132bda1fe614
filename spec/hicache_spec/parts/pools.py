"""§12 Extra pools: sidecars, a slot beside each page; and states, one slot for the end of a prefix."""

from __future__ import annotations

from ..language import Part
from . import pool_actions, pool_outcomes, pool_properties, pool_scheduler, pool_state, pool_threads

POOLS = Part(
    name="pools",
    summary="with extra pools of host slots: sidecars and states, granted and published together with the pages",
    shape=pool_state.WithPools,
    modules=(pool_state, pool_scheduler, pool_threads, pool_properties, pool_outcomes),
    replaces={
        "agreed_hit": pool_threads.agreed_usable_hit,
        "agreed_pages": pool_scheduler.agreed_pages_of_every_pool,
        "anchor_depth": pool_scheduler.anchor_with_its_states,
        "at_rest": pool_state.at_rest_in_every_pool,
        "evict": pool_scheduler.evict_with_what_belongs_to_it,
        "forget": pool_state.forget_in_every_pool,
        "forget_agreed": pool_threads.forget_agreed_of_every_pool,
        "forget_answer": pool_threads.forget_answer_of_every_pool,
        "forget_read": pool_threads.forget_read_of_every_pool,
        "grant": pool_scheduler.grant_in_every_pool,
        "grantable_pages": pool_scheduler.grantable_in_every_pool,
        "has_given_all": pool_state.has_given_all_of_every_pool,
        "has_landed": pool_threads.has_landed_with_sidecars,
        "io_release_page": pool_actions.io_release_page_and_sidecars,
        "io_start_page": pool_actions.io_start_page_after_sidecars,
        "is_complete": pool_state.is_complete_in_every_pool,
        "is_read": pool_threads.is_read_in_every_pool,
        "make_room": pool_scheduler.make_room_in_every_pool,
        "may_write": pool_scheduler.may_write_with_sidecars,
        "publish": pool_scheduler.publish_in_every_pool,
        "query_ask_storage": pool_actions.query_ask_storage_and_pools,
        "release_landed": pool_scheduler.release_landed_of_every_pool,
        "step_eviction_is_needed": pool_properties.step_eviction_is_needed_in_some_pool,
        "step_hit_is_everywhere": pool_properties.step_hit_is_everywhere_in_every_pool,
        "step_published_landed_everywhere": pool_properties.step_published_landed_in_every_pool,
        "step_refusal_is_needed": pool_properties.step_refusal_is_needed_in_some_pool,
        "step_waits_for_the_verdict": pool_properties.step_waits_for_every_pool,
        "take_agreed": pool_threads.take_agreed_of_every_pool,
        "write_through": pool_scheduler.write_through_with_sidecars,
    },
)
