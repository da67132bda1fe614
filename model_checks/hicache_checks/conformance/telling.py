"""Runs that are told while they are judged: the judge and the monitor, each telling a recorder what it sees."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from hicache_checks.conformance.difference import Change, difference
from hicache_checks.conformance.explainer import CANONICAL
from hicache_checks.conformance.findings import Finding
from hicache_checks.conformance.merge import said
from hicache_checks.conformance.monitor import Finding as Unexplained
from hicache_checks.conformance.monitor import Monitor, MonitorConfig
from hicache_checks.conformance.next_steps import next_steps
from hicache_checks.conformance.observation import Event, OpId
from hicache_checks.conformance.program import Setup, Step
from hicache_checks.conformance.story import Recorder
from hicache_checks.conformance.white_box import WhiteBox
from hicache_checks.reporting import Story

LOCKSTEP = "P7 lockstep"


class Storyteller(WhiteBox):
    """A judge that tells a recorder what it sees."""

    def __init__(self, target: Any, setup: Setup, profile: str = CANONICAL) -> None:
        self._recorder = Recorder(setup)
        super().__init__(target, setup, profile, partial(_Telling, self._recorder))

    def story(self, finding: Finding | None) -> Story:
        """Everything so far, and what is wrong."""
        return self._recorder.story(finding)

    def before(self, step: Step, now: float) -> None:
        """See Judge."""
        self._recorder.call(step, now)
        super().before(step, now)

    def after(self, step: Step, answer: Any, now: float) -> None:
        """See Judge."""
        self._recorder.returned(now)
        super().after(step, answer, now)

    def begin_again(self, logs_go_on: bool = False) -> None:
        """See Judge."""
        if not logs_go_on:
            self._recorder.flushed()
        super().begin_again(logs_go_on)


class _Telling(Monitor):
    """A monitor that tells what each event changed, before an operation that ended gives up its slot."""

    def __init__(self, recorder: Recorder, config: MonitorConfig, is_late: Callable[[OpId], bool] | None) -> None:
        super().__init__(config, is_late)
        self._recorder = recorder
        self._before = self.copy_of(self.state)
        self._names: dict[int, OpId] = {}
        self._changes: list[Change] | None = None

    def feed(self, event: Event) -> None:
        """See Monitor."""
        if self.finding is not None:
            return
        self._before, self._changes = self.copy_of(self.state), None
        self._names = {slot: op for op, slot in self._slots.items()}
        super().feed(event)
        changes: list[Change] = self._changes or []
        if self.finding is None:
            self._recorder.event(event, changes)
        else:
            self._recorder.broken(event, changes, self.finding.related, self._allowed(event, self.finding))

    def _allowed(self, event: Event, finding: Unexplained) -> list[str]:
        """What could have happened instead. Where another rank's scheduler came first, nothing but the same."""
        if event.is_lockstep and finding.property == LOCKSTEP and finding.related:
            return [f"scheduler of rank {event.rank}: {said(finding.related[0])}"]
        return next_steps(self, self._before, event.rank)

    def _retire(self, op: OpId) -> None:
        self._note_changes()
        super()._retire(op)

    def _judge(self) -> None:
        self._note_changes()
        super()._judge()

    def _note_changes(self) -> None:
        if self._changes is None:
            self._names |= {slot: op for op, slot in self._slots.items()}
            self._changes = difference(self.spec, self._before, self.state, self._names)
