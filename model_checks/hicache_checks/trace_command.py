"""`hicheck trace`: hold the trace of a run that somebody else made to the specification. The format: spec/EVENTS.md."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hicache_checks.conformance.explainer import CANONICAL
from hicache_checks.conformance.logs import Explained, TooFarApart, explain_traces
from hicache_checks.conformance.monitor import MonitorConfig
from hicache_checks.conformance.observation import Event, LogError
from hicache_checks.conformance.target import check_profile
from hicache_checks.conformance.traces import Header, LogFile
from hicache_checks.reporting import InputError, Outcome, Screen, Verdict, counted, print_rows


@dataclass(frozen=True)
class TraceOptions:
    """`files`: the traces of one run, which together hold the log of every rank. `profile`: what they are held to."""

    files: Sequence[str]
    profile: str = CANONICAL


def run(options: TraceOptions, screen: Screen) -> Outcome:
    """Validate and report. Raises InputError, naming file and line, for what is not a trace."""
    if not options.files:
        raise InputError("give at least one FILE")
    profile = check_profile(options.profile)
    try:
        with ExitStack() as opened:
            files = [opened.enter_context(closing(LogFile(Path(name)))) for name in options.files]
            explained = explain_traces(files, screen.progress.update, profile)
    except LogError as error:
        raise InputError(str(error)) from error
    except TooFarApart as error:
        screen.say(f"verdict: {Verdict.UNKNOWN.value}: {error}; write a file for each rank")
        return Outcome(Verdict.UNKNOWN, {"files": list(options.files), "reason": str(error)})
    screen.progress.clear()
    headers = [file.header for file in files]
    verdict = _verdict(explained)
    _print(headers, explained, verdict, screen)
    return Outcome(verdict, _keys(options, headers[0], explained))


def _verdict(explained: Explained) -> Verdict:
    if explained.finding is not None:
        return Verdict.FAIL
    if not explained.events:
        return Verdict.ERROR
    return Verdict.PASS if explained.whole else Verdict.UNKNOWN


def _keys(options: TraceOptions, header: Header, explained: Explained) -> dict[str, Any]:
    finding = explained.finding
    return {
        "files": list(options.files),
        "producer": header.producer,
        "ranks": header.config.ranks,
        "policy": header.config.policy,
        "profile": options.profile,
        "events": explained.events,
        "unobserved": explained.unobserved,
        "whole": explained.whole,
        "finding": None
        if finding is None
        else {
            "property": finding.property,
            "message": finding.message,
            "at": _placed(finding.event),
            "related": [_placed(event) for event in finding.related],
            "last_explained": _placed(explained.last),
            "possible_next": list(explained.possible),
        },
    }


def _placed(event: Event | None) -> dict[str, Any] | None:
    if event is None:
        return None
    assert event.place is not None
    return {"file": event.place.file, "line": event.place.line, "event": str(event)}


def _print(headers: Sequence[Header], explained: Explained, verdict: Verdict, screen: Screen) -> None:
    rows = [
        ["produced by", ", ".join(sorted({h.producer for h in headers if h.producer})) or "not said"],
        ["system", _system(headers[0].config)],
        ["events", f"{explained.events:,} explained, {explained.unobserved:,} of them in part taken on trust"],
    ]
    finding = explained.finding
    if finding is not None:
        rows.append(["finding", f"{finding.property}: {finding.message}"])
        rows.append(["at", _told(finding.event)])
        rows += [["about", _told(event)] for event in finding.related]
        rows.append(["explained", f"up to {_told(explained.last)}" if explained.last else "nothing"])
        rows += [["possible", line] for line in explained.possible]
    rows.append(["verdict", f"{verdict.value}: {_why(explained, verdict)}"])
    print_rows(screen.console, [], rows)


def _system(config: MonitorConfig) -> str:
    sizes = f"{config.host_pages:,} host pages, threshold {config.threshold_pages:,}, limit {config.limit_pages:,}"
    return f"{counted(config.ranks, 'rank')}, {config.policy}, {sizes}"


def _told(event: Event | None) -> str:
    return "the end of the trace" if event is None else f"{event.place}: {event}"


def _why(explained: Explained, verdict: Verdict) -> str:
    if verdict is Verdict.PASS:
        return "every event is explained by the specification"
    if verdict is Verdict.UNKNOWN:
        return "every event is explained, but the trace does not say that it is whole: nothing is known of its end"
    return "the specification does not explain it" if explained.events or explained.finding else "there is no event"
