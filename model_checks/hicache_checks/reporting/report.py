"""What a run of the harness found, as plain data: what JUnit files and pages are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hicache_checks.reporting.story import Story
from hicache_checks.reporting.verdict import Verdict


@dataclass(frozen=True)
class ReportedFinding:
    """A finding. `is_violation`: by the system; else something could not be judged. `how_often`: in words.

    `program`: the steps of its smallest run, one text each. `replay`: that run, as JSON; `replay_command`: how to have
    it again. No story, program and replay: there is none to be had again, because the process did not survive it.
    `known`: why it is tolerated; empty: it is not.
    """

    id: str
    property: str
    message: str
    is_violation: bool
    how_often: str
    program: Sequence[str] = ()
    story: Story | None = None
    replay: str = ""
    replay_command: str = ""
    known: str = ""


@dataclass(frozen=True)
class Report:
    """A whole run. `summary`: names and values for people. `properties`: what was judged, by name, with its meaning.

    `why`: why the verdict is neither pass nor fail; empty if it is.
    """

    target: str
    verdict: Verdict
    seconds: float
    summary: Sequence[tuple[str, str]]
    properties: Mapping[str, str]
    findings: Sequence[ReportedFinding] = field(default_factory=tuple)
    why: str = ""
