"""The judge for a target with event logs: every event is explained by a step of the specification."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from hicache_checks.conformance.explainer import CANONICAL
from hicache_checks.conformance.findings import Broken
from hicache_checks.conformance.monitor import Monitor, MonitorConfig
from hicache_checks.conformance.observation import OpId
from hicache_checks.conformance.program import TIMEOUT_S, Setup, Step
from hicache_checks.conformance.watch import Watch


class WhiteBox:
    """A Watch on the target's logs, asked after every call. `profile`: the design that explains them.

    `states`: those of the specification that were met, as keys; `outcomes`: what happened, counted.
    """

    def __init__(
        self, target: Any, setup: Setup, profile: str = CANONICAL, monitor: Callable[..., Monitor] = Monitor
    ) -> None:
        self.states: set[bytes] = set()
        self.outcomes: Counter[str] = Counter()
        self._target = target
        self._monitor = monitor
        self._config = MonitorConfig(
            setup.ranks, setup.host_pages, setup.threshold_pages, setup.limit_pages, setup.policy, profile
        )
        self._due: list[OpId] = []
        self._trusted = 0
        self._watch = self._new_watch()

    @property
    def unobserved(self) -> Counter[str]:
        """What was taken on trust."""
        return Counter({"taken on trust": self._trusted + self._watch.monitor.unobserved})

    def before(self, step: Step, now: float) -> None:
        """See Judge."""
        self._watch.seconds = self._watch.earlier = now
        if step.kind == "poll":
            self._due = self._watch.due(step.args[0])

    def after(self, step: Step, answer: Any, now: float) -> None:
        """See Judge. Whatever has to end by a poll, ends by it."""
        self._watch.seconds = now
        self._look()
        if step.kind == "poll" and (late := self._watch.monitor.still_pending(self._due)):
            raise Broken("P5 may_end (§3.8)", f"the poll did not end {late}", place="poll")

    def at_rest(self, observed: Mapping[str, Any]) -> None:
        """See Judge."""
        self._watch.monitor.compare(observed)
        self._check()

    def explain_failure(self) -> None:
        """See Judge."""
        self._look()

    def begin_again(self, logs_go_on: bool = False) -> None:
        """See Judge."""
        if logs_go_on:
            self._look()
        else:
            self._trusted += self._watch.monitor.unobserved
            self._watch = self._new_watch()

    def finish(self) -> None:
        """See Judge."""
        self._watch.monitor.finish()
        self._check()

    def _new_watch(self) -> Watch:
        watch = Watch(self._target, self._config, TIMEOUT_S, self._monitor)
        watch.outcomes = self.outcomes
        return watch

    def _look(self) -> None:
        self._watch.look(compare=False)
        self.states.add(self._watch.monitor.key)
        self._check()

    def _check(self) -> None:
        finding = self._watch.finding
        if finding is not None:
            place = "" if finding.event is None else str(finding.event)
            raise Broken(finding.property, finding.message, place=place)
