"""The judge for a target without event logs: what its callers see is explained by the specification.

Time is measured around each call, so that what is not certain about it is left open.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from hicache_checks.conformance.black_box import BlackBox
from hicache_checks.conformance.explainer import MonitorConfig
from hicache_checks.conformance.findings import UNKNOWN, Broken
from hicache_checks.conformance.observation import UNOBSERVED, OpId, is_all_back
from hicache_checks.conformance.program import RIDS, TIMEOUT_S, Setup, Step
from hicache_checks.conformance.session import asked

# Where nobody can say that everything has come to rest, it is given this time for it.
REST_S_MAX = 10.0
PAUSE_S = 0.01
# Where time stands still, it is given so many turns.
TURNS_MAX = 200


class BlackBoxJudge:
    """Observes a target after every call.

    `can_settle`: where a session says that the target is at rest, it is. `pause_s`: what a turn waits for a target that
    cannot; 0: nothing happens but in its calls. `states`: those of the specification that explained something, as keys;
    `outcomes`: what was answered, counted.
    """

    def __init__(self, target: Any, setup: Setup, can_settle: bool, pause_s: float = PAUSE_S) -> None:
        self.states: set[bytes] = set()
        self.outcomes: Counter[str] = Counter()
        self._target = target
        self._can_settle = can_settle
        self._pause_s = pause_s
        self._config = MonitorConfig(
            setup.ranks, setup.host_pages, setup.threshold_pages, setup.limit_pages, setup.policy
        )
        self._unknown: str | None = None
        self._unobserved: Counter[str] = Counter()
        self._begin()

    @property
    def unobserved(self) -> Counter[str]:
        """What could not be seen, counted."""
        return self._unobserved + self.box.unobserved

    @property
    def possible(self) -> Sequence[str]:
        """What could have been seen instead of what has no explanation."""
        return () if self.box.alarm is None else self.box.alarm.possible

    def before(self, step: Step, now: float) -> None:
        """See Judge."""
        self._began = now

    def after(self, step: Step, answer: Any, now: float) -> None:
        """See Judge."""
        self._ended = now
        tell = getattr(self, f"_after_{step.kind}", None)
        if tell is not None:
            tell(step, answer)
            self._check()

    def at_rest(self, observed: Mapping[str, Any]) -> None:
        """See Judge."""
        if self._can_settle:
            self.box.settled()
        self.box.observed(observed)
        self._check()

    def explain_failure(self) -> None:
        """See Judge. What was seen before the call was explained."""

    def begin_again(self, logs_go_on: bool = False) -> None:
        """See Judge. What could not be kept in mind stays unknown."""
        self._unknown = self._unknown or self.box.unknown
        self._unobserved += self.box.unobserved
        self._begin()

    def _begin(self) -> None:
        self.box = BlackBox(self._config, self._is_late)
        self._submitted: dict[OpId, tuple[float, float]] = {}
        self._began = self._ended = 0.0

    def finish(self) -> None:
        """See Judge. Raises Broken, as unknown, too, if there was more to explain than could be kept in mind."""
        if not self._can_settle:
            self._let_it_rest()
        self.box.rested(self._observe())
        self._check()
        if unknown := self._unknown or self.box.unknown:
            raise Broken("black box", unknown, UNKNOWN, place="rest")

    # ---- calls

    def _after_submit(self, step: Step, answer: Mapping[str, Any]) -> None:
        rid, tokens = step.args
        self.outcomes["submitted" if answer["accepted"] else f"declined: {answer.get('reason', UNOBSERVED)}"] += 1
        self.box.submitted(rid, len(tokens), answer, self._observe())
        if answer["accepted"]:
            self._submitted[rid, self.box.attempt(rid)] = (self._began, self._ended)

    def _after_poll(self, step: Step, answer: Mapping[str, Mapping[str, Any]]) -> None:
        self.outcomes.update(f"polled: {how.get('state', UNOBSERVED)}" for how in answer.values() if how["ready"])
        self.box.polled(answer, self._observe())

    def _after_abort(self, step: Step, answer: object) -> None:
        self.box.aborted(step.args[0], answer, self._observe())

    def _after_stop(self, step: Step, answer: object) -> None:
        self.box.stopped(step.args[0], answer, self._observe())

    def _after_tick(self, step: Step, answer: object) -> None:
        self.box.ticked(self._observe())

    def _after_leave_by(self, step: Step, answer: object) -> None:
        self.box.aborted(step.args[1], seen=self._observe())

    def _after_full_turn(self, step: Step, answer: object) -> None:
        self.box.ticked(self._observe())

    def _after_look(self, step: Step, answer: Mapping[str, Any]) -> None:
        self._after_poll(step, {step.args[0]: answer["polled"]})

    def _after_prefill(self, step: Step, answer: object) -> None:
        self.box.disturbed(self._observe())

    def _after_prefill_chunk(self, step: Step, answer: object) -> None:
        self.box.disturbed(self._observe())

    def _after_detach(self, step: Step, answer: object) -> None:
        if answer:
            self.box.detached(self._observe())

    # ---- time

    def _is_late(self, op: OpId) -> bool | None:
        """Whether the time of an operation was over when it was polled, as far as the clock can tell."""
        earliest, latest = self._submitted[op]
        if self._began - latest > TIMEOUT_S:
            return True
        return None if self._ended - earliest > TIMEOUT_S else False

    def _let_it_rest(self) -> None:
        """Tick and poll until nothing is pending and every page is back, or enough is enough."""
        until, turns = time.monotonic() + REST_S_MAX, 0
        while time.monotonic() < until if self._pause_s else turns < TURNS_MAX:
            if is_all_back(self._observe(), self._config.host_pages):
                break
            turns += 1
            time.sleep(self._pause_s)
            self.after(Step("tick"), asked(self._target.tick, "tick"), self._ended)
            self.after(Step("poll", (RIDS,)), asked(partial(self._target.poll, RIDS), "poll"), self._ended)

    def _observe(self) -> Mapping[str, Any]:
        seen: Mapping[str, Any] = asked(self._target.observe, "observe")
        return seen

    def _check(self) -> None:
        self.states.update(world.key for world in self.box.worlds)
        alarm = self.box.alarm
        if alarm is not None:
            broken = Broken(alarm.property, alarm.message, place=alarm.call.partition(", ")[2])
            broken.add_note(str(alarm))
            raise broken
