"""A result in parts, each a table with lines below it: printed for people, or made into a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hicache_checks.reporting.screen import Screen
from hicache_checks.reporting.story import printable
from hicache_checks.reporting.tables import print_rows


@dataclass(frozen=True)
class Section:
    """Rows of equal length under headers; `right` holds the indices of the columns that are aligned to the right.

    `below`: what is said after the table, line by line. Without rows there is no table.
    """

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: frozenset[int] = frozenset()
    below: Sequence[str] = ()


def print_sections(screen: Screen, sections: Sequence[Section]) -> None:
    """Print them, with an empty line after each."""
    for section in sections:
        screen.say(section.title)
        if section.rows:
            rows = [[printable(cell) for cell in row] for row in section.rows]
            print_rows(screen.console, section.headers, rows, right=section.right)
        for line in section.below:
            screen.say(printable(line))
        screen.say("")
