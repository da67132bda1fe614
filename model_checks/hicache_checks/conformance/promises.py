"""The judge for a target without logs whose design is not the canonical one: what every design promises its callers.

An operation ends, once; nothing is known of an operation that nobody submitted; what is counted adds up; ranks show the
same; in the end everything is given back. How an operation comes to its end is not judged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from hicache_checks.conformance.black_box_sight import Sight, disagreement, sight_of
from hicache_checks.conformance.explainer import name_of
from hicache_checks.conformance.findings import Broken
from hicache_checks.conformance.observation import UNOBSERVED, OpId
from hicache_checks.conformance.program import TIMEOUT_S, Setup, Step
from hicache_checks.conformance.session import asked

LATE_POLLS = 3
"""Polls with turns between them after which a request whose time is over need not wait any longer."""


class Promises:
    """See judges.Judging. `states` stays empty: no state of the specification is followed."""

    def __init__(self, target: Any, setup: Setup) -> None:
        self.states: set[bytes] = set()
        self.outcomes: Counter[str] = Counter()
        self.unobserved: Counter[str] = Counter()
        self._target = target
        self._setup = setup
        self.begin_again()

    @property
    def possible(self) -> Sequence[str]:
        """Nothing: what is not promised, is not followed."""
        return ()

    def before(self, step: Step, now: float) -> None:
        """See Judge."""
        self._now = now

    def after(self, step: Step, answer: Any, now: float) -> None:
        """See Judge."""
        tell = getattr(self, f"_after_{step.kind}", None)
        if tell is None:
            return
        tell(step, answer)
        self._look(step.kind)

    def at_rest(self, observed: Mapping[str, Any]) -> None:
        """See Judge. Some designs free pages in each rank's own time: only now are they the same on all."""
        if (differing := disagreement(observed)) is not None:
            raise Broken("P7 lockstep", f"ranks differ: {differing}", place="rest")
        self._compare(observed, "rest")

    def explain_failure(self) -> None:
        """See Judge. Every call has been judged by itself."""

    def begin_again(self, logs_go_on: bool = False) -> None:
        """See Judge."""
        self._submitted_at: dict[OpId, float] = {}
        self._late_polls: Counter[OpId] = Counter()
        self._attempts: Counter[str] = Counter()
        self._ended: set[OpId] = set()
        self._now = 0.0

    def finish(self) -> None:
        """See Judge."""
        sight = sight_of(asked(self._target.observe, "observe"))
        self.unobserved.update(sight.unobserved())
        free, resident, pool = sight.free_pages, sight.resident_pages, self._setup.host_pages
        if sight.operations not in (UNOBSERVED, {}):
            names = ", ".join(map(name_of, sorted(sight.operations)))
            raise Broken("P2 live_submitted_operations_end", f"{names} never ended", place="rest")
        if sight.occupied_pages not in (UNOBSERVED, 0):
            message = f"{sight.occupied_pages} pages are occupied, and nothing is pending"
            raise Broken("P8 inv_occupied_is_sum_of_spans", message, place="rest")
        if UNOBSERVED not in (free, resident) and free + resident != pool:
            message = f"{free} free and {resident} resident pages are not the {pool} pages of the pool"
            raise Broken("P4 inv_rest_restores_the_pool", message, place="rest")

    # ---- calls

    def _after_submit(self, step: Step, answer: Mapping[str, Any]) -> None:
        rid, tokens = step.args[:2]
        self.outcomes["submitted" if answer["accepted"] else f"declined: {answer.get('reason', UNOBSERVED)}"] += 1
        if answer["accepted"]:
            self._attempts[rid] += 1
            op = (rid, self._attempts[rid])
            self._submitted_at[op] = self._now
        elif answer.get("span_pages", UNOBSERVED) == len(tokens) >= self._setup.threshold_pages:
            self._refuse_a_needless_refusal(rid, len(tokens))

    def _refuse_a_needless_refusal(self, rid: str, pages: int) -> None:
        """All of a prompt is asked for, nobody else waits, and there is room."""
        sight = sight_of(asked(self._target.observe, "observe"))
        is_alone = sight.operations == {} and sight.occupied_pages == 0
        if is_alone and sight.free_pages is not UNOBSERVED and sight.free_pages >= pages:
            message = f"{rid} is refused {pages} pages, with {sight.free_pages} free and nobody waiting"
            raise Broken("P25 step_declined_for_cause", message, place="submit")

    def _after_poll(self, step: Step, answer: Mapping[str, Mapping[str, Any]]) -> None:
        self.outcomes.update(f"polled: {how.get('state', UNOBSERVED)}" for how in answer.values() if how["ready"])
        for rid, how in answer.items():
            op = (rid, self._attempts[rid])
            if how["ready"]:
                self._ended.add(op)
                if how.get("asked") is False:
                    raise Broken(
                        "P1 step_waits_for_the_verdict", f"{rid} is ready, and the store was not asked", place="poll"
                    )
            elif op in self._ended or not self._attempts[rid]:
                raise Broken("P2 live_submitted_operations_end", f"{rid} waits, and nothing is pending", place="poll")
            elif self._setup.policy == "best_effort":
                raise Broken("P5 may_end (§3.8)", f"{rid} waits, and its policy does not", place="poll")
            elif self._setup.policy == "timeout" and self._now - self._submitted_at[op] > TIMEOUT_S:
                self._late_polls[op] += 1
                if self._late_polls[op] > LATE_POLLS and self._now - self._submitted_at[op] > LATE_POLLS * TIMEOUT_S:
                    raise Broken("P5 may_end (§3.8)", f"{rid} waits, and its time is over", place="poll")

    def _after_abort(self, step: Step, answer: object) -> None:
        self._ended.add((step.args[0], self._attempts[step.args[0]]))

    def _after_leave_by(self, step: Step, answer: object) -> None:
        _, rid = step.args
        self._ended.add((rid, self._attempts[rid]))

    def _after_full_turn(self, step: Step, answer: Sequence[str]) -> None:
        """Requests that waited without an operation have one now."""
        for rid in answer:
            self._attempts[rid] += 1
            self._submitted_at[rid, self._attempts[rid]] = self._now

    def _after_look(self, step: Step, answer: Mapping[str, Any]) -> None:
        self._after_poll(step, {step.args[0]: answer["polled"]})
        self._after_full_turn(step, answer["taken"])

    def _after_tick(self, step: Step, answer: object) -> None:
        """Something may have moved."""

    def _after_prefill(self, step: Step, answer: object) -> None:
        """Something may have moved."""

    def _after_prefill_chunk(self, step: Step, answer: object) -> None:
        """Something may have moved."""

    def _after_detach(self, step: Step, answer: object) -> None:
        if answer:
            self._ended.update(self._submitted_at)

    # ---- what can be seen

    def _look(self, place: str) -> None:
        self._compare(asked(self._target.observe, "observe"), place)

    def _compare(self, seen: Mapping[str, Any], place: str) -> None:
        sight = sight_of(seen)
        own = [sight_of(rank).operations for rank in seen.get("ranks", ())]
        if any(operations.keys() != own[0].keys() for operations in own if UNOBSERVED not in (operations, own[0])):
            raise Broken("P7 lockstep", f"ranks wait for different requests: {own}", place=place)
        self._pages(sight, place)
        if sight.operations is not UNOBSERVED:
            self._operations(sight, sight.operations, place)

    def _pages(self, sight: Sight, place: str) -> None:
        parts = (sight.free_pages, sight.resident_pages)
        if UNOBSERVED not in parts and sum(parts) > self._setup.host_pages:
            message = f"{parts[0]} free and {parts[1]} resident pages are more than there are"
            raise Broken("P13 inv_no_page_freed_twice", message, place=place)

    def _operations(self, sight: Sight, operations: Mapping[OpId, Any], place: str) -> None:
        for op in operations:
            if op not in self._submitted_at:
                raise Broken("P11 inv_records_name_their_attempt", f"nobody submitted {name_of(op)}", place=place)
            if op in self._ended:
                raise Broken("P11 inv_records_name_their_attempt", f"{name_of(op)} had ended before", place=place)
