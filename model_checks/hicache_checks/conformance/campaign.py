"""A search by several workers at once, and what they found together; one that crashes is a finding, not the end."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import msgspec

from hicache_checks.conformance import replay_file
from hicache_checks.conformance.explainer import CANONICAL
from hicache_checks.conformance.findings import HARNESS, Finding, cause
from hicache_checks.conformance.rarity import Rarity
from hicache_checks.conformance.replay_file import Replay
from hicache_checks.conformance.search import EXHAUSTIVE, SearchOptions
from hicache_checks.conformance.workers import ALLOWED, Allowed, Crash, work
from hicache_checks.reporting import Story

CRASHES_MAX = 3
CRASHED = "P31 the process survives"
HUNG = "P22 progress"


@dataclass
class Reported:
    """A cause: how many schedules show it, the first `numbers` of one worker, and the smallest run of them. No replay:
    it ended the process."""

    finding: Finding
    schedules: int
    replay: Replay | None = None
    story: Story | None = None
    confirmed: bool | None = None
    rarity: Rarity | None = None
    numbers: tuple[int, ...] = ()


@dataclass
class Campaign:
    """What all workers saw; `traces` and `states` are hashes of distinct ones. `incomplete`: a budget ran out.

    `profile`: the design that the target is held to. `cut`, `asleep`: see Searched.
    """

    profile: str = CANONICAL
    schedules: int = 0
    cut: int = 0
    asleep: int = 0
    incomplete: bool = False
    traces: set[int] = field(default_factory=set)
    states: set[int] = field(default_factory=set)
    outcomes: Counter[str] = field(default_factory=Counter)
    unobserved: Counter[str] = field(default_factory=Counter)
    capabilities: set[str] = field(default_factory=set)
    reported: dict[str, Reported] = field(default_factory=dict)

    def add(self, new: Reported) -> None:
        """Another finding; of the same cause the smaller run is kept."""
        known = self.reported.setdefault(cause(new.finding), new)
        if known is new:
            return
        known.schedules += new.schedules
        if known.replay and new.replay and len(new.replay.choices) < len(known.replay.choices):
            known.finding, known.replay, known.story = new.finding, new.replay, new.story
            known.rarity = new.rarity


def run_campaign(
    target: str,
    options: SearchOptions,
    jobs: int,
    shrink_seconds: float,
    show: Callable[[str], None],
    allowed: Allowed = ALLOWED,
) -> Campaign:
    """Every schedule once, shared among `jobs` processes. Raises InputError when the target cannot be used."""
    campaign = Campaign()
    is_exhaustive = options.strategy == EXHAUSTIVE
    if is_exhaustive:
        # What follows in the search of a policy depends on what was before.
        jobs = min(jobs, len(options.policies), options.schedules or jobs)
    latest: dict[int, Mapping[str, Any]] = {}
    seen: dict[tuple[int, str], Mapping[str, Any]] = {}
    lock = threading.Lock()
    started = time.monotonic()

    def share(worker: int) -> None:
        first, crashes = worker, 0
        while options.has(first):
            mine = replace(options, first=first, stride=jobs, seconds_max=seconds_left())
            job = {"do": "search", "target": target, "options": asdict(mine), "shrink_seconds": shrink_seconds}
            crash = work(job, lambda said: hear(worker, said), allowed)
            if crash is None:
                return
            with lock:
                campaign.schedules += int(latest.pop(worker, {}).get("schedules", 0))
                campaign.add(Reported(finding_of(crash), 1))
                for place in [place for place in seen if place[0] == worker]:
                    campaign.add(_reported(seen.pop(place)))
            crashes += 1
            if crash.number is None or crashes == CRASHES_MAX or is_exhaustive:
                campaign.incomplete = True
                return
            first = crash.number + jobs

    def seconds_left() -> float | None:
        return None if options.seconds_max is None else options.seconds_max - (time.monotonic() - started)

    def hear(worker: int, said: Mapping[str, Any]) -> None:
        with lock:
            if "covered" in said:
                _take_covered(campaign, said["covered"])
            if "seen" in said:
                seen[worker, said["cause"]] = said["seen"]
            elif "found" in said:
                del seen[worker, said["cause"]]
                campaign.add(_reported(said["found"]))
            elif "done" in said:
                latest.pop(worker, None)
                _take_done(campaign, said["done"])
            elif "profile" in said:
                campaign.profile = said["profile"]
            elif "schedules" in said:
                latest[worker] = said
            show(_line(campaign, latest.values()))

    with ThreadPoolExecutor(jobs) as pool:
        for future in [pool.submit(share, worker) for worker in range(jobs)]:
            future.result()
    return campaign


def confirm(target: str, replays: Sequence[Replay], seconds: float, allowed: Allowed = ALLOWED) -> list[bool | None]:
    """Of each replay, whether its program shows the same with real threads and real time, within a few tries; None: its
    turn did not come within the seconds that all have together."""
    confirmed: list[bool | None] = []
    until = time.monotonic() + seconds

    def hear(said: Mapping[str, Any]) -> None:
        if "confirmed" in said:
            confirmed.append(said["confirmed"])

    while len(confirmed) < len(replays):
        left = [replay_file.to_document(replay) for replay in replays[len(confirmed) :]]
        job = {"do": "confirm", "target": target, "replays": left, "seconds": until - time.monotonic()}
        if work(job, hear, allowed) is not None:
            # A process that ends under real threads is as wrong as what the simulation saw.
            confirmed.append(True)
    return confirmed


def _take_done(campaign: Campaign, done: Mapping[str, Any]) -> None:
    campaign.schedules += done["schedules"]
    campaign.cut += done["cut"]
    campaign.asleep += done["asleep"]
    campaign.incomplete |= done["out_of_time"]


def _take_covered(campaign: Campaign, covered: Mapping[str, Any]) -> None:
    campaign.traces.update(covered["traces"])
    campaign.states.update(covered["states"])
    campaign.outcomes.update(covered["outcomes"])
    campaign.unobserved.update(covered["unobserved"])
    campaign.capabilities.update(covered["capabilities"])


def _reported(found: Mapping[str, Any]) -> Reported:
    replay = replay_file.from_document(found["replay"], "a worker")
    story = msgspec.convert(found["story"], Story)
    if replay.found is None:
        finding = Finding("replay", "the same choices show nothing wrong: the target is not deterministic", HARNESS)
        return Reported(finding, found["schedules"], replay, story)
    weighed = found["rarity"]
    numbers = tuple(found["numbers"])
    return Reported(replay.found, found["schedules"], replay, story, None, weighed and Rarity(**weighed), numbers)


def finding_of(crash: Crash) -> Finding:
    """A worker that died or hung, as a finding. What differs from run to run is in quotes (see `cause`)."""
    where = "" if crash.number is None else f" in schedule {crash.number}"
    words = crash.words.replace("'", '"')
    message = f"the process {crash.how}{where}" + (f", saying '{words}'" if words else "")
    return Finding(HUNG if crash.is_hung else CRASHED, message, place=crash.place or "process")


def _line(campaign: Campaign, latest: Any) -> str:
    schedules = campaign.schedules + sum(said["schedules"] for said in latest)
    rate = sum(said["schedules"] / said["seconds"] for said in latest if said["seconds"])
    causes = len(campaign.reported) + sum(said["causes"] for said in latest)
    return f"{schedules:,} schedules, {rate:,.0f} a second, {causes} causes"
