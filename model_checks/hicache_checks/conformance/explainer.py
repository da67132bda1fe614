"""What the monitor's two halves share: the state that is followed, steps of the specification, slots of operations."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from hicache_checks.conformance.bound_state import laid_over, section_of
from hicache_checks.conformance.merge import Lockstep
from hicache_checks.conformance.observation import Event, OpId
from hicache_checks.conformance.on_its_way import Job, OnItsWay
from hicache_checks.conformance.tree_seen import TreeSeen, Unexplained
from hicache_spec import DESIGNS, Bounds, BoundSpec, Refused
from hicache_spec.binding import Property
from hicache_spec.bounds import POLICY
from hicache_spec.events import EVENTS
from hicache_spec.language import EventKind
from hicache_spec.parts import control_rules
from hicache_spec.parts.control import CONTROL
from hicache_spec.state import IDLE, REASON

# Operations that are followed at a time, at first: the more, the slower. There are more when more are needed.
SLOTS = 8
# Kept of what was bound, and of the states of each that are known to be good.
BOUND_KEPT = 256
GOOD_KEPT = 4_000
CANONICAL = "decide_at_drain"
FOLLOWED = (CANONICAL, "revoke_queue", "revoke_queue_sampled")
"""Designs that a log can be held to: they differ from the canonical one in how answers come to the scheduler, and every
step of theirs is one that the same events show. The others take steps at other events, or do not know an operation by
its attempt, as every event does."""
AS_AT_THE_START = "step_begins_again_as_at_the_start"
# Words that an observer answers, and those that some designs have besides.
OBSERVED = (*TreeSeen().words(), "mark", "look")
# Judged after every event. The others are about the specification's own tree, or about ranks, whose copies are
# compared.
INVARIANTS = (
    *("inv_no_page_freed_twice", "inv_pages_conserved", "inv_no_free_under_a_writer", "inv_counted_pages_are_filled"),
    *("inv_occupied_is_sum_of_spans", "inv_no_memory_before_verdict", "inv_ended_operations_hold_nothing"),
    *("inv_life_cycle_is_legal", "inv_ranks_query_alike", "inv_ranks_revoke_alike"),
)
# Judged besides while storage is not simply attached.
CONTROL_INVARIANTS = (
    *("inv_one_consumer_per_queue", "inv_attached_queues_have_their_threads", "inv_no_thread_outlives_its_storage"),
    *("inv_detached_is_at_rest", "inv_nothing_is_pending_unless_attached", "inv_ranks_are_attached_alike"),
    *("inv_nobody_waits_for_an_ended_thread", "inv_stopped_ranks_hold_the_same"),
)
REASONS = (*REASON.members, "detached")
"""Why an operation ended, or was declined, by its number in the specification."""
FIELDS_OF = {
    kind: found.fields
    for kind, found in [
        *EVENTS.items(),
        *((k.name, k) for k in vars(control_rules).values() if isinstance(k, EventKind)),
    ]
}
"""The arguments of what a step shows."""


@dataclass(frozen=True)
class MonitorConfig:
    """What the monitor must know of the system: sizes in pages. `policy` as in the specification's bounds.

    `design`: the one of FOLLOWED that explains it.
    """

    ranks: int
    host_pages: int
    threshold_pages: int
    limit_pages: int
    policy: str
    design: str = CANONICAL


@dataclass(frozen=True)
class Way:
    """How answers come to the scheduler: the queue, and the words that take the next one and carry it out."""

    queue: str
    take: str
    carry_out: str


HITS = Way("hit_queue", "take_answered", "decide")
REVOKES = Way("revoke_queue", "take_revoke", "carry_out_revoke")


def bounds_for(config: MonitorConfig, operations: int, ranks: int) -> Bounds:
    """The specification's bounds for a system that is followed: whatever it may do, may happen."""
    return Bounds(
        name="monitor",
        requests=operations,
        ranks=ranks,
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
        detaches=True,
        resets=True,
        control_fails=True,
    )


