"""Writes, backups and loads in a log: explained by the parts *copying* and *storing*, and what differs is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from cache_scenario import Scenario, tokens
from edited_logs import Edit, Logs, another, lost, twice
from hicache_checks.conformance.monitor import MonitorConfig
from hicache_checks.conformance.observation import checked
from hicache_checks.conformance.on_its_way import CHAINS, OnItsWay
from hicache_checks.conformance.tree_seen import Unexplained
from hicache_impl.cache import HiCache
from hicache_impl.controller import BackupAck, BackupJob
from recorded_trace import config_of, explain, recorded_tiers

OF_TIERS = ("written", "copied", "backed_up", "stored", "loaded", "arrived")
WAYS = {"at once": {}, "under way": {"async_copies": True}}


@cache
def logs_of(ranks: int, way: str) -> Logs:
    return recorded_tiers(ranks, **WAYS[way])


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("way", WAYS)
def test_whatever_travels_is_explained(ranks: int, way: str) -> None:
    logs = logs_of(ranks, way)
    assert explain(logs, config_of(ranks)) is None
    assert {event.kind for event in logs[0]} >= set(OF_TIERS)
    assert any(event.data["failed"] for event in logs[-1] if event.kind == "backed_up")


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("edits", [lost, twice, another], ids=["lost", "twice", "another"])
def test_every_event_that_differs_is_noticed(ranks: int, way: str, edits: Callable[..., Iterator[Edit]]) -> None:
    for edit in edits(logs_of(ranks, way), OF_TIERS, ()):
        assert explain(edit.logs, config_of(ranks)) is not None, edit.what


# ---- faulty caches


class SaysMore(HiCache):
    """The scheduler counts as stored what its store has refused."""

    def _drain_ack(self, ack: BackupAck) -> None:
        super()._drain_ack(replace(ack, failed_pages=0))


class LastFirst(HiCache):
    """A drain takes the latest of the acks first."""

    def _drain_acks(self, acks: Sequence[BackupAck]) -> None:
        super()._drain_acks(acks[::-1])


class Unprotected(HiCache):
    """What is being stored may be evicted."""

    def _protect_backup(self, job: BackupJob) -> None:
        """Nobody keeps it."""

    def _drain_ack(self, ack: BackupAck) -> None:
        self.tree.protect_host(ack.job.node)
        super()._drain_ack(ack)


def found(ranks: int = 2, **faulty: Any) -> str | None:
    """What the specification says of a faulty cache, whose host is too small for two prompts."""
    scenario = Scenario(ranks=ranks, host_pages=2, threshold_pages=1, **faulty)
    reference = scenario.reference
    scenario.runtime.hold("backup.take")
    reference.prefill(tokens(1, 1))
    reference.prefill(tokens(2, 1))
    reference.break_storage(ranks - 1, "put", "miss")
    reference.evict_device(2)
    reference.prefill(tokens(3, 1))
    scenario.runtime.release_all()
    with suppress(Exception):
        reference.quiesce()
    finding = explain([list(checked(log.take_since(0))) for log in reference.logs()], CONFIG)
    with suppress(Exception):
        reference.close()
    return None if finding is None else finding.property


CONFIG = MonitorConfig(2, 2, 1, 99, "wait_complete")


@pytest.mark.parametrize(
    ("broken", "faulty"),
    [
        (None, {}),
        ("P32 stored_is_stored", {"cache_class": SaysMore}),
        ("sched_take_backup_ack (§11.4)", {"cache_class": LastFirst}),
        ("inv_anchors_alive", {"cache_class": Unprotected}),
    ],
)
def test_a_faulty_cache_is_refused(broken: str | None, faulty: Any) -> None:
    assert found(**faulty) == broken


# ---- what is on its way


def refused(step: Callable[..., Any], *arguments: int) -> str:
    with pytest.raises(Unexplained) as found:
        step(*arguments)
    return f"{found.value.property}: {found.value}"


def test_an_ack_waits_for_every_rank_and_comes_in_order() -> None:
    way = OnItsWay(2)
    for node in (1, 2):
        way.write(node, node)
        way.copied(node, node)
    way.back_up(0, 1, 0)
    assert refused(way.stored, 1, 1).startswith("sched_take_backup_ack (§11.4): refused")
    assert refused(way.back_up, 1, 2, 0) == "backup_put_page (§11.3): its next job has 1 pages"
    way.back_up(1, 1, 1)
    assert refused(way.stored, 2, 2) == "sched_take_backup_ack (§11.4): 1 pages of node 1 are first"
    assert way.stored(1, 1).refused == {0: 0, 1: 1}


def test_a_backup_comes_after_its_copy() -> None:
    way = OnItsWay(1)
    way.write(1, 1)
    assert refused(way.back_up, 0, 1, 0) == "backup_put_page (§11.3): refused: a job waits"
    assert refused(way.copied, 1, 2) == "sched_take_copy (§10.2): 1 pages of node 1 are first"


def test_more_than_the_chains_can_travel() -> None:
    way = OnItsWay(1)
    nodes = range(3 * CHAINS)
    for node in nodes:
        way.write(node, 1)
    for node in nodes:
        way.copied(node, 1)
        way.load(node, 1)
    for node in nodes:
        way.back_up(0, 1, 0)
        way.stored(node, 1)
        way.arrived(node, 1)
    assert way.jobs() == []
    way.write(0, 1)
