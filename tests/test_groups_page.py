"""SPEC.md §14 against the registries of groups."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import group_tables
from hicache_spec.language import Field
from hicache_spec.parts import groups
from hicache_spec.parts.groups_design import GROUPS_BOUNDS
from spec_tables import NOTHING, Table
from test_groups import COUNTS
from test_spec_page import assert_stands, order_of


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ("14.1", group_tables.calls),
        ("14.1", lambda: group_tables.configurations(COUNTS)),
        ("14.2", group_tables.variables),
        ("14.3", group_tables.actions),
        ("14.8", lambda: group_tables.properties("invariant")),
        ("14.9", lambda: group_tables.properties("step")),
        ("14.10", group_tables.outcomes),
        ("14.11", lambda: group_tables.properties("live")),
        ("14.12", group_tables.faults),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_table_says_what_the_code_says(section: str, expected: Callable[[], Table]) -> None:
    table = expected()
    assert table.rows, "nothing was compared"
    assert_stands(section, table)


def test_the_tables_leave_nothing_out() -> None:
    fields = [name for name, value in vars(groups.Ranks).items() if isinstance(value, Field)]
    assert [row[0] for row in group_tables.variables().rows] == [f"`{name}`" for name in fields]
    assert all(row[-1] != NOTHING for row in group_tables.variables().rows), "a variable that no action writes"
    assert [g.name for g in GROUPS_BOUNDS] == list(COUNTS)


def test_sections_of_rules_are_unique_and_increase() -> None:
    first = {"action": 3, "invariant": 8, "step": 9, "sometimes": 10, "live": 11}
    for kind, chapter in first.items():
        sections = [r.section for r in group_tables.rules(kind)]
        assert sections == sorted(set(sections), key=order_of)
        assert int(sections[0].split(".")[1]) == chapter
