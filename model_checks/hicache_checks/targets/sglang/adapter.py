"""The adapter of a release: every call is made on all ranks, each by the rank's own scheduler."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any

import torch.distributed as dist

from hicache_checks.simulation.standins.collectives import of_rank
from hicache_checks.targets.sglang import building, store
from hicache_checks.targets.sglang.device import COPIES
from hicache_checks.targets.sglang.own_code import OwnCode
from hicache_checks.targets.sglang.rank import Prefilled, Rank
from hicache_checks.targets.sglang.surroundings import Surroundings

CAPABILITIES = ("store", "faults", "tiers", "audit", "flush", "threads", "settle")
ATTACHES = "attach"
MOMENT_S = 0.001


class RanksDiffer(Exception):
    """P7: ranks that made the same calls gave different answers."""


class SglangAdapter:
    """See conformance.adapter.Adapter. One system after another, in one process."""

    def __init__(self, surroundings: Surroundings, kind: str, scheduler: OwnCode) -> None:
        self._kind = kind
        self._surroundings = surroundings
        self._scheduler = scheduler
        self._jobs: list[SimpleQueue[tuple[str, tuple[Any, ...]] | None]] = []
        self._answers: SimpleQueue[tuple[int, Any]] = SimpleQueue()
        self._threads: list[Any] = []
        self._ranks: dict[int, Rank] = {}

    # ---- the calls of an adapter

    def capabilities(self) -> Sequence[str]:
        """What else there is."""
        return (*CAPABILITIES, ATTACHES) if building.can_attach(self._kind) else CAPABILITIES

    def settle(self) -> None:
        """Wait for calls of the stores that take their time. Whoever can go on, does while somebody sleeps."""
        time.sleep(MOMENT_S)
        while any(shelf.stalled for shelf in store.SHELVES.values()):
            time.sleep(store.STALL_S + MOMENT_S)

    def reset(self, config: Mapping[str, Any]) -> None:
        """New ranks, with empty stores."""
        self.close()
        store.SHELVES.clear()
        self._ranks.clear()
        COPIES.go_on()
        ranks = config["ranks"]
        settings = self._surroundings.settings = building.settings_for(config)
        self._surroundings.ranks = ranks
        self._answers = SimpleQueue()
        self._jobs = [SimpleQueue() for _ in range(ranks)]
        self._threads = [self._start(number, config, settings) for number in range(ranks)]
        self._collect()

    def submit(self, rid: str, tokens: Sequence[int]) -> Mapping[str, Any]:
        """A request comes."""
        answer: Mapping[str, Any] = self._same("submit", rid, tokens)
        return answer

    def poll(self, rids: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        """Which requests need not wait any longer."""
        answer: Mapping[str, Mapping[str, Any]] = self._same("poll", rids)
        return answer

    def abort(self, rid: str) -> bool:
        """A request is gone."""
        return bool(self._same("abort", rid))

    def tick(self) -> None:
        """One turn of every scheduler's loop."""
        self._all("tick")

    def observe(self) -> Mapping[str, Any]:
        """What every rank shows, and under `ranks` each by itself."""
        ranks = self._seen("observe")
        return {**ranks[0], "ranks": ranks}

    def close(self) -> None:
        """End the schedulers, after their storage threads."""
        if not self._threads:
            return
        threads, self._threads = self._threads, []
        for shelf in store.SHELVES.values():
            shelf.heal()
        for jobs in self._jobs:
            jobs.put(("close", ()))
            jobs.put(None)
        for thread in threads:
            thread.join()

    # ---- storage

    def store(self, tokens: Sequence[int], namespace: str | None = None) -> None:
        """The stores of all ranks hold the pages of this prompt."""
        self._seen("put", tokens, namespace)

    def break_storage(self, rank: int, call: str, how: str) -> None:
        """From now on this rank's store fails in a call. ValueError: it cannot."""
        store.SHELVES[rank].break_(call, how)

    def lose(self, rank: int, tokens: Sequence[int]) -> None:
        """The last page of this prompt can no longer be read by this rank, although it is said to exist."""
        store.SHELVES[rank].lost.add(self._ranks[rank].keys(tokens)[-1])

    def heal_storage(self) -> None:
        """The stores work again."""
        for shelf in store.SHELVES.values():
            shelf.heal()

    def detach(self) -> bool:
        """Let go of the stores."""
        return bool(self._same("detach"))

    def attach(self) -> bool:
        """Go on with the stores."""
        return bool(self._same("attach"))

    # ---- the tiers, and everything

    def prefill(self, tokens: Sequence[int]) -> Prefilled:
        """The model's part."""
        ranks: list[Prefilled] = self._all("prefill", tokens)
        return Prefilled(tuple(f"rank {n}: {line}" for n, done in enumerate(ranks) for line in done.wrong))

    def evict_device(self, pages: int) -> int:
        """The device forgets pages."""
        return int(self._same("evict_device", pages))

    def flush(self) -> bool:
        """Begin again."""
        return bool(self._same("flush"))

    def audit(self) -> Sequence[str]:
        """At rest: what is wrong, and what ranks disagree in."""
        return self._problems("audit")

    def audit_stores(self) -> Sequence[str]:
        """At rest: what is wrong in the stores."""
        return self._problems("audit_store")

    def threads_of(self, rank: int) -> Sequence[str]:
        """The names of the rank's threads."""
        return [*self._ranks[rank].threads(), f"scheduler-{rank}"]

    # ---- schedulers

    def _problems(self, call: str) -> list[str]:
        ranks = self._seen(call)
        return [f"rank {rank}: {line}" for rank, lines in enumerate(ranks) for line in lines]

    def _start(self, number: int, config: Mapping[str, Any], settings: Any) -> threading.Thread:
        def scheduler() -> None:
            try:
                group = dist.new_group(list(range(config["ranks"])))
                rank = Rank(number, config, settings, group, self._kind, self._scheduler)
            except Exception as error:
                self._answers.put((number, error))
                return
            self._ranks[number] = rank
            self._answers.put((number, None))
            while (job := self._jobs[number].get()) is not None:
                self._answers.put((number, self._attempt(partial(getattr(rank, job[0]), *job[1]))))

        thread = threading.Thread(target=scheduler, name=f"scheduler-{number}", daemon=True)
        with of_rank(number):
            thread.start()
        return thread

    @staticmethod
    def _attempt(do: Callable[[], Any]) -> Any:
        try:
            return do()
        except Exception as error:
            return error

    def _all(self, name: str, *args: Any) -> list[Any]:
        """The answers by rank. Raises what the first of them raised."""
        for jobs in self._jobs:
            jobs.put((name, args))
        return self._collect()

    def _seen(self, name: str, *args: Any) -> list[Any]:
        """The same, of something that needs no other rank: between two calls nobody is in the cache."""
        return [getattr(rank, name)(*args) for _, rank in sorted(self._ranks.items())]

    def _collect(self) -> list[Any]:
        answers = dict(self._answers.get() for _ in self._jobs)
        for _, answer in sorted(answers.items()):
            if isinstance(answer, Exception):
                raise answer
        return [answers[number] for number in range(len(answers))]

    def _same(self, name: str, *args: Any) -> Any:
        """The answer that all ranks give. Raises RanksDiffer."""
        answers = self._all(name, *args)
        if any(answer != answers[0] for answer in answers):
            raise RanksDiffer(f"P7 {name}: {dict(enumerate(answers))}")
        return answers[0]
