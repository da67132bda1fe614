"""Does a target fetch at all? Pages come from its store and are computed with, with nothing in the way; then it is
audited.

No specification judges it: what is asked is that the pages come, with the right bytes, and that nothing is left over.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import Any

from hicache_checks.conformance.findings import Broken
from hicache_checks.conformance.nobody import Nobody
from hicache_checks.conformance.observation import UNOBSERVED
from hicache_checks.conformance.program import RIDS, Setup, Step
from hicache_checks.conformance.schedule import run_schedule, run_script
from hicache_checks.conformance.search import SIMULATE
from hicache_checks.conformance.target import HELD_TO, Target, kind_of
from hicache_checks.simulation.choices import Plainest
from hicache_checks.targets.trees import is_release

RID, PROMPT = RIDS[0], (5, 6, 7)
TURNS = 3
STEPS = (
    Step("store", (PROMPT,)),
    Step("submit", (RID, PROMPT)),
    *(Step("settle"), Step("turn")) * TURNS,
    Step("settle"),
    Step("prefill", (PROMPT,)),
)
NEEDS = {"tiers": "bytes", "audit": "audit"}
"""Capabilities that a target may lack, and what is not looked at then."""
POLICY = "wait_complete"
FETCH = "fetch"
"""What is broken when pages do not come."""

Loaded = Callable[[Mapping[str, Any], str, Any], AbstractContextManager[tuple[Target, Any]]]


@dataclass(frozen=True)
class Fetched:
    """What became of it on so many ranks. `why`: it did not go well; `unchecked`: what could not be looked at."""

    ranks: int
    why: str = ""
    unchecked: tuple[str, ...] = ()


class _Watch(Nobody):
    """Waits for the pages. See judges.Judging."""

    def __init__(self) -> None:
        self.states: set[bytes] = set()
        self.outcomes: Counter[str] = Counter()
        self.unobserved: Counter[str] = Counter()
        self._is_ready = False
        self._resident: Any = 0

    def after(self, step: Step, answer: Any, now: float) -> None:
        """See Judge."""
        if step.kind == "submit" and not answer["accepted"]:
            raise Broken(FETCH, f"an idle system declines the request ({answer.get('reason', 'it does not say why')})")
        if step.kind == "poll":
            self._is_ready = self._is_ready or answer[RID]["ready"]

    def at_rest(self, observed: Mapping[str, Any]) -> None:
        """See Judge."""
        self._resident = observed["resident_pages"]

    def finish(self) -> None:
        """See Judge."""
        if not self._is_ready:
            raise Broken(FETCH, "the request is never ready")
        if self._resident not in (UNOBSERVED, len(PROMPT)):
            raise Broken(FETCH, f"{len(PROMPT)} pages are stored and asked for, {self._resident} are resident")


def fetch_on(target: Target, ranks: int) -> Fetched:
    """Fetch, on new ranks, with nobody preempted."""
    idle = run_schedule(target.build, ranks, POLICY, Plainest(), judge=target.judge)
    can = idle.capabilities
    if "store" not in can:
        return Fetched(ranks, "nobody can fill its store" if idle.finding is None else str(idle.finding))
    steps = [step for step in STEPS if step.kind != "prefill" or "tiers" in can]
    found = run_script(target.build, Setup(ranks, POLICY), steps, Plainest(), judge=lambda *_: _Watch()).finding
    unchecked = tuple(what for capability, what in NEEDS.items() if capability not in can)
    return Fetched(ranks, "" if found is None else str(found), unchecked)


def tree_kind(name: str) -> str:
    """The kind of tree that an opened release was asked for, or chooses by itself; of another target: none."""
    named, kind = kind_of(name.partition(HELD_TO)[0])
    if not is_release(named):
        return ""
    return kind or str(importlib.import_module("hicache_checks.targets.sglang.building").default_kind())


def fetch_job(job: Mapping[str, Any], say: Callable[[Mapping[str, Any]], None], loaded: Loaded) -> None:
    """The job of a worker: fetch on each number of `ranks`."""
    with loaded(job, SIMULATE, say) as (target, _):
        say({"profile": target.profile, "tree": tree_kind(job["target"])})
        for ranks in job["ranks"]:
            say({"fetched": asdict(fetch_on(target, ranks))})
