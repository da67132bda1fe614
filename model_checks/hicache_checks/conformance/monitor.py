"""The monitor: explains, event by event, what an implementation did by steps of the specification.

It follows one state of the canonical design. Each event names the step that must be possible; the step is taken, and
what it emits must be what was seen. What the specification abstracts from (the tree) is taken from the events and
checked for itself: `TreeSeen` supplies those words. A lockstep event takes effect when the first rank logs it; the
other ranks' copies must be equal, and only then does the terminated flag reach their threads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hicache_checks.conformance.observation import Event, OpId
from hicache_checks.conformance.tree_seen import TreeSeen, Unexplained
from hicache_spec import DESIGNS, Bounds, BoundSpec, Refused
from hicache_spec.bounds import POLICY
from hicache_spec.language import NONE
from hicache_spec.state import ANSWERED, REASON

SLOTS = 64
DECLINES = ("pending", "too_short", "limited")
# The last known node is on the device only, so nothing may hang under it on the host: a reason of a tree with two
# tiers, which the specification's chains do not have. It is taken on trust, and counted.
TREE_DECLINES = "anchor"
# Judged after every event. The others are about the specification's own tree, or about ranks, whose copies are
# compared.
INVARIANTS = (
    *("inv_no_page_freed_twice", "inv_pages_conserved", "inv_no_free_under_a_writer", "inv_counted_pages_are_filled"),
    *("inv_occupied_is_sum_of_spans", "inv_no_memory_before_verdict", "inv_ended_operations_hold_nothing"),
    *("inv_life_cycle_is_legal", "inv_ranks_query_alike"),
)


@dataclass(frozen=True)
class MonitorConfig:
    """What the monitor must know of the system: sizes in pages. `policy` as in the specification's bounds."""

    ranks: int
    host_pages: int
    threshold_pages: int
    limit_pages: int
    policy: str


@dataclass(frozen=True)
class Finding:
    """Something that the specification does not explain: which property, what, and at which event."""

    property: str
    message: str
    event: Event | None

    def __str__(self) -> str:
        place = "" if self.event is None else f" at {self.event}"
        return f"{self.property}: {self.message}{place}"


