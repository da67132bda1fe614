"""`hicheck conform`: many schedules of a target, judged by the specification; what it finds is made small and kept."""

from __future__ import annotations

import datetime
import shlex
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import starmap
from pathlib import Path
from typing import Any

import msgspec

from hicache_checks.conformance import baseline, replay_file
from hicache_checks.conformance.baseline import Judged
from hicache_checks.conformance.campaign import Campaign, Reported, confirm, run_campaign
from hicache_checks.conformance.explainer import CANONICAL
from hicache_checks.conformance.findings import HARNESS, PROTOCOL, UNKNOWN, cause
from hicache_checks.conformance.orders import STEPS_NEEDED
from hicache_checks.conformance.regression import write_pytest
from hicache_checks.conformance.search import EXHAUSTIVE, THREADS, SearchOptions
from hicache_checks.conformance.target import held_to
from hicache_checks.conformance.workers import Allowed
from hicache_checks.reporting import (
    InputError,
    Outcome,
    Report,
    ReportedFinding,
    Screen,
    Verdict,
    check_file,
    counted,
    html_report,
    junit,
    print_rows,
    print_story,
    printable,
    write_file,
)
from hicache_spec import DESIGNS

SHRINK_S = 9.0
"""For all that a process finds, together."""
CONFIRM_S_MIN, CONFIRM_SHARE = 10.0, 0.25
"""For all findings together; of a search that is given a time, that share of it, if it is more."""
GIB = 1 << 30
CONFIRMED = {None: "not tried with real threads", True: "also with real threads", False: "not seen with real threads"}


@dataclass(frozen=True)
class ConformOptions:
    """What the user asked for. `confirm`: try findings with real threads. `profile`: None: the target's own.

    `findings`: a directory for a replay file and a pytest file of each finding. `junit`, `html`: files for a report.
    `baseline`: a file of known failures. `stall_seconds`, `memory_gib`: what a process of the target is allowed.
    """

    target: str
    search: SearchOptions
    jobs: int = 1
    confirm: bool = True
    findings: Path | None = None
    junit: str | None = None
    html: str | None = None
    baseline: Path | None = None
    stall_seconds: float = 60.0
    memory_gib: float = 16.0
    profile: str | None = None

    @property
    def allowed(self) -> Allowed:
        """What each process of the target is allowed."""
        return Allowed(self.stall_seconds, int(self.memory_gib * GIB))


def run(options: ConformOptions, screen: Screen) -> Outcome:
    """Search, confirm, report. Raises InputError."""
    if options.search.strategy == EXHAUSTIVE and options.search.mode == THREADS:
        raise InputError("--strategy exhaustive chooses every switch, so it is for --mode simulate")
    if options.search.strategy == EXHAUSTIVE and options.search.steps_max < STEPS_NEEDED:
        raise InputError(f"--strategy exhaustive has a program of {STEPS_NEEDED} steps: --steps must allow them")
    check_file(options.junit, "--junit")
    check_file(options.html, "--html")
    known = None if options.baseline is None else baseline.read(options.baseline)
    started = time.monotonic()
    target = held_to(options.target, options.profile)
    campaign = run_campaign(target, options.search, options.jobs, SHRINK_S, screen.progress.update, options.allowed)
    reported = sorted(campaign.reported.values(), key=lambda r: -r.schedules)
    _confirm(options, target, reported, screen)
    for r in reported:
        if r.replay is not None and options.findings is not None:
            replay_file.write(r.replay, _file_of(options.findings, r))
            write_pytest(r.replay, options.findings / f"test_{cause(r.finding)}.py")
    screen.progress.clear()
    judged = Judged()
    if known is not None:
        judged = baseline.judge(known, campaign.reported, _is_complete(options, campaign), datetime.date.today())
    verdict = verdict_of(campaign, judged)
    report = _report(options, campaign, reported, judged, verdict, time.monotonic() - started)
    if options.junit is not None:
        write_file(junit(report), options.junit, "--junit")
    if options.html is not None:
        write_file(html_report(report), options.html, "--html")
    _print(report, screen)
    return Outcome(verdict, _keys(options, campaign, reported, judged))


def _confirm(options: ConformOptions, target: str, reported: Sequence[Reported], screen: Screen) -> None:
    """Try with real threads what was found without."""
    can_be = [(r, r.replay) for r in reported if r.replay is not None]
    if options.search.mode == THREADS:
        for r, _ in can_be:
            r.confirmed = True
        return
    tried = [(r, replay) for r, replay in can_be if options.confirm and r.finding.kind == PROTOCOL]
    if tried:
        screen.progress.update(f"trying {counted(len(tried), 'finding')} with real threads")
        seconds = max(CONFIRM_S_MIN, (options.search.seconds_max or 0.0) * CONFIRM_SHARE)
        answers = confirm(target, [replay for _, replay in tried], seconds, options.allowed)
        for (r, _), confirmed in zip(tried, answers, strict=True):
            r.confirmed = confirmed


def verdict_of(campaign: Campaign, judged: Judged) -> Verdict:
    """A violation that is not known fails, and so does a baseline that is out of date; the harness's own errors are
    errors; nothing run at all is an error too."""
    kinds = {r.finding.kind for name, r in campaign.reported.items() if name not in judged.known}
    if PROTOCOL in kinds or judged.stale:
        return Verdict.FAIL
    if HARNESS in kinds or not campaign.outcomes:
        return Verdict.ERROR
    return Verdict.UNKNOWN if UNKNOWN in kinds or campaign.incomplete else Verdict.PASS


