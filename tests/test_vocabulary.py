"""The specification's and the implementation's tables, written independently, say the same."""

from __future__ import annotations

from hicache_checks.conformance import monitor
from hicache_impl import cache, operation
from hicache_impl import events as impl_events
from hicache_spec import events as spec_events
from hicache_spec import lifecycle
from hicache_spec.state import REASON


def test_the_life_cycles_have_the_same_edges() -> None:
    assert operation.EDGES == lifecycle.EDGES
    assert set(operation.STATES) == set(lifecycle.STATES)
    assert set(operation.FINAL) == set(lifecycle.FINAL)
    assert operation.TRIGGERS == lifecycle.TRIGGERS


def test_the_vocabularies_have_the_same_events() -> None:
    assert impl_events.LOCKSTEP_FIELDS == spec_events.LOGGED_LOCKSTEP
    assert impl_events.THREAD_FIELDS == spec_events.LOGGED_THREAD


def test_every_event_of_the_specification_can_be_logged() -> None:
    logged = {**spec_events.LOGGED_LOCKSTEP, **spec_events.LOGGED_THREAD}
    assert spec_events.EVENTS.keys() <= logged.keys()
    for kind in spec_events.LOCKSTEP:
        assert kind.name in spec_events.LOGGED_LOCKSTEP
    for kind in spec_events.THREAD:
        assert kind.name in spec_events.LOGGED_THREAD


def test_reasons_are_spelt_alike() -> None:
    revokes = {operation.BELOW_THRESHOLD, operation.NO_MEMORY, operation.STOP, operation.ABORT}
    declines = {cache.PENDING, cache.TOO_SHORT, cache.LIMITED}
    assert revokes | declines == set(REASON.members)
    assert set(monitor.DECLINES) == declines
    of_an_implementation = (monitor.TREE_DECLINES, monitor.STORE_DECLINES)
    assert of_an_implementation == (cache.ANCHOR, cache.DETACHED), "the reasons that the specification does not have"
