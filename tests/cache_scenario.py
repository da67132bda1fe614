"""A reference cache under a gated runtime, with what the scenarios of several test modules need."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from hicache_impl.adapter import Reference
from hicache_impl.cache import HiCache
from hicache_impl.controller import Controller
from hicache_impl.events import LOCKSTEP_FIELDS, Event
from hicache_impl.gated import GatedRuntime

SIZES: dict[str, Any] = {"host_pages": 8, "device_pages": 16, "threshold_pages": 2, "page_bytes": 16, "limit_pages": 99}


def tokens(name: int, pages: int) -> list[int]:
    """A prompt of `pages` pages of one token that shares nothing with prompts of other names."""
    return [1000 * name + page for page in range(pages)]


class Scenario:
    """One reference with its gates at hand. Every call to the reference also compares the ranks."""

    def __init__(
        self,
        storage: Any = "memory",
        cache_class: type[HiCache] = HiCache,
        controller_class: type[Controller] = Controller,
        timeout_s: float = 60,
        telemetry: Any = None,
        settings: Mapping[str, Any] = MappingProxyType({}),
        **config: Any,
    ) -> None:
        self.runtime = GatedRuntime()
        self.reference = Reference(
            {**SIZES, **settings, **config},
            storage,
            self.runtime,
            cache_class=cache_class,
            controller_class=controller_class,
            timeout_s=timeout_s,
            settings=settings,
            telemetry=telemetry,
        )

    @property
    def ranks(self) -> range:
        return range(self.reference.config.ranks)

    def submit(self, rid: str, prompt: list[int], stored: int | None = None) -> int:
        """Submit, with the first `stored` pages (all, if not given) in the store; returns the attempt."""
        self.reference.store(prompt[:stored])
        answer = self.reference.submit(rid, prompt)
        assert answer["accepted"], answer
        return int(answer["attempt"])

    def turn(self) -> None:
        """Let the threads rest, drain, and compare the ranks."""
        self.reference.settle()
        self.reference.tick()
        self.reference.settle()
        self.reference.observe()

    def poll(self, rid: str) -> tuple[Any, ...]:
        """(ready, state, reason, pages)."""
        polled = self.reference.poll([rid])[rid]
        self.reference.observe()
        return polled["ready"], polled["state"], polled["reason"], polled["pages"]

    def fetch(self, rid: str, prompt: list[int]) -> None:
        """A whole prefetch that finds everything in the store."""
        self.submit(rid, prompt)
        self.turn()
        assert self.poll(rid)[:2] == (True, "fetched")

    def free(self) -> int:
        return int(self.reference.observe()["free_pages"])

    def live(self, rid: str, attempt: int = 1) -> list[str]:
        """The state of an operation on each rank."""
        return [seen["live"][rid, attempt] for seen in self.reference.observe()["ranks"]]

    def events(self, *kinds: str, rank: int = 0) -> list[Event]:
        return [event for event in self.reference.logs()[rank].take_since(0) if event.kind in kinds]

    def ends(self, rank: int = 0) -> list[tuple[Any, ...]]:
        """(operation, final state, reason) in the order in which they ended."""
        return [(event.op, event.kind, event.data["reason"]) for event in self.events("fetched", "revoked", rank=rank)]

    def finish(self) -> None:
        """Come to quiescence, audit everything, and compare what the ranks logged in lockstep."""
        self.runtime.release_all()
        self.reference.quiesce()
        assert self.reference.audit() == []
        seen = self.reference.observe()
        assert seen["free_pages"] + seen["resident_pages"] == self.reference.config.host_pages
        counters = self.reference.counters()
        for rank in self.ranks:
            assert self.lockstep(rank) == self.lockstep(0)
            assert counters[rank]["passed_terminated"] == counters[0]["passed_terminated"]
            assert counters[rank]["fetched"] == counters[0]["fetched"]
        self.reference.close()
        self.reference.close()

    def lockstep(self, rank: int) -> list[tuple[Any, ...]]:
        """What this rank logged of the events that are the same on all, `stored` without its own count of failures."""
        return [
            (event.kind, event.op, {name: value for name, value in event.data.items() if name != "failed"})
            for event in self.events(*LOCKSTEP_FIELDS, rank=rank)
        ]
