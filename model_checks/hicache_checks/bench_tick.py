"""`hicheck bench tick`: what a tick of the scheduler costs, with and without a queue for revokes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hicache_checks.implementations import load
from hicache_checks.reporting import Outcome, Screen, Verdict, print_rows

BENCHMARKS = "hicheck.benchmarks"


@dataclass(frozen=True)
class TickOptions:
    """`rounds`: in how many the variants take turns; `operations`: how many a busy tick drains."""

    rounds: int = 10
    operations: int = 8


def run(options: TickOptions, screen: Screen) -> Outcome:
    """Measure and report. Raises InputError if no implementation has such a benchmark."""
    screen.progress.update("measuring ticks")
    rows: list[dict[str, Any]] = load(BENCHMARKS, "tick_cost")(options.rounds, options.operations)
    screen.progress.clear()
    headers = ("ranks", "tick", "variant", "agreed counts", "operations", "ticks", "us, least", "us, median")
    cells = [
        (
            *(str(row[key]) for key in ("ranks", "tick", "variant", "agreed_counts", "operations", "ticks")),
            *(f"{row[key]:,.1f}" for key in ("us_min", "us_median")),
        )
        for row in rows
    ]
    print_rows(screen.console, headers, cells, right=frozenset({0, 3, 4, 5, 6, 7}))
    return Outcome(Verdict.PASS, {"rows": rows})
