"""The adapter of a release: every call is made on all ranks, each by the rank's own scheduler."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from hicache_checks.conformance.observation import Event
from hicache_checks.targets.sglang import building
from hicache_checks.targets.sglang.crews import Crew, Hung, ThreadDied
from hicache_checks.targets.sglang.rank_model import Prefilled

CAPABILITIES = ("store", "tiers", "audit", "flush", "threads", "settle", "copies", "variants")
DISK_PAGE_MIN = 64
"""Tokens. The file of a smaller page is written by the C library when it is closed; an error then, nobody hears of."""
WRITE_POLICY, WRITES_THROUGH = "write_policy", "write_through"
VARIANTS = {
    WRITE_POLICY: (WRITES_THROUGH, WRITES_THROUGH, "write_back", "write_through_selective"),
    "storage": (building.OURS, building.OURS, building.OURS, building.FILES),
    "page_size": (1, 1, 1, 4, 16, 64),
    "device_pages": (6, 6, 3),
    "audits": ((), (), (), (), ("asked",), ("prefix_keys",), ("bytes",), ("events",)),
    "salted": (False, False, False, True),
    "place": ({}, {}, {"pp_rank": 0, "pp_size": 2}, {"attn_cp_rank": 0, "attn_cp_size": 2}),
}
"""What programs may be run with, the plainest first; what stands there more often is drawn more often."""
ATTACHES, TENANTS = ("attach", "detached"), ("tenants",)
SETTLE_S_MAX = 10.0
QUIET = 2
"""So many looks in a row at which nobody was busy: who was between two things at one, is not at the next."""
MOMENT_S = 0.02
"""Whoever has anything to do, has begun with it by then."""


class RanksDiffer(Exception):
    """P7: ranks that made the same calls gave different answers."""


class RankLog:
    """See conformance.adapter.Log."""

    def __init__(self, crew: Crew, rank: int) -> None:
        self._crew = crew
        self._rank = rank

    def take_since(self, seq: int) -> Sequence[Event]:
        """The events from number `seq` on; if a thread of the rank died meanwhile, that; none, if the rank is gone: why
        it is, was told."""
        try:
            entries = self._crew.one(self._rank, "events_since", seq)
        except Hung:
            return []
        except ThreadDied as death:
            return [Event(self._rank, seq, "died", None, {"thread": "storage", "error": str(death)})]
        return [Event(self._rank, number, *entry) for number, entry in enumerate(entries, seq)]


class SglangAdapter:
    """See conformance.adapter.Adapter. `crew`: who makes the calls; `kind`: of tree, see `building.TREES`;
    `has_events`: ranks log what they do.
    """

    def __init__(self, crew: Crew, kind: str, has_events: bool = False) -> None:
        self._crew = crew
        self._kind = kind
        self._has_events = has_events
        self._config: Mapping[str, Any] = {}

    # ---- the calls of an adapter

    def capabilities(self) -> Sequence[str]:
        """What else there is."""
        attaches = ATTACHES if building.can_attach(self._kind) else ()
        tenants = TENANTS if building.has_tenants() else ()
        events = ("events",) if self._is_followed() else ()
        return (*CAPABILITIES, *attaches, *tenants, *events, *self._faults())

    def reset(self, config: Mapping[str, Any]) -> None:
        """New ranks, with empty stores."""
        self._config = config
        self._crew.begin({**config, "events": self._is_followed()})

    def logs(self) -> Sequence[RankLog]:
        """The event log of each rank."""
        return [RankLog(self._crew, number) for number in range(self._config["ranks"])]

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

    def leave(self, exit_: str, rid: str) -> None:
        """A request is gone by another way; see exits.EXITS."""
        self._crew.all("leave", exit_, rid)

    def tick(self) -> None:
        """One turn of every scheduler's loop."""
        self._crew.all("tick")

    def poll_apart(self, shares: Sequence[Sequence[str]]) -> None:
        """Each rank looks at some of the waiting requests, and its batch is full. `shares`: by rank."""
        self._crew.all("poll_apart", shares)

    def full_turn(self) -> Sequence[str]:
        """A turn of the loop in which nobody is admitted: the requests that are taken late."""
        answer: Sequence[str] = self._same("full_turn")
        return answer

    def look(self, rid: str) -> Mapping[str, Any]:
        """A turn of the loop in which a request can be admitted: see Queued."""
        answer: Mapping[str, Any] = self._same("look", rid)
        return answer

    def neglected(self) -> Sequence[str]:
        """After such turns, at rest: what they should have done."""
        return self._problems("neglected")

    def observe(self) -> Mapping[str, Any]:
        """What every rank shows, and under `ranks` each by itself."""
        ranks = self._crew.each("observe")
        return {**ranks[0], "ranks": ranks}

    def settle(self) -> None:
        """Wait until no storage thread has anything to do, and for calls of the stores that take their time; not for
        ever, since a thread may hang."""
        until = time.monotonic() + SETTLE_S_MAX
        quiet = 0
        while quiet < QUIET and time.monotonic() < until:
            time.sleep(MOMENT_S)
            quiet = 0 if any(self._crew.each("is_busy")) else quiet + 1

    def close(self) -> None:
        """End the schedulers, and tell their storage threads to end."""
        self._crew.end()

    def variants(self) -> Mapping[str, Sequence[Any]]:
        """What `reset` may be told besides, by name. The steps of the specification write through."""
        return {name: values for name, values in VARIANTS.items() if name != WRITE_POLICY or not self._has_events}

    # ---- storage

    def store(self, tokens: Sequence[int], namespace: str | None = None) -> None:
        """The stores of all ranks hold the pages of this prompt."""
        self._crew.each("put", tokens, namespace)

    def break_storage(self, rank: int, call: str, how: str) -> None:
        """From now on this rank's store fails in a call. ValueError: it cannot."""
        self._crew.one(rank, "break_store", call, how)

    def lose(self, rank: int, tokens: Sequence[int]) -> None:
        """The last page of this prompt can no longer be read by this rank, although it is said to exist."""
        self._crew.one(rank, "lose", tokens)

    def lose_beside(self, rank: int, tokens: Sequence[int]) -> None:
        """The same of what a model has beside that page."""
        self._crew.one(rank, "lose_beside", tokens)

    def store_by(self, changes: Sequence[tuple[str, Any]], tokens: Sequence[int]) -> None:
        """Somebody else stores his pages of this prompt in the same store, where a rank's store has files."""
        self._crew.all("put_by", changes, tokens)

    def damage(self, rank: int, tokens: Sequence[int]) -> None:
        """The file of the last page of this prompt is cut off, where a rank's store has files."""
        self._crew.one(rank, "damage", tokens)

    def pin(self, rank: int, tokens: Sequence[int]) -> None:
        """The file of the last page of this prompt cannot be removed, where a rank's store has files."""
        self._crew.one(rank, "pin", tokens)

    def clear_store(self) -> bool:
        """The user has the store cleared."""
        return bool(self._same("clear_store"))

    def heal_storage(self) -> None:
        """The stores work again."""
        self._crew.each("heal")

    def detach(self) -> bool:
        """Let go of the stores."""
        done = bool(self._same("detach"))
        if done:
            self._crew.each("detached")
        return done

    def attach(self) -> bool:
        """Go on with the stores."""
        done = bool(self._same("attach"))
        self._crew.each("attached", done)
        return done

    # ---- the tiers, and everything

    def prefill(self, tokens: Sequence[int], extra: str | None = None) -> Prefilled:
        """The model's part; `extra`: for an adapter or a tenant whose pages are nobody else's."""
        return self._prefilled(self._crew.all("prefill", tokens, extra))

    @staticmethod
    def _prefilled(ranks: Sequence[Prefilled]) -> Prefilled:
        return Prefilled(tuple(f"rank {n}: {line}" for n, done in enumerate(ranks) for line in done.wrong))

    def compute(self, tokens: Sequence[int]) -> Prefilled:
        """The model's part, without what the host has."""
        return self._prefilled(self._crew.all("compute", tokens))

    def prefill_chunk(self, tokens: Sequence[int]) -> Prefilled:
        """The model computes the beginning of a longer prompt."""
        return self._prefilled(self._crew.all("prefill", tokens, None, True))

    def evict_device(self, pages: int) -> int:
        """The device forgets pages."""
        return int(self._same("evict_device", pages))

    def evict_states(self, states: int) -> Sequence[str]:
        """The device forgets states: what it should not have."""
        ranks = self._crew.all("evict_states", states)
        return [f"rank {rank}: {line}" for rank, lines in enumerate(ranks) for line in lines]

    def hold_copies(self) -> None:
        """Copies between the pools do not end."""
        self._crew.each("hold_copies")

    def hold_copies_of(self, rank: int) -> None:
        """Copies of one rank do not end."""
        self._crew.one(rank, "hold_copies")

    def release_copies(self) -> None:
        """They do."""
        self._crew.each("release_copies")

    def flush(self) -> bool:
        """Begin again."""
        return bool(self._same("flush"))

    def audit(self) -> Sequence[str]:
        """At rest: what is wrong."""
        return self._problems("audit")

    def audit_stores(self) -> Sequence[str]:
        """At rest: what is wrong in the stores."""
        return self._problems("audit_store")

    def audit_written(self) -> Sequence[str]:
        """What was computed some turns ago, and is not written through."""
        return self._problems("audit_written")

    def audit_waits(self) -> Sequence[str]:
        """By which functions a layer gets what is not loaded yet."""
        return self._problems("audit_waits")

    def audit_consumers(self) -> Sequence[str]:
        """At rest: which queues more than one thread reads from."""
        return self._problems("audit_consumers")

    def threads_of(self, rank: int) -> Sequence[str]:
        """The names of the rank's threads."""
        return [*self._crew.one(rank, "thread_names"), f"scheduler-{rank}"]

    def _is_followed(self) -> bool:
        """Do ranks log what they do? Not what the specification has no steps for: other write policies, no limit."""
        writes_through = self._config.get(WRITE_POLICY, WRITES_THROUGH) == WRITES_THROUGH
        return self._has_events and writes_through and self._config.get("limit_pages") != 0

    def _faults(self) -> Sequence[str]:
        """What can go wrong with the store."""
        if self._config.get("storage") != building.FILES:
            return ("faults",)
        clears = ("clears",) if building.can_clear(self._kind) else ()
        disk = ("disk",) if self._config["page_size"] >= DISK_PAGE_MIN else ()
        return ("files", "shared", *clears, *disk)

    def _problems(self, call: str) -> list[str]:
        ranks = self._crew.each(call)
        return [f"rank {rank}: {line}" for rank, lines in enumerate(ranks) for line in lines]

    def _same(self, name: str, *args: Any) -> Any:
        """The answer that all ranks give. Raises RanksDiffer."""
        answers = self._crew.all(name, *args)
        if any(answer != answers[0] for answer in answers):
            raise RanksDiffer(f"P7 {name}: {dict(enumerate(answers))}")
        return answers[0]