class Bound:
    """A design under bounds, for whoever observes at the moment: `observer` answers the words that the text leaves to
    an observer. `good`: states in which the invariants hold, which are about nothing but the state.

    To bind it takes longer than to follow many a run, so it is done once.
    """

    def __init__(self, bounds: Bounds, design: str = CANONICAL) -> None:
        self.observer: Explainer
        words = {name: self._answer(name) for name in OBSERVED}
        self.spec = BoundSpec(DESIGNS[design].joined(CONTROL), bounds, words)
        has = {v.name for v in self.spec.variables}
        self.ways = tuple(way for way in (REVOKES, HITS) if way.queue in has)
        self.takes_what_it_saw = "seen_revokes" in has
        self.invariants = self._properties(INVARIANTS)
        self.control_invariants = self._properties(CONTROL_INVARIANTS)
        self.as_at_the_start = next(p.holds for p in self.spec.step_properties if p.rule.name == AS_AT_THE_START)
        self.good: set[bytes] = set()
        self._functions: dict[str, Callable[..., Any]] = {}

    def _properties(self, names: Sequence[str]) -> list[Property]:
        return [p for p in self.spec.invariants if p.rule.name in names]

    def function(self, name: str) -> Callable[..., Any]:
        """A rule or helper function."""
        if name not in self._functions:
            self._functions[name] = self.spec.function(name)
        return self._functions[name]

    def _answer(self, name: str) -> Callable[..., Any]:
        return lambda *arguments: self.observer.words[name](*arguments)


bound_for = lru_cache(BOUND_KEPT)(Bound)


