"""The black-box monitor: what a caller sees is explained by the specification, without a single event.

It keeps the worlds (`black_box_moves.py`) that explain what was seen so far. After each call those that do not fit the
answer, or what can be observed then, are dropped. When none is left, what was seen has no explanation: that is an
alarm, with the last point that could be explained, and with what could have been seen instead. It is never a false one;
when there are too many worlds to keep, the monitor says so, and judges no more than what can be seen at rest.

    box = BlackBox(config)
    box.submitted("a", 3, {"accepted": True}, seen)     # the prompt has 3 pages; `seen` is what observe() says now
    box.ticked(seen)
    box.polled({"a": {"ready": False}}, seen)
    box.settled()                                       # every thread rests, if somebody can know that
    box.rested(seen)                                    # everything must have ended by now

Whatever an adapter cannot see is UNOBSERVED, or simply missing; it is counted, and anything goes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from hicache_checks.conformance.black_box_moves import World, is_pending, moves_for
from hicache_checks.conformance.black_box_sight import Sight, disagreement, sight_of
from hicache_checks.conformance.explainer import MonitorConfig, name_of
from hicache_checks.conformance.observation import DECLINES, STORE_DECLINES, TREE_DECLINES, UNOBSERVED, OpId

WORLDS_MAX = 2_000
OPERATIONS_MAX = 16
# Moves that lead to a world that is known already cost time, too.
MOVES_A_WORLD_MAX = 50
SHOWN = 8

Seen = Mapping[str, Any]
Move = Callable[[World], Iterable[World]]
NOTHING_SEEN: Seen = {}


@dataclass(frozen=True)
class Alarm:
    """What was seen has no explanation.

    `call`: the call at which it was seen. `last`: the last point that could be explained. `possible`: what could have
    been seen instead, one line each.
    """

    property: str
    message: str
    call: str
    last: str
    possible: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.property}: {self.message} at {self.call}", f"  explained up to {self.last}"]
        return "\n".join([*lines, *(f"  possible: {line}" for line in self.possible)])


class _TooMany(Exception):
    """There are more worlds than can be kept."""


class BlackBox:
    """Tell it each call with its answer, and what could be observed right after it.

    `is_late(op)`: whether the time limit of an operation has certainly passed (True), certainly not (False), or None.
    `alarm` is the first thing that has no explanation, `unknown` why the monitor gave up; `unobserved` counts what was
    not seen, by name.
    """

    def __init__(
        self,
        config: MonitorConfig,
        is_late: Callable[[OpId], bool | None] = lambda op: None,
        worlds_max: int = WORLDS_MAX,
        operations_max: int = OPERATIONS_MAX,
    ) -> None:
        self.config = config
        self.alarm: Alarm | None = None
        self.unknown: str | None = None
        self.unobserved: Counter[str] = Counter()
        self.calls = 0
        self._moves = moves_for(config, operations_max)
        self.worlds = {self._moves.start()}
        self._is_late = is_late
        self._worlds_max = worlds_max
        self._slots: dict[OpId, int] = {}
        self._free_slots = list(reversed(range(operations_max)))
        self._attempts: Counter[str] = Counter()
        self._asked_to_stop: set[OpId] = set()
        self._at_rest = False
        self._call = "the start"
        self._explained = (self._call, self.worlds)

    def attempt(self, rid: str) -> int:
        """How many submissions of a request id were accepted."""
        return self._attempts[rid]

    # ---- calls

    def submitted(self, rid: str, pages: int, answer: Seen, seen: Seen = NOTHING_SEEN) -> None:
        """A prompt of so many pages was submitted. The answer: `accepted`; if known `reason, span_pages, attempt`."""
        sight = self._begin(f"submit({rid}, {pages} pages)", seen)
        if sight is None:
            return
        if not answer["accepted"]:
            reason, span = self._told(answer, "reason", "span_pages")
            self._step(f"it is declined: {reason}", "step_declined_for_cause", self._declines(rid, reason, span), sight)
            return
        attempt, span = self._told(answer, "attempt", "span_pages")
        op = (rid, self._attempts[rid] + 1)
        if attempt not in (UNOBSERVED, op[1]):
            self._raise("P11 inv_records_name_their_attempt", f"it is called attempt {attempt}, and is {name_of(op)}")
        elif self._take_slot(op):
            self._attempts[rid] += 1
            self._at_rest = False
            spans = range(self.config.threshold_pages, pages + 1) if span is UNOBSERVED else (span,)
            self._step(f"it is accepted: {name_of(op)}", "step_admitted_for_cause", self._admits(op, spans), sight)

    def polled(self, answers: Mapping[str, Seen], seen: Seen = NOTHING_SEEN) -> None:
        """Requests were polled together. Each answer: `ready`; if known `state, pages, known`: how it ended now."""
        sight = self._begin(f"poll({', '.join(answers)})", seen)
        if sight is None:
            return
        # All were asked at once, and what is ready was so then. So what it takes to be ready had happened before any
        # of them was found not to be.
        told: list[tuple[str, str, str, Callable[[Sight], Move]]] = []
        for rid in sorted(answers, key=lambda rid: not answers[rid]["ready"]):
            if answers[rid]["ready"]:
                (state,) = self._told(answers[rid], "state")
                pages, known = (UNOBSERVED,) * 2
                if state in ("fetched", UNOBSERVED):
                    pages, known = self._told(answers[rid], "pages", "known")
                message = f"{rid} is ready: {_how(state, pages)}"
                told.append(
                    (rid, message, "step_waits_for_the_verdict", partial(self._ready, rid, state, pages, known))
                )
            else:
                told.append((rid, f"{rid} is not ready", "P5 may_end (§3.8)", partial(self._not_ready, rid)))
        # Only what leads to what is seen is followed; if there is nothing, all that could have been.
        if fitting := self._polled_to([moves(sight) for *_, moves in told], sight):
            self._see(fitting, sight)
            return
        for rid, message, property_, moves in told:
            if not self._answer(message, property_, moves(Sight()), partial(self._polls, rid)):
                return
        self._see(self.worlds, sight)

    def stopped(self, rid: str, answer: object = UNOBSERVED, seen: Seen = NOTHING_SEEN) -> None:
        """The caller of a request waits no longer. The answer, if there is one: whether there was something to stop."""
        sight = self._begin(f"stop({rid})", seen)
        if sight is not None:
            again = any(op[0] == rid for op in self._asked_to_stop)
            moves = self._if_pending(rid, answer, self._moves.stop, may_deny=again)
            self._asked_to_stop |= {op for op in self._slots if op[0] == rid}
            self._step(f"the answer is {answer}", "inv_records_name_their_attempt", moves, sight)

    def aborted(self, rid: str, answer: object = UNOBSERVED, seen: Seen = NOTHING_SEEN) -> None:
        """A request is gone. The answer, if there is one: whether there was something to abort."""
        sight = self._begin(f"abort({rid})", seen)
        if sight is not None:
            moves = self._if_pending(rid, answer, self._moves.abort)
            self._step(f"the answer is {answer}", "inv_records_name_their_attempt", moves, sight)

    def ticked(self, seen: Seen = NOTHING_SEEN) -> None:
        """Every scheduler drained what it had."""
        sight = self._begin("tick()", seen)
        if sight is None:
            return
        at_rest, self._at_rest = self._at_rest, False
        # Only what leads to what is seen is followed; if there is nothing, all that could have been.
        later = self._moved(lambda world: self._ticks(world, at_rest, sight))
        later = later or self._moved(lambda world: self._ticks(world, at_rest, Sight()))
        self._see(later, sight)

    def disturbed(self, seen: Seen = NOTHING_SEEN) -> None:
        """Other requests ran: pages may have been written through and evicted."""
        sight = self._begin("other requests", seen)
        if sight is not None:
            self._see(self._moved(self._moves.disturb), sight)

    def detached(self, seen: Seen = NOTHING_SEEN) -> None:
        """The store was let go of: every operation was aborted, and everything came to rest."""
        sight = self._begin("detach()", seen)
        if sight is not None:
            self._see(self._moved(self._detaches), sight)

    def observed(self, seen: Seen) -> None:
        """Nothing was called, and this can be observed."""
        sight = self._begin("observe()", seen)
        if sight is not None:
            self._see(self.worlds, sight)

    def settled(self) -> None:
        """No thread has anything left to do: every pending operation is looked up, and read as far as it can be."""
        if self.alarm is None and self.unknown is None:
            self._at_rest = True
            self.worlds = {World(w.key, w.due | set(self._moves.unread(w))) for w in self.worlds}

    def rested(self, seen: Seen) -> None:
        """Everything was polled, drained and settled often enough: whatever ends, has ended, and all is given back."""
        sight = self._begin("rest", seen)
        if self.alarm is not None:
            return
        there = sight_of(seen)
        free, resident, pool = there.free_pages, there.resident_pages, self.config.host_pages
        if there.operations not in (UNOBSERVED, {}):
            names = ", ".join(map(name_of, sorted(there.operations)))
            self._raise("P2 live_submitted_operations_end", f"{names} never ended")
        elif there.occupied_pages not in (UNOBSERVED, 0):
            message = f"{there.occupied_pages} pages are occupied, and nothing is pending"
            self._raise("P8 inv_occupied_is_sum_of_spans", message)
        elif UNOBSERVED not in (free, resident) and free + resident != pool:
            message = f"{free} free and {resident} resident pages are not the {pool} pages of the pool"
            self._raise("P4 inv_rest_restores_the_pool", message)
        elif sight is not None and self._answer(
            "something never ended", "P2 live_submitted_operations_end", self._ends
        ):
            self._see(self.worlds, sight)

    # ---- what the specification allows

    def _admits(self, op: OpId, spans: Iterable[int]) -> Move:
        """The submission becomes an operation."""

        def moves(world: World) -> Iterator[World]:
            if self._pending_of(op[0], world) is None:
                for span in spans:
                    yield from self._moves.admit(world, self._slots[op], span)

        return moves

    def _declines(self, rid: str, reason: Any, span: Any) -> Move:
        """The submission is declined, for a reason that there is."""
        self.unobserved["reason to decline"] += reason in (TREE_DECLINES, STORE_DECLINES)
        is_short = span is UNOBSERVED or span < self.config.threshold_pages

        def moves(world: World) -> Iterator[World]:
            is_full = self._moves.look(world).occupied >= self.config.limit_pages
            is_pending = self._pending_of(rid, world) is not None
            holds = dict(zip(DECLINES, (is_pending, is_short, is_full), strict=True))
            if holds.get(reason, True):
                yield world

        return moves

    def _ready(self, rid: str, state: Any, pages: Any, known: Any, sight: Sight) -> Move:
        """The poll ends the operation, if there is one: published with memory, revoked without.

        A poll takes nothing from the pool and nothing from the tree, so none has more than is seen after it.
        """

        def moves(world: World) -> Iterator[World]:
            op = self._pending_of(rid, world)
            if op is None:
                if state in (None, UNOBSERVED):
                    yield world
                return
            slot, is_late = self._slots[op], self._is_late(op)
            counts = self._moves.landed(world, slot)
            if not counts and state in ("revoked", UNOBSERVED):
                yield from self._moves.revoke(world, slot, late=is_late is not False)
            if counts and state in ("fetched", UNOBSERVED):
                there = self._expected(world)
                for count in counts:
                    for of_tree in range(count + 1):
                        is_told = pages in (count, UNOBSERVED) and known in (of_tree, UNOBSERVED)
                        if is_told and sight.has_room(there, free_pages=of_tree, resident_pages=count - of_tree):
                            yield self._moves.publish(world, slot, count, of_tree)

        return moves

    def _not_ready(self, rid: str, sight: Sight) -> Move:
        """The operation is pending, and its policy waits on. That changes nothing that can be seen."""

        def moves(world: World) -> Iterator[World]:
            op = self._pending_of(rid, world)
            policy = self.config.policy
            if op is None or policy == "best_effort" or (policy == "timeout" and self._is_late(op) is True):
                return
            if not self._moves.must_end(world, self._slots[op]):
                yield world

        return moves

    def _polled_to(self, answers: Iterable[Move], sight: Sight) -> set[World]:
        """Where these answers lead, if what is seen after them fits."""
        worlds = self.worlds
        try:
            for moves in answers:
                worlds = self._within_budget(later for world in worlds for later in moves(world))
        except _TooMany:
            return set()
        return {world for world in worlds if sight.fits(self._expected(world))}

    def _if_pending(
        self, rid: str, answer: object, move: Callable[[World, int], World], may_deny: bool = False
    ) -> Move:
        """A call that is for a pending operation, and says whether there was one."""

        def moves(world: World) -> Iterator[World]:
            op = self._pending_of(rid, world)
            if op is None:
                if answer is not True:
                    yield world
            elif answer is not False or may_deny:
                yield move(world, self._slots[op])

        return moves

    def _ticks(self, world: World, at_rest: bool, sight: Sight) -> Iterator[World]:
        """Some answers are decided, in order, and some released pages are taken back; at rest, all are."""
        unread, least = self._moves.unread(world), self._moves.released_at_least(world) if at_rest else 0
        decided: set[World] = {world}
        while decided:
            for w in decided:
                if not at_rest or not self._moves.waiting(w):
                    yield from self._reclaims(w, unread, least, sight)
            waiting = [w for w in decided if self._moves.waiting(w)]
            decided = self._within_budget(
                later for w in waiting for later in self._moves.decide(w) if self._may_lead(later, sight)
            )

    def _may_lead(self, world: World, sight: Sight) -> bool:
        """In the middle of a tick: whether what is decided so far is what is seen after it."""
        if sight.operations is UNOBSERVED:
            return True
        there, waiting = self._expected(world).operations, self._moves.waiting(world)
        decided = {op for op, slot in self._slots.items() if slot not in waiting}
        return Sight(operations={op: n for op, n in sight.operations.items() if op in decided}).fits(
            Sight(operations={op: n for op, n in there.items() if op in decided})
        )

    def _reclaims(self, world: World, unread: tuple[int, ...], least: int, sight: Sight) -> Iterator[World]:
        free = self._expected(world).free_pages
        for pages in range(least, self._moves.released_at_most(world, unread) + 1):
            # Trying the others would be in vain.
            if sight.free_pages in (UNOBSERVED, free + pages):
                for supplied in self._moves.supply(world, pages, unread):
                    later = self._moves.reclaim(supplied, pages)
                    if sight.fits(self._expected(later)):
                        yield later

    def _detaches(self, world: World) -> Iterator[World]:
        for op in self._expected(world).operations:
            world = self._moves.abort(world, self._slots[op])
        yield from self._ends(world)

    def _ends(self, world: World) -> Iterator[World]:
        """Nothing is pending, and all that was released is back."""
        if not self._expected(world).operations:
            yield self._moves.reclaim(world, self._moves.released_at_most(world, ()))

    # ---- worlds

    def _pending_of(self, rid: str, world: World) -> OpId | None:
        """The operation of a request that is pending in a world."""
        return next((op for op in self._expected(world).operations if op[0] == rid), None)

    def _expected(self, world: World) -> Sight:
        """What would be observed in a world."""
        s = self._moves.look(world)
        operations = {op: s.granted[slot] for op, slot in self._slots.items() if is_pending(s, slot)}
        return Sight(s.free[0], s.resident[0], s.occupied, operations)

    def _take_slot(self, op: OpId) -> bool:
        """A slot for a new operation; those of operations that are over in every world can be used again."""
        if not self._free_slots:
            for over, slot in list(self._slots.items()):
                if all(self._moves.is_over(world, slot) for world in self.worlds):
                    del self._slots[over]
                    self._asked_to_stop.discard(over)
                    self._free_slots.append(slot)
                    self.worlds = {self._moves.forget(world, slot) for world in self.worlds}
        if self._free_slots:
            self._slots[op] = self._free_slots.pop()
        else:
            self._give_up(f"more than {len(self._slots)} operations at a time")
        return self.unknown is None

    def _moved(self, moves: Move) -> set[World]:
        """Where a move leads from the worlds that are left. Too many: nowhere, and the monitor gives up."""
        if self.unknown is not None:
            return set()
        try:
            return self._within_budget(later for world in self.worlds for later in moves(world))
        except _TooMany:
            self._give_up(f"more than {self._worlds_max:,} states of the specification explain what was seen")
            return set()

    def _within_budget(self, worlds: Iterable[World]) -> set[World]:
        """The different ones among them. Raises _TooMany."""
        found: set[World] = set()
        for count, world in enumerate(worlds):
            found.add(world)
            if len(found) > self._worlds_max or count > MOVES_A_WORLD_MAX * self._worlds_max:
                raise _TooMany
        return found

    def _give_up(self, why: str) -> None:
        self.unknown = f"{why}, at {self._call}"

    # ---- what is told and seen

    def _begin(self, call: str, seen: Seen) -> Sight | None:
        """A call is looked at; None: it cannot be judged any more, or ranks differ."""
        self.calls += 1
        self._call = f"call {self.calls}, {call}"
        sight = sight_of(seen)
        self.unobserved.update(sight.unobserved())
        if self.alarm is None and (differing := disagreement(seen)) is not None:
            self._raise("P7 lockstep", f"ranks differ: {differing}")
        return sight if self.alarm is None and self.unknown is None else None

    def _told(self, answer: Seen, *names: str) -> tuple[Any, ...]:
        """What an answer says under these names; what it leaves out was not observed."""
        values = tuple(answer.get(name, UNOBSERVED) for name in names)
        self.unobserved.update(name for name, value in zip(names, values, strict=True) if value is UNOBSERVED)
        return values

    def _step(self, message: str, property_: str, moves: Move, sight: Sight) -> None:
        if self._answer(message, property_, moves):
            self._see(self.worlds, sight)

    def _answer(self, message: str, property_: str, moves: Move, possible: Callable[[], Iterable[str]] = tuple) -> bool:
        """Keep where an answer leads; whether it leads anywhere."""
        later = self._moved(moves)
        if not later and self.unknown is None:
            self._raise(property_, message, possible())
        self.worlds = later or self.worlds
        return bool(later)

    def _see(self, worlds: set[World], sight: Sight) -> None:
        """Keep the worlds in which this can be observed."""
        if self.unknown is not None:
            return
        expected = {world: self._expected(world) for world in worlds}
        fitting = {world for world, there in expected.items() if sight.fits(there)}
        if fitting:
            self.worlds = fitting
            self._explained = (self._call, fitting)
        else:
            self._raise(*sight.blame(list(expected.values())), sorted(map(str, expected.values())))

    def _raise(self, property_: str, message: str, possible: Iterable[str] = ()) -> None:
        call, worlds = self._explained
        sights = sorted({str(self._expected(world)) for world in worlds})
        more = f" (or {len(sights) - 1} other ways)" if len(sights) > 1 else ""
        lines = list(dict.fromkeys(possible))
        lines = [*lines[:SHOWN], *([f"{len(lines) - SHOWN} more"] if len(lines) > SHOWN else [])]
        self.alarm = Alarm(property_, message, self._call, f"{call}: {sights[0]}{more}", tuple(lines))

    def _polls(self, rid: str) -> list[str]:
        """What a poll of this request may answer."""
        lines = set()
        for world in self.worlds:
            if any(self._not_ready(rid, Sight())(world)):
                lines.add(f"{rid} is not ready")
            if self._pending_of(rid, world) is None:
                lines.add(f"{rid} is ready: it waits for nothing")
            elif any(self._ready(rid, "revoked", UNOBSERVED, UNOBSERVED, Sight())(world)):
                lines.add(f"{rid} is ready: {_how('revoked', UNOBSERVED)}")
            else:
                every = range(self.config.host_pages + 1)
                counts = [n for n in every if any(self._ready(rid, "fetched", n, 0, Sight())(world))]
                lines.update(f"{rid} is ready: {_how('fetched', n)}" for n in counts)
        return sorted(lines)


def _how(state: Any, pages: Any) -> str:
    """How an operation ended, as far as it is told."""
    if state == "fetched" and pages is not UNOBSERVED:
        return f"fetched, {pages} pages"
    return "it ended, or waits for nothing" if state is UNOBSERVED else str(state or "it waits for nothing")
