"""`hicheck replay FILE`: a recorded run once more, exactly; and if wanted, its program with real threads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from hicache_checks.conformance import replay_file
from hicache_checks.conformance.findings import Finding, cause
from hicache_checks.conformance.replay_file import Replay
from hicache_checks.conformance.replaying import Again, replay_again, sameness
from hicache_checks.conformance.workers import work
from hicache_checks.reporting import Outcome, Screen, Verdict, counted, print_rows, print_story, printable

TRY_S = 10.0
"""With real threads."""


@dataclass(frozen=True)
class ReplayOptions:
    """`target`: another one than the file's. `real`: try the program with real threads, too."""

    file: Path
    target: str | None = None
    real: bool = False


@dataclass(frozen=True)
class Tried:
    """The program with real threads: in how many runs, and what was wrong in the last. `crash`: the process ended."""

    runs: int
    finding: Finding | None
    crash: str = ""

    @property
    def is_wrong(self) -> bool:
        """Was the same property violated, or did the process not survive?"""
        return self.finding is not None or bool(self.crash)


def run(options: ReplayOptions, screen: Screen) -> Outcome:
    """Replay and report. Raises InputError for a file that is none, and for a target that cannot be used."""
    replay = replay_file.read(options.file)
    target = options.target or replay.target
    screen.progress.update(f"replaying {options.file}")
    again = replay_again(target, replay)
    tried = None
    if options.real:
        screen.progress.update("trying it with real threads")
        tried = _try(target, replay)
    screen.progress.clear()
    verdict = Verdict.FAIL if tried is not None and tried.is_wrong else again.verdict
    _print(target, replay, again, tried, verdict, screen)
    return Outcome(verdict, _keys(options, target, replay, again, tried))


def _try(target: str, replay: Replay) -> Tried:
    said: list[Mapping[str, Any]] = []
    job = {"do": "confirm", "target": target, "replays": [replay_file.to_document(replay)], "seconds": TRY_S}
    crash = work(job, said.append)
    if crash is not None:
        return Tried(0, None, f"the process {crash.how}")
    answer = said[-1]
    return Tried(answer["runs"], None if answer["finding"] is None else Finding(**answer["finding"]))


def _print(target: str, replay: Replay, again: Again, tried: Tried | None, verdict: Verdict, screen: Screen) -> None:
    if again.story is not None and again.finding is not None:
        print_story(screen, again.story)
    rows = [["target", target if target == replay.target else f"{target}; the file is of {replay.target}"]]
    rows.append(["recorded", _said(replay.found)])
    rows.append(["now", _said(again.finding)])
    rows.append(["run", sameness(again, replay)])
    if again.has_changed and not again.is_other and verdict is not Verdict.PASS:
        rows.append(["", "the target has changed since it was recorded"])
    if tried is not None:
        rows.append(["real threads", _said_of(tried)])
    rows.append(["verdict", f"{verdict.value}: {_why(replay, again, verdict)}"])
    print_rows(screen.console, [], [[name, printable(value)] for name, value in rows])


def _said(finding: Finding | None) -> str:
    return "nothing wrong" if finding is None else f"{cause(finding)}  {finding.property}: {finding.message}"


def _said_of(tried: Tried) -> str:
    if tried.crash:
        return tried.crash
    if tried.finding is None:
        return f"not seen in {counted(tried.runs, 'run')}"
    return f"seen in run {tried.runs}: {tried.finding.message}"


def _why(replay: Replay, again: Again, verdict: Verdict) -> str:
    if verdict is Verdict.PASS:
        return _why_it_passes(replay, again)
    if verdict is Verdict.FAIL:
        return "it is still wrong" if again.finding is not None else "it is wrong with real threads"
    if verdict is Verdict.ERROR:
        return "it cannot be judged"
    return "it shows nothing wrong, but it is another run" if again.finding is None else "it did not get far enough"


def _why_it_passes(replay: Replay, again: Again) -> str:
    if replay.found is None:
        return "nothing is wrong with this run now"
    if again.is_other:
        return "the recorded finding does not show on this target"
    changed = "the target has changed since; " if again.has_changed else ""
    return f"{changed}the recorded finding does not show any more"


def _keys(options: ReplayOptions, target: str, replay: Replay, again: Again, tried: Tried | None) -> dict[str, Any]:
    return {
        "file": str(options.file),
        "target": target,
        "recorded": _keys_of(replay.found),
        "finding": _keys_of(again.finding),
        "same_run": again.is_same,
        "diverged": again.diverged,
        "target_changed": again.has_changed,
        "real": None
        if tried is None
        else {"runs": tried.runs, "finding": _keys_of(tried.finding), "crash": tried.crash or None},
        "story": None if again.story is None else msgspec.to_builtins(again.story),
    }


def _keys_of(finding: Finding | None) -> dict[str, Any] | None:
    return None if finding is None else {"id": cause(finding), **asdict(finding)}
