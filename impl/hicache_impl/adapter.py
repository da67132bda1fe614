"""The reference implementation behind the adapter protocol: all ranks as threads of this process.

A call runs on every rank at the same time, each on its own driver thread, and returns when all have answered. Answers
that must agree and do not are a `Disagreement` (P7); a rank that waits for one that does not come is a `Desync`.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeVar, cast, get_args

import torch

from hicache_impl.audit import LOCKSTEP_KEYS
from hicache_impl.cache import AttachFailed, HiCache, open_rank
from hicache_impl.config import CacheConfig
from hicache_impl.content import page_keys, page_on_rank
from hicache_impl.controller import WORKERS, Controller
from hicache_impl.events import EventLog
from hicache_impl.gated import GatedRuntime
from hicache_impl.grid import thread_groups
from hicache_impl.keys import PrefixKey, chain_hashes
from hicache_impl.layout import Layout
from hicache_impl.prefill import Prefill, prefill
from hicache_impl.ranks import Desync, GroupAborted, Groups
from hicache_impl.runtime import Queue, Runtime, Stalled, Thread, ThreadRuntime
from hicache_impl.storage import Storage, open_storage
from hicache_impl.storage.faults import Call, FaultyStorage
from hicache_impl.telemetry import Telemetry

T = TypeVar("T")

CAPABILITIES = (
    *(
        "events",
        "stop",
        "tiers",
        "store",
        "faults",
        "audit",
        "attach",
        "flush",
        "resets",
        "settle",
        "threads",
        "deaths",
    ),
)
GATED_CAPABILITIES = ("gates", "clock")
ONE_BY_ONE = {"read_batch_pages": 1}
"""If not told otherwise: whoever explores interleavings wants a moment between any two pages."""


def _tensor_parallel(ranks: int) -> Layout:
    return Layout(tp=ranks)


class Disagreement(Exception):
    """P7: ranks gave different answers to the same call."""


class Reference:
    """R ranks of the reference implementation, or of a faulty variant of it (`cache_class`, `controller_class`).

    `storage`: what `open_storage` takes (a store of its own for each `reset`, shared by the ranks), one store for all
    ranks, or one for each. Every rank sees it through a FaultyStorage, `faults[rank]`, that a test may script.
    `config` may also be given to `reset`. `settings` are fields of CacheConfig that every system gets, `variants` those
    that it may get, by name. `telemetry` makes what a rank tells itself to, if anything, from its configuration, its
    number and the runtime. `arrange`: where so many ranks are, if the configuration has `ranks` for a layout. Errors of
    every call: Disagreement, Desync, and what the cache raises; after one of them only `reset` and `close` may be
    called.
    """

    def __init__(
        self,
        config: CacheConfig | Mapping[str, Any] | None = None,
        storage: str | Storage | Sequence[Storage] = "memory",
        runtime: GatedRuntime | ThreadRuntime | None = None,
        *,
        cache_class: type[HiCache] = HiCache,
        controller_class: type[Controller] = Controller,
        timeout_s: float = 60,
        settings: Mapping[str, Any] = MappingProxyType({}),
        variants: Mapping[str, Sequence[Any]] = MappingProxyType({}),
        telemetry: Callable[[CacheConfig, int, Runtime], Telemetry] | None = None,
        arrange: Callable[[int], Layout] = _tensor_parallel,
    ) -> None:
        self.runtime: Runtime = runtime if runtime is not None else GatedRuntime()
        self.caches: list[HiCache] = []
        self.faults: list[FaultyStorage] = []
        self._storage = storage
        self._cache_class = cache_class
        self._controller_class = controller_class
        self._timeout_s = timeout_s
        self._settings = settings
        self._variants = variants
        self._telemetry = telemetry
        self._arrange = arrange
        self._logs: list[EventLog] = []
        self._groups: list[Groups] = []
        self._jobs: list[Queue] = []
        self._drivers: list[Thread] = []
        self._answers: Queue = self.runtime.queue()
        self._owned: list[Storage] = []
        self._calls = 0
        self._asked: set[PrefixKey] = set()
        if config is not None:
            self.reset(config)

    # --- the adapter protocol ------------------------------------------------------------------------------------

    def capabilities(self) -> frozenset[str]:
        """What else than the required calls can be used."""
        gated = GATED_CAPABILITIES if isinstance(self.runtime, GatedRuntime) else ()
        varied = ("variants",) if self._variants else ()
        return frozenset((*CAPABILITIES, *gated, *varied))

    def variants(self) -> Mapping[str, Sequence[Any]]:
        """What else `reset` may be told, by name: its values, the plainest first."""
        return self._variants

    def reset(self, config: CacheConfig | Mapping[str, Any]) -> None:
        """Close what there is, and start empty caches for `config` (a mapping holds CacheConfig's fields)."""
        with contextlib.suppress(Exception):
            # What went wrong before was reported by the call that met it.
            self.close()
        if not isinstance(config, CacheConfig):
            config = self._configured({**ONE_BY_ONE, **self._settings, **config})
        if config.layout.dp > 1:
            raise ValueError(f"dp must be 1, not {config.layout.dp}: replicas are systems of their own")
        self.config = config
        ranks = self.config.ranks
        self._asked = set()
        stores, self._owned = self._open_stores(ranks)
        self.faults = [FaultyStorage(store) for store in stores]
        self._logs = [EventLog(rank) for rank in range(ranks)]
        self._groups = thread_groups(self.config.layout, self.runtime, self._logs)
        self.caches = [
            open_rank(
                self.config,
                self.faults[rank],
                self._groups[rank],
                self.runtime,
                self._logs[rank],
                cache_class=self._cache_class,
                controller_class=self._controller_class,
                telemetry=None if self._telemetry is None else self._telemetry(self.config, rank, self.runtime),
            )
            for rank in range(ranks)
        ]
        self._answers = self.runtime.queue()
        self._jobs = [self.runtime.queue() for _ in range(ranks)]
        self._drivers = [self.runtime.thread(f"scheduler-{rank}", self._driver(rank)) for rank in range(ranks)]
        for driver in self._drivers:
            driver.start()

    def flush(self) -> bool:
        """Begin again as `reset` with the same configuration does, but cheaper: ranks, pools and drivers are kept.

        False: some worker does not come to rest, so nothing is forgotten, but nothing is pending.
        """
        rested = self._begin_again("flush")
        if rested:
            # Nobody is in a collective, and no worker has anything to say.
            for log, groups in zip(self._logs, self._groups, strict=True):
                log.restart()
                groups.restart()
        return rested

    def begin_again(self) -> bool:
        """The same, and the logs go on."""
        return self._begin_again("begin_again")

    def _begin_again(self, name: str) -> bool:
        self._open_gates()
        stores, unused = self._open_stores(self.config.ranks)
        faults = [FaultyStorage(store) for store in stores]
        rested = self._rests(name, lambda cache, timeout_s: cache.reset(faults[cache.rank], timeout_s))
        if rested:
            self.faults, self._asked = faults, set()
            self._owned, unused = unused, self._owned
        for store in unused:
            store.close()
        return rested

    def submit(self, rid: str, tokens: Sequence[int]) -> dict[str, Any]:
        """`accepted`, `reason` (why not), `attempt`, `base_pages`, `span_pages`."""
        key = self._remembered(tokens)

        def call(cache: HiCache) -> dict[str, Any]:
            answer = cache.submit(rid, key)
            return {
                "accepted": answer.op is not None,
                "reason": answer.reason,
                "attempt": answer.attempt,
                "base_pages": answer.base_pages,
                "span_pages": answer.span_pages,
            }

        return self._agreed("submit", call)

    def abort(self, rid: str) -> bool:
        """Whether there was an operation to abort."""
        return self._agreed("abort", lambda cache: cache.abort(rid))

    def stop(self, rid: str) -> bool:
        """Whether there was an operation to stop."""
        return self._agreed("stop", lambda cache: cache.stop(rid))

    def poll(self, rids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """By request id: `ready`, and how its operation ended by this poll: `state`, `reason`, `pages`, `known`."""
        polls = self._agreed("poll", lambda cache: cache.poll(rids))
        return {
            rid: {"ready": p.ready, "state": p.state, "reason": p.reason, "pages": p.pages, "known": p.known}
            for rid, p in polls.items()
        }

    def detach(self) -> bool:
        """Let go of the stores. False: some worker does not come to rest, so they stay, but nothing is pending."""
        return self._rests("detach", lambda cache, timeout_s: cache.detach_storage(timeout_s))

    def attach(self) -> bool:
        """Go on with the stores that were let go of. False: they are attached, or some rank could not start."""

        def call(cache: HiCache) -> bool:
            try:
                cache.attach_storage(self.faults[cache.rank])
            except AttachFailed:
                return False
            return True

        return self._agreed("attach", call)

    def tick(self) -> None:
        """One turn of every scheduler's loop."""
        self._agreed("tick", lambda cache: cache.tick())

    def observe(self) -> dict[str, Any]:
        """What is equal on all ranks (audit.LOCKSTEP_KEYS), and under `ranks` what each rank observes."""
        ranks = self._seen("observe", lambda cache: cache.observe())
        shared = [{key: seen[key] for key in LOCKSTEP_KEYS} for seen in ranks]
        return {**_same("observe", shared), "ranks": ranks}

    def settle(self) -> None:
        """Return when no thread has anything left to do (held threads aside)."""
        if isinstance(self.runtime, GatedRuntime):
            self.runtime.wait_idle(self._timeout_s)
        else:
            self._all("settle", lambda cache: cache.settle(self._timeout_s))

    def logs(self) -> list[EventLog]:
        """One a rank."""
        return self._logs

    def close(self) -> None:
        """End all threads, also those that are held or wait for a rank that will not come. May be called twice."""
        self._open_gates()
        if not self._drivers:
            return
        jobs, drivers = self._jobs, self._drivers
        try:
            self._all("close", lambda cache: cache.close())
        finally:
            for queue in jobs:
                queue.put(None)
            for driver, cache in zip(drivers, self.caches, strict=True):
                driver.join(self._timeout_s)
                if not driver.is_alive():
                    # One that died, and never came to it, has left its workers behind.
                    cache.controller.close(self._timeout_s)
                    cache.close_lanes(self._timeout_s)
            self._jobs, self._drivers = [], []
            for store in self._owned:
                store.close()
            self._owned = []

    # --- beyond the protocol -------------------------------------------------------------------------------------

    def prefill(self, tokens: Sequence[int]) -> Prefill:
        """Match, load back, compute and insert, as a model would. The wrong bytes of all ranks; the rest must agree."""
        key = self._remembered(tokens)
        ranks = self._all("prefill", lambda cache: prefill(cache, key))
        wrong = tuple(f"rank {rank}: {line}" for rank, done in enumerate(ranks) for line in done.wrong)
        return replace(_same("prefill", [replace(done, wrong=()) for done in ranks]), wrong=wrong)

    def hold(self, gate: str, rank: int) -> None:
        """Threads of this rank stop at this gate from now on. ValueError: no such gate."""
        self._gated().hold(gate, rank)

    def release_all(self) -> None:
        """Every gate is open, and stays open."""
        self._gated().release_all()

    def advance(self, seconds: float) -> None:
        """Move the clock of a gated runtime."""
        self._gated().advance(seconds)

    def break_storage(self, rank: int, call: str, how: str) -> None:
        """From now on the store that this rank sees fails in a call, until `heal_storage`.

        `call` is exists, get or put; `how` is raise, miss, short or stall, or of get wrong_bytes or late_write, which
        no check here finds. ValueError: it is not.
        """
        faulty = self.faults[rank]
        faults = {"raise": faulty.raise_on, "miss": faulty.miss, "short": faulty.short, "stall": faulty.stall}
        lies = {"wrong_bytes": faulty.wrong_bytes, "late_write": faulty.late_write}
        if call == "get" and how in lies:
            lies[how]()
        elif call in get_args(Call) and how in faults:
            faults[how](cast("Call", call))
        else:
            raise ValueError(f"a store cannot {how} in {call}")

    def lose(self, rank: int, tokens: Sequence[int]) -> None:
        """The last page of these tokens can no longer be read by this rank, until `heal_storage`; it still exists.

        With extra pools, it is what is beside the page that cannot be read, and of no use is the page either.
        """
        *_, page_hash = chain_hashes(self.key(tokens))
        beside = {pool.key(page_hash, rank) for pool in self.caches[rank].extra.values()}
        lost = beside or {self.storage_keys(tokens, rank)[-1]}
        self.faults[rank].miss("get", where=lost.__contains__)

    def heal_storage(self) -> None:
        """The stores of all ranks work again."""
        for faulty in self.faults:
            faulty.heal()

    def threads_of(self, rank: int) -> tuple[str, ...]:
        """The names of the threads of this rank: its workers, and whoever drives it."""
        return tuple(f"{name}-{rank}" for name in (*WORKERS, *self.caches[rank].lanes, "scheduler"))

    def _open_gates(self) -> None:
        """What is held would never come to an end."""
        if isinstance(self.runtime, GatedRuntime):
            self.runtime.release_all()

    def _gated(self) -> GatedRuntime:
        if not isinstance(self.runtime, GatedRuntime):
            raise TypeError("gates and the clock need a GatedRuntime")
        return self.runtime

    def evict_device(self, pages: int) -> int:
        """Make the device forget; returns pages."""
        return self._agreed("evict_device", lambda cache: cache.evict_device(pages))

    def quiesce(self) -> None:
        """Tick until nothing is on its way; not while a gate is held."""
        self._agreed("quiesce", lambda cache: cache.quiesce(self._timeout_s))

    def audit(self) -> list[str]:
        """What is wrong on any rank, at quiescence."""
        return self._problems(self._seen("audit", lambda cache: cache.audit()))

    def audit_stores(self) -> list[str]:
        """What is wrong with what the stores hold, at quiescence, while no fault is scripted."""
        return self._problems(self._seen("audit_stores", self._audit_store))

    @staticmethod
    def _problems(found: Sequence[Sequence[str]]) -> list[str]:
        return [f"rank {rank}: {problem}" for rank, problems in enumerate(found) for problem in problems]

    def _audit_store(self, cache: HiCache) -> list[str]:
        """P32: what was acknowledged is what the store took. P30: what it holds are the bytes of the pages."""
        problems = []
        acknowledged = cache.counters.stored_pages + cache.counters.stored_slots
        taken = self.faults[cache.rank].taken_pages
        if acknowledged != taken:
            problems.append(f"P32 {acknowledged} pages are acknowledged as stored, the store took {taken}")
        store, config = cache.controller.storage, self.config
        for key in sorted(self._asked, key=lambda asked: asked.pages):
            hashes = chain_hashes(key)
            names = page_keys(config, cache.rank, hashes)
            expected = {
                name: page_on_rank(config, cache.rank, page_hash)
                for name, page_hash in zip(names[: store.exists(names)], hashes, strict=False)
            }
            for pool, page_hash in itertools.product(cache.extra.values(), hashes):
                name = pool.key(page_hash, cache.rank)
                if store.exists([name]):
                    expected[name] = pool.content(page_hash, cache.rank)
            for name, content in expected.items():
                if store.get_into([name], [page := torch.zeros_like(content)]) != [True] or not torch.equal(
                    page, content
                ):
                    problems.append(f"P30 the store does not hold the bytes of {name[:12]}")
        return problems

    def counters(self) -> list[dict[str, Any]]:
        """The counters of each rank, with `storage_errors` by call (of the store that was attached last)."""
        return [
            {**cache.counters.as_dict(), "storage_errors": dict(cache.controller.storage_errors)}
            for cache in self.caches
        ]

    def key(self, tokens: Sequence[int], namespace: str | None = None) -> PrefixKey:
        """The key of all whole pages of `tokens`, in the configured namespace or another."""
        chosen = self.config.namespace if namespace is None else namespace
        return PrefixKey.from_tokens(tokens, self.config.page_size, chosen)

    def _remembered(self, tokens: Sequence[int]) -> PrefixKey:
        key = self.key(tokens)
        self._asked.add(key)
        return key

    def storage_keys(self, tokens: Sequence[int], rank: int, namespace: str | None = None) -> list[str]:
        """What the store calls the pages of `tokens` on this rank."""
        return page_keys(self.config, rank, chain_hashes(self.key(tokens, namespace)))

    def store(self, tokens: Sequence[int], namespace: str | None = None) -> None:
        """Put the pages of `tokens` into the store of every rank, as an earlier run, or another model, would have; and
        what such a run needs beside them."""
        hashes = chain_hashes(self.key(tokens, namespace))
        for rank, faulty in enumerate(self.faults):
            pages = [page_on_rank(self.config, rank, page_hash) for page_hash in hashes]
            faulty.inner.put_from(self.storage_keys(tokens, rank, namespace), pages)
            for pool in self.caches[rank].extra.values():
                beside = [hashes[at] for at in pool.component.needed(0, len(hashes))]
                keys = [pool.key(page_hash, rank) for page_hash in beside]
                faulty.inner.put_from(keys, [pool.content(page_hash, rank) for page_hash in beside])

    def _configured(self, fields: dict[str, Any]) -> CacheConfig:
        """The protocol says how many ranks there are; where they are is this system's matter."""
        ranks = fields.pop("ranks", None)
        return CacheConfig(**fields if ranks is None else {"layout": self._arrange(ranks), **fields})

    # --- driving the ranks ---------------------------------------------------------------------------------------

    def _open_stores(self, ranks: int) -> tuple[list[Storage], list[Storage]]:
        """One store a rank; and those of them that were opened here, to be closed here."""
        if isinstance(self._storage, str):
            store = open_storage(self._storage)
            return [store] * ranks, [store]
        stores: list[Any] = list(self._storage) if isinstance(self._storage, Sequence) else [self._storage] * ranks
        if len(stores) != ranks:
            raise ValueError(f"{len(stores)} stores for {ranks} ranks")
        return stores, []

    def _driver(self, rank: int) -> Callable[[], None]:
        jobs, answers, groups, cache = self._jobs[rank], self._answers, self._groups[rank], self.caches[rank]

        def run() -> None:
            while (job := jobs.get()) is not None:
                number, call = job
                try:
                    answer = call(cache)
                except BaseException as error:
                    # The others may be waiting for this rank in a collective.
                    groups.abort(f"rank {rank} failed: {error!r}")
                    answer = error
                answers.put((number, rank, answer))

        return run

    def _all(self, name: str, call: Callable[[HiCache], T]) -> list[T]:
        """The answers by rank; the first error that is not the consequence of another rank's."""
        self._check_begun(name)
        self._calls += 1
        for jobs in self._jobs:
            jobs.put((self._calls, call))
        answers: dict[int, Any] = {}
        stalled: Stalled | None = None
        while len(answers) < len(self._jobs):
            try:
                number, rank, answer = self.runtime.collect(self._answers, self._timeout_s)
                if number == self._calls:  # not the late answer to a call that was given up
                    answers[rank] = answer
            except Stalled as error:
                if stalled is not None:
                    raise
                stalled = error
                for groups in self._groups:
                    groups.abort(f"{name} does not come to an end")
        if stalled is not None:
            raise Desync(f"P7 {name}: some rank waits for another that does not come: {stalled}")
        errors = [answer for answer in answers.values() if isinstance(answer, BaseException)]
        if errors:
            raise min(errors, key=lambda error: isinstance(error, GroupAborted))
        return [answers[rank] for rank in range(len(answers))]

    def _seen(self, name: str, look: Callable[[HiCache], T]) -> list[T]:
        """The same by rank, of something that needs no other rank: between two calls nobody else is in the cache."""
        self._check_begun(name)
        return [look(cache) for cache in self.caches]

    def _check_begun(self, name: str) -> None:
        if not self._drivers:
            raise RuntimeError(f"{name} before reset, or after close")

    def _rests(self, name: str, call: Callable[[HiCache, float], None]) -> bool:
        """Whether the workers came to rest for `call(cache, timeout_s)`. The ranks give up before their caller does."""

        def attempt(cache: HiCache) -> bool:
            try:
                call(cache, self._timeout_s / 4)
            except Stalled:
                return False
            return True

        return self._agreed(name, attempt)

    def _agreed(self, name: str, call: Callable[[HiCache], T]) -> T:
        return _same(name, self._all(name, call))


def _same(name: str, answers: Sequence[T]) -> T:
    if any(answer != answers[0] for answer in answers):
        raise Disagreement(f"P7 {name}: {dict(enumerate(answers))}")
    return answers[0]
