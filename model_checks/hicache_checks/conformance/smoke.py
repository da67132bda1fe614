"""Is an adapter usable? One step after the other, each with a reason: what whoever writes one wants to know first."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from hicache_checks.conformance.adapter_checks import (
    OBSERVED,
    REQUIRED,
    problem_of_calls,
    problem_of_capabilities,
    problem_of_observe,
    problem_of_poll,
    problem_of_submit,
    problem_of_truth,
)
from hicache_checks.conformance.observation import UNOBSERVED
from hicache_checks.conformance.program import Setup
from hicache_checks.conformance.schedule import run_schedule
from hicache_checks.conformance.search import SIMULATE, THREADS
from hicache_checks.conformance.target import Target
from hicache_checks.reporting import counted
from hicache_checks.simulation.choices import Plainest

OK, SKIP, FAIL = "ok", "skip", "fail"
STEPS = {
    THREADS: (
        *("factory", "calls", "capabilities", "reset", "observe", "submit", "poll", "tick", "abort", "prefetch"),
        "close",
    ),
    SIMULATE: ("simulation",),
}
"""In each mode, in order."""
NEEDED = ("factory", "calls", "capabilities", "reset")
"""Without these, the others make no sense."""
SETUP = Setup(ranks=1, policy="wait_complete")
RID, OTHER, PROMPT = "smoke", "nobody", (1, 2, 3)
PREFETCH_S = 10.0
PAUSE_S = 0.01


@dataclass(frozen=True)
class Tried:
    """A step, and what came of it."""

    step: str
    status: str
    reason: str = ""


class Skipped(Exception):
    """A step that does not apply: the message says why."""


class Failed(Exception):
    """A step that did not go well: the message says why."""


def smoke(target: Target, mode: str) -> Iterator[Tried]:
    """The steps of a mode, in order. After one that is needed has failed, the others are skipped."""
    adapter: Any = None

    def factory() -> None:
        nonlocal adapter
        adapter = target.build()

    calls: dict[str, Callable[[], str | None]] = {
        "factory": factory,
        "calls": lambda: _calls(adapter),
        "capabilities": lambda: _capabilities(adapter),
        "reset": lambda: adapter.reset(SETUP.config()),
        "observe": lambda: _observe(adapter),
        "submit": lambda: _submit(adapter),
        "poll": lambda: _poll(adapter),
        "tick": lambda: adapter.tick(),
        "abort": lambda: _abort(adapter),
        "prefetch": lambda: _prefetch(adapter),
        "close": lambda: _close(adapter),
        "simulation": lambda: _simulated(target),
    }
    lacking = ""
    for step in STEPS[mode]:
        tried = Tried(step, SKIP, f"{lacking} failed") if lacking else _tried(step, calls[step])
        if tried.status == FAIL and step in NEEDED:
            lacking = step
        yield tried


def _tried(step: str, call: Callable[[], Any]) -> Tried:
    try:
        said = call()
    except Skipped as why:
        return Tried(step, SKIP, str(why))
    except Failed as why:
        return Tried(step, FAIL, str(why))
    except Exception as error:
        text = str(error).partition("\n")[0]
        return Tried(step, FAIL, f"it raises {type(error).__name__}{f': {text}' if text else ''}")
    return Tried(step, OK, said if isinstance(said, str) else "")


def _calls(adapter: Any) -> str:
    _refuse(problem_of_calls(adapter))
    return ", ".join(REQUIRED)


def _capabilities(adapter: Any) -> str:
    _refuse(problem_of_capabilities(adapter))
    names = ", ".join(sorted(adapter.capabilities()))
    how = "" if "events" in adapter.capabilities() else "; without events, it is judged by what its callers see"
    return f"{names or 'none'}{how}"


def _observe(adapter: Any) -> str:
    seen = adapter.observe()
    _refuse(problem_of_observe(seen))
    free, resident = seen["free_pages"], seen["resident_pages"]
    if UNOBSERVED not in (free, resident) and free + resident != SETUP.host_pages:
        raise Failed(f"{free} free and {resident} resident pages right after reset, host_pages is {SETUP.host_pages}")
    if seen["operations"] not in (UNOBSERVED, {}):
        raise Failed("operations is not empty right after reset")
    hidden = [name for name in OBSERVED if seen[name] is UNOBSERVED]
    return f"{', '.join(hidden)} cannot be seen" if hidden else ""


def _submit(adapter: Any) -> str:
    answer = adapter.submit(RID, PROMPT)
    _refuse(problem_of_submit(answer))
    operations = adapter.observe()["operations"]
    if answer["accepted"] and operations is not UNOBSERVED and (RID, 1) not in operations:
        raise Failed(f"it is accepted, and observe()['operations'] has no {(RID, 1)!r}")
    return "accepted" if answer["accepted"] else f"declined: {answer.get('reason', UNOBSERVED)}"


def _poll(adapter: Any) -> None:
    answer = adapter.poll((RID, OTHER))
    _refuse(problem_of_poll(answer, (RID, OTHER)))
    if not answer[OTHER]["ready"]:
        raise Failed("a request that was never submitted is not ready: it would wait for ever")


def _abort(adapter: Any) -> None:
    for _ in range(2):
        _refuse(problem_of_truth(adapter.abort(RID)))
    operations = adapter.observe()["operations"]
    if operations is not UNOBSERVED and (RID, 1) in operations:
        raise Failed(f"observe()['operations'] still has {(RID, 1)!r}")


def _prefetch(adapter: Any) -> str:
    """Pages that are in storage come to the host."""
    if "store" not in adapter.capabilities():
        raise Skipped("without the capability store nothing can be fetched")
    adapter.reset(SETUP.config())
    adapter.store(PROMPT)
    if not adapter.submit(RID, PROMPT)["accepted"]:
        raise Failed("a request for stored pages is declined by an idle system")
    until, turns = time.monotonic() + PREFETCH_S, 0
    while not adapter.poll((RID,))[RID]["ready"]:
        if time.monotonic() > until:
            raise Failed(f"a request for stored pages is not ready after {turns} turns")
        adapter.tick()
        turns += 1
        time.sleep(PAUSE_S)
    resident = adapter.observe()["resident_pages"]
    if resident not in (UNOBSERVED, len(PROMPT)):
        raise Failed(f"{len(PROMPT)} pages were stored and asked for, {resident} are resident when it is ready")
    return f"{len(PROMPT)} pages, {counted(turns, 'turn')}"


def _close(adapter: Any) -> None:
    for _ in range(2):
        adapter.close()


def _simulated(target: Target) -> str:
    """A run in which nothing is asked: reset, ticks, polls, close."""
    finding = run_schedule(target.build, SETUP.ranks, SETUP.policy, Plainest(), judge=target.judge).finding
    if finding is not None:
        raise Failed(str(finding))
    return f"packages {', '.join(target.packages)}"


def _refuse(problem: str | None) -> None:
    if problem is not None:
        raise Failed(problem)
