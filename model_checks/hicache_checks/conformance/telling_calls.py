"""Runs of a target without logs, told while they are judged: each call, its answer, and what is observed after it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from hicache_checks.conformance.black_box_sight import Sight, sight_of
from hicache_checks.conformance.explainer import name_of
from hicache_checks.conformance.findings import Finding
from hicache_checks.conformance.judges import CallJudge
from hicache_checks.conformance.observation import UNOBSERVED
from hicache_checks.conformance.program import Setup, Step
from hicache_checks.conformance.story import DONE_TO_IT, PASSED_S, ROUTINE, SCHEDULER, system_of
from hicache_checks.reporting.story import CALL, CALLER, FINDING, Row, Story


class CallTeller:
    """See judges.Judging: another judge, of whom it keeps what he sees. `make` gets the target to look at."""

    def __init__(self, target: Any, setup: Setup, make: Callable[[Any], CallJudge]) -> None:
        self._setup = setup
        self._rows: list[Row] = []
        self._minor: set[int] = set()
        self._sight = Sight(setup.host_pages, 0, 0, {})
        self._then: float | None = None
        self._judge = make(_Watched(target, self._note))
        self.states: set[bytes] = self._judge.states
        self.outcomes: Counter[str] = self._judge.outcomes

    @property
    def unobserved(self) -> Counter[str]:
        """See Judging."""
        return self._judge.unobserved

    def before(self, step: Step, now: float) -> None:
        """See Judge."""
        if self._then is not None and now - self._then > PASSED_S:
            self._tell(f"{now - self._then:.1f} s pass", "", is_minor=self._setup.policy != "timeout")
        what = "settle()" if step.kind == "observe" else str(step)
        self._tell(what, "" if step.kind in DONE_TO_IT else SCHEDULER, is_minor=step.kind in ROUTINE)
        self._judge.before(step, now)

    def after(self, step: Step, answer: Any, now: float) -> None:
        """See Judge."""
        self._then = now
        if said := _said(step, answer):
            self._rows[-1].what[0] += f" -> {said}"
        self._judge.after(step, answer, now)

    def begin_again(self, logs_go_on: bool = False) -> None:
        """See Judge."""
        self._judge.begin_again(logs_go_on)

    def at_rest(self, observed: Mapping[str, Any]) -> None:
        """See Judge."""
        self._note(observed)
        self._judge.at_rest(observed)

    def explain_failure(self) -> None:
        """See Judge."""
        self._judge.explain_failure()

    def finish(self) -> None:
        """See Judge."""
        self._judge.finish()

    def story(self, finding: Finding | None) -> Story:
        """Everything so far, without calls of which nothing came, and what is wrong."""
        last = len(self._rows) - 1
        told = [r for n, r in enumerate(self._rows) if r.changes or n not in self._minor or (n == last and finding)]
        if finding is not None:
            told.append(Row(FINDING, [], CALLER, "", [finding.property, finding.message], []))
        return Story(system_of(self._setup), told, [], list(self._judge.possible))

    def _tell(self, what: str, to: str, is_minor: bool) -> None:
        if is_minor:
            self._minor.add(len(self._rows))
        self._rows.append(Row(CALL, [], CALLER, to, [what], []))

    def _note(self, seen: Mapping[str, Any]) -> None:
        """What became different since the call before."""
        before, self._sight = self._sight, sight_of(seen)
        changes = self._rows[-1].changes
        for name in ("free_pages", "resident_pages", "occupied_pages"):
            old, new = getattr(before, name), getattr(self._sight, name)
            if old != new:
                changes.append(f"{name}: {old} -> {new}")
        if UNOBSERVED not in (before.operations, self._sight.operations):
            changes += _of_operations(before.operations, self._sight.operations)


class _Watched:
    """A target; whoever asks what can be observed, is not the only one who hears it."""

    def __init__(self, target: Any, note: Callable[[Mapping[str, Any]], None]) -> None:
        self._target = target
        self._note = note

    def observe(self) -> Mapping[str, Any]:
        seen: Mapping[str, Any] = self._target.observe()
        self._note(seen)
        return seen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)


def _of_operations(before: Mapping[Any, Any], now: Mapping[Any, Any]) -> list[str]:
    said = [f"{name_of(op)}: ended" for op in before if op not in now]
    said += [f"{name_of(op)}: pending, granted {pages}" for op, pages in now.items() if op not in before]
    both = ((op, before[op], pages) for op, pages in now.items() if op in before)
    return said + [f"{name_of(op)}: granted {old} -> {new}" for op, old, new in both if old != new]


def _said(step: Step, answer: Any) -> str:
    """An answer in words; empty: it says nothing."""
    if step.kind == "submit":
        reason = answer.get("reason")
        return "accepted" if answer["accepted"] else f"declined{f': {reason}' if reason else ''}"
    if step.kind == "poll":
        return ", ".join(f"{rid} is {'' if how['ready'] else 'not '}ready" for rid, how in answer.items())
    return str(answer) if isinstance(answer, bool) else ""
