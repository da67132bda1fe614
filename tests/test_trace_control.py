"""Detach, attach and reset in a log: each event is explained by the part *control*, and what differs is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from cache_scenario import Scenario, tokens
from edited_logs import Edit, Logs, another, lost, twice
from hicache_checks.conformance.observation import OF_CONTROL, checked
from hicache_impl.cache import HiCache
from hicache_impl.controller import Controller
from recorded_trace import config_of, explain, recorded_control

# Why a rank could not start is for people.
FREE = {("start_failed", "reason")}


@cache
def logs_of(ranks: int) -> Logs:
    return recorded_control(ranks)


@pytest.mark.parametrize("ranks", [1, 2])
def test_everything_that_control_has_is_explained(ranks: int) -> None:
    assert explain(logs_of(ranks), config_of(ranks)) is None
    assert {event.kind for log in logs_of(ranks) for event in log} >= set(OF_CONTROL)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("edits", [lost, twice, another], ids=["lost", "twice", "another"])
def test_every_event_that_differs_is_noticed(ranks: int, edits: Callable[..., Iterator[Edit]]) -> None:
    for edit in edits(logs_of(ranks), OF_CONTROL, FREE):
        if ranks == 1 and is_given_up(edit):
            continue
        assert explain(edit.logs, config_of(ranks)) is not None, edit.what


def is_given_up(edit: Edit) -> bool:
    """Is it another name of a call that nothing comes of? A single rank's log does not say which call it was."""
    later = (event.kind for event in logs_of(1)[0][edit.place + 1 :] if event.kind in OF_CONTROL)
    return edit.kinds == {"detaching", "resetting"} and next(later, None) == "kept"


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
    finding = explain(logs, config_of(ranks))
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
