"""What the example says: a row for each tree, store and number of ranks, what is wrong, and a last line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from decoding.engine import COMPUTED, L1, L2, L3
from decoding.session import Row
from hicache_impl.metrics import DEVICE, HOST

HEADINGS = ("tree", "store", "ranks", "requests", "tokens", L1, L2, L3, COMPUTED, "aborted", "dropped L1", "dropped L2")
SHOWN_MAX = 6


def table(rows: Sequence[Row]) -> str:
    """Tokens by where they came from; pages that device and host have dropped."""
    cells = [HEADINGS, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEADINGS))]
    lines = [
        "  ".join(cell.ljust(width) if column < 2 else cell.rjust(width) for column, (cell, width) in enumerate(pairs))
        for pairs in (list(zip(line, widths, strict=True)) for line in cells)
    ]
    return "\n".join(line.rstrip() for line in lines)


def _cells(row: Row) -> tuple[str, ...]:
    tokens = [row.tokens.get(name, 0) for name in (L1, L2, L3, COMPUTED)]
    dropped = [row.dropped_pages.get(tier, 0) for tier in (DEVICE, HOST)]
    store = f"{row.store}, after a restart" if row.again else row.store
    numbers = (row.ranks, row.requests, sum(tokens), *tokens, row.aborted, *dropped)
    return (row.tree, store, *(f"{number:,}" for number in numbers))


def wrong(rows: Sequence[Row]) -> list[str]:
    """A line for each finding, the first few of each row."""
    lines: list[str] = []
    for row in rows:
        where = f"{row.tree}, {row.store}{', after a restart' if row.again else ''}, ranks {row.ranks}"
        lines += [f"{where}: {line}" for line in row.wrong[:SHOWN_MAX]]
        if len(row.wrong) > SHOWN_MAX:
            lines.append(f"{where}: and {len(row.wrong) - SHOWN_MAX} more")
    return lines


def last_line(rows: Sequence[Row]) -> str:
    """All in all."""
    trees, stores = ({getattr(row, name) for row in rows} for name in ("tree", "store"))
    tokens: Counter[str] = sum((Counter(row.tokens) for row in rows), Counter())
    found = sum(len(row.wrong) for row in rows)
    parts = ", ".join(f"{tokens[name]:,} {name}" for name in (L1, L2, L3, COMPUTED))
    return (
        f"decode: {_count(len(trees), 'tree')} x {_count(len(stores), 'store')}, "
        f"{_count(sum(row.requests for row in rows), 'request')}, {sum(tokens.values()):,} tokens: {parts}; "
        + ("exact" if not found else f"not exact: {_count(found, 'finding')}")
    )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
