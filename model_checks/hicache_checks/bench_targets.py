"""`hicheck bench targets`: schedules a second of published releases, two ranks and 8 pages, on one core.

The work is that of `hicheck bench simulation`, with and without the judge that a search has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from hicache_checks.bench_simulation import PROMPTS, SETUP, Row, measured
from hicache_checks.conformance.target import fetch
from hicache_checks.reporting import InputError, Outcome, Screen, Verdict, print_rows

TARGETS = ("sglang==0.5.18", "sglang==0.5.23")
"""One of either kind of tree: HiRadixCache and UnifiedRadixCache."""
WANTED_PER_S = 150.0
"""Schedules a second of one core."""
UNDISTURBED = 0.9
"""Who had less of a core shares it with others: then a core does less in its time, too."""


@dataclass(frozen=True)
class TargetsOptions:
    """`seconds`: for each row."""

    targets: tuple[str, ...] = TARGETS
    seconds: float = 10.0
    wheels: Path | None = None


@dataclass(frozen=True)
class Measured:
    """A row of a target."""

    target: str
    row: Row

    @property
    def share(self) -> float:
        """Of what is wanted."""
        return self.row.per_cpu_second / WANTED_PER_S

    @property
    def verdict(self) -> Verdict:
        """Is it enough? On a busy machine too little says nothing."""
        if self.share >= 1.0:
            return Verdict.PASS
        return Verdict.FAIL if self.row.cpu_seconds >= UNDISTURBED * self.row.seconds else Verdict.UNKNOWN


def run(options: TargetsOptions, screen: Screen) -> Outcome:
    """Measure and report. Raises InputError."""
    if not options.targets:
        raise InputError("there is no target")
    for target in options.targets:
        fetch(target, options.wheels, screen.progress.update)
    rows = [
        Measured(target, measured(target, True, has_judge, options.seconds, screen))
        for target in options.targets
        for has_judge in (False, True)
    ]
    screen.progress.clear()
    verdict = Verdict.worst([row.verdict for row in rows])
    headers = ("target", "judge", "schedules", "schedules/s", "schedules/s of a core", "wanted", "steps")
    print_rows(screen.console, headers, [_cells(row) for row in rows], right=frozenset(range(2, 7)))
    if verdict is Verdict.UNKNOWN:
        screen.say("it is less than wanted, and others were at work: measure again on a quiet machine")
    screen.say(f"verdict: {verdict.value}")
    pages = sum(map(len, PROMPTS))
    return Outcome(verdict, {"ranks": SETUP.ranks, "pages": pages, "wanted": WANTED_PER_S, "rows": _keys(rows)})


def _cells(measured: Measured) -> tuple[str, ...]:
    row = measured.row
    return (
        measured.target,
        "on" if row.has_monitor else "off",
        f"{row.runs:,}",
        f"{row.per_second:,.0f}",
        f"{row.per_cpu_second:,.0f}",
        f"{WANTED_PER_S:,.0f}",
        "" if row.steps is None else f"{row.steps:,.0f}",
    )


def _keys(rows: Sequence[Measured]) -> list[dict[str, object]]:
    return [
        {
            "target": measured.target,
            "has_judge": measured.row.has_monitor,
            **{
                name: value
                for name, value in asdict(measured.row).items()
                if name in ("runs", "seconds", "cpu_seconds", "steps")
            },
            "per_second": measured.row.per_second,
            "per_cpu_second": measured.row.per_cpu_second,
            "share_of_wanted": measured.share,
        }
        for measured in rows
    ]
