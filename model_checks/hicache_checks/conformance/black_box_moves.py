"""What one server may have done unseen, as states of the specification: the moves behind a caller's calls.

Threads and storage are hidden. Three observations keep the number of states small, and no run is lost by them:

- *One rank stands for all.* What a caller sees is decided by the lowest hit, the lowest count of landed pages and the
  fewest released pages over the ranks, and by a flag that is set on any of them. A single rank with a storage that may
  answer anything can do the same. Ranks at different places make a set of ranks serve operations out of order; so here
  the IO thread may serve them in any order.
- *Threads act as late as possible.* A thread's step that is not needed to explain what is seen is left for later: it
  is still possible then. So an operation that was granted pages has none of them until a poll publishes some, or pages
  return that only it can have given back.
- *What has ended is put away at once.* Its pages are released and its answer is skipped as soon as may be. A drain may
  take less than there is, so nothing is forced by that.

What the tree does is hidden, too: how much could be evicted, how much more than the missing pages a node had, and which
fetched pages were known, may be anything that fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from hicache_checks.conformance.explainer import MonitorConfig, bounds_for
from hicache_spec import DESIGNS, BoundSpec
from hicache_spec.language import NONE

RULES = (
    *("why_declined", "admit", "query_take", "query_ask_storage", "query_agree", "query_put", "take_answered"),
    *("decide", "reclaim", "io_start_page", "io_land_page", "io_fail_page", "io_release_page"),
    *("may_end", "sched_poll", "sched_stop", "sched_abort", "sched_write_through"),
)
MOVES_KEPT, STATES_KEPT = 256, 1024


@dataclass
class Tree:
    """The words of the tree, answered by what the next move assumes. All numbers are pages."""

    evictable: int = 0
    evicted: int = 0
    known: int = 0

    def words(self) -> Mapping[str, Callable[..., Any]]:
        """The helper functions of `hicache_spec.tree`."""
        return {
            "protect": lambda s, op: None,
            "unprotect": lambda s, op: None,
            "resident_pages": lambda s: s.resident[0],
            "evictable_pages": lambda s: self.evictable,
            "evict": lambda s, missing: self.evict(s),
            "known_pages": lambda s, op, pages: self.known,
            "attach": self.attach,
        }

    def evict(self, s: Any) -> None:
        """Pages leave the tree."""
        self.attach(s, NONE, -self.evicted)
        s.free[0] += self.evicted

    def attach(self, s: Any, op: int, pages: int) -> None:
        """Pages become the tree's."""
        s.resident[0] += pages


@dataclass(frozen=True)
class World:
    """A state of the specification, as bytes, that explains what was seen.

    `due`: operations with memory that certainly are complete or terminated, though it is open with how many pages.
    """

    key: bytes
    due: frozenset[int] = field(default=frozenset())