class Explainer:
    """Follows one state of a design. An operation has a slot from its submission until nothing holds it.

    `is_late(op)`: whether the time limit of an operation has passed; None: not known. What is kept besides the state
    is as large as what is pending, and a number for each request id.
    """

    def __init__(
        self, config: MonitorConfig, is_late: Callable[[OpId], bool] | None = None, slots: int = SLOTS
    ) -> None:
        self.config = config
        self.unobserved = 0
        self._is_late = is_late
        self._tree = TreeSeen()
        self.words: dict[str, Callable[..., Any]] = {
            **self._tree.words(),
            "mark": self._mark,
            # Ranks look at different moments, so what each has seen is not kept in the state.
            "look": lambda s: None,
        }
        self._follow(slots)
        self.state = self.spec.initial()
        self._slots: dict[OpId, int] = {}
        self._free_slots = list(reversed(range(slots)))
        self._live: dict[str, OpId] = {}
        self._attempts: dict[str, int] = {}
        self._lockstep = Lockstep(config.ranks)
        self._calls: dict[tuple[str, int], list[Event]] = {}
        self._collective: dict[tuple[int, str], Event] = {}
        self._marked: dict[OpId, dict[int, Event]] = {}
        self._asked: dict[int, Event] = {}
        self._agreed: list[OpId | None] = [None] * config.ranks
        self._released: list[dict[int, Event]] = [{} for _ in range(config.ranks)]
        self._past_revokes = False
        self._seen = [0] * config.ranks
        self._closed: set[int] = set()
        self._in_loop = self._is_attached = True
        self._backup_lives = [True] * config.ranks
        self._on_its_way = OnItsWay(config.ranks)
        self._slots_free: dict[str, int] = {}
        self._slots_of: dict[str, int] = {}
        self._refused: deque[Job] = deque()
        self._stored_by = [0] * config.ranks
        self._stored_first = 0
        self._event: Event | None = None
        self._taken = ""

    # ---- what can be asked

    @property
    def spec(self) -> BoundSpec:
        """The specification with this observer's words, until another one asks."""
        self._bound.observer = self
        return self._bound.spec

    @property
    def ways(self) -> tuple[Way, ...]:
        """How answers come to the scheduler, in the order of a drain."""
        return self._bound.ways

    @property
    def key(self) -> bytes:
        """The state that is followed, in short."""
        return self._bound.spec.encode(self.state)

    def word(self, name: str) -> Callable[..., Any]:
        """A rule or helper function of the specification."""
        self._bound.observer = self
        return self._bound.function(name)

    def copy_of(self, state: Any) -> Any:
        """A state to try something on."""
        return self.spec.decode(self.spec.encode(state))

    def name(self, slot: int) -> OpId | None:
        """The operation in a slot."""
        return next((op for op, taken in self._slots.items() if taken == slot), None)

    def pending(self, state: Any) -> list[tuple[OpId, int]]:
        """The operations that have not ended in this state, each with its slot."""
        return [(op, slot) for op, slot in self._slots.items() if self.word("is_pending")(state, slot)]

    def agreed_on(self, rank: int) -> OpId | None:
        """The operation whose hit this rank's query thread has agreed on last."""
        return self._agreed[rank]

    def collectives(self, rank: int) -> list[Event]:
        """The last step of a rank into or out of a collective, for each group."""
        return [event for (of, _), event in self._collective.items() if of == rank]

    def told(self, emitted: Sequence[Any]) -> str:
        """What a step of the specification shows, in the words of the log."""
        kind, *values = emitted
        text = kind
        for name, value in zip(FIELDS_OF[kind], values, strict=True):
            if name == "op":
                text += f" {name_of(self.name(value))}"
            elif name == "reason":
                text += f" reason={REASONS[value]}"
            elif name not in ("rank", "room"):
                text += f" {name}={value}"
        return text

    # ---- the state and its steps

    def _follow(self, slots: int) -> None:
        """For so many operations at a time."""
        self._bound = bound_for(bounds_for(self.config, slots, self.config.ranks), self.config.design)

    def _grow(self) -> None:
        """As many slots again."""
        slots = self.spec.bounds.requests
        self._follow(2 * slots)
        grown = self.spec.initial()
        for v in self.spec.variables:
            setattr(grown, v.name, laid_over(getattr(grown, v.name), getattr(self.state, v.name), len(v.sizes)))
        self.state = grown
        self._free_slots = list(reversed(range(slots, 2 * slots)))

    def _judge(self) -> None:
        key, bound = self.key, self._bound
        if key in bound.good:
            return
        self._hold(bound.invariants)
        if not self._is_attached or (self._event is not None and self._event.kind == "attached"):
            self._hold(bound.control_invariants)
        if len(bound.good) >= GOOD_KEPT:
            bound.good.clear()
        bound.good.add(key)

    def _hold(self, invariants: Sequence[Property]) -> None:
        for p in invariants:
            if not p.holds(self.state):
                raise Unexplained(p.rule.name, p.rule.title)

    def _step(self, name: str, *arguments: int) -> None:
        self._taken = name
        try:
            self.word(name)(self.state, *arguments)
        except Refused as refusal:
            raise Unexplained(self._rule(name), f"refused: {refusal}") from None

    def _rule(self, name: str) -> str:
        """A rule by name, with its section."""
        return section_of(name, self.word(name))

    def _expect(self, kind: str, *values: int) -> None:
        """The step just taken emitted this; values that are not given are the specification's own."""
        emitted = [e for e in self.state.events if e[0] != "evicted"]
        if not any(e[: len(values) + 1] == (kind, *values) for e in emitted):
            told = "; ".join(map(self.told, emitted)) or "nothing"
            raise Unexplained(self._rule(self._taken), f"the specification says: {told}")

    # ---- operations

    def _slot(self, op: OpId | None) -> int:
        if op is None or op not in self._slots:
            raise Unexplained("inv_records_name_their_attempt", "no such operation is pending or travelling")
        return self._slots[op]

    def _retire(self, op: OpId) -> None:
        """Ended and in nobody's hands: the slot can serve another operation."""
        slot = self._slots[op]
        if self.word("is_ended")(self.state, slot):
            if self._live.get(op[0]) == op:
                del self._live[op[0]]
            if not self.word("is_travelling")(self.state, slot):
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

    def _look(self, rank: int) -> None:
        """This rank's scheduler has acted: so many revokes it certainly sees when it looks the next time. The last one
        that an idle query thread has logged may not be there yet."""
        is_idle = self.state.stage[rank] == IDLE
        self._seen[rank] = max(0, len(self.state.revoke_queue[rank]) - is_idle)

    def _mark(self, s: Any, slot: int) -> None:
        """The word `mark`: a scheduler sets its own rank's flag; at a publish all ranks have set theirs before."""
        assert self._event is not None
        ranks = range(self.config.ranks) if self._event.kind == "fetched" else [self._event.rank]
        for r in ranks:
            s.stopped[r][slot] = True


def name_of(op: OpId | None) -> str:
    """An operation in the words of the log."""
    return "nothing" if op is None else f"{op[0]}#{op[1]}"