class Monitor:
    """Feed it events in a merged order; `finding` is the first that is not explained, and then it stops.

    `is_late(op)`: whether the time limit of an operation has passed, for the policy `timeout`; without it lateness is
    taken on trust and counted in `unobserved`.
    """

    def __init__(
        self, config: MonitorConfig, is_late: Callable[[OpId], bool] | None = None, slots: int = SLOTS
    ) -> None:
        self.config = config
        self.finding: Finding | None = None
        self.explained = 0
        self.unobserved = 0
        self._is_late = is_late
        self._tree = TreeSeen()
        bounds = Bounds(
            name="monitor",
            requests=slots,
            ranks=config.ranks,
            host_pages=config.host_pages,
            chain_pages=config.host_pages,
            threshold_pages=config.threshold_pages,
            limit_pages=config.limit_pages,
            policy=POLICY.members.index(config.policy),
            resident_pages=(0,),
            stored_pages=(0,),
            churn=True,
            stops=True,
            writes=True,
        )
        self.spec = BoundSpec(DESIGNS["decide_at_drain"], bounds, {**self._tree.words(), "mark": self._mark})
        self.state = self.spec.initial()
        self._invariants = [p for p in self.spec.invariants if p.rule.name in INVARIANTS]
        self._slots: dict[OpId, int] = {}
        self._free_slots = list(reversed(range(slots)))
        self._live: dict[str, OpId] = {}
        self._attempts: dict[str, int] = {}
        self._lockstep: list[tuple[str, OpId | None, dict[str, Any]]] = []
        self._position = [0] * config.ranks
        self._calls: dict[tuple[str, int], str] = {}
        self._collective: dict[tuple[int, str], tuple[int, bool]] = {}
        self._marked: dict[OpId, dict[int, str]] = {}
        self._agreed: list[OpId | None] = [None] * config.ranks
        self._closed: set[int] = set()
        self._event: Event | None = None
        self._words: dict[str, Callable[..., Any]] = {}
        self._taken = ""

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
            self.finding = Finding(reason.property, str(reason), event)
        else:
            self.explained += 1

    def finish(self) -> None:
        """At quiescence: every operation has ended, nothing is on its way, no anchor is protected."""
        if self.finding is not None:
            return
        s = self.state
        if self._live:
            self._fail("P2 live_submitted_operations_end", f"{sorted(self._live.values())} never ended")
        elif not self.spec.is_quiescent(s):
            self._fail("P3 live_control_queues_drain", "something is still on its way")
        elif any(n != len(self._lockstep) for n in self._position):
            self._fail("P7 lockstep", f"ranks stopped at different steps: {self._position} of {len(self._lockstep)}")
        elif any(inside for _, inside in self._collective.values()):
            self._fail("P7 lockstep", "a rank never left a collective")
        elif self._tree.protected():
            self._fail("P14 inv_anchors_protected_exactly", f"nodes {self._tree.protected()} are still protected")
        elif s.free[0] + s.resident[0] != self.config.host_pages:
            self._fail("P15 inv_rest_restores_the_pool", f"{s.free[0]} free and {s.resident[0]} resident pages")

    def compare(self, observed: Mapping[str, Any]) -> None:
        """Hold what an adapter observes at rest or at a gate against the state: pools, tree, accounts, operations."""
        if self.finding is not None:
            return
        s = self.state
        expected = {
            "free_pages": s.free[0],
            "resident_pages": s.resident[0],
            "occupied_pages": s.occupied,
            "operations": {op: s.granted[self._slots[op]] for op in self._live.values()},
        }
        for name, value in expected.items():
            if observed[name] != value:
                self._event = None
                self._fail("observed_state", f"{name} is {observed[name]!r}, explained is {value!r}")
                return

    def due(self, rids: Iterable[str]) -> list[OpId]:
        """The pending operations of these requests that a poll now has to end: terminated, or the policy is content."""
        ops = [self._live[rid] for rid in rids if rid in self._live]
        return [op for op in ops if self._word("may_end")(self.state, self._slots[op]) or self._gives_up(op)]

    def still_pending(self, ops: Iterable[OpId]) -> list[OpId]:
        """Those of the operations that have not ended."""
        return [op for op in ops if self._live.get(op[0]) == op]

    def _gives_up(self, op: OpId) -> bool:
        return self.config.policy == "timeout" and self._is_late is not None and self._is_late(op)

    def _fail(self, property_: str, message: str) -> None:
        self.finding = Finding(property_, message, self._event)

    def _judge(self) -> None:
        for p in self._invariants:
            if not p.holds(self.state):
                raise Unexplained(p.rule.name, p.rule.title)

    # ---- steps of the specification

    def _step(self, name: str, *arguments: int) -> None:
        self._taken = name
        try:
            self._word(name)(self.state, *arguments)
        except Refused as refusal:
            raise Unexplained(self._rule(name), f"refused: {refusal}") from None

    def _word(self, name: str) -> Callable[..., Any]:
        """A rule or helper function of the specification."""
        if name not in self._words:
            self._words[name] = self.spec.function(name)
        return self._words[name]

    def _rule(self, name: str) -> str:
        """A rule by name, with its section."""
        section = re.match(r"§[0-9.]+", self._word(name).__doc__ or "")
        return f"{name} ({section.group().rstrip('.')})" if section else name

    def _expect(self, kind: str, *values: int) -> None:
        """The step just taken emitted this; values that are not given are the specification's own."""
        emitted = [e for e in self.state.events if e[0] != "evicted"]
        if not any(e[: len(values) + 1] == (kind, *values) for e in emitted):
            told = "; ".join(self._told(e) for e in emitted) or "nothing"
            raise Unexplained(self._rule(self._taken), f"the specification says: {told}")

    def _told(self, emitted: tuple[Any, ...]) -> str:
        kind, *values = emitted
        reason = f" ({REASON.members[values[1]]})" if kind == "revoked" else ""
        return f"{kind} {', '.join(map(str, values))}{reason}"

    def _slot(self, op: OpId | None) -> int:
        if op is None or op not in self._slots:
            raise Unexplained("inv_records_name_their_attempt", "no such operation is pending or travelling")
        return self._slots[op]

    def _retire(self, op: OpId) -> None:
        """Ended and in nobody's hands: the slot can serve another operation."""
        slot = self._slots[op]
        if self._word("is_ended")(self.state, slot):
            if self._live.get(op[0]) == op:
                del self._live[op[0]]
            if not self._word("is_travelling")(self.state, slot):
                del self._slots[op]
                self._marked.pop(op, None)
                self.state.phase[slot] = 0
                self.state.attempts[slot] = 0
                self._tree.forget(slot)
                self._free_slots.append(slot)

    # ---- lockstep events

    def _lockstep_event(self, event: Event) -> None:
        position = self._position[event.rank]
        self._position[event.rank] += 1
        data = {k: v for k, v in event.data.items() if k != "failed"}
        if event.kind == "closed":
            self._closed.add(event.rank)
        if position == len(self._lockstep):
            self._lockstep.append((event.kind, event.op, data))
            getattr(self, f"_on_{event.kind}")(event)
            if event.kind != "evicted" and self._tree.evicted_for_nothing():
                raise Unexplained("step_eviction_is_needed", "pages were evicted for no step that needs them")
            if event.op in self._slots:
                self._retire(event.op)
            return
        first = self._lockstep[position]
        if first != (event.kind, event.op, data):
            raise Unexplained("P7 lockstep", f"another rank did {_said(first)} at this point")
        if self._sets_the_flag(event) and event.op in self._slots:
            self.state.stopped[event.rank][self._slots[event.op]] = True

    def _sets_the_flag(self, event: Event) -> bool:
        return event.kind == "stopped" or (event.kind == "revoked" and event.data["reason"] in ("stopped", "aborted"))

    def _mark(self, s: Any, slot: int) -> None:
        """The word `mark`: a scheduler sets its own rank's flag; at a publish all ranks have set theirs before."""
        assert self._event is not None
        ranks = range(self.config.ranks) if self._event.kind == "fetched" else [self._event.rank]
        for r in ranks:
            s.stopped[r][slot] = True

    def _on_submitted(self, event: Event) -> None:
        assert event.op is not None
        rid, attempt = event.op
        if rid in self._live:
            raise Unexplained("inv_records_name_their_attempt", f"{self._live[rid]} is still pending")
        if attempt != self._attempts.get(rid, 0) + 1:
            raise Unexplained("inv_records_name_their_attempt", f"attempt {self._attempts.get(rid, 0) + 1} is next")
        if not self._free_slots:
            raise Unexplained("harness", "more operations are in flight than the monitor has slots")
        slot, span = self._free_slots.pop(), event.data["span"]
        reason = self._word("why_declined")(self.state, slot, span)
        if reason != NONE:
            raise Unexplained("step_admitted_for_cause", f"it is to be declined: {REASON.members[reason]}")
        self._attempts[rid] = attempt
        self._slots[event.op], self._live[rid] = slot, event.op
        self._tree.anchor(slot, event.data["anchor"])
        self._step("admit", slot, 0, span)
        self._expect("submitted", slot, span)

    def _on_declined(self, event: Event) -> None:
        assert event.op is not None
        reason = event.data["reason"]
        if reason == TREE_DECLINES:
            self.unobserved += 1
            return
        if reason not in DECLINES:
            raise Unexplained("step_declined_for_cause", f"{reason!r} is no reason to decline")
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
            self._see_time(event.op, slot, gave_up=not self._word("is_terminated")(self.state, slot))
            self._step("sched_poll", slot)
        self._expect("revoked", slot, REASON.members.index(event.data["reason"]))
        self._same_free(event)

    def _decide(self, event: Event) -> None:
        """One answered operation leaves the hit queues of all ranks."""
        slot = self._slot(event.op)
        for r, queue in enumerate(self.state.hit_queue):
            if not queue or queue[0] != slot:
                head = next((f"{op[0]}#{op[1]}" for op, n in self._slots.items() if queue and n == queue[0]), "nothing")
                raise Unexplained(
                    "step_drain_decides_its_own_attempt", f"the next answer on rank {r} is that of {head}"
                )
        self._step("decide", self._word("take_answered")(self.state))

    def _check_marks(self, op: OpId | None, slot: int, reason: str) -> None:
        """An operation with memory ends only after every rank has frozen its count, for the same reason."""
        if op is None or self.state.granted[slot] == 0:
            return
        marks = self._marked.get(op, {})
        if len(marks) < self.config.ranks:
            raise Unexplained("step_published_landed_everywhere", "not every rank has frozen its count before")
        if set(marks.values()) != {reason}:
            raise Unexplained("step_aborted_is_not_published", f"the counts were frozen for {sorted(marks.values())}")

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

    def _on_written(self, event: Event) -> None:
        pages, node = event.data["pages"], event.data["node"]
        self._tree.evict(self.state, max(0, pages - self.state.free[0]))
        for _ in range(pages):
            self._step("sched_write_through", 0)
        self._tree.hold(node)

    def _on_stored(self, event: Event) -> None:
        self._tree.let_go(event.data["node"])

    def _on_reclaimed(self, event: Event) -> None:
        self._step("sched_drain", 0, event.data["pages"])

    def _on_loaded(self, event: Event) -> None:
        """Host pages stay where they are."""

    def _on_closed(self, event: Event) -> None:
        """What a rank's threads still do after this is not looked at: see `_lockstep_event`."""

    def _same_free(self, event: Event) -> None:
        if event.data["free"] != self.state.free[0]:
            raise Unexplained(
                "inv_pages_conserved", f"{event.data['free']} pages are free, explained are {self.state.free[0]}"
            )

    # ---- events of a rank's threads

    def _thread_event(self, event: Event) -> None:
        getattr(self, f"_on_{event.kind}")(event)
        if event.op in self._slots:
            self._retire(event.op)

    def _on_marked(self, event: Event) -> None:
        slot, r = self._slot(event.op), event.rank
        assert event.op is not None
        marked = self._marked.setdefault(event.op, {})
        if r in marked:
            raise Unexplained(self._rule("sched_poll"), "this rank has marked the operation before")
        marked[r] = event.data["reason"]
        if event.data["reason"] != "aborted" and not self._word("is_terminated")(self.state, slot):
            self._see_time(event.op, slot, gave_up=event.data["reason"] == "policy")
            if not self._word("may_end")(self.state, slot):
                raise Unexplained("step_waits_for_the_verdict", "the policy still waits for this operation")
        if event.data["counted"] != self.state.counted[r][slot]:
            raise Unexplained("inv_counted_pages_are_filled", f"{self.state.counted[r][slot]} pages landed")
        if event.data["reason"] != "complete":
            self.state.stopped[r][slot] = True

    def _see_time(self, op: OpId | None, slot: int, gave_up: bool) -> None:
        """The policy `timeout` gave up: then the operation is late, as far as the monitor can tell."""
        if not gave_up or self.config.policy != "timeout":
            return
        if self._is_late is None:
            self.unobserved += 1
        elif op is None or not self._is_late(op):
            return
        self.state.waited[slot] = self.spec.bounds.timeout_ticks

    def _on_query_taken(self, event: Event) -> None:
        slot = self._head(self.state.query_queue[event.rank], event, "query_take")
        if event.data["terminated"] != self.state.stopped[event.rank][slot]:
            raise Unexplained(self._rule("query_take"), "the terminated flag is the other way round")
        self._step("query_take", event.rank)

    def _on_query_asked(self, event: Event) -> None:
        self._head(self.state.query_queue[event.rank], event, "query_ask_storage")
        self._step("query_ask_storage", event.rank, event.data["hit"])

    def _on_query_agreed(self, event: Event) -> None:
        slot = self._head(self.state.query_queue[event.rank], event, "query_agree")
        if self._agreed[event.rank] == event.op:
            raise Unexplained(self._rule("query_agree"), "this rank has agreed on it before")
        self._agreed[event.rank] = event.op
        if self.state.stage[event.rank] == ANSWERED:
            self._step("query_agree")
        if event.data["hit"] != self.state.hit[event.rank][slot]:
            raise Unexplained("step_hit_is_everywhere", f"the MIN of the answers is {self.state.hit[event.rank][slot]}")

    def _on_query_put(self, event: Event) -> None:
        self._head(self.state.query_queue[event.rank], event, "query_put")
        if self._agreed[event.rank] != event.op:
            raise Unexplained("step_hit_is_everywhere", "this rank has not agreed on it")
        self._step("query_put", event.rank)

    def _on_io_started(self, event: Event) -> None:
        self._head(self.state.buffer[event.rank], event, "io_start_page")
        if event.data["page"] != self.state.filled[event.rank]:
            raise Unexplained(self._rule("io_start_page"), f"page {self.state.filled[event.rank]} is next")
        self._step("io_start_page", event.rank)

    def _on_io_landed(self, event: Event) -> None:
        slot = self._head(self.state.buffer[event.rank], event, "io_land_page")
        self._step("io_land_page", event.rank)
        self._expect("io_landed", event.rank, slot, event.data["page"])

    def _on_io_uncounted(self, event: Event) -> None:
        slot = self._head(self.state.buffer[event.rank], event, "io_land_page")
        self._step("io_land_page", event.rank)
        self._expect("io_uncounted", event.rank, slot, event.data["page"])

    def _on_io_failed(self, event: Event) -> None:
        slot = self._head(self.state.buffer[event.rank], event, "io_fail_page")
        self._step("io_fail_page", event.rank)
        self._expect("io_failed", event.rank, slot, event.data["page"])

    def _on_io_released(self, event: Event) -> None:
        self._head(self.state.buffer[event.rank], event, "io_release_page")
        self._step("io_release_page", event.rank)

    def _head(self, queue: list[int], event: Event, rule: str) -> int:
        """The slot of the operation, which must be the one that the thread works on."""
        slot = self._slot(event.op)
        if not queue or queue[0] != slot:
            raise Unexplained(self._rule(rule), "this operation is not at the head of the queue")
        return slot

    def _on_joined(self, event: Event) -> None:
        group, number, call = event.data["group"], event.data["number"], event.data["call"]
        last, inside = self._collective.get((event.rank, group), (-1, False))
        if inside or number != last + 1:
            raise Unexplained("P7 lockstep", f"this rank's next step in {group} is not collective {number}")
        self._collective[event.rank, group] = (number, True)
        if self._calls.setdefault((group, number), call) != call:
            raise Unexplained("P7 lockstep", f"another rank is in {self._calls[group, number]} at this point")

    def _on_left(self, event: Event) -> None:
        group, number = event.data["group"], event.data["number"]
        if self._collective.get((event.rank, group)) != (number, True):
            raise Unexplained("P7 lockstep", f"this rank is not in collective {number} of {group}")
        self._collective[event.rank, group] = (number, False)

    def _on_died(self, event: Event) -> None:
        raise Unexplained("P31 threads_survive", f"the {event.data['thread']} thread died: {event.data['error']}")


def _said(entry: tuple[str, OpId | None, dict[str, Any]]) -> str:
    kind, op, data = entry
    return f"{kind}{'' if op is None else f' {op[0]}#{op[1]}'}{''.join(f' {k}={v}' for k, v in data.items())}"
