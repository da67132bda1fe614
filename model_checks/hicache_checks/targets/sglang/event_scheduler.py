"""What the scheduler of a rank decides, as events."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hicache_checks.targets.sglang.event_log import EventLog, Followed, beside, reduces_by
from hicache_checks.targets.sglang.event_threads import BACKUP, IO, QUERY, ThreadEvents
from hicache_checks.targets.sglang.event_threads import NEEDED as NEEDED_OF_THREADS

if TYPE_CHECKING:
    from hicache_checks.targets.sglang.rank import Rank

NEEDED = (
    *("prefetch_from_storage", "check_prefetch_progress", "release_aborted_request", "_revoke_pending_prefetch"),
    *("_all_reduce_attn_groups", "_barrier_attn_groups", "_drain_storage_control_queues_impl"),
    *("_insert_helper_host", "write_backup", "_finish_write_through_ack"),
)
"""What a cache must have to be followed."""
NEEDED_OF_CONTROLLER = (*NEEDED_OF_THREADS, "evict_host", "_start_storage_threads")
POLL, ABORT, DRAIN = "poll", "abort", "drain"
WORKERS = {QUERY: "prefetch_thread", IO: "prefetch_io_aux_thread", BACKUP: "backup_thread"}
"""A controller's threads, by the words of the log."""
HARNESS = "harness"
"""The group of ranks between two calls of the harness."""


def can_be_followed(cache: type, controller: type) -> bool:
    """Do these classes have the methods that events are told from?"""
    needed = ((cache, NEEDED), (controller, NEEDED_OF_CONTROLLER))
    return all(hasattr(cls, name) for cls, names in needed for name in names)


@dataclass
class Call:
    """What the scheduler is in: POLL or ABORT, of which operation; whether ranks have told each other that it is
    terminated, and what they agreed on, in pages."""

    kind: str
    operation: Any
    is_terminated: bool = False
    pages: int = 0
    known: int = 0


