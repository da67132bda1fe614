"""`hicheck bench finders`: how soon faulty implementations are found out, by real threads and by kinds of simulation.

One hunt at a time, each from the first program on. By default the mutants are ten that need something to coincide.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hicache_checks.conformance.mutant_stages import CAUGHT, IMPLEMENTATION, Cell, Hunting, Mutant, known_mutants
from hicache_checks.conformance.time_to_find import FINDERS
from hicache_checks.reporting import InputError, Outcome, Screen, Verdict, counted, print_rows

MUTANTS = (
    "sched_drains_by_its_own_count",
    "sched_reclaims_by_its_own_count",
    "sched_decides_without_the_flag",
    "sched_finds_records_by_request_id",
    "sched_evicts_before_a_refusal",
    "sched_submits_out_of_order",
    "sched_completes_when_one_rank_has",
    "sched_releases_the_page_being_written",
    "io_counts_after_termination",
    "io_starts_without_the_flag",
)
COMPARED = {
    "hypothesis": "real threads without gates, programs drawn by Hypothesis",
    "walk": "random walk",
    "pct": "PCT",
    "exhaustive": "short programs, at most two preemptions, in order",
    "frontrun": "frontrun, real threads",
}


@dataclass(frozen=True)
class FindersOptions:
    """`mutants`: by name; `seconds`: for each hunt; `finders`: by name."""

    mutants: tuple[str, ...] = MUTANTS
    seconds: float = 60.0
    finders: tuple[str, ...] = tuple(COMPARED)


def run(options: FindersOptions, screen: Screen) -> Outcome:
    """Hunt and report; that something is not found is no failure. Raises InputError for unknown names."""
    mutants = chosen(options)
    found: dict[str, Mapping[Mutant, Cell]] = {}
    for finder in options.finders:
        hunting = Hunting(finder, options.seconds, lambda text, by=finder: screen.progress.update(f"{by}: {text}"))  # type: ignore[misc]
        hunting.look_at(mutants)
        found[finder] = hunting.cells
    screen.progress.clear()
    _print(options, mutants, found, screen)
    rows = [
        {"name": m.name, "race": m.race, "finders": {finder: asdict(cells[m]) for finder, cells in found.items()}}
        for m in mutants
    ]
    return Outcome(Verdict.PASS, {"seconds_max": options.seconds, "rows": rows, "summary": _summary(found)})


def chosen(options: FindersOptions) -> list[Mutant]:
    """The mutants by name. Raises InputError."""
    for finder in options.finders:
        if finder not in FINDERS:
            raise InputError(f"no finder {finder!r}; there are {', '.join(FINDERS)}")
    known = {mutant.name: mutant for mutant in known_mutants() if mutant.of in IMPLEMENTATION}
    for name in options.mutants:
        if name not in known:
            raise InputError(f"no mutant {name!r} of an implementation")
    return [known[name] for name in options.mutants]


def _summary(found: Mapping[str, Mapping[Mutant, Cell]]) -> dict[str, Any]:
    """By finder: how many it found, and the median time of those."""
    caught = {finder: [c for c in cells.values() if c.outcome == CAUGHT] for finder, cells in found.items()}
    return {
        finder: {
            "what": COMPARED.get(finder, finder),
            "found": len(cells),
            "of": len(found[finder]),
            "seconds_median": statistics.median(c.seconds for c in cells) if cells else None,
        }
        for finder, cells in caught.items()
    }


def _print(
    options: FindersOptions, mutants: Sequence[Mutant], found: Mapping[str, Mapping[Mutant, Cell]], screen: Screen
) -> None:
    rows = [(m.name, *(_says(found[finder][m]) for finder in options.finders)) for m in mutants]
    print_rows(screen.console, ("seconds (runs) to the first finding", *options.finders), rows)
    for finder, row in _summary(found).items():
        median = f"; median {row['seconds_median']:.1f} s" if row["found"] else ""
        screen.say(f"{finder}, {row['what']}: {row['found']} of {counted(row['of'], 'mutant')} found{median}")
    for finder, cells in found.items():
        for note in dict.fromkeys(cell.by for cell in cells.values() if cell.outcome != CAUGHT and cell.by):
            screen.say(f"{finder}: {note}")


def _says(cell: Cell) -> str:
    if cell.outcome == CAUGHT:
        return f"{cell.seconds:.1f} ({cell.amount:,})"
    return f"not in {cell.seconds:.0f} ({cell.amount:,})"
