"""What `hicheck verify` says of the reference under simulation: many schedules, every switch of its threads chosen."""

from __future__ import annotations

import time
from dataclasses import asdict

from hicache_checks.conform_command import verdict_of
from hicache_checks.conformance.baseline import Judged
from hicache_checks.conformance.campaign import Campaign, run_campaign
from hicache_checks.conformance.search import SearchOptions
from hicache_checks.processes import workers_for
from hicache_checks.reporting import Screen, VerifyRow, counted
from hicache_checks.verify_specification import Part

SEARCH = SearchOptions(schedules=600)
SHRINK_S = 10.0
WORKERS_MAX = 4


def simulation(screen: Screen) -> Part:
    """The reference on two ranks, under every policy: nothing is found."""
    start = time.perf_counter()
    jobs = workers_for(WORKERS_MAX)
    return judge_campaign(
        run_campaign("reference", SEARCH, jobs, SHRINK_S, screen.progress.update), time.perf_counter() - start
    )


def judge_campaign(campaign: Campaign, seconds: float) -> Part:
    """The row of a campaign; every finding is a line below it."""
    found = [str(reported.finding) for reported in campaign.reported.values()]
    covered = f"{len(campaign.traces):,} distinct traces, {len(campaign.states):,} states of the specification"
    row = VerifyRow(
        "simulation",
        f"reference, {counted(SEARCH.ranks, 'rank')}, {len(SEARCH.policies)} policies",
        counted(campaign.schedules, "schedule"),
        seconds,
        counted(len(found), "finding") if found else f"no finding in {covered}",
        verdict_of(campaign, Judged()),
    )
    keys = {
        "schedules": campaign.schedules,
        "distinct_traces": len(campaign.traces),
        "spec_states": len(campaign.states),
        "outcomes": dict(campaign.outcomes.most_common()),
        "findings": [asdict(reported.finding) for reported in campaign.reported.values()],
    }
    return Part(row, keys, [f"simulation: {finding}" for finding in found])
