"""What one rank tells of itself while it runs: metrics, lines of a log, and which pages its tiers have.

Most of it is taken from the events that the rank logs anyway, so what is told cannot differ from what is checked; the
tiers tell the rest. Without a Telemetry, which is the default, nothing is told and nothing is counted.
"""

from __future__ import annotations

import logging
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hicache_impl import events
from hicache_impl.config import CacheConfig
from hicache_impl.events import Log, OpId
from hicache_impl.json_lines import write_event
from hicache_impl.kv_events import KvEvent, KvEvents
from hicache_impl.metrics import HOST, NOWHERE, STORAGE, Metrics
from hicache_impl.runtime import Runtime

IO_ENDS = (events.IO_LANDED, events.IO_UNCOUNTED, events.IO_FAILED)


class Telemetry:
    """Of one rank. `logger` gets every event as a JSON line (see json_lines), `take` every KV event; None: neither."""

    def __init__(
        self,
        config: CacheConfig,
        rank: int,
        runtime: Runtime,
        *,
        logger: logging.Logger | None = None,
        take: Callable[[KvEvent], None] | None = None,
    ) -> None:
        self.rank = rank
        slot_bytes = {pool.name: pool.slot_bytes for pool in config.pools if pool.place == "separate"}
        self.metrics = Metrics(rank, config.stored_bytes, runtime.lock, slot_bytes)
        self.kv = None if take is None else KvEvents(rank, take)
        self._runtime = runtime
        self._logger = logger
        self._submitted_s: dict[OpId, float] = {}
        self._written_s: dict[tuple[int, int], deque[float]] = defaultdict(deque)
        self._started_s: dict[OpId, float] = {}

    def listening(self, log: Log) -> Log:
        """A log that hands on what it gets, and tells it here."""
        return _Listening(log, self)

    def hear(self, kind: str, op: OpId | None, data: dict[str, Any]) -> None:
        """An event of this rank, from whichever thread."""
        if self._logger is not None:
            write_event(self._logger, self.rank, kind, op, data)
        if kind == events.IO_STARTED and op is not None:
            # The IO thread reads one page at a time.
            self._started_s[op] = self._runtime.now()
        elif kind in IO_ENDS and op is not None:
            self._count_read(kind, op, data)
        elif kind in (events.SUBMITTED, events.DECLINED, events.REVOKED, events.FETCHED) and op is not None:
            self._hear_operation(kind, op, data)
        elif kind in (events.EVICTED, events.WRITTEN, events.STORED):
            self._hear_host(kind, data)

    def moved(self, source: str, target: str, reason: str, pages: int, seconds: float | None = None) -> None:
        """See Metrics.count_move."""
        self.metrics.count_move(source, target, reason, pages, seconds)

    def slots_moved(self, source: str, target: str, reason: str, slots: Mapping[str, int]) -> None:
        """So many of each pool; see Metrics.count_slots."""
        for pool, count in slots.items():
            self.metrics.count_slots(pool, source, target, reason, count)

    def _count_read(self, kind: str, op: OpId, data: dict[str, Any]) -> None:
        began_s = self._started_s.pop(op, None)
        reason = data.get("reason", kind.removeprefix("io_"))
        self.moved(STORAGE, HOST, reason, int(kind == events.IO_LANDED), self._since(began_s))

    def _hear_operation(self, kind: str, op: OpId, data: dict[str, Any]) -> None:
        if kind == events.SUBMITTED:
            self._submitted_s[op] = self._runtime.now()
        else:
            self.metrics.count_end(kind, data["reason"], self._since(self._submitted_s.pop(op, None)))

    def _hear_host(self, kind: str, data: dict[str, Any]) -> None:
        if kind == events.EVICTED:
            self.moved(HOST, NOWHERE, "evicted", data["pages"])
            return
        waiting = self._written_s[data["node"], data["pages"]]
        if kind == events.WRITTEN:
            waiting.append(self._runtime.now())
            return
        seconds = self._since(waiting.popleft() if waiting else None)
        if not waiting:
            del self._written_s[data["node"], data["pages"]]
        for reason, pages in (("stored", data["pages"] - data["failed"]), ("refused", data["failed"])):
            if pages:
                self.moved(HOST, STORAGE, reason, pages, seconds)

    def _since(self, began_s: float | None) -> float | None:
        return None if began_s is None else self._runtime.now() - began_s

    # Pages of the tiers, and what is beside them.

    def stored(self, tier: str, hashes: Sequence[bytes], parent: bytes | None, pool: str | None = None) -> None:
        """See KvEvents."""
        if self.kv is not None:
            self.kv.stored(tier, hashes, parent, pool)

    def removed(self, tier: str, hashes: Sequence[bytes], parent: bytes | None, pool: str | None = None) -> None:
        """See KvEvents."""
        if self.kv is not None:
            self.kv.removed(tier, hashes, parent, pool)

    def cleared(self) -> None:
        """The cache begins again: what was on its way, is not."""
        for kept in (self._submitted_s, self._written_s, self._started_s):
            kept.clear()
        if self.kv is not None:
            self.kv.cleared()


class _Listening:
    """A log that tells a Telemetry, too."""

    def __init__(self, log: Log, telemetry: Telemetry) -> None:
        self._log = log
        self._telemetry = telemetry

    def emit(self, kind: str, op: OpId | None = None, **data: Any) -> None:
        """Take one event, from any thread."""
        self._log.emit(kind, op, **data)
        self._telemetry.hear(kind, op, data)
