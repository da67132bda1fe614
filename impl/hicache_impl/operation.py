"""One prefetch operation on one rank: its life cycle, and the few steps that more than one thread may take.

Every method of `Operation` is one atomic step: it holds the operation's lock, fires the life cycle, and logs the event
under the same lock, so that the log's order is the order of the steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from transitions import Machine, MachineError

from hicache_impl import events
from hicache_impl.events import Log, NullLog, OpId
from hicache_impl.keys import PrefixKey

if TYPE_CHECKING:
    from hicache_impl.trees.node import Node

QUEUED = "queued"
QUERIED = "queried"
TERMINATED = "terminated"
ALLOCATED = "allocated"
REVOKED = "revoked"
FETCHED = "fetched"
STATES = (QUEUED, QUERIED, TERMINATED, ALLOCATED, REVOKED, FETCHED)
FINAL = (REVOKED, FETCHED)
TRIGGERS = ("query", "allocate", "fetch", "terminate", "revoke")

EDGES: dict[tuple[str, str], str] = {
    ("query", QUEUED): QUERIED,
    ("allocate", QUERIED): ALLOCATED,
    ("fetch", ALLOCATED): FETCHED,
    ("terminate", QUEUED): TERMINATED,
    ("terminate", QUERIED): TERMINATED,
    ("terminate", ALLOCATED): TERMINATED,
    ("revoke", QUERIED): REVOKED,
    ("revoke", TERMINATED): REVOKED,
    ("fetch", TERMINATED): FETCHED,
}
"""(trigger, state) -> next state. Whatever is not here raises IllegalTrigger."""

IllegalTrigger = MachineError

# Why an operation ended, or why its counting stopped.
COMPLETE = "complete"
POLICY = "policy"
STOP = "stopped"
FAILED_PAGE = "failed_page"
ABORT = "aborted"
BELOW_THRESHOLD = "below_threshold"
NO_MEMORY = "no_memory"

# Which call of the scheduler revokes.
RevokedBy = Literal["drain", "poll", "abort"]


def _build_machine() -> Machine:
    machine = Machine(model=None, states=list(STATES), initial=QUEUED, auto_transitions=False, send_event=False)
    for (trigger, source), target in EDGES.items():
        machine.add_transition(trigger, source, target)
    return machine


# One machine for all operations: it keeps no list of them, so an operation that ended is garbage at once.
_MACHINE = _build_machine()


class Shortage(NamedTuple):
    """What is wanted, of which pool (`PAGES`: pages), is more than what is free and what an eviction would free."""

    pool: str
    wanted: int
    free: int
    evictable: int


PAGES = "pages"


class Operation:
    """An attempt of request `rid` to fetch the `span_pages` pages of `key` that follow `base_pages` known ones.

    `key` is the span only; its hash chain starts after `parent_hash` (None: at the root). `host_pages` are this rank's
    pool pages, one a granted page; `counted_pages` of them, from the first, hold their bytes. `submitted_at` is in
    seconds of the runtime's clock.

    With extra pools: `before` are the hashes of the last known pages, as many as a window may reach back to. `ends` are
    the numbers of pages, up to the hit, after which all pools have on all ranks what a prefix needs (None: any number).
    `slots` are this rank's host slots by pool and position from the root.
    """

    def __init__(
        self,
        rid: str,
        attempt: int,
        key: PrefixKey,
        *,
        anchor: Node,
        parent_hash: bytes | None,
        base_pages: int,
        submitted_at: float,
        log: Log,
        lock: AbstractContextManager[Any],
        before: Sequence[bytes] = (),
    ) -> None:
        self.id: OpId = (rid, attempt)
        self.rid = rid
        self.attempt = attempt
        self.key = key
        self.anchor = anchor
        self.parent_hash = parent_hash
        self.base_pages = base_pages
        self.before = tuple(before)
        self.submitted_at = submitted_at
        self.lock = lock
        self.state = QUEUED
        self.hashes: tuple[bytes, ...] = ()
        self.hit_pages = 0
        self.ends: tuple[int, ...] | None = None
        self.host_pages: tuple[int, ...] = ()
        self.slots: Mapping[str, Mapping[int, int]] = {}
        self.counted_pages = 0
        self.terminated = False
        self.stop_asked = False
        self._log = log
        # Two events a page cost as much as all else that is done for a page but its copy.
        self._tells_pages = not isinstance(log, NullLog)

    def __repr__(self) -> str:
        return f"Operation({self.rid!r}, attempt {self.attempt}, {self.state})"

    @property
    def span_pages(self) -> int:
        """Pages asked for."""
        return len(self.key)

    @property
    def granted_pages(self) -> int:
        """Host pages that the drain gave; 0 before."""
        return len(self.host_pages)

    @property
    def has_memory(self) -> bool:
        """Whether the drain gave host pages; the same on every rank, because drains are."""
        return bool(self.host_pages)

    @property
    def is_complete(self) -> bool:
        """Every granted page is counted on this rank."""
        with self.lock:
            return self.has_memory and self.counted_pages == self.granted_pages

    @property
    def is_terminated(self) -> bool:
        """Whether this rank has learnt that the operation is to stop."""
        with self.lock:
            return self.terminated

    def fire(self, trigger: str) -> None:
        """Move the life cycle; the caller holds the lock if another thread can see the operation.

        IllegalTrigger, and the state stays: the table has no such edge. ValueError: no such trigger.
        """
        if trigger not in TRIGGERS:
            raise ValueError(f"no trigger {trigger!r}; the triggers are {', '.join(TRIGGERS)}")
        _MACHINE.events[trigger].trigger(self)

    # The query thread's steps.

    def take_for_query(self) -> bool:
        """Whether the store is worth asking: not when the operation is terminated."""
        with self.lock:
            self._emit(events.QUERY_TAKEN, terminated=self.terminated)
            return not self.terminated

    def agree_hit(self, hashes: Sequence[bytes]) -> None:
        """The ranks agreed that the store holds these pages. A terminated operation changes no state."""
        with self.lock:
            self.hashes = tuple(hashes)
            self.hit_pages = len(self.hashes)
            if not self.terminated:
                self.fire("query")
            self._emit(events.QUERY_AGREED, hit=self.hit_pages)

    def hash_at(self, position: int) -> bytes:
        """The hash of the page at this position from the root. IndexError: it is neither of the hit nor of `before`."""
        index = position - self.base_pages
        if index < -len(self.before):
            raise IndexError(f"no hash is kept of position {position}")
        return self.hashes[index] if index >= 0 else self.before[index]

    # The IO thread's steps.

    def start_page(self, page: int) -> bool:
        """Whether to read page number `page` of this operation: not when it is terminated."""
        with self.lock:
            if self.terminated:
                return False
            self._emit(events.IO_STARTED, page=page)
            return True

    def count_pages(self, pages: range) -> bool:
        """Their bytes are in place: count these pages together, unless the operation was terminated meanwhile.

        Of them, `start_page` was asked for the first alone; so the others start here.
        """
        with self.lock:
            if self.terminated:
                self._emit(events.IO_UNCOUNTED, page=pages[0])
                return False
            if self._tells_pages:
                for page in pages:
                    if page != pages[0]:
                        self._emit(events.IO_STARTED, page=page)
                    self._emit(events.IO_LANDED, page=page)
            self.counted_pages += len(pages)
            return True

    def fail_page(self, page: int, reason: str) -> None:
        """The bytes did not come: the operation is terminated, unless it was before."""
        with self.lock:
            if self.terminated:
                self._emit(events.IO_UNCOUNTED, page=page)
                return
            self._terminate()
            self._emit(events.IO_FAILED, page=page, reason=reason)

    def release_page(self, page: int) -> int:
        """The IO thread gives up this page of the tail; returns the pool page."""
        self._emit(events.IO_RELEASED, page=page)
        return self.host_pages[page]

    # The scheduler's steps.

    def clamp(self, pages: int, shortage: Shortage) -> None:
        """There is room for no more, for want of what a longer prefix needs; from here on the hit is no longer."""
        with self.lock:
            self.hashes = self.hashes[:pages]
            self.hit_pages = pages
            self._emit(events.CLAMPED, pages=pages, **shortage._asdict())

    def allocate(
        self,
        host_pages: Sequence[int],
        *,
        evictable: int,
        free: int,
        slots: Mapping[str, Mapping[int, int]] = MappingProxyType({}),
    ) -> None:
        """The drain gives these host pages, and these host slots of the extra pools."""
        with self.lock:
            self.fire("allocate")
            self.host_pages = tuple(host_pages)
            self.slots = slots
            self._emit(events.ALLOCATED, pages=self.granted_pages, hit=self.hit_pages, evictable=evictable, free=free)

    def ask_stop(self) -> bool:
        """The request no longer wants to wait; False when that was said before."""
        with self.lock:
            if self.stop_asked:
                return False
            self.stop_asked = True
            self._terminate()
            self._emit(events.STOPPED)
            return True

    def mark(self, reason: str) -> int:
        """Freeze the count before the ranks compare it; returns it.

        Only a complete operation may stay unterminated: nothing is left that could still be counted.
        """
        with self.lock:
            if reason != COMPLETE:
                self._terminate()
            self._emit(events.MARKED, reason=reason, counted=self.counted_pages)
            return self.counted_pages

    def revoke(self, reason: str, by: RevokedBy, *, evictable: int, free: int) -> None:
        """End without publishing anything, in the scheduler's call `by`.

        An operation that was stopped or aborted is terminated by the same step.
        """
        with self.lock:
            if reason in (STOP, ABORT):
                self._terminate()
            self.fire("revoke")
            self._emit(events.REVOKED, reason=reason, by=by, evictable=evictable, free=free)

    def fetch(self, pages: int, known: int, reason: str) -> None:
        """End with `pages` pages published, `known` of them by somebody else before."""
        with self.lock:
            self.fire("fetch")
            self._emit(events.FETCHED, pages=pages, known=known, reason=reason)

    def cancel(self) -> None:
        """The cache closes: stop the IO thread; nothing is logged, because the log has said `closed`."""
        with self.lock:
            self.terminated = True

    def _terminate(self) -> None:
        if not self.terminated:
            self.fire("terminate")
            self.terminated = True

    def _emit(self, kind: str, **data: Any) -> None:
        self._log.emit(kind, self.id, **data)
