"""SPEC.md §10 to §14 against the registries of the parts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import group_tables
import part_tables
import spec_tables
from hicache_spec.parts import PART_BOUNDS
from hicache_spec.parts.groups_design import GROUPS
from part_tables import CONTROL_CELLS, POOL_CELLS, TIER_CELLS, TIER_POOL_CELLS, Cells
from spec_tables import NOTHING, Table
from test_parts import SIZES
from test_spec_page import assert_stands, order_of

COPYING = "decide_at_drain+copying"
STORING = "decide_at_drain+copying+storing"
CONTROL = "decide_at_drain+control"
RESETTING = "decide_at_drain+copying+control+resetting"
DETACHING = "decide_at_drain+copying+storing+control+resetting+detaching"
POOLS = "decide_at_drain+pools"
TURNOVER = "decide_at_drain+control+pools+turnover"
CARRYING = "decide_at_drain+copying+pools+carrying"
DEPOSITING = "decide_at_drain+copying+storing+pools+carrying+depositing"
OF_GROUPS = ("action", "section", "for each", "what", "fairness")


def configurations(name: str, cells: Cells) -> Table:
    return part_tables.configurations(PART_BOUNDS[name], SIZES[name], cells)


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ("10.1", lambda: part_tables.variables(COPYING)),
        ("10.2", lambda: part_tables.actions(COPYING, with_sections=True)),
        ("10.7", lambda: part_tables.properties(COPYING, "invariant", "step", "live")),
        ("10.8", lambda: part_tables.outcomes(COPYING)),
        ("10.8", lambda: configurations("copying", TIER_CELLS)),
        ("10.11", lambda: part_tables.properties(RESETTING, "invariant", "step", "live")),
        ("10.11", lambda: part_tables.outcomes(RESETTING)),
        ("11.1", lambda: part_tables.variables(STORING)),
        ("11.2", lambda: part_tables.actions(STORING, with_sections=True)),
        ("11.6", lambda: part_tables.properties(STORING, "invariant", "step", "live")),
        ("11.7", lambda: part_tables.outcomes(STORING)),
        ("11.7", lambda: configurations("copying+storing", TIER_CELLS)),
        ("11.10", lambda: part_tables.variables(DETACHING)),
        ("11.10", lambda: part_tables.actions(DETACHING)),
        ("11.10", lambda: configurations("copying+storing+control+resetting+detaching", TIER_CELLS)),
        ("11.10", lambda: part_tables.replaced("detaching")),
        ("11.10", lambda: part_tables.properties(DETACHING, "invariant", "step", "live")),
        ("11.10", lambda: part_tables.outcomes(DETACHING)),
        ("12", lambda: configurations("pools", POOL_CELLS)),
        ("12.1", lambda: part_tables.variables(POOLS)),
        ("12.1", lambda: part_tables.replaced("pools")),
        ("12.2", lambda: part_tables.actions(POOLS)),
        ("12.2", lambda: part_tables.events(POOLS)),
        ("12.3", lambda: part_tables.properties(POOLS, "invariant")),
        ("12.4", lambda: part_tables.properties(POOLS, "step")),
        ("12.5", lambda: part_tables.outcomes(POOLS)),
        ("12.6", lambda: part_tables.properties(POOLS, "live")),
        ("12.7", lambda: configurations("control+pools+turnover", POOL_CELLS)),
        ("12.7", lambda: part_tables.replaced("turnover")),
        ("12.7", lambda: part_tables.outcomes(TURNOVER)),
        ("12.7", lambda: part_tables.properties(TURNOVER, "invariant", "step")),
        ("12.8", lambda: part_tables.variables(CARRYING)),
        ("12.8", lambda: part_tables.actions(CARRYING)),
        ("12.8", lambda: configurations("copying+pools+carrying", TIER_POOL_CELLS)),
        ("12.8", lambda: part_tables.replaced("carrying")),
        ("12.8", lambda: part_tables.properties(CARRYING, "invariant", "step", "live")),
        ("12.8", lambda: part_tables.outcomes(CARRYING)),
        ("12.9", lambda: part_tables.variables(DEPOSITING)),
        ("12.9", lambda: part_tables.actions(DEPOSITING)),
        ("12.9", lambda: configurations("copying+storing+pools+carrying+depositing", TIER_POOL_CELLS)),
        ("12.9", lambda: part_tables.replaced("depositing")),
        ("12.9", lambda: part_tables.properties(DEPOSITING, "invariant", "step", "live")),
        ("12.9", lambda: part_tables.outcomes(DEPOSITING)),
        ("13", lambda: configurations("control", CONTROL_CELLS)),
        ("13.1", lambda: part_tables.variables(CONTROL)),
        ("13.1", lambda: part_tables.replaced("control")),
        ("13.2", lambda: part_tables.actions(CONTROL)),
        ("13.2", lambda: part_tables.events(CONTROL)),
        ("13.3", lambda: part_tables.properties(CONTROL, "invariant")),
        ("13.4", lambda: part_tables.properties(CONTROL, "step")),
        ("13.5", lambda: part_tables.outcomes(CONTROL)),
        ("13.6", lambda: part_tables.properties(CONTROL, "live")),
        ("14.1", group_tables.calls),
        ("14.1", lambda: group_tables.configurations(SIZES["groups"])),
        ("14.2", group_tables.variables),
        ("14.3", lambda: spec_tables.actions(spec_tables.rules("action", GROUPS)).select(OF_GROUPS)),
        ("14.8", lambda: part_tables.properties("groups", "invariant")),
        ("14.9", lambda: part_tables.properties("groups", "step")),
        ("14.10", lambda: spec_tables.outcomes(spec_tables.rules("sometimes", GROUPS))),
        ("14.11", lambda: part_tables.properties("groups", "live")),
        ("14.12", group_tables.faults),
    ],
    ids=lambda value: f"section {value}" if isinstance(value, str) else "",
)
def test_a_table_says_what_the_code_says(section: str, expected: Callable[[], Table]) -> None:
    table = expected()
    assert table.rows, "nothing was compared"
    assert_stands(section, table)


@pytest.mark.parametrize("design", [COPYING, STORING, DETACHING, CONTROL, POOLS, CARRYING, DEPOSITING])
def test_a_variable_of_a_part_has_a_writer(design: str) -> None:
    assert all(row[-1] != NOTHING for row in part_tables.variables(design).rows)


def test_a_variable_of_groups_has_a_writer() -> None:
    rows = group_tables.variables().rows
    assert [row[0] for row in rows] == [f"`{name}`" for name in GROUPS.fields()]
    assert all(row[-1] != NOTHING for row in rows)


def test_sections_of_groups_are_unique_and_increase() -> None:
    first = {"action": 3, "invariant": 8, "step": 9, "sometimes": 10, "live": 11}
    for kind, chapter in first.items():
        sections = [r.section for r in spec_tables.rules(kind, GROUPS)]
        assert sections == sorted(set(sections), key=order_of)
        assert int(sections[0].split(".")[1]) == chapter