class Moves:
    """The rules of the specification, for one rank and a number of operations at a time. No move changes its state."""

    def __init__(self, config: MonitorConfig, operations: int) -> None:
        self._ranks = config.ranks
        self._tree = Tree()
        bounds = bounds_for(config, operations, ranks=1)
        self.spec = BoundSpec(DESIGNS["decide_at_drain"], bounds, self._tree.words())
        self.threshold_pages = config.threshold_pages
        self.rule = {name: self.spec.function(name) for name in RULES}
        self._start = World(self.spec.encode(self.spec.initial()))

    def start(self) -> World:
        """Nothing has happened."""
        return self._start

    def open(self, world: World) -> Any:
        """A fresh copy of a world's state, to move on."""
        return self.spec.decode(world.key)

    def look(self, world: World) -> Any:
        """A world's state, only to look at."""
        return _decoded(self.spec, world.key)

    def close(self, s: Any, due: frozenset[int]) -> World:
        """The state that a move has led to."""
        self._skip_ended(s)
        return World(self.spec.encode(s), frozenset(slot for slot in due if is_pending(s, slot)))

    def forget(self, world: World, slot: int) -> World:
        """The slot is that of a new operation."""
        s = self.open(world)
        s.phase[slot], s.attempts[slot] = 0, 0
        return self.close(s, world.due)

    # ---- what there is

    def is_over(self, world: World, slot: int) -> bool:
        """Has the operation ended, and does nobody meet it any more?"""
        s = self.look(world)
        return not is_pending(s, slot) and slot not in s.query_queue[0]

    def waiting(self, world: World) -> Sequence[int]:
        """The operations whose answers are still to be decided, in order."""
        queue: list[int] = self.look(world).query_queue[0]
        return queue

    def unread(self, world: World) -> tuple[int, ...]:
        """The operations of which a read may still fail."""
        return tuple(self.look(world).buffer[0])

    def must_end(self, world: World, slot: int) -> bool:
        """Must a poll end this pending operation, whatever the policy?"""
        return slot in world.due or bool(self.look(world).stopped[0][slot])

    def landed(self, world: World, slot: int) -> Sequence[int]:
        """How many pages of an operation may have landed everywhere; none: it was granted no memory."""
        s = self.look(world)
        if not s.granted[slot]:
            return ()
        return (s.counted[0][slot],) if s.stopped[0][slot] else range(s.granted[slot] + 1)

    def released_at_least(self, world: World) -> int:
        """How many pages every rank has released when all threads rest.

        Only one rank need have read in vain; on the others a tail is held until the operation ends.
        """
        s = self.look(world)
        held = 0 if self._ranks == 1 else sum(s.given[0][slot] for slot in range(len(s.record)) if is_pending(s, slot))
        return max(0, s.releasing[0] - held)

    def released_at_most(self, world: World, unread: Iterable[int]) -> int:
        """How many pages may have been released, if these operations have failed."""
        s = self.look(world)
        return int(s.releasing[0] + sum(s.granted[slot] for slot in unread))

    # ---- what a caller does

    def admit(self, world: World, slot: int, span: int) -> Iterator[World]:
        """A submission is accepted."""
        s = self.open(world)
        if self.rule["why_declined"](s, slot, span) == NONE:
            self.rule["admit"](s, slot, 0, span)
            yield self.close(s, world.due)

    def stop(self, world: World, slot: int) -> World:
        """The caller waits no longer. What has landed by now is open until it is published."""
        s = self.open(world)
        if s.granted[slot]:
            return World(world.key, world.due | {slot})
        self.rule["sched_stop"](s, slot)
        return self.close(s, world.due)

    def abort(self, world: World, slot: int) -> World:
        """The request is gone."""
        s = self.open(world)
        self.rule["sched_abort"](s, slot)
        self._release(s, slot)
        return self.close(s, world.due)

    def revoke(self, world: World, slot: int, late: bool) -> Iterator[World]:
        """A poll ends an operation without memory."""
        s = self.open(world)
        if late:
            s.waited[slot] = self.spec.bounds.timeout_ticks
        if self.rule["may_end"](s, slot):
            self.rule["sched_poll"](s, slot)
            yield self.close(s, world.due)

    def publish(self, world: World, slot: int, pages: int, known: int) -> World:
        """A poll ends an operation with memory, of which so many pages have landed: all, or a read failed."""
        s = self.open(world)
        if not s.stopped[0][slot]:
            self._fetch(s, slot, pages)
        self._tree.known = known
        self.rule["sched_poll"](s, slot)
        return self.close(s, world.due)

    # ---- what a tick does

    def decide(self, world: World) -> Iterator[World]:
        """The drain takes the next answer: whatever storage said, and whatever could be evicted."""
        s = self.look(world)
        op = s.query_queue[0][0]
        yield self._answered(world, 0, 0, 0)
        if s.stopped[0][op]:
            return
        for pages in range(self.threshold_pages, min(s.span[op], s.free[0] + s.resident[0]) + 1):
            missing = max(0, pages - s.free[0])
            for evicted in range(missing, s.resident[0] + 1) if missing else (0,):
                yield self._answered(world, pages, missing, evicted)

    def _answered(self, world: World, hit: int, evictable: int, evicted: int) -> World:
        s = self.open(world)
        self._tree.evictable, self._tree.evicted = evictable, evicted
        self._answer(s, hit)
        return self.close(s, world.due)

    def reclaim(self, world: World, pages: int) -> World:
        """The drain takes released pages back."""
        s = self.open(world)
        if pages:
            self.rule["reclaim"](s, pages)
        return self.close(s, world.due)

    def supply(self, world: World, pages: int, failing: tuple[int, ...]) -> Iterator[World]:
        """So many pages are released: some of these operations have failed, if that is needed."""
        s = self.look(world)
        if s.releasing[0] >= pages:
            yield world
            return
        for place, slot in enumerate(failing):
            for landed in range(s.granted[slot]):
                failed = self.open(world)
                self._fetch(failed, slot, landed)
                yield from self.supply(self.close(failed, world.due | {slot}), pages, failing[place + 1 :])

    # ---- what others do

    def disturb(self, world: World) -> Iterator[World]:
        """Other requests were computed: pages were written through, and evicted."""
        before = self.look(world)
        for resident in range(before.free[0] + before.resident[0] + 1):
            s = self.open(world)
            self._tree.evicted = max(0, s.resident[0] - resident)
            self._tree.evict(s)
            for _ in range(resident - s.resident[0]):
                self.rule["sched_write_through"](s, 0)
            yield self.close(s, world.due)

    # ---- threads

    def _answer(self, s: Any, hit: int) -> None:
        """The query thread looks up the next operation, and the drain decides about it."""
        self.rule["query_take"](s, 0)
        self.rule["query_ask_storage"](s, 0, hit)
        self.rule["query_agree"](s)
        self.rule["query_put"](s, 0)
        self.rule["decide"](s, self.rule["take_answered"](s))

    def _skip_ended(self, s: Any) -> None:
        """An answer for nobody is skipped when it comes first: that changes nothing that can be seen."""
        while s.query_queue[0] and s.record[s.query_queue[0][0]] == NONE:
            self._answer(s, 0)

    def _fetch(self, s: Any, slot: int, pages: int) -> None:
        """So many pages land. If more were granted, the next one fails and the rest is released."""
        self._serve(s, slot)
        for _ in range(pages):
            self.rule["io_start_page"](s, 0)
            self.rule["io_land_page"](s, 0)
        if pages < s.granted[slot]:
            self.rule["io_start_page"](s, 0)
            self.rule["io_fail_page"](s, 0)
            self._release(s, slot)

    def _release(self, s: Any, slot: int) -> None:
        """The IO thread gives up the tail of a terminated operation."""
        if slot in s.buffer[0]:
            self._serve(s, slot)
            while s.buffer[0][:1] == [slot]:
                self.rule["io_release_page"](s, 0)

    def _serve(self, s: Any, slot: int) -> None:
        """It is this operation's turn."""
        s.buffer[0].remove(slot)
        s.buffer[0].insert(0, slot)


@lru_cache(STATES_KEPT)
def _decoded(spec: BoundSpec, key: bytes) -> Any:
    return spec.decode(key)


@lru_cache(MOVES_KEPT)
def moves_for(config: MonitorConfig, operations: int) -> Moves:
    """The moves under this configuration. They keep nothing from one to the next, so all runs may share them."""
    return Moves(config, operations)


def is_pending(s: Any, slot: int) -> bool:
    """Does the scheduler wait for this operation?"""
    return bool(s.record[slot] != NONE)
