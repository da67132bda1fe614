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
        _print_plain(console, headers, rows, width, right)


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


def _print_plain(
    console: Console, headers: Sequence[str], rows: Sequence[Sequence[str]], width: int, right: frozenset[int]
) -> None:
    lines = [list(headers), *rows] if headers else list(rows)
    widths = [max((len(line[index]) for line in lines), default=0) for index in range(width)]
    for line in lines:
        cells = [
            cell.rjust(widths[index]) if index in right else cell.ljust(widths[index])
            for index, cell in enumerate(line)
        ]
        console.print(_SEPARATOR.join(cells).rstrip(), markup=False, soft_wrap=True)
