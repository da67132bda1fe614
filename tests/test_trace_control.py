"""Detach, attach and reset in a log: each event is explained by the part *control*, and what differs is refused."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from cache_scenario import Scenario, tokens
from hicache_checks.conformance.merge import Merger
from hicache_checks.conformance.monitor import Finding, Monitor
from hicache_checks.conformance.observation import FIELDS, OF_CONTROL, Event, checked, values_of
from hicache_impl.cache import HiCache
from hicache_impl.controller import Controller
from recorded_trace import config_of, recorded_control

Logs = list[list[Event]]
# Why a rank could not start is for people.
FREE = {("start_failed", "reason")}


@cache
def logs_of(ranks: int) -> Logs:
    return recorded_control(ranks)


def explain(logs: Logs) -> Finding | None:
    monitor, merger = Monitor(config_of(len(logs))), Merger(len(logs))
    for rank, log in enumerate(logs):
        merger.push(rank, log)
    for event in merger.ready():
        monitor.feed(event)
    if monitor.finding is None and merger.stuck():
        return Finding("stuck", "", None)
    monitor.finish()
    return monitor.finding


def places(ranks: int) -> list[tuple[int, int]]:
    """Rank and place of each event of control."""
    logs = enumerate(logs_of(ranks))
    return [(rank, place) for rank, log in logs for place, event in enumerate(log) if event.kind in OF_CONTROL]


def edited(ranks: int, rank: int, place: int, *instead: Event) -> Logs:
    logs = [list(log) for log in logs_of(ranks)]
    logs[rank][place : place + 1] = instead
    return logs


@pytest.mark.parametrize("ranks", [1, 2])
def test_everything_that_control_has_is_explained(ranks: int) -> None:
    assert explain(logs_of(ranks)) is None
    assert {event.kind for log in logs_of(ranks) for event in log} >= set(OF_CONTROL)


@pytest.mark.parametrize("ranks", [1, 2])
def test_every_event_that_is_lost_is_noticed(ranks: int) -> None:
    for rank, place in places(ranks):
        event = logs_of(ranks)[rank][place]
        assert explain(edited(ranks, rank, place)) is not None, f"without {event}"


@pytest.mark.parametrize("ranks", [1, 2])
def test_every_event_that_happened_twice_is_noticed(ranks: int) -> None:
    for rank, place in places(ranks):
        event = logs_of(ranks)[rank][place]
        assert explain(edited(ranks, rank, place, event, event)) is not None, f"twice {event}"


@pytest.mark.parametrize("ranks", [1, 2])
def test_every_event_that_is_another_is_noticed(ranks: int) -> None:
    for rank, place in places(ranks):
        event = logs_of(ranks)[rank][place]
        alike = (kind for kind in OF_CONTROL if FIELDS[kind] == FIELDS[event.kind] and kind != event.kind)
        others = [replace(event, kind=kind) for kind in alike]
        for name, value in event.data.items():
            if (event.kind, name) not in FREE:
                words = values_of(event.kind, name).words.split(", ")
                others += [replace(event, data={name: word}) for word in words if word != value]
        for other in others:
            if ranks == 1 and is_given_up(place) and {event.kind, other.kind} == {"detaching", "resetting"}:
                continue
            assert explain(edited(ranks, rank, place, other)) is not None, f"{other} for {event}"


def is_given_up(place: int) -> bool:
    """Is this the beginning of a call that nothing comes of? Then a single rank's log does not say of which."""
    later = (event.kind for event in logs_of(1)[0][place + 1 :] if event.kind in OF_CONTROL)
    return next(later, None) == "kept"


# ---- faulty caches


def live(scenario: Scenario) -> None:
    """A request is on its way while the store is detached; it is attached again, and the cache is reset."""
    reference = scenario.reference
    scenario.fetch("a", tokens(1, 2))
    reference.store(tokens(2, 2))
    reference.submit("b", tokens(2, 2))
    reference.detach()
    reference.submit("c", tokens(3, 2))
    reference.attach()
    scenario.fetch("c", tokens(3, 2))
    reference.begin_again()
    scenario.fetch("a", tokens(4, 2))


def found(*, cache: type[HiCache] = HiCache, controller: type[Controller] = Controller, ranks: int = 2) -> str | None:
    """What the specification says of such a life of a faulty cache."""
    host_pages = config_of(ranks).host_pages
    scenario = Scenario(
        cache_class=cache, controller_class=controller, ranks=ranks, host_pages=host_pages, threshold_pages=1
    )
    try:
        live(scenario)
        scenario.reference.quiesce()
    except Exception:
        # What went wrong is in the logs.
        pass
    logs = [list(checked(log.take_since(0))) for log in scenario.reference.logs()]
    finding = explain(logs)
    scenario.reference.close()
    return None if finding is None else finding.property


class ForgetsNobody(HiCache):
    """A detach leaves what is pending."""

    def _let_go(self, call: str, timeout_s: float) -> None:
        records, self.records = self.records, {}
        super()._let_go(call, timeout_s)
        self.records = records


class KeepsAttempts(HiCache):
    """A reset does not forget how often a request came."""

    def _begin(self) -> None:
        attempts = getattr(self, "attempts", {})
        super()._begin()
        self.attempts = attempts


class KeepsPages(HiCache):
    """A reset leaves a page of the host pool with nobody."""

    def _reset_pools(self) -> None:
        super()._reset_pools()
        self.host.allocator.alloc(1)


class AdmitsWhileDetached(HiCache):
    """A submission is declined for another reason than that there is no store."""

    def _decline(self, rid: str, attempt: int, reason: str, base: int, span: int) -> Any:
        return super()._decline(rid, attempt, "limited" if reason == "detached" else reason, base, span)


class LeavesAThread(Controller):
    """A detach does not end the IO thread."""

    def close(self, timeout_s: float) -> list[str]:
        threads, self._threads = self._threads, self._threads[:1]
        stuck = super().close(timeout_s)
        self._threads = threads
        return stuck

    def _items(self, queue: Any) -> Any:
        yield from super()._items(queue)
        if queue is self.prefetch_buffer:
            # It goes on as if nothing had been said.
            yield from super()._items(queue)


@pytest.mark.parametrize(
    ("broken", "faulty"),
    [
        (None, {}),
        ("inv_nothing_is_pending_unless_attached", {"cache": ForgetsNobody}),
        ("inv_records_name_their_attempt", {"cache": KeepsAttempts}),
        ("inv_pages_conserved", {"cache": KeepsPages}),
        ("step_declined_as_detached_for_cause", {"cache": AdmitsWhileDetached}),
        ("sched_let_go (§13.2)", {"controller": LeavesAThread}),
    ],
)
def test_a_faulty_cache_is_refused(broken: str | None, faulty: Any) -> None:
    assert found(**faulty) == broken
