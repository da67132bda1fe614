"""§11.10 What storing and control have to know of each other, as a part that is joined after both and *resetting*."""

from __future__ import annotations

from dataclasses import replace

from ..language import Part
from . import detaching_rules
from .resetting import RESET_SOLO

DETACHING = Part(
    name="detaching",
    summary="a detach and a reset cut off what is being stored, and account for it",
    shape=detaching_rules.WithStorageAndControl,
    modules=(detaching_rules,),
    replaces={
        "has_job": detaching_rules.has_job_and_lives,
        "has_ended": detaching_rules.has_ended_with_its_backups,
        "start_thread": detaching_rules.start_thread_and_its_backups,
        "is_acknowledged_everywhere": detaching_rules.is_acknowledged_in_the_loop,
        "queue_due": detaching_rules.queue_due_if_attached,
        "take_leftovers": detaching_rules.take_leftovers_and_acks,
        "inv_jobs_are_everywhere": detaching_rules.inv_jobs_are_everywhere_until_let_go,
        "step_acknowledged_everywhere": detaching_rules.step_acknowledged_everywhere_or_let_go,
        "step_one_event_for_each_job": detaching_rules.step_one_event_for_each_job_or_cut_off,
        "step_due_is_queued": detaching_rules.step_due_is_queued_if_attached,
    },
)

DETACH_SOLO = replace(RESET_SOLO, name="detach_solo", stored_pages=(0,), control_fails=True, put_fails=True)
DETACH_PAGES = replace(
    RESET_SOLO,
    name="detach_pages",
    chain_pages=2,
    threshold_pages=3,
    host_pages=2,
    device_pages=2,
    stored_pages=(0,),
)
DETACH_RANKS = replace(RESET_SOLO, name="detach_ranks", ranks=2, threshold_pages=2, stored_pages=(0,))
DETACH_REPLICATED = replace(DETACH_RANKS, name="detach_replicated", replicated=True)

DETACHING_BOUNDS = (DETACH_SOLO, DETACH_PAGES, DETACH_RANKS, DETACH_REPLICATED)
