"""What the ranks of a run counted, put together: once for each replica, which its ranks have alike (P7)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

Result = Mapping[str, Any]
"""`rank`: its number in the world; `broken`: it did not come to the end."""


def by_replica(results: Sequence[Result], ranks: int) -> list[list[Result]]:
    """The results of each replica that has any, `ranks` at most; all are in the order of their ranks."""
    return [list(found) for _, found in groupby(results, key=lambda result: int(result["rank"]) // ranks)]


def add_up(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Name by name. A count of nothing is a count."""
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return dict(total)


def disagreements(replica: Sequence[Result], counted: Callable[[Result], Mapping[str, Any]]) -> list[str]:
    """P7: one line for each count that differs between ranks of a replica that came to the end."""
    seen = [counted(result) for result in replica if not result["broken"]]
    return [
        f"P7 ranks disagree on {key}: {', '.join(str(counts[key]) for counts in seen)}"
        for key in (seen[0] if seen else ())
        if any(counts[key] != seen[0][key] for counts in seen)
    ]
