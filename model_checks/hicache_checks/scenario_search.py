"""`hicheck scenario --search`: do random programs find what the scenarios tell, and in how many schedules?

For each scenario its last affected release is searched, and the first repaired one. *Found* is what both the scenario
and the search show on the affected release, by the same cause, if the same search does not show it on the repaired one.
If it does, it may be another bug with the same words: then it is found if a program of the search shows it on the
affected release and, in the same schedules, not on the repaired one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from hicache_checks.conformance import scenario as scenarios
from hicache_checks.conformance.looking import Looked
from hicache_checks.conformance.scenario import Scenario
from hicache_checks.conformance.search import SearchOptions
from hicache_checks.conformance.workers import work
from hicache_checks.matrix_command import MatrixOptions, looked_at
from hicache_checks.processes import workers_for
from hicache_checks.reporting import InputError, Outcome, Screen, Verdict, counted, print_rows, printable

PLAYS = 8
"""Schedules of a scenario. The same bug may show in more than one way."""
PROGRAMS_MAX, PROGRAM_PLAYS = 12, 16
"""Programs of a cause that both releases play, and schedules of each."""
CAUSES_MAX = 400


@dataclass(frozen=True)
class SearchedOptions:
    """`name`: of one scenario, or a file; None: all. `seconds`: for each release. `jobs` None: one a core."""

    name: str | None
    seconds: float
    jobs: int | None = None
    seed: int = 0


@dataclass(frozen=True)
class Told:
    """A scenario and the search of its affected release. `causes`: what the scenario shows; `shared`: those of them
    that the search shows too; `elsewhere`: those that it shows on the repaired release; `apart`: of these, how many
    programs of the search show it on the affected release only. `why`: not compared.
    """

    scenario: str
    affected: str
    repaired: str | None
    causes: Mapping[str, str]
    shared: Mapping[str, int]
    elsewhere: frozenset[str] = frozenset()
    schedules: int = 0
    why: str = ""
    apart: Mapping[str, int] = field(default_factory=dict)

    @property
    def found(self) -> dict[str, int]:
        """Schedules by cause; of causes that the repaired release shows too, programs."""
        alone = {cause: count for cause, count in self.shared.items() if cause not in self.elsewhere}
        return {**alone, **{cause: count for cause, count in self.apart.items() if count}}


def run(options: SearchedOptions, screen: Screen) -> Outcome:
    """Search, play, compare, report. What search does not find is no error: it is said. Raises InputError."""
    started = time.monotonic()
    chosen = scenarios.names() if options.name is None else [options.name]
    read = {name: scenarios.read(name) for name in chosen}
    releases = sorted({release for scenario in read.values() for release in _releases(scenario)})
    search = SearchOptions(
        ranks=2, schedules=None, seconds_max=options.seconds, seed=options.seed, causes_max=CAUSES_MAX
    )
    looked = looked_at(MatrixOptions(tuple(releases), search, options.jobs), screen)
    searched = {of_one.target: of_one for of_one in looked}
    screen.progress.update(f"playing {counted(len(read), 'scenario')}")
    with ThreadPoolExecutor(workers_for(len(read), options.jobs)) as pool:
        told = list(pool.map(lambda name: _told(name, read[name], searched, search), read))
    screen.progress.clear()
    _print(told, options, screen, time.monotonic() - started)
    verdict = Verdict.ERROR if any(t.why for t in told) else Verdict.PASS
    return Outcome(verdict, {"seconds": options.seconds, "seed": options.seed, "scenarios": [_keys(t) for t in told]})


def _releases(scenario: Scenario) -> Sequence[str]:
    return [*scenario.affected[-1:], *scenario.repaired[:1]]


def _told(name: str, scenario: Scenario, searched: Mapping[str, Looked], search: SearchOptions) -> Told:
    affected = scenario.affected[-1]
    repaired = next(iter(scenario.repaired), None)
    for release in filter(None, (affected, repaired)):
        if searched[release].campaign is None:
            return Told(name, affected, repaired, {}, {}, why=searched[release].why)
    campaign = searched[affected].campaign
    assert campaign is not None
    try:
        causes = _causes(affected, scenario)
    except InputError as error:
        return Told(name, affected, repaired, {}, {}, why=str(error))
    shared = {cause: campaign.reported[cause].schedules for cause in causes if cause in campaign.reported}
    elsewhere = frozenset() if repaired is None else frozenset(searched[repaired].found)
    told = Told(name, affected, repaired, causes, shared, elsewhere, campaign.schedules)
    if repaired is None or told.found:
        return told
    try:
        numbers = {cause: campaign.reported[cause].numbers for cause in shared}
        return replace(told, apart={cause: _apart(told, cause, numbers[cause], search) for cause in numbers})
    except InputError as error:
        return replace(told, why=str(error))


def _causes(target: str, scenario: Scenario) -> dict[str, str]:
    """What the scenario shows on this release, by cause. Raises InputError."""
    job = {"do": "scenario_causes", "target": target, "scenarios": [scenarios.to_document(scenario)]}
    (causes,) = _said({**job, "schedules": PLAYS}, "causes")
    return dict(causes)


def _apart(told: Told, cause: str, numbers: Sequence[int], search: SearchOptions) -> int:
    """Of the programs of these schedules, how many show the cause on the affected release only. Raises InputError."""
    job = {"do": "programs", "target": told.affected, "options": asdict(search), "numbers": numbers[:PROGRAMS_MAX]}
    played = {"do": "scenario_causes", "scenarios": _said(job, "program"), "schedules": PROGRAM_PLAYS}

    def shows(target: str | None) -> list[bool]:
        return [cause in seen for seen in _said({**played, "target": target}, "causes")]

    return sum(here and not there for here, there in zip(shows(told.affected), shows(told.repaired), strict=True))


def _said(job: Mapping[str, Any], key: str) -> list[Any]:
    """What a worker says under a key, line by line. Raises InputError."""
    said: list[Any] = []
    crash = work(job, lambda line: said.append(line[key]) if key in line else None)
    if crash is not None:
        raise InputError(f"the process {crash.how}")
    return said


def _print(told: Sequence[Told], options: SearchedOptions, screen: Screen, seconds: float) -> None:
    rows = [[printable(cell) for cell in _row(t)] for t in told]
    print_rows(screen.console, ["scenario", "release", "schedules", "show it", "what search shows"], rows)
    found = sum(bool(t.found) for t in told)
    what = f"search of {options.seconds:g} s a release, seed {options.seed}"
    screen.say(f"{what}: finds {found} of {counted(len(told), 'scenario')}; {seconds:.0f} s")


def _row(t: Told) -> list[str]:
    if t.why:
        return [t.scenario, t.affected, "", "", t.why]
    count = f"{t.schedules:,}"
    if t.found:
        most = max(t.found, key=lambda cause: t.found[cause])
        unit = f" programs, not on {t.repaired}" if t.apart else ""
        return [t.scenario, t.affected, count, f"{sum(t.found.values()):,}{unit}", t.causes[most]]
    if not t.causes:
        return [t.scenario, t.affected, count, "", "nothing; nor does the scenario"]
    return [
        t.scenario,
        t.affected,
        count,
        "0",
        f"on {t.repaired} too, so it may be another" if t.shared else "nothing of it",
    ]


def _keys(t: Told) -> dict[str, Any]:
    return {
        "scenario": t.scenario,
        "affected": t.affected,
        "repaired": t.repaired,
        "schedules": t.schedules,
        "found": {t.causes[cause]: count for cause, count in t.found.items()},
        "programs_apart": {t.causes[cause]: count for cause, count in t.apart.items()},
        "on_the_repaired_too": sorted(t.causes[cause] for cause in t.shared if cause in t.elsewhere),
        "why": t.why,
    }
