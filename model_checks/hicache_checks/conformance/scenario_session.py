"""Steps that only scenarios take: what a scheduler does by itself, and what is asked of a system then.

A step that asks says what is wrong: a call of the target gives lines, each with the property first.
"""

from __future__ import annotations

from hicache_checks.conformance.findings import Broken
from hicache_checks.conformance.program import RIDS, Step
from hicache_checks.conformance.session import ROUNDS_TO_END, Session

TURNS_TO_END = 10


class ScenarioSession(Session):
    """See Session. The target must have the calls that the steps are named for."""

    def _do_leave_by(self, step: Step) -> None:
        """A request is gone, and not by an abort while it waits."""
        self._judged(step, lambda: self._tried(step, lambda: self._target.leave(*step.args)))

    def _do_prefill_chunk(self, step: Step) -> None:
        self._do_prefill(step)

    def _do_audit_written(self, step: Step) -> None:
        """What was computed is on its way, or there: it has the time that it needs."""
        for _ in range(ROUNDS_TO_END):
            self._call(Step("tick"))
            self._settle()
        self._refuse(self._call(step), "rest")

    def _do_audit_consumers(self, step: Step) -> None:
        self._settle()
        self._refuse(self._call(step), "rest")

    def _do_evict_states(self, step: Step) -> None:
        self._refuse(self._call(step), "evict_states")

    def _do_audit_waits(self, step: Step) -> None:
        self._refuse(self._call(step), "rest")

    def _do_turns(self, step: Step) -> None:
        """Turns with time for the threads between them, until nobody waits any longer, and not so many as given."""
        (turns,) = step.args
        for _ in range(turns):
            self._settle()
            self._call(Step("tick"))
            answer = self._call(Step("poll", (RIDS,)))
            if all(how["ready"] for how in answer.values()):
                return
        waiting = ", ".join(rid for rid, how in answer.items() if not how["ready"])
        raise Broken("P2 live_submitted_operations_end", f"{waiting} still waits after {turns} turns", place="turns")

    def _do_miss(self, step: Step) -> None:
        """Somebody asks for what no store holds: whatever the tiers hold, they keep."""
        rid, prompt = step.args
        before = self._call(Step("observe"))["resident_pages"]
        self._call(Step("submit", (rid, prompt)))
        self._do_turns(Step("turns", (TURNS_TO_END,)))
        after = self._call(Step("observe"))["resident_pages"]
        if after < before:
            message = f"{before - after} pages are evicted for {rid}, of which the store holds nothing"
            raise Broken("P9 step_eviction_is_needed", message, place="miss")

    def _do_look(self, step: Step) -> None:
        """A turn of the scheduler's own loop in which a waiting request can be admitted."""
        self._refuse(self._call(step)["problems"], "look")

    def _do_full_turns(self, step: Step) -> None:
        """Turns of the scheduler's own loop in which nobody is admitted, with time for the threads between them."""
        (turns,) = step.args
        for _ in range(turns):
            self._settle()
            self._call(Step("full_turn"))
        self._refuse(self._call(Step("neglected")), "full_turns")
