"""A monitor on a running adapter: reads its logs after each call and holds them, and what is observed, to the spec."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable

from hicache_checks.conformance.adapter import EventfulAdapter
from hicache_checks.conformance.merge import Merger
from hicache_checks.conformance.monitor import Finding, Monitor, MonitorConfig
from hicache_checks.conformance.observation import Event, OpId, checked

RECENT = 12


class Watch:
    """Collects the events of all ranks, merges them and feeds the monitor.

    `timeout_s`: when the policy `timeout` gives up; `seconds` is the clock, which whoever moves it sets. Where time
    passes during a call, `earlier` is when the call began: what happened in it, happened between the two.
    """

    def __init__(
        self,
        adapter: EventfulAdapter,
        config: MonitorConfig,
        timeout_s: float = 0.0,
        monitor: Callable[[MonitorConfig, Callable[[OpId], bool]], Monitor] = Monitor,
    ) -> None:
        self.seconds = 0.0
        self.earlier: float | None = None
        self.outcomes: Counter[str] = Counter()
        self.recent: deque[Event] = deque(maxlen=RECENT)
        self._adapter = adapter
        self._timeout_s = timeout_s
        self._submitted: dict[OpId, tuple[float, float]] = {}
        self._certainly = False
        self._merger = Merger(config.ranks)
        self._taken = [0] * config.ranks
        self.monitor = monitor(config, self._is_late)

    @property
    def finding(self) -> Finding | None:
        """The first thing that the specification does not explain."""
        return self.monitor.finding

    def look(self, compare: bool = True) -> None:
        """Explain what happened since the last look, then compare the state with what can be observed."""
        for rank, log in enumerate(self._adapter.logs()):
            events = list(checked(log.take_since(self._taken[rank])))
            self._taken[rank] += len(events)
            self._merger.push(rank, events)
        for event in self._merger.ready():
            self._see(event)
            self.monitor.feed(event)
            if self.finding is not None:
                return
        if compare:
            self.monitor.compare(self._adapter.observe())

    def _see(self, event: Event) -> None:
        self.recent.append(event)
        if event.kind == "submitted" and event.op is not None:
            self._submitted.setdefault(event.op, self._now())
        elif event.kind == "resetting":
            self._submitted.clear()
        if event.rank == 0:
            self.outcomes[outcome(event)] += 1

    def due(self, rids: Iterable[str]) -> list[OpId]:
        """The pending operations of these requests that a poll from now on certainly has to end."""
        self._certainly = True
        try:
            return self.monitor.due(rids)
        finally:
            self._certainly = False

    def _is_late(self, op: OpId) -> bool:
        """Whether its time may be over by now; while `due` asks, whether it was over when the call began."""
        (earliest, latest), (earlier, now) = self._submitted[op], self._now()
        return (earlier - latest if self._certainly else now - earliest) > self._timeout_s

    def _now(self) -> tuple[float, float]:
        return self.seconds if self.earlier is None else self.earlier, self.seconds


def outcome(event: Event) -> str:
    """What an event says about how a run went, for counting."""
    if event.kind in ("revoked", "declined", "io_failed"):
        return f"{event.kind}: {event.data['reason']}"
    if event.kind == "fetched":
        return "fetched: all" if event.data["reason"] == "complete" else f"fetched: {event.data['reason']}"
    if event.kind == "allocated" and event.data["pages"] < event.data["hit"]:
        return "allocated: shorter"
    return event.kind
