"""What `hicheck verify --target` says of a system that the user names: a short search under simulation."""

from __future__ import annotations

import time
from dataclasses import asdict

from hicache_checks.conform_command import verdict_of
from hicache_checks.conformance.baseline import Judged
from hicache_checks.conformance.campaign import Campaign, run_campaign
from hicache_checks.conformance.findings import cause
from hicache_checks.conformance.search import SearchOptions
from hicache_checks.processes import workers_for
from hicache_checks.reporting import Screen, VerifyRow, counted, printable
from hicache_checks.verify_specification import Part

SEARCH = SearchOptions(schedules=None, seconds_max=20.0)
SHRINK_S = 10.0
WORKERS_MAX = 2


def named_target(name: str, screen: Screen) -> Part:
    """The target on two ranks, under every policy, for 20 s. Raises InputError."""
    start = time.perf_counter()
    campaign = run_campaign(name, SEARCH, workers_for(WORKERS_MAX), SHRINK_S, screen.progress.update)
    return judge_target(name, campaign, time.perf_counter() - start)


def judge_target(name: str, campaign: Campaign, seconds: float) -> Part:
    """The row of a target; every cause is a line below it, what most schedules show first."""
    reported = sorted(campaign.reported.values(), key=lambda r: -r.schedules)
    row = VerifyRow(
        "target",
        f"{name} ({campaign.profile}), {counted(SEARCH.ranks, 'rank')}, {len(SEARCH.policies)} policies",
        counted(campaign.schedules, "schedule"),
        seconds,
        counted(len(reported), "finding") if reported else "no finding",
        verdict_of(campaign, Judged()),
    )
    lines = [
        printable(
            f"target: {cause(r.finding)}  {r.finding.property}: {r.finding.message}"
            f" ({counted(r.schedules, 'schedule')}{'' if r.replay is None else f', {len(r.replay.program)} steps'})"
        )
        for r in reported
    ]
    if lines:
        lines.append(f"target: hicheck conform {name} --findings DIR tries them with real threads, and keeps them")
    keys = {
        "target": name,
        "profile": campaign.profile,
        "schedules": campaign.schedules,
        "findings": [asdict(r.finding) for r in reported],
    }
    return Part(row, keys, lines)