def _is_complete(options: ConformOptions, campaign: Campaign) -> bool:
    """Would the run have found what it found before? Real threads may do something else each time."""
    search = options.search
    stopped = search.stop_at_first and bool(campaign.reported)
    is_bounded = search.schedules is not None or search.strategy == EXHAUSTIVE
    return is_bounded and not (campaign.incomplete or stopped or search.mode == THREADS)


def _file_of(findings: Path, reported: Reported) -> Path:
    return findings / f"{cause(reported.finding)}.json"


def _keys(options: ConformOptions, campaign: Campaign, reported: Sequence[Reported], judged: Judged) -> dict[str, Any]:
    return {
        "target": options.target,
        "profile": campaign.profile,
        "mode": options.search.mode,
        "ranks": options.search.ranks,
        "policies": list(options.search.policies),
        "strategy": options.search.strategy,
        "seed": options.search.seed,
        "preemptions_max": options.search.preemptions_max if options.search.strategy == EXHAUSTIVE else None,
        "schedules": campaign.schedules,
        "cut": campaign.cut,
        "asleep": campaign.asleep,
        "distinct_traces": len(campaign.traces),
        "spec_states": len(campaign.states),
        "outcomes": dict(campaign.outcomes.most_common()),
        "findings": [_finding_keys(r, judged) for r in reported],
        "unobserved": dict(+campaign.unobserved),
        "baseline": {"known": sorted(judged.known), "stale": dict(judged.stale)},
    }


def _finding_keys(reported: Reported, judged: Judged) -> dict[str, Any]:
    replay = reported.replay
    return {
        "id": cause(reported.finding),
        "known": cause(reported.finding) in judged.known,
        **asdict(reported.finding),
        "schedules": reported.schedules,
        "steps": None if replay is None else len(replay.program),
        "confirmed": reported.confirmed,
        "rarity": None if reported.rarity is None else asdict(reported.rarity),
        "replay": None if replay is None else replay_file.to_document(replay),
        "story": None if reported.story is None else msgspec.to_builtins(reported.story),
    }


def _report(
    options: ConformOptions,
    campaign: Campaign,
    reported: Sequence[Reported],
    judged: Judged,
    verdict: Verdict,
    seconds: float,
) -> Report:
    how = counted(options.search.ranks, "rank") + (", real threads" if options.search.mode == THREADS else "")
    unobserved = ", ".join(f"{name} {count:,}" for name, count in (+campaign.unobserved).most_common())
    return Report(
        target=options.target,
        verdict=verdict,
        seconds=seconds,
        summary=[
            ("target", options.target),
            *([("profile", campaign.profile)] if campaign.profile != CANONICAL else []),
            ("schedules", f"{campaign.schedules:,} on {how}, {', '.join(options.search.policies)}; {seconds:.1f} s"),
            *([("preemptions", _bounded(options, campaign))] if options.search.strategy == EXHAUSTIVE else []),
            ("distinct", f"{len(campaign.traces):,} traces, {len(campaign.states):,} states of the specification"),
            *([("unobserved", unobserved)] if unobserved else []),
            ("findings", f"{len(reported)}{f', {len(judged.known)} of them known' if judged.known else ''}"),
            ("verdict", verdict.value),
        ],
        properties={
            rule.name: rule.title
            for rule in DESIGNS[campaign.profile].rules()
            if rule.kind in ("invariant", "step", "live")
        },
        findings=[*(_reported(options, r, judged) for r in reported), *starmap(_out_of_date, judged.stale.items())],
        why=_why(campaign),
    )


def _bounded(options: ConformOptions, campaign: Campaign) -> str:
    """How far an exhaustive search went."""
    all_ = "not all" if campaign.incomplete else "all"
    cut = f"{campaign.cut:,} of them cut where the rest is known, {counted(campaign.asleep, 'step')} not tried"
    return f"at most {options.search.preemptions_max}, {all_} schedules; {cut}"


def _why(campaign: Campaign) -> str:
    """Why what was not found is not known to be absent; empty: as much as was asked for was looked at."""
    if not campaign.outcomes:
        return "no step of the specification was executed"
    if any(r.finding.kind != PROTOCOL for r in campaign.reported.values()):
        return "some runs could not be judged"
    return "a budget ran out" if campaign.incomplete else ""


def _out_of_date(name: str, why: str) -> ReportedFinding:
    return ReportedFinding(name, "baseline", why, is_violation=True, how_often="the baseline is out of date")


def _reported(options: ConformOptions, reported: Reported, judged: Judged) -> ReportedFinding:
    finding, replay = reported.finding, reported.replay
    known = judged.known.get(cause(finding))
    told = ReportedFinding(
        id=cause(finding),
        known="" if known is None else f"known until {known.expires}: {known.reason}",
        property=finding.property,
        message=finding.message,
        is_violation=finding.kind == PROTOCOL,
        how_often=f"{finding.kind}, {counted(reported.schedules, 'schedule')}, {CONFIRMED[reported.confirmed]}"
        + (f"; {reported.rarity}" if reported.rarity is not None else ""),
    )
    if replay is None:
        return told
    file = None if options.findings is None else _file_of(options.findings, reported)
    return replace(
        told,
        program=replay.program,
        story=reported.story,
        replay=msgspec.json.encode(replay).decode(),
        replay_command="" if file is None else f"hicheck replay {shlex.quote(str(file))}",
    )


def _print(report: Report, screen: Screen) -> None:
    for finding in report.findings:
        screen.say(printable(f"{finding.id}  {finding.property}: {finding.message}"))
        screen.say(f"  {finding.how_often}")
        if finding.known:
            screen.say(printable(f"  {finding.known}"))
        if finding.story is not None:
            print_story(screen, finding.story)
        if finding.replay_command:
            screen.say(printable(f"  {finding.replay_command}"))
    print_rows(screen.console, [], [[name, printable(value)] for name, value in report.summary])
