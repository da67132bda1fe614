"""The scheduler loop of a workload on one rank: it admits requests, waits for their prefetches, and plays the model.

Every rank runs the same loop over the same trace. Whatever it decides comes from what ranks agree on, or from a clock
that they agreed on first, so all make the same calls in the same order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from hicache_impl.audit import check_bytes
from hicache_impl.cache import HiCache, Poll
from hicache_impl.disruptions import Disruption, Point, StorageBreaker
from hicache_impl.keys import PrefixKey, chain_hashes
from hicache_impl.operation import Operation
from hicache_impl.prefill import prefill
from hicache_impl.ranks import Group
from hicache_impl.runtime import Stalled
from hicache_impl.traces import Request, tokens_of_block

# How long a turn waits when nothing came of it: long enough to leave the interpreter to the workers.
IDLE_S = 0.0005
# Clocks are compared only every so many turns, because each time costs a collective.
STALL_TURNS = 256


@dataclass
class _Waiting:
    """A request between its submission and its prefill."""

    request: Request
    key: PrefixKey
    disruption: Disruption | None
    op: Operation | None = None
    ticks: int = 0
    resubmit_in: int | None = None

    @property
    def rid(self) -> str:
        return f"r{self.request.index}"

    @property
    def base_pages(self) -> int:
        return 0 if self.op is None else self.op.base_pages


class Replay:
    """Replays `requests` on `cache`, at most `window` at a time.

    `plan` gives the disruption of a request, `breaker` breaks the storage, `group` is one of the loop's own (the cache
    has others). `speed`: keep the trace's timestamps, so many times as fast; None ignores them. `on_turn(over)` is
    called after every turn with the requests that are over. `stall_s`: how long no request may end before all give up.

    Counts, in pages where the name says so: `hit_pages` by tier, `fetched_pages` (published, known
    ones included), `computed_pages`, `replayed_pages`; `happened` in requests; `problems` has a line for pages with
    wrong bytes.
    """

    def __init__(
        self,
        cache: HiCache,
        requests: tuple[Request, ...],
        group: Group,
        *,
        window: int,
        plan: Callable[[int], Disruption | None],
        breaker: StorageBreaker,
        speed: float | None,
        on_turn: Callable[[int], None],
        stall_s: float,
    ) -> None:
        self.cache = cache
        self.hit_pages: Counter[str] = Counter(device=0, host=0, storage=0)
        self.fetched_pages = 0
        self.computed_pages = 0
        self.replayed_pages = 0
        self.happened: Counter[str] = Counter(
            finished=0, aborted=0, stopped=0, resubmitted=0, truncated=0, missed=0, without_whole_block=0
        )
        self.problems: list[str] = []
        self._requests = requests
        self._group = group
        self._window = window
        self._plan = plan
        self._breaker = breaker
        self._speed = speed
        self._on_turn = on_turn
        self._stall_s = stall_s
        self._admitted = 0
        self._waiting: dict[str, _Waiting] = {}
        self._turns = 0
        self._started_s = cache.runtime.now()
        self._moved_s = self._started_s
        self._idle = cache.runtime.event()

    def run(self) -> None:
        """Until every request is finished or aborted. Stalled: one of them waits for ever."""
        while self._admitted < len(self._requests) or self._waiting:
            before = self._progress()
            self._admit()
            self.cache.tick()
            self._disrupt()
            polls = self.cache.poll([rid for rid, waiting in self._waiting.items() if waiting.resubmit_in is None])
            over = [(self._waiting.pop(rid), poll) for rid, poll in polls.items() if poll.ready]
            # All are looked at before the first is computed, because its write-through may evict what others fetched.
            for waiting, poll in over:
                self._verify(waiting, poll)
            for waiting, poll in over:
                self._finish(waiting, poll)
            self._on_turn(self.happened["finished"] + self.happened["aborted"])
            self._watch(moved=self._progress() != before)

    def _progress(self) -> tuple[int, int]:
        return self._admitted, len(self._waiting)

    # --- admission -----------------------------------------------------------------------------------------------

    def _admit(self) -> None:
        arrived = self._arrived()
        while self._admitted < arrived and len(self._waiting) < self._window:
            request = self._requests[self._admitted]
            self._admitted += 1
            self._breaker.started(self._admitted)
            if not request.blocks:
                self.happened["without_whole_block"] += 1
                self.happened["finished"] += 1
                continue
            self._start(request)

    def _arrived(self) -> int:
        """How many requests have arrived on every rank's clock; all of them when timestamps are ignored."""
        if self._speed is None:
            return len(self._requests)
        elapsed_ms = (self.cache.runtime.now() - self._started_s) * 1000.0 * self._speed
        first_ms = self._requests[0].timestamp_ms
        arrived = self._admitted
        while arrived < len(self._requests) and self._requests[arrived].timestamp_ms - first_ms <= elapsed_ms:
            arrived += 1
        return self._group.all_min([arrived])[0]

    def _start(self, request: Request) -> None:
        config = self.cache.config
        # A request that the device cannot hold is cut to what it can.
        blocks = request.blocks[: config.device_pages]
        self.happened["truncated"] += len(blocks) < len(request.blocks)
        key = PrefixKey(config.namespace, tuple(map(tokens_of_block, blocks)))
        waiting = _Waiting(request, key, self._plan(request.index))
        self._waiting[waiting.rid] = waiting
        self._submit(waiting)
        self._strike_if(waiting, "submitted")

    def _submit(self, waiting: _Waiting) -> None:
        waiting.resubmit_in = None
        waiting.op = self.cache.submit(waiting.rid, waiting.key).op

    # --- disruptions ---------------------------------------------------------------------------------------------

    def _disrupt(self) -> None:
        """Between the tick and the poll, so that an operation that just got its pages can be hit before it ends."""
        for waiting in list(self._waiting.values()):
            if waiting.resubmit_in is not None:
                waiting.resubmit_in -= 1
                if waiting.resubmit_in < 0:
                    self.happened["resubmitted"] += 1
                    self._submit(waiting)
                continue
            waiting.ticks += 1
            if waiting.op is not None and waiting.op.has_memory:
                self._strike_if(waiting, "allocated")
            if waiting.disruption is not None and waiting.ticks >= waiting.disruption.ticks:
                self._strike_if(waiting, "ticks")

    def _strike_if(self, waiting: _Waiting, point: Point) -> None:
        disruption = waiting.disruption
        if disruption is None or disruption.point != point:
            return
        if disruption.kind == "stop" and self.cache.stop(waiting.rid):
            self.happened["stopped"] += 1
            waiting.disruption = None
        elif disruption.kind == "abort" and self.cache.abort(waiting.rid):
            waiting.disruption = None
            if disruption.resubmit_ticks is None:
                self.happened["aborted"] += 1
                del self._waiting[waiting.rid]
            else:
                waiting.resubmit_in = disruption.resubmit_ticks

    # --- the model -----------------------------------------------------------------------------------------------

    def _verify(self, waiting: _Waiting, poll: Poll) -> None:
        """Every page that the request finds holds its bytes, on device and on host; what was published is found."""
        cache, rid = self.cache, waiting.rid
        match = cache.match(waiting.key)
        cache.wait_loaded()
        on_device = len(match.device_pages)
        hashes = chain_hashes(waiting.key)
        self.problems += check_bytes(cache, hashes, match.device_pages, cache.device, f"device pages for {rid}")
        self.problems += check_bytes(cache, hashes[on_device:], match.host_pages, cache.host, f"host pages for {rid}")
        found = on_device + len(match.host_pages)
        if poll.pages and found < waiting.base_pages + poll.pages:
            self.problems.append(f"P6 {rid}: {poll.pages} pages after {waiting.base_pages} published, {found} found")
        self.fetched_pages += poll.pages

    def _finish(self, waiting: _Waiting, poll: Poll) -> None:
        """The wait is over: load back, compute the rest, insert."""
        self.happened["missed"] += waiting.disruption is not None
        done = prefill(self.cache, waiting.key)
        self.problems += [f"{waiting.rid}: {wrong}" for wrong in done.wrong]
        from_storage = _overlap_pages(
            done.device_pages,
            done.device_pages + done.host_pages,
            waiting.base_pages + poll.known,
            waiting.base_pages + poll.pages,
        )
        self.hit_pages["device"] += done.device_pages
        self.hit_pages["host"] += done.host_pages - from_storage
        self.hit_pages["storage"] += from_storage
        self.computed_pages += done.computed_pages
        self.replayed_pages += len(waiting.key)
        self.happened["finished"] += 1

    # --- waiting -------------------------------------------------------------------------------------------------

    def _watch(self, *, moved: bool) -> None:
        """Leave the processor to the workers when nothing moves; give up, on all ranks at once, if nothing does."""
        now_s = self.cache.runtime.now()
        if moved or not self._waiting:
            self._moved_s = now_s
        if not moved:
            self._idle.wait(IDLE_S)
        self._turns += 1
        if self._turns % STALL_TURNS == 0:
            stalled = now_s - self._moved_s > self._stall_s
            if self._group.all_max([int(stalled)])[0]:
                raise Stalled(f"P5 for {self._stall_s:g} s no request ended; waiting: {', '.join(self._waiting)}")


def _overlap_pages(start: int, end: int, other_start: int, other_end: int) -> int:
    return max(0, min(end, other_end) - max(start, other_start))
