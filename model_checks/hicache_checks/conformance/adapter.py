"""What a system under test must offer to be held to the specification: a few calls, on all its ranks at once.

Whoever has an implementation writes this adapter; the reference's is `hicache_impl.adapter:Reference`, loaded by name
like anybody else's. Token lists stand for prompts; pages are cut from them by the configured page size.

`Adapter` is required. What else there is, an adapter names in `capabilities`, and only that is used:

| capability | calls | without it |
|---|---|---|
| `events` | `logs` | judged by what can be observed from outside (`black_box`) |
| `stop` | `stop` | no request is told to wait no longer |
| `store` | `store` | storage is empty, so nothing is ever fetched |
| `faults` | `break_storage`, `lose`, `heal_storage` | storage never fails |
| `tiers` | `prefill`, `evict_device` | pages come from storage only |
| `audit` | `audit`, `audit_stores` | nothing but `observe` is looked at in the end |
| `flush` | `flush` | every schedule starts a new system |
| `resets` | `begin_again` | the logs do not tell of a `flush` |
| `checked_bytes` | | a store that lies is believed: bytes are not judged after it has |
| `attach` | `detach`, `attach` | the store is attached all the time |
| `detached` | `detach`, `attach`, `prefill` | nothing is computed while no store is attached |
| `tenants` | `prefill` with a tenant | nobody's pages are kept apart from somebody else's |
| `copies` | `hold_copies`, `release_copies` | copies between the tiers end at once, or as they like |
| `files` | `damage` | no page in storage is cut off |
| `disk` | `break_storage`, `heal_storage` | no disk is full |
| `shared` | `store_by` | nobody else's pages are in the store |
| `clears` | `clear_store` | nobody has the store cleared |
| `variants` | `variants` | a system is told sizes and policy, and nothing else |
| `threads` | `threads_of` | no rank is slow |
| `deaths` | `threads_of` | no thread is killed |
| `settle`, `gates`, `clock` | `settle`; `hold`, `release_all`; `advance` | real threads run as they like |
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from hicache_checks.conformance.observation import Seen

CALLS: Mapping[str, Sequence[str]] = {
    "events": ("logs",),
    "stop": ("stop",),
    "store": ("store",),
    "faults": ("break_storage", "lose", "heal_storage"),
    "tiers": ("prefill", "evict_device"),
    "audit": ("audit", "audit_stores"),
    "flush": ("flush",),
    "resets": ("begin_again",),
    "checked_bytes": (),
    "attach": ("detach", "attach"),
    "detached": ("detach", "attach", "prefill"),
    "tenants": ("prefill",),
    "copies": ("prefill", "hold_copies", "release_copies"),
    "files": ("damage",),
    "disk": ("break_storage", "heal_storage"),
    "shared": ("store_by",),
    "clears": ("clear_store",),
    "variants": ("variants",),
    "threads": ("threads_of",),
    "deaths": ("threads_of",),
    "settle": ("settle",),
    "gates": ("hold", "release_all"),
    "clock": ("advance",),
}
"""What each capability adds to the required calls."""


class Log(Protocol):
    """One rank's events."""

    def take_since(self, seq: int, /) -> Sequence[Seen]:
        """The events from number `seq` on."""


class Adapter(Protocol):
    """The system under test. A call that raises is a finding."""

    def capabilities(self) -> Collection[str]:
        """Names from CALLS. It may be asked before the first `reset`."""

    def reset(self, config: Mapping[str, Any]) -> None:
        """Start afresh: `ranks, policy, page_size, host_pages, device_pages, threshold_pages, limit_pages, ...`."""

    def submit(self, rid: str, tokens: Sequence[int]) -> Mapping[str, Any]:
        """Ask for the missing part of a prompt; `accepted` says whether there is an operation now."""

    def poll(self, rids: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        """By request id, `ready`: it need not wait any longer."""

    def abort(self, rid: str) -> bool:
        """The request is gone."""

    def tick(self) -> None:
        """One turn of every scheduler's loop."""

    def observe(self) -> Mapping[str, Any]:
        """`free_pages`, `resident_pages`, `occupied_pages`, `operations`: (request id, attempt) -> granted pages."""

    def close(self) -> None:
        """End all threads; may be called twice."""


class EventfulAdapter(Adapter, Protocol):
    """`events` and `stop`."""

    def logs(self) -> Sequence[Log]:
        """The event log of each rank."""

    def stop(self, rid: str) -> bool:
        """The caller waits no longer."""


class TestableAdapter(EventfulAdapter, Protocol):
    """What the stateful tests need besides: rest, gates, a clock, a store that can be filled and broken, the tiers."""

    def settle(self) -> None:
        """Return when no thread has anything left to do, held ones aside."""

    def hold(self, gate: str, rank: int) -> None:
        """Threads of this rank stop at this gate from now on."""

    def release_all(self) -> None:
        """Every gate is open, and stays open."""

    def advance(self, seconds: float) -> None:
        """Move the clock."""

    def store(self, tokens: Sequence[int], namespace: str | None = None) -> None:
        """Storage holds the pages of this prompt, in the configured namespace or in somebody else's."""

    def break_storage(self, rank: int, call: str, how: str) -> None:
        """From now on this rank's store fails in `exists`, `get` or `put`: `how` is raise, miss, short or stall, or in
        `get` wrong_bytes or late_write."""

    def lose(self, rank: int, tokens: Sequence[int]) -> None:
        """The last page of this prompt can no longer be read by this rank, although it is said to exist."""

    def heal_storage(self) -> None:
        """The stores work again."""

    def prefill(self, tokens: Sequence[int]) -> Any:
        """The model's part: match, load back, compute the rest, insert it; it is written through and backed up."""

    def evict_device(self, pages: int) -> int:
        """The device forgets pages."""

    def audit(self) -> Sequence[str]:
        """At rest: what is wrong with pages, references, counts and bytes, one line each."""

    def audit_stores(self) -> Sequence[str]:
        """At rest, with healthy stores: what is wrong with the pages that they hold or are said to hold."""

    def flush(self) -> bool:
        """Everything as it was at the start, logs too; False: it does not come to rest."""

    def begin_again(self) -> bool:
        """As `flush`, but the logs go on, and tell of it."""

    def threads_of(self, rank: int) -> Sequence[str]:
        """The names of the threads of this rank: of those that may be slow, or, with `deaths`, die, without taking
        another rank's along."""

    def detach(self) -> bool:
        """Let go of the stores; False: it does not come to rest."""

    def attach(self) -> bool:
        """Go on with the stores; False: it cannot."""
