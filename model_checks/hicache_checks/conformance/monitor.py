"""The monitor: explains, event by event, what an implementation did by steps of the specification.

It follows one state of a design. Each event names the step that must be possible; the step is taken, and
what it emits must be what was seen. What the specification abstracts from (the tree) is taken from the events and
checked for itself: `TreeSeen` supplies those words. A lockstep event takes effect when the first rank logs it; the
other ranks' copies must be equal, and only then does the terminated flag reach their threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hicache_checks.conformance.control_events import ControlEvents
from hicache_checks.conformance.explainer import HITS, REASONS, SLOTS, MonitorConfig, name_of
from hicache_checks.conformance.merge import is_same_step, said
from hicache_checks.conformance.observation import (
    DECLINES,
    OF_CONTROL,
    STORE_DECLINES,
    TREE_DECLINES,
    UNOBSERVED,
    Event,
    OpId,
)
from hicache_checks.conformance.pool_events import PoolEvents
from hicache_checks.conformance.thread_events import ThreadEvents
from hicache_checks.conformance.tier_events import TierEvents
from hicache_checks.conformance.tree_seen import Unexplained
from hicache_spec.language import NONE
from hicache_spec.state import REASON

NEEDED_BY_NONE = "pages were evicted for no step that needs them"
WHILE_EVICTING = ("evicted", "slots_freed", "slots_taken")
ANY_TIME = ("closed", *OF_CONTROL)
DRAINED = (
    *("allocated", "clamped", "skipped", "evicted", "reclaimed", "slots_taken", "slots_freed"),
    *("stored", "copied", "arrived"),
)


@dataclass(frozen=True)
class Finding:
    """Something that the specification does not explain: which property, what, and at which event.

    `related`: other events that it is about; where two contradict each other, either may be the wrong one.
    """

    property: str
    message: str
    event: Event | None
    related: tuple[Event, ...] = ()

    def __str__(self) -> str:
        place = "" if self.event is None else f" at {self.event}"
        return f"{self.property}: {self.message}{place}"


class Monitor(ThreadEvents, TierEvents, PoolEvents, ControlEvents):
    """Feed it events in a merged order; `finding` is the first that is not explained, and then it stops.

    `is_late(op)`: whether the time limit of an operation has passed, for the policy `timeout`; without it lateness is
    taken on trust and counted in `unobserved`.
    """

    def __init__(
        self, config: MonitorConfig, is_late: Callable[[OpId], bool] | None = None, slots: int = SLOTS
    ) -> None:
        super().__init__(config, is_late, slots)
        self.finding: Finding | None = None
        self.explained = 0
        self._clamp: Event | None = None

    # ---- feeding

    def feed(self, event: Event) -> None:
        """Explain one event."""
        if self.finding is not None:
            return
        self._event = event
        self.state.events = []
        try:
            if event.is_lockstep:
                self._lockstep_event(event)
            elif event.rank not in self._closed:
                self._thread_event(event)
            self._judge()
        except Unexplained as reason:
            self.finding = Finding(reason.property, str(reason), event, reason.related)
        else:
            self.explained += 1
            if not self._free_slots:
                self._grow()

    def finish(self) -> None:
        """At quiescence: every operation has ended, nothing is on its way, no anchor is protected."""
        if self.finding is not None:
            return
        s = self.state
        if self._tree.evicted_for_nothing():
            self._fail("step_eviction_is_needed", NEEDED_BY_NONE)
        elif self._live:
            self._fail("P2 live_submitted_operations_end", f"{sorted(self._live.values())} never ended")
        elif not self.spec.is_quiescent(s):
            self._fail("P3 live_control_queues_drain", "something is still on its way")
        elif any(n != self._lockstep.steps for n in self._lockstep.position):
            steps = f"{self._lockstep.position} of {self._lockstep.steps}"
            self._fail("P7 lockstep", f"ranks stopped at different steps: {steps}")
        elif inside := [event for event in self._collective.values() if event.kind == "joined"]:
            self._fail("P7 lockstep", "a rank never left a collective", inside)
        elif jobs := self._on_its_way.jobs():
            self._fail("P3 live_control_queues_drain", f"{len(jobs)} copies, backups and loads are still on their way")
        elif self._tree.protected():
            self._fail("P14 inv_anchors_protected_exactly", f"nodes {self._tree.protected()} are still protected")
        elif s.free[0] + s.resident[0] != self.config.host_pages:
            self._fail("P15 inv_rest_restores_the_pool", f"{s.free[0]} free and {s.resident[0]} resident pages")

    def compare(self, observed: Mapping[str, Any]) -> None:
        """Hold what an adapter observes at rest or at a gate against the state: pools, tree, accounts, operations."""
        if self.finding is not None:
            return
        if self._tree.evicted_for_nothing():
            self._fail("step_eviction_is_needed", NEEDED_BY_NONE)
            return
        s = self.state
        expected = {
            "free_pages": s.free[0],
            "resident_pages": s.resident[0],
            "occupied_pages": s.occupied,
            "operations": {op: s.granted[self._slots[op]] for op in self._live.values()},
        }
        for name, value in expected.items():
            seen = observed.get(name, UNOBSERVED)
            if seen is UNOBSERVED:
                self.unobserved += 1
            elif seen != value:
                self._fail("observed_state", f"{name} is {seen!r}, explained is {value!r}")
                return

    def due(self, rids: Iterable[str]) -> list[OpId]:
        """The pending operations of these requests that a poll now has to end: terminated, or the policy is content."""
        ops = [self._live[rid] for rid in rids if rid in self._live]
        return [op for op in ops if self.word("may_end")(self.state, self._slots[op]) or self._gives_up(op)]

    def still_pending(self, ops: Iterable[OpId]) -> list[OpId]:
        """Those of the operations that have not ended."""
        return [op for op in ops if self._live.get(op[0]) == op]

    def _gives_up(self, op: OpId) -> bool:
        return self.config.policy == "timeout" and self._is_late is not None and self._is_late(op)

    def _fail(self, property_: str, message: str, related: Iterable[Event] = ()) -> None:
        self.finding = Finding(property_, message, None, tuple(related))

    # ---- lockstep events

    def _lockstep_event(self, event: Event) -> None:
        if event.kind == "closed":
            self._closed.add(event.rank)
        if self._bound.takes_what_it_saw and not is_of_drain(event):
            self._look(event.rank)
        first = self._lockstep.see(event)
        if first is None:
            self._explain_step(event)
            if event.kind not in WHILE_EVICTING and self._tree.evicted_for_nothing():
                raise Unexplained("step_eviction_is_needed", NEEDED_BY_NONE)
            if event.op in self._slots:
                self._retire(event.op)
        elif not is_same_step(first, event):
            raise Unexplained("P7 lockstep", f"another rank did {said(first)} at this point", [first])
        elif self._sets_the_flag(event) and event.op in self._slots:
            self.state.stopped[event.rank][self._slots[event.op]] = True
        if event.kind == "stored":
            self._check_refused(event)

    def _explain_step(self, event: Event) -> None:
        clamp, self._clamp = self._clamp, None
        if not self._in_loop and event.kind not in ANY_TIME:
            raise Unexplained("are_in_their_loop (§13)", "the schedulers wait for their threads")
        try:
            getattr(self, f"_on_{event.kind}")(event)
        except Unexplained as reason:
            # What was shortened just before may be what does not fit.
            related = [*reason.related, *([] if clamp is None else [clamp])]
            raise Unexplained(reason.property, str(reason), related) from reason

    def _sets_the_flag(self, event: Event) -> bool:
        return event.kind == "stopped" or (event.kind == "revoked" and event.data["reason"] in ("stopped", "aborted"))

    def _on_submitted(self, event: Event) -> None:
        assert event.op is not None
        rid, attempt = event.op
        if rid in self._live:
            raise Unexplained("inv_records_name_their_attempt", f"{self._live[rid]} is still pending")
        self._check_attempt(rid, attempt)
        slot, span = self._free_slots.pop(), event.data["span"]
        reason = self.word("why_declined")(self.state, slot, span)
        if reason != NONE:
            raise Unexplained("step_admitted_for_cause", f"it is to be declined: {REASONS[reason]}")
        self._attempts[rid] = attempt
        self._slots[event.op], self._live[rid] = slot, event.op
        self._tree.anchor(slot, event.data["anchor"])
        self._step("admit", slot, 0, span)
        self._expect("submitted", slot, span)

    def _check_attempt(self, rid: str, attempt: int) -> None:
        if attempt != self._attempts.get(rid, 0) + 1:
            raise Unexplained("inv_records_name_their_attempt", f"attempt {self._attempts.get(rid, 0) + 1} is next")

    def _on_declined(self, event: Event) -> None:
        assert event.op is not None
        self._check_attempt(*event.op)
        reason = event.data["reason"]
        if (reason == STORE_DECLINES) == self._is_attached:
            storage = "attached" if self._is_attached else "detached"
            raise Unexplained("step_declined_as_detached_for_cause", f"storage is {storage}")
        if reason == TREE_DECLINES:
            self.unobserved += 1
            return
        is_pending = event.op[0] in self._live
        is_limited = self.state.occupied >= self.config.limit_pages
        is_long = event.data["span"] >= self.config.threshold_pages
        if (
            (reason == "pending") != is_pending
            or (reason == "limited" and not is_limited)
            or (reason == "too_short" and is_long)
        ):
            raise Unexplained("step_declined_for_cause", "there is no such reason")

    def _on_stopped(self, event: Event) -> None:
        slot = self._slot(event.op)
        self._step("sched_stop", slot)
        self._expect("stopped", slot)

    def _on_skipped(self, event: Event) -> None:
        self._decide(event)
        self._expect("skipped", self._slot(event.op))

    def _on_clamped(self, event: Event) -> None:
        """A pool beside the pages is short of room: from here on the hit is no longer than this."""
        slot, pages = self._slot(event.op), event.data["pages"]
        if any(not queue or queue[0] != slot for queue in self.state.hit_queue):
            raise Unexplained("step_drain_decides_its_own_attempt", "this is not the next answer on every rank")
        if not 0 <= pages < self.state.hit[0][slot]:
            raise Unexplained("P12 clamped_to_less", f"the hit is {self.state.hit[0][slot]} pages")
        self._check_shortage(event)
        for hits in self.state.hit:
            hits[slot] = pages
        self._clamp = event

    def _on_allocated(self, event: Event) -> None:
        granted, left = event.data["pages"], event.data["evictable"]
        if granted < event.data["hit"] and left + event.data["free"] > 0:
            raise Unexplained("step_refusal_is_needed", "the grant is short although more pages were to be had")
        self._tree.see_evictable(left)
        self._decide(event)
        self._expect("allocated", self._slot(event.op), granted, event.data["hit"])
        self._same_free(event)

    def _on_revoked(self, event: Event) -> None:
        slot, by = self._slot(event.op), event.data["by"]
        if by == "drain":
            self._tree.see_evictable(event.data["evictable"])
            self._decide(event)
        elif by == "abort":
            self._check_marks(event.op, slot, "aborted")
            self._step("sched_abort", slot)
        else:
            self._see_time(event.op, slot, gave_up=not self.word("is_terminated")(self.state, slot))
            self._step("sched_poll", slot)
        self._expect("revoked", slot, REASON.members.index(event.data["reason"]))
        self._same_free(event)

    def _decide(self, event: Event) -> None:
        """One answered operation leaves the queues of all ranks, by the way on which it came."""
        slot, s = self._slot(event.op), self.state
        way = next((way for way in self.ways if slot in getattr(s, way.queue)[0]), HITS)
        for r, queue in enumerate(getattr(s, way.queue)):
            if not queue or queue[0] != slot:
                head = name_of(self.name(queue[0]) if queue else None)
                raise Unexplained(
                    "step_drain_decides_its_own_attempt", f"the next answer on rank {r} is that of {head}"
                )
        if way is HITS:
            self._pass_revokes()
        elif self._past_revokes:
            raise Unexplained(self._rule("sched_drain"), "a revoke comes after what this drain takes besides")
        else:
            self._seen = [max(0, seen - 1) for seen in self._seen]
        self._step(way.carry_out, self.word(way.take)(s))

    def _pass_revokes(self) -> None:
        """A drain comes to what it takes after the revokes, in designs that have them. It ends before the next
        collective; where none is logged, nobody knows where."""
        if min(self._seen) > 0:
            raise Unexplained(self._rule("sched_drain"), "the revokes that were there before come first")
        self._past_revokes = bool(self._collective)

    def _check_marks(self, op: OpId | None, slot: int, reason: str) -> None:
        """An operation with memory ends only after every rank has frozen its count, for the same reason."""
        if op is None or self.state.granted[slot] == 0:
            return
        marks = self._marked.get(op, {})
        if len(marks) < self.config.ranks:
            raise Unexplained("step_published_landed_everywhere", "not every rank has frozen its count before")
        reasons = {mark.data["reason"] for mark in marks.values()}
        if reasons != {reason}:
            message = f"the counts were frozen for {sorted(reasons)}"
            raise Unexplained("step_aborted_is_not_published", message, marks.values())

    def _on_fetched(self, event: Event) -> None:
        slot, pages, known = self._slot(event.op), event.data["pages"], event.data["known"]
        if not 0 <= known <= pages:
            raise Unexplained("step_published_landed_everywhere", f"{known} of {pages} pages were known")
        if event.data["reason"] == "aborted":
            raise Unexplained("step_aborted_is_not_published", "an aborted operation is revoked")
        self._check_marks(event.op, slot, event.data["reason"])
        self._tree.see_known(known)
        self._step("sched_poll", slot)
        self._expect("fetched", slot, pages, known)

    def _on_evicted(self, event: Event) -> None:
        self._tree.see_evicted(event.data["node"], event.data["pages"])

    def _on_reclaimed(self, event: Event) -> None:
        pages = event.data["pages"]
        self._pass_revokes()
        if not 0 < pages <= min(self.state.releasing):
            raise Unexplained(
                self._rule("sched_drain"), f"{min(self.state.releasing)} pages are released on every rank"
            )
        self._step("reclaim", pages)

    def _on_closed(self, event: Event) -> None:
        """What a rank's threads still do after this is not looked at: see `_lockstep_event`."""

    def _same_free(self, event: Event) -> None:
        if self._tree.evicted_for_nothing():
            raise Unexplained("step_eviction_is_needed", NEEDED_BY_NONE)
        if event.data["free"] != self.state.free[0]:
            raise Unexplained(
                "inv_pages_conserved", f"{event.data['free']} pages are free, explained are {self.state.free[0]}"
            )


def is_of_drain(event: Event) -> bool:
    """Does the scheduler log it while it drains, or perhaps then?"""
    return event.kind in DRAINED or event.data.get("by") == "drain"


__all__ = ["DECLINES", "STORE_DECLINES", "TREE_DECLINES", "Finding", "Monitor", "MonitorConfig"]
