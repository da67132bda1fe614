"""`hicheck minimise FILE`: a recorded run that shows something wrong, made smaller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from hicache_checks.conformance import replay_file
from hicache_checks.conformance.findings import cause
from hicache_checks.conformance.regression import write_pytest
from hicache_checks.conformance.replay_file import Replay
from hicache_checks.conformance.replaying import job_of
from hicache_checks.conformance.workers import work
from hicache_checks.reporting import (
    InputError,
    Outcome,
    Screen,
    Story,
    Verdict,
    check_file,
    counted,
    print_rows,
    print_story,
    printable,
)

SUFFIX = ".min.json"


@dataclass(frozen=True)
class MinimiseOptions:
    """`out`: where the smaller run goes; by default beside FILE. `pytest`: also as a test, to this file."""

    file: Path
    seconds: float = 60.0
    out: Path | None = None
    pytest: Path | None = None


def run(options: MinimiseOptions, screen: Screen) -> Outcome:
    """Minimise, write, report. Raises InputError for a file that is none, or shows nothing wrong."""
    before = replay_file.read(options.file)
    out = options.out or options.file.with_suffix(SUFFIX)
    for option, path in (("--out", out), ("--pytest", options.pytest)):
        check_file(None if path is None else str(path), option)
    after, story = _minimised(before, options.seconds, screen)
    screen.progress.clear()
    if after.found is None:
        raise InputError(
            f"{options.file}: the same choices show something wrong or not: the target is not deterministic"
        )
    replay_file.write(after, out)
    if options.pytest is not None:
        write_pytest(after, options.pytest)
    print_story(screen, story)
    rows = [
        ["finding", f"{cause(after.found)}  {after.found.property}: {after.found.message}"],
        ["before", _size(before)],
        ["after", _size(after)],
        ["written", str(out)],
        *([["pytest", str(options.pytest)]] if options.pytest is not None else []),
    ]
    print_rows(screen.console, [], [[name, printable(value)] for name, value in rows])
    return Outcome(
        Verdict.PASS,
        {
            "file": str(options.file),
            "out": str(out),
            "before": _numbers(before),
            "after": _numbers(after),
            "program": after.program,
            "story": msgspec.to_builtins(story),
        },
    )


def _minimised(replay: Replay, seconds: float, screen: Screen) -> tuple[Replay, Story]:
    found: list[Mapping[str, Any]] = []

    def hear(said: Mapping[str, Any]) -> None:
        if "found" in said:
            found.append(said["found"])
        else:
            screen.progress.update(f"minimising: {counted(said['runs'], 'run')} tried")

    crash = work({**job_of("minimise", replay.target, replay), "shrink_seconds": seconds}, hear)
    if crash is not None:
        raise InputError(f"the process {crash.how} while it tried smaller runs; {crash.words}".rstrip("; "))
    return replay_file.from_document(found[0]["replay"], "the worker"), msgspec.convert(found[0]["story"], Story)


def _size(replay: Replay) -> str:
    numbers = _numbers(replay)
    switches = "switch" if numbers["switches"] == 1 else "switches"
    steps, choices = counted(numbers["steps"], "step"), counted(numbers["choices"], "choice")
    return f"{steps}, {numbers['switches']:,} {switches}, {choices} in all"


def _numbers(replay: Replay) -> dict[str, int]:
    """Steps of the program, switches that are not the plainest, and all choices."""
    return {
        "steps": len(replay.program),
        "switches": sum(replay.choices[place] > 0 for place in replay.switches),
        "choices": len(replay.choices),
    }