class SchedulerEvents:
    """Stands beside the cache of a rank."""

    def __init__(self, rank: Rank, log: EventLog) -> None:
        self._rank = rank
        self._cache = rank.cache
        self._controller = rank.controller
        self._page = rank.page
        self._log = log
        self._threads = ThreadEvents(rank.controller, rank.page, log, self._decided)
        self._begin()
        for name, around in self._arounds().items():
            beside(self._cache, name, around)
        beside(self._controller, "evict_host", self._evicted)
        beside(self._controller, "_start_storage_threads", self._threads_started)
        self._follow_queues()

    def restart(self) -> None:
        """Everything begins again."""
        self._log.restart()
        self._threads.restart()
        self._begin()

    def _begin(self) -> None:
        self._anchor: Any = None
        self._is_taken = False
        self._call: Call | None = None
        self._drained: Any = None
        self._reclaimed = 0
        self._is_detaching = False
        self._meeting: dict[str, Any] = {}
        self._revokes: deque[Any] = deque()

    def _arounds(self) -> dict[str, Callable[..., Any]]:
        return {
            "prefetch_from_storage": self._asked,
            "check_prefetch_progress": self._polled,
            "release_aborted_request": self._aborted,
            "_revoke_pending_prefetch": self._revoked,
            "_all_reduce_attn_groups": self._reduced,
            "_barrier_attn_groups": self._met,
            "_drain_storage_control_queues_impl": self._drain,
            "_insert_helper_host": self._inserted,
            "write_backup": self._written,
            "_finish_write_through_ack": self._copied,
        }

    # ---- queues

    def _threads_started(self, original: Callable[[], None]) -> None:
        original()
        self._follow_queues()

    def _follow_queues(self) -> None:
        controller = self._controller
        beside(controller.prefetch_queue, "put", self._submitted)
        beside(controller.prefetch_hit_queue, "put", self._answered)
        beside(controller.prefetch_hit_queue, "get_nowait", self._hit_drained)
        if hasattr(controller, "prefetch_revoke_queue"):
            beside(controller.prefetch_revoke_queue, "put", self._answered_in_vain)
            beside(controller.prefetch_revoke_queue, "get_nowait", self._revoke_drained)
        beside(controller.ack_backup_queue, "put", self._backed_up)
        beside(controller.ack_backup_queue, "get_nowait", self._backup_drained)
        beside(controller.host_mem_release_queue, "put", self._released)
        beside(controller.host_mem_release_queue, "get_nowait", self._release_drained)
        self._buffer: Any = None

    def _follow_buffer(self) -> None:
        """The query thread makes it, before it answers anything."""
        if self._controller.prefetch_buffer is not self._buffer:
            self._buffer = self._controller.prefetch_buffer
            beside(self._buffer, "put", self._allocated)

    def _answered(self, original: Callable[..., None], operation: Any, *how: Any, **more: Any) -> None:
        self._threads.answered(operation)
        original(operation, *how, **more)

    def _answered_in_vain(self, original: Callable[..., None], rid: Any, *how: Any, **more: Any) -> None:
        """A queue of request ids: the query thread has the operation at hand."""
        self._revokes.append(self._threads.queried)
        self._threads.answered(self._threads.queried)
        original(rid, *how, **more)

    def _released(self, original: Callable[..., None], slots: Any, *how: Any, **more: Any) -> None:
        self._threads.released(slots)
        original(slots, *how, **more)

    # ---- requests

    def _asked(self, original: Callable[..., None], rid: Any, node: Any, tokens: Any, *more: Any, **named: Any) -> None:
        self._anchor, self._is_taken = node, False
        original(rid, node, tokens, *more, **named)
        self._anchor = None
        if not self._is_taken:
            span = len(tokens) // self._page
            reason = "too_short" if span < self._rank.config["threshold_pages"] else "limited"
            if not self._cache.enable_storage:
                reason = "detached"
            self._log.emit("declined", self._log.next_attempt(rid), reason=reason, span=span)

    def _submitted(self, original: Callable[..., None], operation: Any, *how: Any, **more: Any) -> None:
        if operation is not None:
            followed = self._threads.follow(operation)
            self._is_taken = True
            span = len(operation.token_ids) // self._page
            anchor = self._log.node(self._anchor)
            self._log.emit("submitted", followed.id, span=span, base=self._depth(self._anchor), anchor=anchor)
        original(operation, *how, **more)

    def _depth(self, node: Any) -> int:
        """Pages from the root to the end of a node."""
        tokens = 0
        while node is not None and node is not self._cache.root_node:
            tokens += len(node.key)
            node = node.parent
        return tokens // self._page

    def _polled(self, original: Callable[[Any], bool], rid: Any) -> bool:
        with self._calling(POLL, rid) as call:
            ready = original(rid)
        if call is not None and call.operation.host_indices is not None and rid not in self._cache.ongoing_prefetch:
            followed = self._log.of(call.operation)
            if followed is not None:
                reason = self._why_ended(call)
                self._log.emit("fetched", followed.id, pages=call.pages, known=call.known, reason=reason)
        return ready

    def _aborted(self, original: Callable[[Any], None], rid: Any) -> None:
        with self._calling(ABORT, rid) as call:
            original(rid)
        if call is not None and call.operation.host_indices is not None:
            self._log_revoked(self._log.of(call.operation), "aborted", ABORT)

    @contextmanager
    def _calling(self, kind: str, rid: Any) -> Iterator[Call | None]:
        info = self._cache.ongoing_prefetch.get(rid)
        self._call = None if info is None else Call(kind, info[2])
        try:
            yield self._call
        finally:
            self._call = None

    def _decided(self, operation: Any) -> None:
        """The scheduler sets the terminated flag: what follows from it, and why, is certain now."""
        followed, call = self._log.of(operation), self._call
        if followed is None:
            return
        if call is None:
            self._log.emit("stopped", followed.id)
        elif operation.host_indices is None:
            self._log_revoked(followed, "stopped" if call.kind == POLL else "aborted", call.kind)
        else:
            counted = operation.completed_tokens // self._page
            self._log.emit("marked", followed.id, reason=self._why_ended(call), counted=counted)

    def _why_ended(self, call: Call) -> str:
        """As far as every rank knows it: a release's ranks do not tell each other whether all is complete, but where
        the policy waits for that."""
        if call.kind == ABORT:
            return "aborted"
        if call.is_terminated:
            return "failed_page"
        return "complete" if self._cache.prefetch_stop_policy == "wait_complete" else "policy"

    def _inserted(self, original: Callable[..., int], *args: Any) -> int:
        tokens = original(*args)
        if self._call is not None:
            self._call.known = tokens // self._page
        return tokens

    # ---- collectives

    def _reduced(self, original: Callable[..., None], tensor: Any, op: Any) -> None:
        call = reduces_by(op)
        with self._log.meeting("sched", call):
            original(tensor, op)
        if self._call is not None and call == "max":
            self._call.is_terminated = bool(tensor[1].item())
        elif self._call is not None:
            self._call.pages = int(tensor.flatten()[0].item()) // self._page

    def _met(self, original: Callable[[], None]) -> None:
        with self._log.meeting("sched", "barrier"):
            original()

    # ---- the drain

    def _drain(self, original: Callable[..., None], *args: Any, **named: Any) -> None:
        original(*args, **named)
        self._end_decision()
        if not self._is_detaching:
            self._log_reclaimed()

    def _log_reclaimed(self) -> None:
        if self._reclaimed:
            self._log.emit("reclaimed", pages=self._reclaimed)
        self._reclaimed = 0

    def _hit_drained(self, original: Callable[[], Any]) -> Any:
        self._end_decision()
        self._drained = original()
        self._follow_buffer()
        return self._drained

    def _revoke_drained(self, original: Callable[[], Any]) -> Any:
        self._end_decision()
        rid = original()
        self._drained = self._revokes.popleft()
        return rid

    def _end_decision(self) -> None:
        """Nothing was done about the answer that was taken last."""
        drained, self._drained = self._drained, None
        followed = self._log.of(drained)
        if followed is not None and not self._is_detaching:
            self._log.emit("skipped", followed.id)

    def _revoked(self, original: Callable[[Any], None], rid: Any) -> None:
        info, drained = self._cache.ongoing_prefetch.get(rid), self._drained
        if info is not None and drained is not None:
            self._drained = None
            self._log_revoked(self._log.of(info[2]), self._why_revoked(drained), DRAIN)
        original(rid)

    def _why_revoked(self, drained: Any) -> str:
        if drained.is_terminated():
            return "stopped"
        followed = self._log.of(drained)
        is_short = followed is not None and followed.hit < self._rank.config["threshold_pages"]
        return "below_threshold" if is_short else "no_memory"

    def _log_revoked(self, followed: Followed | None, reason: str, by: str) -> None:
        if followed is not None:
            self._log.emit("revoked", followed.id, reason=reason, by=by, **self._room())

    def _allocated(self, original: Callable[..., None], operation: Any, *how: Any, **more: Any) -> None:
        followed = self._log.of(operation)
        if followed is not None:
            self._drained = None
            self._threads.given_memory(operation, followed)
            pages = len(operation.host_indices) // self._page
            self._log.emit("allocated", followed.id, pages=pages, hit=followed.hit, **self._room())
        original(operation, *how, **more)

    def _room(self) -> dict[str, int]:
        return {"evictable": self._rank.tree.evictable_host_tokens() // self._page, "free": self._rank.free_pages()}

    def _backup_drained(self, original: Callable[[], Any]) -> Any:
        self._end_decision()
        operation = original()
        node = self._cache.ongoing_backup.get(operation.id)
        if node is not None:
            pages = len(operation.host_indices) // self._page
            failed = pages - operation.completed_tokens // self._page
            self._log.emit("stored", node=self._log.node(node), pages=pages, failed=failed)
        return operation

    def _backed_up(self, original: Callable[..., None], operation: Any, *how: Any, **more: Any) -> None:
        """The backup thread is done with an operation."""
        pages = len(operation.host_indices) // self._page
        self._log.emit("backed_up", pages=pages, failed=pages - operation.completed_tokens // self._page)
        original(operation, *how, **more)

    def _release_drained(self, original: Callable[[], Any]) -> Any:
        self._end_decision()
        slots = original()
        self._reclaimed += len(slots) // self._page
        return slots

    # ---- the tiers

    def _evicted(self, original: Callable[..., int], host_indices: Any, *more: Any, **named: Any) -> int:
        for node in self._rank.tree.nodes():
            if node.raw.host_value is host_indices:
                self._log.emit("evicted", node=self._log.node(node.raw), pages=len(host_indices) // self._page)
        return original(host_indices, *more, **named)

    def _written(self, original: Callable[..., int], node: Any, *more: Any, **named: Any) -> int:
        tokens = original(node, *more, **named)
        if tokens:
            self._log.emit("written", node=self._log.node(node), pages=tokens // self._page)
        return tokens

    def _copied(self, original: Callable[..., None], ack: Any, *more: Any, **named: Any) -> None:
        """What was copied to the host goes on to storage, if there is one now."""
        node, tokens, _ = self._cache.ongoing_write_through[ack]
        backups = set(self._cache.ongoing_backup)
        pages = tokens // self._page
        self._log.emit("copied", node=self._log.node(node), pages=pages)
        original(ack, *more, **named)
        if not self._cache.ongoing_backup.keys() - backups:
            self._log.emit("stored", node=self._log.node(node), pages=pages, failed=pages)

    # ---- no store

    @contextmanager
    def detaching(self) -> Iterator[None]:
        """What a rank takes of its queues while it lets go of its store, is what the part *control* lets it take."""
        self._log.emit("detaching")
        self._is_detaching = True
        yield
        self._is_detaching, self._drained, self._reclaimed = False, None, 0
        self._revokes.clear()
        self._log.emit("told_to_stop")
        for thread, name in WORKERS.items():
            if not getattr(self._controller, name).is_alive():
                self._log.emit("thread_ended", thread=thread)

    def let_go(self) -> None:
        """The rank has no store."""
        self._log.emit("detached")
        self._meeting = self._log.join(HARNESS, "barrier")

    def attaching(self) -> None:
        """The rank is about to attach a store."""
        self._log.emit("attaching")

    def tried(self, has_attached: bool) -> None:
        """The rank has, or could not."""
        if has_attached:
            for thread in WORKERS:
                self._log.emit("thread_started", thread=thread)
        else:
            self._log.emit("start_failed", reason="refused")
        self._meeting = self._log.join(HARNESS, "barrier")

    def met(self) -> None:
        """All ranks have come so far."""
        self._log.leave(self._meeting)

    def agreed(self, have_attached: bool) -> None:
        """All ranks have a store, or none has."""
        self._log.emit("attached" if have_attached else "attach_failed")
