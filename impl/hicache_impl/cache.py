"""HiCache: the scheduler's side of one rank.

Every rank makes the same calls in the same order. A call that needs the other ranks makes a number of collectives that
depends only on what all ranks know, and never one inside a loop over requests.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from hicache_impl import audit, events
from hicache_impl.config import CacheConfig
from hicache_impl.controller import BackupAck, Controller, WorkerDied
from hicache_impl.device_pool import DevicePool
from hicache_impl.drain import Drain
from hicache_impl.events import Log, NullLog
from hicache_impl.extra_pools import ExtraPool, open_pools
from hicache_impl.host_pool import HostPool
from hicache_impl.keys import PrefixKey
from hicache_impl.ledger import Pools
from hicache_impl.operation import ABORT, COMPLETE, FAILED_PAGE, FETCHED, POLICY, REVOKED, STOP, Operation
from hicache_impl.ranks import Groups
from hicache_impl.runtime import Queue, Runtime, Stalled
from hicache_impl.storage import Storage
from hicache_impl.telemetry import Telemetry
from hicache_impl.tiers import Tiers
from hicache_impl.trees import TREES
from hicache_impl.trees.core import RadixTree
from hicache_impl.trees.node import Match, Node

PENDING = "pending"
ANCHOR = "anchor"
TOO_SHORT = "too_short"
LIMITED = "limited"
DETACHED = "detached"

# Answered, granted, given up, taken back: with all workers at rest before each tick, no more ticks are needed.
ROUNDS_TO_REST = 4


class AttachFailed(Exception):
    """No store is attached by this call, on any rank; the cache is as it was before."""


@dataclass(frozen=True)
class Submission:
    """The answer to `submit`: an operation, or the reason why there is none. `attempt` is what it has or would have."""

    op: Operation | None
    reason: str | None
    attempt: int
    base_pages: int
    span_pages: int


@dataclass(frozen=True)
class Poll:
    """The answer to `poll` for one request.

    `ready`: do not wait any longer. `state` and `reason`: how its operation ended by this very poll; None when it had
    none. `pages` were published, `known` of them were in the tree already.
    """

    ready: bool
    state: str | None = None
    reason: str | None = None
    pages: int = 0
    known: int = 0


@dataclass(frozen=True)
class _Verdict:
    """What all ranks together say of one operation, each flag MAX-reduced."""

    not_ready: bool
    terminated: bool
    incomplete: bool

    @property
    def ready(self) -> bool:
        return self.terminated or not self.not_ready


class HiCache(Drain, Tiers):
    """The cache of one rank. Errors of every call: WorkerDied; Desync and GroupAborted from collectives."""

    # What it is made of; variants replace them.
    operation_class: ClassVar[type[Operation]] = Operation
    tree_class: ClassVar[type[RadixTree] | None] = None
    """None: the one that the configuration names."""

    _closed = False

    @classmethod
    def new_tree(cls, config: CacheConfig, extra: Mapping[str, ExtraPool]) -> RadixTree:
        """An empty tree with a component for each extra pool. ValueError: it has no place for one."""
        tree_class = cls.tree_class or TREES[config.tree]
        return tree_class(config.namespace, [pool.component for pool in extra.values()])

    def start(self) -> None:
        """Start the worker threads."""
        self.open_lanes()
        self.controller.start()

    # --- prefetch ------------------------------------------------------------------------------------------------

    def submit(self, rid: str, key: PrefixKey) -> Submission:
        """Ask for the part of `key` that is in no tier above storage. A declined submission changes nothing."""
        self.controller.check_alive()
        attempt = self.attempts.get(rid, 0) + 1
        if self.storage is None:
            return self._decline(rid, attempt, DETACHED, 0, len(key))
        if rid in self.records:
            return self._decline(rid, attempt, PENDING, 0, len(key))
        match = self.tree.match(key)
        base = len(match.device_pages) + len(match.host_pages)
        reason = self._why_declined(match, len(key) - base)
        if reason is not None:
            return self._decline(rid, attempt, reason, base, len(key) - base)
        op = self.operation_class(
            rid,
            attempt,
            key.after(base),
            anchor=match.host_node,
            parent_hash=self.tree.chain_parent(match.host_node),
            base_pages=base,
            submitted_at=self.runtime.now(),
            log=self.log,
            lock=self.runtime.lock(),
            before=self._hashes_before(match.host_node),
        )
        self.attempts[rid] = attempt
        self.records[rid] = op
        self._protect_anchor(op)
        self._occupy(op)
        self.log.emit(events.SUBMITTED, op.id, span=op.span_pages, base=base, anchor=op.anchor.id)
        self.controller.prefetch_queue.put(op)
        return Submission(op, None, attempt, base, op.span_pages)

    def _hashes_before(self, node: Node) -> tuple[bytes, ...]:
        """Of the pages down to `node`, those that a window may reach back to when it ends behind them."""
        reach = max((pool.spec.window_pages - 1 for pool in self.extra.values()), default=0)
        if reach < 1:
            return ()
        return tuple(page_hash for step in self.tree.path(node) for page_hash in step.hashes)[-reach:]

    def _why_declined(self, match: Match, span_pages: int) -> str | None:
        if match.host_node.host is None:
            # Pages published below a node that is not backed up could not be reached after its device eviction.
            return ANCHOR
        if span_pages < self.config.threshold_pages:
            return TOO_SHORT
        if self.occupied_pages >= self.config.limit_pages:
            return LIMITED
        return None

    def _decline(self, rid: str, attempt: int, reason: str, base: int, span: int) -> Submission:
        self.counters.declined[reason] += 1
        self.log.emit(events.DECLINED, (rid, attempt), reason=reason, span=span)
        return Submission(None, reason, attempt, base, span)

    def poll(self, rids: Iterable[str]) -> dict[str, Poll]:
        """Which requests need not wait any longer; an operation whose time has come ends here.

        One collective, and one more when some operation has memory to publish, for all requests together.
        """
        self.controller.check_alive()
        asked = list(dict.fromkeys(rids))
        polls = {rid: Poll(ready=True) for rid in asked}
        live = [self.records[rid] for rid in asked if rid in self.records]
        to_publish: list[tuple[Operation, str]] = []
        for op, verdict in zip(live, self._agree_verdicts(live), strict=True):
            if not verdict.ready:
                polls[op.rid] = Poll(ready=False)
            elif op.has_memory:
                to_publish.append((op, self._end_reason(op, verdict)))
            else:
                self._revoke(op, STOP, "poll")
                polls[op.rid] = Poll(True, REVOKED, STOP)
        counted = [op.mark(reason) for op, reason in to_publish]
        for (op, reason), count, agreed in zip(to_publish, counted, self._agree_counted(counted), strict=True):
            polls[op.rid] = self._publish(op, agreed, count, reason)
        return polls

    def _agree_verdicts(self, ops: Sequence[Operation]) -> list[_Verdict]:
        """MAX over ranks: one rank that waits makes all wait, one rank that must stop makes all stop.

        Called with no operations too, so that ranks that differ in what they hold meet here and not later.
        """
        flags: list[int] = []
        for op in ops:
            flags += [not self._is_ready(op), op.is_terminated, not op.is_complete]
        agreed = [bool(flag) for flag in self.groups.sched.all_max([int(flag) for flag in flags])]
        return [_Verdict(*agreed[i : i + 3]) for i in range(0, len(agreed), 3)]

    def _is_ready(self, op: Operation) -> bool:
        """Whether, by the policy and as far as this rank knows, there is nothing to wait for."""
        if self.config.policy == "best_effort":
            return True
        if self.config.policy == "timeout" and self._is_late(op):
            return True
        return op.is_complete

    def _is_late(self, op: Operation) -> bool:
        return self.runtime.now() - op.submitted_at > self.config.timeout_s(op.span_pages)

    def _end_reason(self, op: Operation, verdict: _Verdict) -> str:
        """Why it ends, from what all ranks know."""
        if verdict.terminated:
            return STOP if op.stop_asked else FAILED_PAGE
        return POLICY if verdict.incomplete else COMPLETE

    def _agree_counted(self, counted: list[int]) -> list[int]:
        """MIN over ranks of what landed: a page is published only where it is filled everywhere."""
        return self.groups.sched.all_min(counted) if counted else []

    def _publish(self, op: Operation, agreed: int, counted: int, reason: str) -> Poll:
        """Allocated or terminated -> fetched: the agreed prefix becomes part of the tree, the rest goes back."""
        published = self.tree.insert_host(
            op.anchor, op.key.pages[:agreed], op.hashes[:agreed], list(op.host_pages[:agreed])
        )
        # At once, because what is known is the same on every rank.
        self.host.allocator.free(published.known_pages)
        self._publish_slots(op, published.node, agreed)
        known = len(published.known_pages)
        op.fetch(agreed, known, reason)
        self._release_unagreed(op, agreed, counted)
        self.counters.fetched[reason] += 1
        self.counters.known_pages += known
        self.counters.hit_pages["storage"] += agreed - known
        self._leave(op)
        return Poll(True, FETCHED, reason, agreed, known)

    def _release_unagreed(self, op: Operation, agreed: int, counted: int) -> None:
        """What landed here but not everywhere; the IO thread gives up the rest, so no page is released twice.

        By the queue and not at once, because this number differs from rank to rank.
        """
        self._owe(op, agreed)
        self._release_pages(op.host_pages[agreed:counted])
        self._release_slots(op, agreed, counted)

    def stop(self, rid: str) -> bool:
        """The request waits no longer: its operation ends at the next drain or poll. False: there is none to stop."""
        self.controller.check_alive()
        op = self.records.get(rid)
        return op is not None and op.ask_stop()

    def abort(self, rid: str) -> bool:
        """The request is gone: nothing is published. False: it has no operation."""
        self.controller.check_alive()
        op = self.records.get(rid)
        if op is None:
            return False
        self._abort([op])
        return True

    def _abort(self, ops: Sequence[Operation]) -> None:
        """One collective for all of them, if some have memory."""
        counted = {op: op.mark(ABORT) for op in ops if op.has_memory}
        if counted:
            # Why: no rank gives pages back while another may still decide by the same operation.
            self.groups.sched.barrier()
        for op in ops:
            self._revoke(op, ABORT, "abort")
            self._release_unagreed(op, 0, counted.get(op, 0))

    def _control_queues(self) -> tuple[tuple[Queue, Callable[[list[Any]], None]], ...]:
        """What a tick drains: what the workers answered, and then the copies that have landed."""
        return (*super()._control_queues(), *self._copy_queues())

    def _drain_ack(self, ack: BackupAck) -> None:
        super()._drain_ack(ack)
        self._tell_stored(ack)

    # --- the store, at run time ----------------------------------------------------------------------------------

    def detach_storage(self, timeout_s: float = 60) -> None:
        """Let go of the store: abort every operation, come to rest, end the threads. A second call does nothing.

        Tree and pools stay. Until the next `attach_storage` submissions are declined, and nothing is backed up.
        Stalled, on all ranks: a worker of some rank does not come to rest within about `timeout_s`; the operations are
        aborted, and the store stays attached.
        """
        if self.storage is None:
            return
        self._let_go(events.DETACHING, timeout_s)
        # Why: whoever goes on knows that all ranks are detached.
        self.groups.sched.barrier()

    def _let_go(self, call: str, timeout_s: float) -> None:
        """This rank's part of a detach, for `call`. Errors as of `detach_storage`."""
        self.controller.check_alive()
        self._abort(list(self.records.values()))
        self.log.emit(call)
        try:
            self.quiesce(timeout_s)
        except Stalled:
            self.log.emit(events.KEPT)
            raise
        self.log.emit(events.TOLD_TO_STOP)
        self._end_workers(self.controller, timeout_s)
        self.storage = None

    def _end_workers(self, controller: Controller, timeout_s: float) -> None:
        """The rank is detached when none of them lives. WorkerDied: one does not end."""
        stuck = controller.close(timeout_s)
        if stuck:
            raise self._did_not_end(stuck)
        self.log.emit(events.DETACHED)

    def attach_storage(self, storage: Storage, timeout_s: float = 10) -> None:
        """Go on with a store that may hold anything, on new queues and new threads.

        AttachFailed, on all ranks: a store is attached already, or some rank could not start its threads. Those that
        did start then have `timeout_s` to end.
        """
        self._check_open()
        if self.storage is not None:
            raise AttachFailed(f"rank {self.rank} has a store already: detach it first")
        self.log.emit(events.ATTACHING)
        self._attach(storage, timeout_s)

    def _attach(self, storage: Storage, timeout_s: float = 10) -> None:
        """This rank's part of an attach. AttachFailed, on all ranks."""
        controller = self._new_controller(storage)
        failure: Exception | None = None
        try:
            controller.start()
        except Exception as error:
            failure = error
        for name in controller.started():
            self.log.emit(events.THREAD_STARTED, thread=name)
        if self._agree_to_attach(None if failure is None else repr(failure)):
            self.controller, self.storage = controller, storage
            return
        self._end_workers(controller, timeout_s)
        self.groups.sched.barrier()
        why = "another rank could not start" if failure is None else f"cannot start: {failure!r}"
        raise AttachFailed(f"rank {self.rank}: {why}") from failure

    def _agree_to_attach(self, failure: str | None) -> bool:
        """Whether no rank has failed. Why asked: attached on one rank only, ranks would admit different requests."""
        if failure is not None:
            self.log.emit(events.START_FAILED, reason=failure)
        has_failed = bool(self.groups.sched.all_max([int(failure is not None)])[0])
        self.log.emit(events.ATTACH_FAILED if has_failed else events.ATTACHED)
        return not has_failed

    def _stay_detached(self) -> None:
        """After a reset: there is no store to attach, on any rank."""
        self._agree_to_attach("no store")
        self.log.emit(events.DETACHED)
        self.groups.sched.barrier()

    def reset(self, storage: Storage | None = None, timeout_s: float = 60) -> None:
        """Begin again with an empty tree and empty pools, on `storage` or, if not given, on what is attached now.

        Device pages, locks and matches that callers hold mean nothing afterwards. What the store holds, it keeps.
        Errors, on all ranks: Stalled as from `detach_storage`, and nothing is forgotten; AttachFailed, and the cache is
        empty and detached.
        """
        self._check_open()
        chosen = self.storage if storage is None else storage
        if self.storage is None:
            self.log.emit(events.RESETTING)
        else:
            self._let_go(events.RESETTING, timeout_s)
        if self.lanes:
            # Without a store, copies may still be under way.
            self.quiesce(timeout_s)
        self.tree = self.new_tree(self.config, self.extra)
        self._reset_pools()
        self._begin()
        self.log.emit(events.BEGUN_AGAIN)
        if chosen is None:
            self._stay_detached()
        else:
            self._attach(chosen)

    def _reset_pools(self) -> None:
        self.host.reset()
        self.device.reset()
        for pool in self.extra.values():
            pool.host.reset()
            pool.device.reset()

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError(f"rank {self.rank} is closed")

    # --- the whole -----------------------------------------------------------------------------------------------

    def quiesce(self, timeout_s: float = 60) -> None:
        """Tick until no rank has anything on its way.

        Live operations stay, because only a poll or an abort ends them. For runs without held gates. Stalled, on all
        ranks: a worker of some rank does not come to rest within about `timeout_s`, or ranks wait for different things.
        """
        for _ in range(ROUNDS_TO_REST):
            stalled = self._why_stalled(timeout_s)
            self.tick()
            lengths = self.controller.queue_lengths()
            waiting = sum(lengths.values()) - self._kept_back()
            pending, stalled_somewhere = self.groups.sched.all_max(
                [waiting + len(self.backups) + self.copies_under_way(), int(stalled is not None)]
            )
            if stalled_somewhere:
                raise Stalled(f"rank {self.rank}: {stalled or 'a worker of another rank did not come to rest'}")
            if not pending:
                return
        raise Stalled(f"rank {self.rank}: the workers rest, and what some rank waits for does not come: {lengths}")

    def _why_stalled(self, timeout_s: float) -> Stalled | None:
        """Why the workers do not come to rest, to be told to the other ranks before it is raised."""
        try:
            self.settle(timeout_s)
        except Stalled as stalled:
            return stalled
        return None

    def settle(self, timeout_s: float) -> None:
        """Return when workers have done what is queued, and all copies have landed. Stalled: see Controller.settle."""
        self.settle_copies(timeout_s)
        self.controller.settle(timeout_s)

    def observe(self) -> dict[str, Any]:
        """What can be seen from outside (see audit.observe)."""
        return audit.observe(self)

    def audit(self, contents: audit.Contents | None = None) -> list[str]:
        """What is wrong, at quiescence; one line each, empty when all is well (see audit.audit)."""
        return audit.audit(self, contents)

    def close(self, timeout_s: float = 10) -> None:
        """End the threads and give back every page that no tree node holds. A second call does nothing.

        WorkerDied: a worker had died before, or does not end; everything that can be is closed all the same.
        """
        if self._closed:
            return
        self._closed = True
        self.log.emit(events.CLOSED)
        for op in self.records.values():
            op.cancel()
        stuck = [*self.controller.close(timeout_s), *self.close_lanes(timeout_s)]
        self.storage = None
        for op in list(self.records.values()):
            self._forget(op)
        for job, node in self.backups.items():
            self.tree.unprotect_host(node)
            self._unhold(job)
        self.backups.clear()
        for queue_, _ in self._control_queues():
            _empty(queue_)
        if not stuck:
            # A worker that still runs may write into a page; its pages are then better lost than reused.
            self.host.allocator.free(audit.unowned_host_pages(self))
            self._free_host_slots({name: audit.unowned_slots(self, name) for name in self.extra})
        self.controller.check_alive()
        if stuck:
            raise self._did_not_end(stuck)

    def _did_not_end(self, stuck: Sequence[str]) -> WorkerDied:
        return WorkerDied(f"rank {self.rank}: {', '.join(stuck)} did not end")


def _empty(queue_: Any) -> None:
    try:
        while True:
            queue_.get(timeout=0)
    except queue.Empty:
        pass


def open_rank(
    config: CacheConfig,
    storage: Storage,
    groups: Groups,
    runtime: Runtime,
    log: Log | None = None,
    *,
    cache_class: type[HiCache] = HiCache,
    controller_class: type[Controller] = Controller,
    telemetry: Telemetry | None = None,
) -> HiCache:
    """A started cache for `groups.rank`, with new pools and an empty tree. ValueError: the groups have another size."""
    log = log if log is not None else NullLog()
    if groups.size != config.ranks:
        raise ValueError(f"ranks is {config.ranks}, the group has {groups.size}")
    pools = Pools(HostPool.from_config(config), DevicePool.from_config(config), open_pools(config))
    cache = cache_class(
        config,
        groups.rank,
        cache_class.new_tree(config, pools.extra),
        pools,
        storage,
        groups,
        runtime,
        log if telemetry is None else telemetry.listening(log),
        controller_class,
    )
    if telemetry is not None:
        cache.tell(telemetry)
    cache.start()
    return cache


__all__ = ["AttachFailed", "HiCache", "Poll", "Submission", "open_rank"]
