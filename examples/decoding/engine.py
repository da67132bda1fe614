"""The loop of a scheduler: requests come, wait for their prefetch, run, and end. Every rank makes the same calls."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence as Several
from dataclasses import dataclass

from decoding.model import PAGE_TOKENS, Model
from decoding.reference import Request
from decoding.sequence import Sequence, asked
from hicache_impl import HiCache
from hicache_impl.cache import Poll
from hicache_impl.runtime import Stalled

RUNNING = 2
WAITING = 3
IDLE_S = 0.0005
# A turn that waits takes IDLE_S or more: turns are counted, because they are the same on every rank, as no clock is.
IDLE_TURNS_MAX = 60_000

L1, L2, L3, COMPUTED = "L1", "L2", "L3", "computed"


@dataclass
class _Waiting:
    """A request until it runs. `gone`: it goes away while its pages are fetched, and comes again."""

    request: Request
    gone: bool
    base_pages: int = 0
    poll: Poll | None = None


class Engine:
    """`tokens` by where they came from, `happened` in requests, `wrong` with a line for each that was not exact.

    Those whose conversation is in `gone` go away while their pages are fetched, once a turn, and come again.
    """

    def __init__(self, cache: HiCache, model: Model, gone: Several[int] = ()) -> None:
        self.cache, self.model = cache, model
        self.tokens: Counter[str] = Counter({L1: 0, L2: 0, L3: 0, COMPUTED: 0})
        self.happened: Counter[str] = Counter(finished=0, aborted=0)
        self.wrong: list[str] = []
        self._gone = gone
        self._waiting: dict[str, _Waiting] = {}
        self._running: list[Sequence] = []
        self._idle = cache.runtime.event()

    def run(self, requests: Several[Request]) -> None:
        """Answer all, and come to rest. Stalled: one waits for ever. What the cache raises comes through."""
        coming, idle_turns = deque(requests), 0
        while coming or self._waiting or self._running:
            self._admit(coming)
            self.cache.tick()
            self._abort()
            self._poll()
            moved = self._start()
            self._step()
            idle_turns = 0 if moved or self._running else idle_turns + 1
            if idle_turns:
                self._idle.wait(IDLE_S)
            if idle_turns > IDLE_TURNS_MAX:
                raise Stalled(f"nothing moves, and these wait: {', '.join(self._waiting)}")
        self.cache.quiesce()

    def _admit(self, coming: deque[Request]) -> None:
        """In order. A turn of a conversation comes when the last one has been answered."""
        while coming and len(self._waiting) < WAITING and not self._is_busy(coming[0].conversation):
            request = coming.popleft()
            self._submit(_Waiting(request, gone=request.conversation in self._gone))

    def _is_busy(self, conversation: int) -> bool:
        requests = [waiting.request for waiting in self._waiting.values()]
        requests += [sequence.request for sequence in self._running]
        return any(request.conversation == conversation for request in requests)

    def _submit(self, waiting: _Waiting) -> None:
        key = asked(waiting.request, self.cache.config.namespace)
        waiting.base_pages = self.cache.submit(waiting.request.rid, key).base_pages
        self._waiting[waiting.request.rid] = waiting

    def _abort(self) -> None:
        """Between the tick that gave a prefetch its pages and the poll that would end it."""
        for rid, waiting in list(self._waiting.items()):
            op = self.cache.records.get(rid)
            if waiting.gone and op is not None and op.has_memory and self.cache.abort(rid):
                self.happened["aborted"] += 1
                waiting.gone = False
                self._submit(waiting)

    def _poll(self) -> None:
        asked_for = [rid for rid, waiting in self._waiting.items() if waiting.poll is None]
        for rid, poll in self.cache.poll(asked_for).items():
            if poll.ready:
                self._waiting[rid].poll = poll

    def _start(self) -> bool:
        """Those that wait no longer, as many as there is room for; whether one could."""
        moved = False
        for rid, waiting in list(self._waiting.items()):
            if waiting.poll is None or len(self._running) == RUNNING:
                continue
            sequence = Sequence(self.cache, self.model, waiting.request)
            if sequence.start():
                self._count(sequence, waiting.base_pages, waiting.poll)
                self._running.append(sequence)
                del self._waiting[rid]
                moved = True
        return moved

    def _count(self, sequence: Sequence, base_pages: int, poll: Poll) -> None:
        """Pages of the host that this request's own prefetch has published came from storage."""
        first, last = sequence.device_pages, sequence.device_pages + sequence.host_pages
        fetched = max(0, min(last, base_pages + poll.pages) - max(first, base_pages + poll.known))
        self.tokens[L1] += sequence.device_pages * PAGE_TOKENS
        self.tokens[L2] += (sequence.host_pages - fetched) * PAGE_TOKENS
        self.tokens[L3] += fetched * PAGE_TOKENS

    def _step(self) -> None:
        """One more token for each that runs; those that are over, leave."""
        for sequence in list(self._running):
            if not sequence.is_over:
                sequence.step()
                continue
            self._running.remove(sequence)
            self.happened["finished"] += 1
            self.tokens[COMPUTED] += sequence.computed_tokens
            if sequence.wrong is not None:
                self.wrong.append(sequence.wrong)
