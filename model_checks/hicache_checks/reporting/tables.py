"""Tables for people: coloured on a terminal, plain aligned text elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hicache_checks.reporting.verdict import Verdict

_STYLES = {Verdict.PASS: "green", Verdict.FAIL: "bold red", Verdict.ERROR: "bold red", Verdict.UNKNOWN: "yellow"}
_SEPARATOR = "  "


@dataclass(frozen=True)
class VerifyRow:
    """One line of the summary: what was checked, in which bounds, how much of it, how long, and what came out."""

    what: str
    bounds: str
    amount: str
    seconds: float | None
    says: str
    verdict: Verdict | None = None


def counted(n: int, noun: str) -> str:
    """A number of things in words, such as `1 step` or `2 steps`."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def print_rows(
    console: Console,
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: frozenset[int] = frozenset(),
    title: str | None = None,
    styles: Sequence[str | None] | None = None,
) -> None:
    """Print rows of equal length under `headers` (no header line when it is empty).

    `right` holds the indices of the columns that are aligned to the right; `styles` colours the last cell of each row
    on a terminal. Raises ValueError when a row's length differs from the headers' or from the first row's.
    """
    width = len(headers) or (len(rows[0]) if rows else 0)
    for row in rows:
        if len(row) != width:
            raise ValueError(f"a row of {len(row)} cells in a table of {width} columns: {row!r}")
    if title is not None:
        console.print(title, markup=False)
    if console.is_terminal:
        _print_rich(console, headers, rows, width, right, styles)
    else:
        for line in aligned(headers, rows, right):
            console.print(line, markup=False, soft_wrap=True)


def aligned(headers: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[int] = frozenset()) -> list[str]:
    """Rows of equal length as lines of plain text, in columns; without a header line when `headers` is empty."""
    lines = [headers, *rows] if headers else rows
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        _SEPARATOR.join(
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]


def print_verify_summary(console: Console, rows: Sequence[VerifyRow]) -> None:
    """Print the summary of `hicheck verify`, one row a part; a part that was not run has no seconds."""
    cells = [
        [row.what, row.bounds, row.amount, "" if row.seconds is None else f"{row.seconds:.1f} s", row.says]
        for row in rows
    ]
    styles = [None if row.verdict is None else _STYLES[row.verdict] for row in rows]
    print_rows(console, [], cells, right=frozenset({2, 3}), styles=styles)


def _print_rich(
    console: Console,
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    right: frozenset[int],
    styles: Sequence[str | None] | None,
) -> None:
    table = Table(box=None, show_header=bool(headers), pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for index in range(width):
        table.add_column(
            headers[index] if headers else "",
            justify="right" if index in right else "left",
            no_wrap=index in right,
            overflow="fold",
        )
    for number, row in enumerate(rows):
        style = (styles[number] if styles else None) or ""
        table.add_row(*(Text(cell, style=style if index == width - 1 else "") for index, cell in enumerate(row)))
    # Rich wraps cells to the terminal; without `soft_wrap=False` the console's own setting would cut them.
    console.print(table, soft_wrap=False)
