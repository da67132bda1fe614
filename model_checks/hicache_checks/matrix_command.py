"""`hicheck matrix`: releases and properties, and from which release to which each finding was seen.

Each target is loaded, fetches pages on one rank and on two, and is searched for a few seconds, in processes of its own.
One that cannot be had, or does not survive, says so in its row; the others go on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hicache_checks.conform_command import verdict_of as verdict_of_campaign
from hicache_checks.conformance.baseline import Judged
from hicache_checks.conformance.campaign import Reported
from hicache_checks.conformance.end_to_end import Fetched
from hicache_checks.conformance.findings import Finding, cause
from hicache_checks.conformance.history import History, histories, in_order
from hicache_checks.conformance.looking import FETCH_RANKS, Looked, look
from hicache_checks.conformance.properties import PROPERTIES, STEPS, why_hidden
from hicache_checks.conformance.search import SearchOptions
from hicache_checks.processes import workers_for
from hicache_checks.reporting import (
    InputError,
    Outcome,
    Screen,
    Section,
    Verdict,
    check_file,
    counted,
    print_sections,
    sections_page,
    write_file,
)

RELEASES = (
    *("sglang==0.5.1", "sglang==0.5.2", "sglang==0.5.3", "sglang==0.5.3.post1", "sglang==0.5.4", "sglang==0.5.5"),
    *("sglang==0.5.6", "sglang==0.5.7", "sglang==0.5.8", "sglang==0.5.9", "sglang==0.5.10", "sglang==0.5.11"),
    *("sglang==0.5.12", "sglang==0.5.13", "sglang==0.5.14", "sglang==0.5.15", "sglang==0.5.16", "sglang==0.5.17"),
    *("sglang==0.5.18", "sglang==0.5.19", "sglang==0.5.20", "sglang==0.5.21", "sglang==0.5.22", "sglang==0.5.23"),
    *("sglang-kt==0.6.1", "sglang-kt==0.7.2"),
)
"""What is looked at if nothing is named. Nothing else depends on these names."""
NOT_SEEN = "-"
UNJUDGED = "unjudged"
SHOWN_AS = {STEPS: "other"}
"""Properties that have a better name at the head of a column."""


@dataclass(frozen=True)
class MatrixOptions:
    """`search`: of each target. `jobs`: so many targets at a time; None: one a core. `html`: a file for the page."""

    targets: tuple[str, ...]
    search: SearchOptions
    jobs: int | None = None
    wheels: Path | None = None
    html: str | None = None


def run(options: MatrixOptions, screen: Screen) -> Outcome:
    """Look at every target, and report. Raises InputError."""
    if not options.targets:
        raise InputError("there is no target")
    if twice := sorted({name for name in options.targets if options.targets.count(name) > 1}):
        raise InputError(f"{twice[0]} is named twice")
    check_file(options.html, "--html")
    started = time.monotonic()
    looked = looked_at(options, screen)
    screen.progress.clear()
    return report(options, looked, screen, time.monotonic() - started)


def looked_at(options: MatrixOptions, screen: Screen) -> list[Looked]:
    """What was seen of each target, in their order."""
    doing: dict[str, str] = {}
    done = 0
    lock = threading.Lock()

    def tell(target: str, line: str) -> None:
        with lock:
            doing[target] = line
            now = "; ".join(f"{name}: {said}" for name, said in doing.items())
            screen.progress.update(f"{done} of {counted(len(options.targets), 'target')} done; {now}")

    def one(target: str) -> Looked:
        nonlocal done
        looked = look(target, options.search, options.wheels, partial(tell, target))
        with lock:
            done += 1
            doing.pop(target, None)
        return looked

    with ThreadPoolExecutor(workers_for(len(options.targets), options.jobs)) as pool:
        futures = [pool.submit(one, target) for target in options.targets]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def report(options: MatrixOptions, looked: Sequence[Looked], screen: Screen, seconds: float) -> Outcome:
    """Say what was seen: printed, as a page, and as keys. Raises InputError for a page that cannot be written."""
    verdict = Verdict.worst([verdict_of(of_one) for of_one in looked])
    history = histories(looked)
    sections = [
        _matrix(looked),
        *_notes(looked),
        _history(history),
        Section("How much was looked at", (), (), below=_budget(options, looked, seconds)),
    ]
    if options.html is not None:
        write_file(sections_page("hicheck matrix", verdict, sections), options.html, "--html")
    print_sections(screen, sections)
    screen.say(f"verdict: {verdict.value}")
    return Outcome(verdict, _keys(options, looked, history))


def verdict_of(looked: Looked) -> Verdict:
    """Of a target: what is not there is an error, a fetch in vain fails, and so does a violation."""
    if looked.campaign is None:
        return Verdict.ERROR
    fetched = [looked.fetched_on(ranks) for ranks in FETCH_RANKS]
    is_fetched = all(fetch is not None and not fetch.why for fetch in fetched)
    return Verdict.worst([Verdict.PASS if is_fetched else Verdict.FAIL, verdict_of_campaign(looked.campaign, Judged())])


# ---- the parts of the report


def _matrix(looked: Sequence[Looked]) -> Section:
    found = in_order(list({name for of_one in looked for name in of_one.schedules_of}))
    headers = ("target", "tree", "design", *(f"fetches, {counted(ranks, 'rank')}" for ranks in FETCH_RANKS))
    headers = (*headers, "schedules", *(_shown(name) for name in found), UNJUDGED)
    below = [
        f"A number: so many schedules violate it. {NOT_SEEN}: none was seen. Empty: it was not searched.",
        *(f"{_shown(name)}: {meaning_of(name)}" for name in found),
    ]
    capabilities = {name for of_one in looked if of_one.campaign for name in of_one.campaign.capabilities}
    hidden = [name for name in PROPERTIES if name not in found and why_hidden(name, capabilities)]
    unseen = [name for name in PROPERTIES if name not in found and name not in hidden]
    if capabilities:
        below.append(f"Not seen anywhere: {', '.join(unseen) or 'none'}.")
        below.append(f"Of these targets nothing can show: {', '.join(hidden) or 'none'}.")
    rows = [_row(of_one, found) for of_one in looked]
    return Section("What was seen of which target", headers, rows, frozenset(range(5, len(headers))), below)


def _shown(property_: str) -> str:
    return SHOWN_AS.get(property_, property_)


def meaning_of(property_: str) -> str:
    """What a property says, or what a finding is about that is about none."""
    about_none = "a call raises, or an answer is none that can be, and no property of the list says so"
    return PROPERTIES.get(property_, about_none if property_ == STEPS else "")


def _row(looked: Looked, properties: Sequence[str]) -> tuple[str, ...]:
    fetches = tuple(_fetch_cell(looked.fetched_on(ranks)) for ranks in FETCH_RANKS)
    known = (looked.target, looked.tree, looked.design, *fetches)
    if looked.campaign is None:
        return (*known, "", *("" for _ in properties), "")
    counts = [looked.schedules_of[name] for name in properties]
    unjudged = sum(reported.schedules for reported in looked.unjudged.values())
    cells = tuple(f"{count:,}" if count else NOT_SEEN for count in (*counts, unjudged))
    return (*known, f"{looked.campaign.schedules:,}", *cells)


def _fetch_cell(fetched: Fetched | None) -> str:
    if fetched is None:
        return "not tried"
    if fetched.why:
        return "no"
    return f"yes, but for {', '.join(fetched.unchecked)}" if fetched.unchecked else "yes"


def _notes(looked: Sequence[Looked]) -> list[Section]:
    """Why something is not there."""
    lines = []
    for of_one in looked:
        if of_one.why:
            lines.append(f"{of_one.target} was not searched: {of_one.why}")
        lines += [
            f"{of_one.target} does not fetch on {counted(fetched.ranks, 'rank')}: {fetched.why}"
            for fetched in of_one.fetched
            if fetched.why
        ]
        lines += [
            f"{of_one.target}: {counted(r.schedules, 'schedule')} could not be judged: {r.finding}"
            for r in of_one.unjudged.values()
        ]
        if of_one.campaign is not None and of_one.campaign.incomplete:
            lines.append(f"{of_one.target}: not all of the search was done")
    return [Section("What is not there", (), (), below=lines)] if lines else []


def _history(history: Sequence[History]) -> Section:
    title = "From which release to which each finding was seen"
    if not history:
        return Section(title, (), (), below=["There is no finding."])
    headers = ("id", "property", "first", "last", "seen on", "later without", "schedules", "for example")
    rows = [
        (
            one.id,
            one.finding.property,
            one.first,
            one.last,
            f"{len(one.seen_on)} of {one.searched}",
            str(one.later),
            f"{one.schedules:,}",
            _example(one.finding),
        )
        for one in history
    ]
    below = [
        "seen on: so many of the releases that were searched from the first to the last; later without: so many later"
        " ones were searched, and it was not seen. Releases of a distribution are compared with each other only.",
    ]
    return Section(title, headers, rows, frozenset({4, 5, 6}), below)


def _example(finding: Finding) -> str:
    at = f" at {finding.place}" if finding.place else ""
    return finding.message.removesuffix(at) + at


def _budget(options: MatrixOptions, looked: Sequence[Looked], seconds: float) -> list[str]:
    search = options.search
    schedules = sum(of_one.campaign.schedules for of_one in looked if of_one.campaign)
    limits = [] if search.schedules is None else [counted(search.schedules, "schedule")]
    limits += [] if search.seconds_max is None else [f"{search.seconds_max:g} s of search"]
    how = f"seed {search.seed}, on {counted(search.ranks, 'rank')}, {', '.join(search.policies)}"
    return [
        f"Not seen is not absent. For each target: {', at most '.join(limits)}, {how};"
        f" {counted(schedules, 'schedule')} in all.",
        "A schedule ends at the first thing that is wrong, so a frequent finding hides others. None was tried with"
        f" real threads: hicheck conform TARGET --seed {search.seed} makes each small, and tries it.",
        f"{counted(len(looked), 'target')}, {seconds:.0f} s",
    ]


# ---- the keys of the document


def _keys(options: MatrixOptions, looked: Sequence[Looked], history: Sequence[History]) -> dict[str, Any]:
    search = options.search
    return {
        "ranks": search.ranks,
        "policies": list(search.policies),
        "seed": search.seed,
        "seconds_each": search.seconds_max,
        "schedules_each": search.schedules,
        "targets": [_target_keys(of_one) for of_one in looked],
        "history": [
            {
                "id": one.id,
                **asdict(one.finding),
                "first": one.first,
                "last": one.last,
                "seen_on": list(one.seen_on),
                "searched": one.searched,
                "later": one.later,
                "schedules": one.schedules,
            }
            for one in history
        ],
    }


def _target_keys(looked: Looked) -> dict[str, Any]:
    return {
        "target": looked.target,
        "verdict": verdict_of(looked).value,
        "why": looked.why,
        "design": looked.design,
        "tree": looked.tree,
        "fetches": [asdict(fetched) for fetched in looked.fetched],
        "schedules": None if looked.campaign is None else looked.campaign.schedules,
        "incomplete": None if looked.campaign is None else looked.campaign.incomplete,
        "properties": dict(looked.schedules_of),
        "findings": [_finding_keys(r) for r in (*looked.found.values(), *looked.unjudged.values())],
    }


def _finding_keys(reported: Reported) -> dict[str, Any]:
    return {"id": cause(reported.finding), **asdict(reported.finding), "schedules": reported.schedules}
