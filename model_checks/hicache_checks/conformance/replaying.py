"""Having a recorded run again, in a process of its own: what it shows now, and whether it is the same run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from hicache_checks.conformance import replay_file
from hicache_checks.conformance.campaign import finding_of
from hicache_checks.conformance.findings import HARNESS, PROTOCOL, Finding
from hicache_checks.conformance.replay_file import Replay
from hicache_checks.conformance.search import THREADS
from hicache_checks.conformance.workers import work
from hicache_checks.reporting import Story, Verdict


@dataclass(frozen=True)
class Again:
    """What a recorded run shows now. `is_same`: step by step the run that was recorded.

    `diverged`: the first choice, from 0 on, at which the target asked for something else, or for none. `has_changed`:
    the target's text has. `is_other`: it has another name. `by_chance`: real threads ran as they liked. No story: the
    process did not survive the run.
    """

    finding: Finding | None
    is_same: bool = False
    diverged: int | None = None
    has_changed: bool = False
    is_other: bool = False
    by_chance: bool = False
    story: Story | None = None

    @property
    def verdict(self) -> Verdict:
        """A run that may have gone another way and shows nothing says nothing."""
        if self.finding is None:
            return Verdict.UNKNOWN if self.diverged is not None or self.by_chance else Verdict.PASS
        return {PROTOCOL: Verdict.FAIL, HARNESS: Verdict.ERROR}.get(self.finding.kind, Verdict.UNKNOWN)


def replay_again(target: str, replay: Replay) -> Again:
    """Run it once more on a target. Raises InputError when the target cannot be used."""
    said: list[Mapping[str, Any]] = []
    crash = work(job_of("replay", target, replay), said.append)
    if crash is not None:
        return Again(finding_of(crash))
    answer = said[-1]
    return Again(
        None if answer["finding"] is None else Finding(**answer["finding"]),
        answer["digest"] == replay.digest,
        _diverged(answer["diverged"], replay),
        answer["fingerprint"] != replay.fingerprint,
        target != replay.target,
        replay.mode == THREADS,
        msgspec.convert(answer["story"], Story),
    )


def job_of(what: str, target: str, replay: Replay) -> dict[str, Any]:
    """A job for a worker: `replay` or `minimise`."""
    return {"do": what, "target": target, "replay": replay_file.to_document(replay)}


def sameness(again: Again, replay: Replay) -> str:
    """Whether it was the same run, and if not, why, in one line."""
    if again.story is None:
        return "the process did not survive it"
    if again.by_chance:
        return "the same program, with real threads that run as they like"
    if again.is_same:
        return "the same run, step by step"
    if again.diverged is not None:
        return f"diverged at choice {again.diverged + 1} of {len(replay.choices)}: {_why(again)}"
    if again.finding is None and replay.found is not None:
        return "the same choices; it goes on where it was wrong before"
    return "the same choices, but other steps"


def _why(again: Again) -> str:
    if again.is_other:
        return "it is another target"
    return "the target has changed since" if again.has_changed else "the target is not deterministic"


def _diverged(place: int | None, replay: Replay) -> int | None:
    """A run that is repaired goes on after the last recorded choice: that is no divergence."""
    return place if place is not None and place < len(replay.choices) else None
