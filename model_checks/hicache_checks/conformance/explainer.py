"""What the monitor's two halves share: the state that is followed, steps of the specification, slots of operations."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hicache_checks.conformance.observation import Event, OpId
from hicache_checks.conformance.tree_seen import TreeSeen, Unexplained
from hicache_spec import DESIGNS, Bounds, BoundSpec, Refused
from hicache_spec.bounds import POLICY
from hicache_spec.state import REASON

SLOTS = 64
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


class Explainer:
    """Follows one state of the canonical design. An operation has a slot from its submission until nothing holds it.

    `is_late(op)`: whether the time limit of an operation has passed; None: not known.
    """

    def __init__(
        self, config: MonitorConfig, is_late: Callable[[OpId], bool] | None = None, slots: int = SLOTS
    ) -> None:
        self.config = config
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

    def _judge(self) -> None:
        for p in self._invariants:
            if not p.holds(self.state):
                raise Unexplained(p.rule.name, p.rule.title)

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

    def _see_time(self, op: OpId | None, slot: int, gave_up: bool) -> None:
        """The policy `timeout` gave up: then the operation is late, as far as the monitor can tell."""
        if not gave_up or self.config.policy != "timeout":
            return
        if self._is_late is None:
            self.unobserved += 1
        elif op is None or not self._is_late(op):
            return
        self.state.waited[slot] = self.spec.bounds.timeout_ticks

    def _mark(self, s: Any, slot: int) -> None:
        """The word `mark`: a scheduler sets its own rank's flag; at a publish all ranks have set theirs before."""
        assert self._event is not None
        ranks = range(self.config.ranks) if self._event.kind == "fetched" else [self._event.rank]
        for r in ranks:
            s.stopped[r][slot] = True
