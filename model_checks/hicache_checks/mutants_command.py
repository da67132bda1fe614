"""`hicheck mutants`: every faulty variant of the specification and of the implementations, and what catches it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from hicache_checks.conformance.mutant_stages import (
    APART,
    BROKEN,
    CAUGHT,
    STAGES,
    SURVIVED,
    Budget,
    Cell,
    Mutant,
    known_mutants,
    why_it_survives,
)
from hicache_checks.processes import workers_for
from hicache_checks.reporting import InputError, Outcome, Screen, Verdict, counted, print_rows

DEFAULT_STAGES = ("exploration", "liveness", "simulation")


@dataclass(frozen=True)
class MutantsOptions:
    """`only`: these mutants, by name; all, if empty. `seconds`: for each mutant in each stage. `jobs` None: one a
    core."""

    only: tuple[str, ...] = ()
    stages: tuple[str, ...] = DEFAULT_STAGES
    seconds: float = 60.0
    jobs: int | None = None


@dataclass
class Row:
    """A mutant and what the stages make of it; the stages that do not apply to it are not there."""

    mutant: Mutant
    cells: dict[str, Cell] = field(default_factory=dict)

    @property
    def was_looked_at(self) -> bool:
        """Some stage could."""
        return any(cell.outcome != APART for cell in self.cells.values())

    @property
    def is_caught(self) -> bool:
        """Some stage catches it."""
        return any(cell.outcome == CAUGHT for cell in self.cells.values())

    @property
    def is_broken(self) -> bool:
        """Some stage could not look at it."""
        return any(cell.outcome == BROKEN for cell in self.cells.values())

    @property
    def reasons(self) -> list[str | None]:
        """Why each stage that looked does not catch it, as listed."""
        return [why_it_survives(stage, self.mutant) for stage, cell in self.cells.items() if cell.outcome == SURVIVED]


def run(options: MutantsOptions, screen: Screen) -> Outcome:
    """Run the stages and print the table. Raises InputError for unknown names, and if nothing is left to do."""
    rows = rows_of(options)
    for name in options.stages:
        stage = STAGES[name]
        chosen = [row for row in rows if row.mutant.of in stage.applies_to]
        budget = Budget(options.seconds, workers_for(max(1, len(chosen)), options.jobs))
        if chosen:
            cells = stage.run([row.mutant for row in chosen], budget, screen.progress.update)
            for row in chosen:
                row.cells[name] = cells[row.mutant]
    screen.progress.clear()
    verdict = verdict_of(rows)
    _print(options, rows, verdict, screen)
    return Outcome(verdict, _keys(rows))


def rows_of(options: MutantsOptions) -> list[Row]:
    """The mutants that were asked for and that some stage applies to. Raises InputError."""
    for stage in options.stages:
        if stage not in STAGES:
            raise InputError(f"no stage {stage!r}; there are {', '.join(STAGES)}")
    known = known_mutants()
    for name in options.only:
        if all(mutant.name != name for mutant in known):
            raise InputError(f"no mutant {name!r}")
    groups = {of for stage in options.stages for of in STAGES[stage].applies_to}
    chosen = [m for m in known if m.of in groups and (not options.only or m.name in options.only)]
    if not chosen:
        raise InputError(f"no such mutant is looked at by {' or '.join(options.stages)}")
    return [Row(mutant) for mutant in chosen]


def verdict_of(rows: Sequence[Row]) -> Verdict:
    """All caught, or known not to be; nothing looked at is an error."""
    looked_at = [row for row in rows if row.was_looked_at]
    if not looked_at or any(row.is_broken for row in looked_at):
        return Verdict.ERROR
    return Verdict.FAIL if any(None in row.reasons for row in survivors(rows)) else Verdict.PASS


def survivors(rows: Sequence[Row]) -> list[Row]:
    """Those that some stage looked at and none caught."""
    return [row for row in rows if row.was_looked_at and not row.is_caught]


def _keys(rows: Sequence[Row]) -> dict[str, Any]:
    return {
        "total": sum(row.was_looked_at for row in rows),
        "caught": sum(row.is_caught for row in rows),
        "survivors": [
            {"of": row.mutant.of, "name": row.mutant.name, "reasons": row.reasons} for row in survivors(rows)
        ],
        "rows": [
            {
                "of": row.mutant.of,
                "name": row.mutant.name,
                "stages": {name: asdict(cell) for name, cell in row.cells.items()},
            }
            for row in rows
        ],
    }


def _print(options: MutantsOptions, rows: Sequence[Row], verdict: Verdict, screen: Screen) -> None:
    headers = ("mutant", "of", "stage", "caught by", "after", "seconds")
    cells = [
        (row.mutant.name, row.mutant.of, stage, _says(cell), counted(cell.amount, cell.unit), f"{cell.seconds:.1f}")
        for row in rows
        for stage, cell in row.cells.items()
    ]
    print_rows(screen.console, headers, cells, right=frozenset({4, 5}))
    for stage in options.stages:
        cells_here = [(row.cells[stage], row.mutant.name) for row in rows if stage in row.cells]
        looked = [(cell, name) for cell, name in cells_here if cell.outcome != APART]
        caught = [(cell.seconds, name) for cell, name in looked if cell.outcome == CAUGHT]
        if looked:
            screen.say(f"{stage}: {len(caught)} of {counted(len(looked), 'mutant')} caught{_times(caught)}")
    for row in survivors(rows):
        reasons = [reason or "this is not listed" for reason in row.reasons]
        screen.say(f"survivor {row.mutant.name}, of {row.mutant.of}: {'; '.join(reasons)}")
    total = sum(row.was_looked_at for row in rows)
    screen.say(f"{sum(row.is_caught for row in rows)} of {counted(total, 'mutant')} caught; {verdict.value}")


def _says(cell: Cell) -> str:
    return cell.by if cell.outcome == CAUGHT else f"{cell.outcome}{': ' * bool(cell.by)}{cell.by}"


def _times(caught: Sequence[tuple[float, str]]) -> str:
    if not caught:
        return ""
    longest, name = max(caught)
    return f"; median {statistics.median(seconds for seconds, _ in caught):.1f} s, longest {longest:.1f} s ({name})"
