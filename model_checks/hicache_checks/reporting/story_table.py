"""A story as a table for people."""

from __future__ import annotations

from itertools import zip_longest

from hicache_checks.reporting.screen import Screen
from hicache_checks.reporting.story import FINDING, Row, Story, printable
from hicache_checks.reporting.tables import aligned

HEADERS = ("step", "rank", "thread", "what happened", "what changed")
INDENT = "  "


def print_story(screen: Screen, story: Story) -> None:
    """Print the lines of a story."""
    for line in story_lines(story):
        screen.say(line)


def story_lines(story: Story) -> list[str]:
    """The system, a table with one step a row, and below it what is wrong and what would have been right."""
    steps = [(n, row) for n, row in enumerate(story.rows, 1) if row.kind != FINDING]
    table = aligned(HEADERS, [cells for n, row in steps for cells in _cells(n, row)], frozenset({0}))
    below = [("finding", ": ".join(row.what)) for row in story.rows if row.kind == FINDING]
    below += [("about", f"step {n}") for n in story.about]
    below += [("allowed", line) for line in story.allowed]
    lines = [story.system, *table, *(aligned((), below) if below else [])]
    return [INDENT + printable(line) for line in lines]


def _cells(number: int, row: Row) -> list[tuple[str, str, str, str, str]]:
    """The lines of a row: one event and one change in each."""
    first = (str(number), row.rank, row.thread)
    return [
        (*(first if line == 0 else ("", "", "")), what, change)
        for line, (what, change) in enumerate(zip_longest(row.what, row.changes, fillvalue=""))
    ]
