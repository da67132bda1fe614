"""A search of one target under one policy, for pytest: what it found, as plain data that test processes can share."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path

import msgspec

from hicache_checks.conformance import replay_file
from hicache_checks.conformance.campaign import Campaign, Reported, run_campaign
from hicache_checks.conformance.findings import PROTOCOL, cause
from hicache_checks.conformance.properties import properties_of
from hicache_checks.conformance.search import SearchOptions
from hicache_checks.reporting import InputError, printable, story_lines

SHRINK_S = 20.0


class Violation(msgspec.Struct, frozen=True):
    """A finding. `properties`: those of the list that it is about; `text`: all that there is to tell, in lines."""

    properties: list[str]
    text: str


class Found(msgspec.Struct, frozen=True):
    """What came of a search. `not_judged`: why what was not found is not known to be absent; empty: it is."""

    not_judged: str
    capabilities: list[str]
    violations: list[Violation]


def found_by(target: str, options: SearchOptions, findings: Path | None) -> Found:
    """Search. `findings`: where replay files go. A target that cannot be used is a reason, not an error."""
    try:
        campaign = run_campaign(target, options, 1, SHRINK_S, lambda line: None)
    except InputError as error:
        return Found(str(error), [], [])
    violations = [
        Violation(list(properties_of(reported.finding)), _text(reported, findings))
        for reported in campaign.reported.values()
        if reported.finding.kind == PROTOCOL
    ]
    return Found(_not_judged(campaign), sorted(campaign.capabilities), violations)


def found_once(place: Path, search: Callable[[], Found]) -> Found:
    """The result that is kept at this place; whoever comes first searches, and the others wait."""
    with place.open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        if kept := file.read():
            return msgspec.json.decode(kept, type=Found)
        found = search()
        file.write(msgspec.json.encode(found))
        return found


def _not_judged(campaign: Campaign) -> str:
    others = [str(r.finding) for r in campaign.reported.values() if r.finding.kind != PROTOCOL]
    if others:
        return printable("; ".join(others))
    if not campaign.outcomes:
        return "no step of the specification was executed"
    return "not all schedules were run" if campaign.incomplete else ""


def _text(reported: Reported, findings: Path | None) -> str:
    lines = [f"{cause(reported.finding)}  {reported.finding}"]
    if reported.story is not None:
        lines += story_lines(reported.story)
    if findings is not None and reported.replay is not None:
        path = findings / f"{cause(reported.finding)}.json"
        replay_file.write(reported.replay, path)
        lines.append(f"  hicheck replay {path}")
    return "\n".join(map(printable, lines))
