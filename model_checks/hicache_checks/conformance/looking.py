"""A look at one target: does it fetch, and what does a search of a few seconds find? What cannot be had says why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hicache_checks.conformance.campaign import Campaign, Reported, run_campaign
from hicache_checks.conformance.end_to_end import Fetched
from hicache_checks.conformance.findings import PROTOCOL
from hicache_checks.conformance.properties import properties_of
from hicache_checks.conformance.search import SearchOptions
from hicache_checks.conformance.target import fetch
from hicache_checks.conformance.workers import ALLOWED, Allowed, Crash, work
from hicache_checks.reporting import InputError

FETCH_RANKS = (1, 2)
NO_SHRINKING_S = 0.0
"""A finding keeps the words of the run that showed it, so that its cause is the same on every release."""

Tell = Callable[[str], None]


@dataclass
class Looked:
    """What was seen of one target. `why`: it was not searched, in a line. `design`: of the specification; `tree`: the
    kind of tree that a release has; both empty if it was not loaded.
    """

    target: str
    design: str = ""
    tree: str = ""
    fetched: tuple[Fetched, ...] = ()
    campaign: Campaign | None = None
    why: str = ""

    def fetched_on(self, ranks: int) -> Fetched | None:
        """What became of the fetch on so many ranks; None: it was not tried."""
        return next((fetched for fetched in self.fetched if fetched.ranks == ranks), None)

    @property
    def found(self) -> Mapping[str, Reported]:
        """Violations, by their causes."""
        return self._reported(is_violation=True)

    @property
    def unjudged(self) -> Mapping[str, Reported]:
        """What the harness could not judge, by causes."""
        return self._reported(is_violation=False)

    @property
    def schedules_of(self) -> Counter[str]:
        """By property, how many schedules violate it."""
        schedules: Counter[str] = Counter()
        for reported in self.found.values():
            schedules.update(dict.fromkeys(properties_of(reported.finding), reported.schedules))
        return schedules

    def _reported(self, is_violation: bool) -> Mapping[str, Reported]:
        reported = {} if self.campaign is None else self.campaign.reported
        return {name: r for name, r in reported.items() if (r.finding.kind == PROTOCOL) == is_violation}


def look(target: str, search: SearchOptions, wheels: Path | None, tell: Tell, allowed: Allowed = ALLOWED) -> Looked:
    """Fetch pages on each number of ranks, then search, each in a process of its own. `tell` hears how far it is."""
    looked = Looked(target)
    try:
        fetch(target, wheels, tell)
        tell("fetching pages")
        _fetch_pages(looked, allowed)
        tell("searching")
        looked.campaign = run_campaign(target, search, 1, NO_SHRINKING_S, tell, allowed)
    except InputError as error:
        looked.why = " ".join(str(error).split())
    except Exception as error:
        # Others have results that are not to be lost.
        looked.why = " ".join(f"internal error: {type(error).__name__}: {error}".split())
    return looked


def _fetch_pages(looked: Looked, allowed: Allowed) -> None:
    def hear(said: Mapping[str, Any]) -> None:
        if "fetched" in said:
            given = said["fetched"]
            looked.fetched += (Fetched(given["ranks"], given["why"], tuple(given["unchecked"])),)
        elif "profile" in said:
            looked.design, looked.tree = said["profile"], said["tree"]

    crash = work({"do": "fetch", "target": looked.target, "ranks": FETCH_RANKS}, hear, allowed)
    if crash is not None:
        untried = [ranks for ranks in FETCH_RANKS if looked.fetched_on(ranks) is None]
        looked.fetched += tuple(Fetched(ranks, _said(crash)) for ranks in untried)


def _said(crash: Crash) -> str:
    place = f" in {crash.place}" if crash.place else ""
    return f"the process {crash.how}{place}{f': {crash.words}' if crash.words else ''}"
