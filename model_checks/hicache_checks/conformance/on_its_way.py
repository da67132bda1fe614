"""What is on its way between the tiers: each step is one of the parts *copying* and *storing* (§10, §11).

A small state of its own, beside that of the prefetches. Whatever is written, or loaded, has a chain of one page there
until it is stored, or has arrived: that page stands for all of its pages, which travel together. So the tree that the
parts know is no more than what is on its way; the real one is `TreeSeen`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from hicache_checks.conformance.bound_state import laid_over, section_of
from hicache_checks.conformance.observation import Event
from hicache_checks.conformance.tree_seen import Unexplained
from hicache_spec import DESIGNS, Bounds, BoundSpec, Refused
from hicache_spec.parts import PARTS
from hicache_spec.parts.copying_state import READABLE

DESIGN = DESIGNS["decide_at_drain"].joined(PARTS["copying"], PARTS["storing"])
CHAINS = 8
"""What is followed at a time, at first."""
STORED = "P32 stored_is_stored"


@dataclass(frozen=True)
class Job:
    """Pages of a node, as many as it had when they set out. `refused`: of these, by rank, those not in storage. `said`:
    by rank, the event that said so."""

    node: int
    pages: int
    refused: dict[int, int]
    said: dict[int, Event]


@lru_cache(16)
def bound(ranks: int, chains: int) -> BoundSpec:
    """The parts for so many jobs."""
    return BoundSpec(
        DESIGN,
        Bounds(
            "on its way",
            requests=1,
            ranks=ranks,
            host_pages=chains,
            chain_pages=1,
            resident_pages=(0,) * chains,
            stored_pages=(0,) * chains,
            device_pages=chains,
            load_quota=1,
            put_fails=True,
        ),
    )


class OnItsWay:
    """Follows jobs by their chains. Every step raises Unexplained."""

    def __init__(self, ranks: int, chains: int = CHAINS) -> None:
        self._ranks = range(ranks)
        self._spec = bound(ranks, chains)
        self.state = self._spec.initial()
        self._jobs: dict[int, Job] = {}
        self._free = list(reversed(range(chains)))

    def jobs(self) -> list[Job]:
        """What has not come to its end."""
        return list(self._jobs.values())

    # ---- down

    def write(self, node: int, pages: int) -> None:
        """The node has host pages, and is being copied to them."""
        chain = self._begin(node, pages)
        self._step("sched_run", chain, 1)

    def copied(self, node: int, pages: int) -> None:
        """The oldest copy has landed on every rank, and is queued for the backup."""
        self._expect(self.state.copies, node, pages, "sched_take_copy")
        for rank in self._ranks:
            # That it did, nobody has to tell before.
            self._step("copy_land_on_host", rank)
        self._step("sched_take_copy")

    def back_up(self, rank: int, pages: int, failed: int, said: Event | None = None) -> None:
        """The backup thread of a rank is done with its next job. `failed`: so many pages are not in storage."""
        rule = "backup_fail_page" if failed else "backup_put_page"
        queue = self.state.backup_queue[rank]
        if queue:
            job = self._jobs[queue[0]]
            if job.pages != pages or failed > pages:
                raise Unexplained(self._named(rule), f"its next job has {job.pages} pages")
            job.refused[rank] = failed
            if said is not None:
                job.said[rank] = said
        self._step(rule, rank)

    def refuse(self) -> None:
        """There is no storage: what is queued is acknowledged as it is, on every rank."""
        for rank in self._ranks:
            for chain in self.state.backup_queue[rank]:
                self.back_up(rank, self._jobs[chain].pages, self._jobs[chain].pages)

    def stored(self, node: int, pages: int) -> Job:
        """The oldest job is acknowledged on every rank."""
        chain = self._expect(self.state.backup_acks[0], node, pages, "sched_take_backup_ack")
        self._step("sched_take_backup_ack")
        return self._end(chain)

    def rests(self, rank: int) -> bool:
        """Has the backup thread of this rank done all that it has been given?"""
        return not self.state.backup_queue[rank]

    # ---- up

    def load(self, node: int, pages: int) -> None:
        """The node has device pages, and is being copied to them from the host, where it stays meanwhile."""
        chain, s = self._begin(node, pages), self.state
        s.resident[chain], s.host[chain][0], s.known_stored[chain][0] = 1, READABLE, True
        for rank in self._ranks:
            s.free[rank] -= 1
        self._step("sched_load_back", chain, 1)

    def arrived(self, node: int, pages: int) -> None:
        """The oldest load has landed on every rank."""
        chain = self._expect(self.state.loads, node, pages, "sched_take_load")
        for rank in self._ranks:
            self._step("copy_land_on_device", rank)
        self._step("sched_take_load")
        self._end(chain)

    # ---- chains

    def _begin(self, node: int, pages: int) -> int:
        if not self._free:
            self._grow()
        chain = self._free.pop()
        self._jobs[chain] = Job(node, pages, {}, {})
        return chain

    def _expect(self, queue: list[int], node: int, pages: int, rule: str) -> int:
        """The chain of what is first in a queue, which must be these pages."""
        first = self._jobs.get(queue[0]) if queue else None
        if first is None or (first.node, first.pages) != (node, pages):
            says = "nothing is" if first is None else f"{first.pages} pages of node {first.node} are"
            raise Unexplained(self._named(rule), f"{says} first")
        return queue[0]

    def _end(self, chain: int) -> Job:
        """Its chain can serve another job."""
        s = self.state
        s.device_free += s.on_device[chain]
        s.on_device[chain] = 0
        self._function("forget_from")(s, chain, 0)
        self._function("refresh_leaf")(s, chain)
        for rank in self._ranks:
            s.free[rank] += 1
            s.stored[rank][chain][0] = False
        self._free.append(chain)
        return self._jobs.pop(chain)

    def _grow(self) -> None:
        """As many chains again."""
        chains = self._spec.bounds.host_pages
        self._spec = bound(len(self._ranks), 2 * chains)
        grown = self._spec.initial()
        for v in self._spec.variables:
            if v.name not in ("free", "device_free"):
                setattr(grown, v.name, laid_over(getattr(grown, v.name), getattr(self.state, v.name), len(v.sizes)))
        grown.device_free -= chains - self.state.device_free
        for rank in self._ranks:
            grown.free[rank] -= chains - self.state.free[rank]
        self.state = grown
        self._free = list(reversed(range(chains, 2 * chains)))

    # ---- steps

    def _function(self, name: str) -> Callable[..., Any]:
        return self._spec.function(name)

    def _step(self, rule: str, *arguments: int) -> None:
        self.state.events = []
        try:
            self._function(rule)(self.state, *arguments)
        except Refused as refusal:
            raise Unexplained(self._named(rule), f"refused: {refusal}") from None

    def _named(self, rule: str) -> str:
        return section_of(rule, self._function(rule))
