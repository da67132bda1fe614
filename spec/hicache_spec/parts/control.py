"""§13 Life-cycle control as a part: what it brings to a design, what it replaces, and its configurations."""

from __future__ import annotations

from dataclasses import replace

from ..bounds import Bounds
from ..language import Part
from . import control_properties, control_rules

CONTROL = Part(
    name="control",
    summary="storage is detached, attached and reset at any moment",
    shape=control_rules.WithControl,
    modules=(control_rules, control_properties),
    replaces={
        "is_free": control_rules.is_free_and_lives,
        "has_work": control_rules.has_work_and_lives,
        "answers_everywhere": control_rules.answers_in_the_loop,
        "released_everywhere": control_rules.released_in_the_loop,
        "may_write": control_rules.may_write_in_the_loop,
        "why_declined": control_rules.why_declined_if_detached,
        "at_rest": control_rules.at_rest_with_control,
        "inv_pages_conserved": control_properties.inv_pages_conserved_on_each_rank,
        "inv_ranks_decide_alike": control_properties.inv_ranks_decide_alike_in_their_loop,
        "inv_rest_restores_the_pool": control_properties.inv_rest_restores_the_pool_of_all,
        "inv_no_free_under_a_writer": control_properties.inv_no_free_under_a_writer_across_control,
        "step_ended_stays_ended": control_properties.step_ended_stays_ended_until_a_reset,
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
)

CONTROL_SOLO = replace(_ONE_PAGE, name="control_solo", churn=True, control_fails=True)
CONTROL_PAGES = replace(_ONE_PAGE, name="control_pages", chain_pages=2, host_pages=2, stored_pages=(2,), churn=True)
CONTROL_TREE = replace(
    _ONE_PAGE,
    name="control_tree",
    host_pages=2,
    resident_pages=(0, 1),
    stored_pages=(1, 1),
    control_fails=True,
    writes=True,
)
CONTROL_AGAIN = replace(_ONE_PAGE, name="control_again", attempts=2, control_fails=True)
CONTROL_PAIR = replace(_ONE_PAGE, name="control_pair", requests=2, stops=True)
CONTROL_TRIO = replace(_ONE_PAGE, name="control_trio", ranks=3)

BOUNDS = (CONTROL_SOLO, CONTROL_PAGES, CONTROL_TREE, CONTROL_AGAIN, CONTROL_PAIR, CONTROL_TRIO)
