"""What a rank tells of itself: metrics and their text, lines of a log, and which pages each tier has."""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cache_scenario import SIZES, Scenario, tokens
from hicache_checks.conformance.stateful import run_stateful
from hicache_impl.adapter import Reference
from hicache_impl.config import WRITE_POLICIES, CacheConfig
from hicache_impl.json_lines import JsonFormatter
from hicache_impl.kv_events import KvEvent, told_pages
from hicache_impl.metrics import BUCKETS_S, Durations
from hicache_impl.prometheus import CacheCollector, prometheus_text
from hicache_impl.runtime import Runtime
from hicache_impl.telemetry import Telemetry

PAGE_BYTES = SIZES["page_bytes"]


class Told(Scenario):
    """A scenario that keeps what is told: `kv` by rank, and the telemetry of each rank."""

    def __init__(self, logger: logging.Logger | None = None, **config: Any) -> None:
        self.kv: dict[int, list[KvEvent]] = defaultdict(list)
        self.telemetries: list[Telemetry] = []
        self._logger = logger
        super().__init__(telemetry=self._open, **config)

    def _open(self, config: CacheConfig, rank: int, runtime: Runtime) -> Telemetry:
        made = Telemetry(config, rank, runtime, logger=self._logger, take=self.kv[rank].append)
        self.telemetries.append(made)
        return made

    def moved(self, rank: int = 0) -> dict[tuple[str, str, str], tuple[int, int, int]]:
        """Count, pages, bytes."""
        moves = self.telemetries[rank].metrics.moved()
        return {key: (moved.count, moved.pages, moved.bytes) for key, moved in moves.items()}


def pages_of(cache: Any, tier: str) -> set[bytes]:
    """The hashes that the tree of this rank has on a tier."""
    return {h for node in cache.tree.nodes() if getattr(node, tier) is not None for h in node.hashes}


class TestMetrics:
    @pytest.mark.parametrize("async_copies", [False, True])
    def test_what_moved_and_why(self, async_copies: bool) -> None:
        s = Told(ranks=2, async_copies=async_copies)
        s.reference.prefill(tokens(1, 3))
        s.reference.quiesce()
        s.reference.evict_device(3)
        s.reference.prefill(tokens(1, 3))
        s.fetch("a", tokens(2, 4))
        for rank in s.ranks:
            assert s.moved(rank) == {
                ("device", "host", "write_through"): (1, 3, 3 * PAGE_BYTES),
                ("host", "storage", "stored"): (1, 3, 3 * PAGE_BYTES),
                ("device", "nowhere", "evicted"): (1, 3, 3 * PAGE_BYTES),
                ("host", "device", "load_back"): (1, 3, 3 * PAGE_BYTES),
                ("storage", "host", "landed"): (4, 4, 4 * PAGE_BYTES),
            }
            assert {key: ended.count for key, ended in s.telemetries[rank].metrics.ended().items()} == {
                ("fetched", "complete"): 1
            }
        s.finish()

    def test_what_did_not_move(self) -> None:
        s = Told(host_pages=4, write_policy="write_back")
        s.reference.faults[0].miss("put")
        s.reference.prefill(tokens(1, 3))
        s.reference.evict_device(3)
        s.reference.quiesce()
        s.reference.prefill(tokens(2, 5))
        s.reference.evict_device(5)
        assert s.moved()[("host", "storage", "refused")] == (1, 3, 3 * PAGE_BYTES)
        assert s.moved()[("device", "nowhere", "dropped")] == (1, 5, 5 * PAGE_BYTES)
        s.submit("a", tokens(3, 4))
        s.reference.faults[0].miss("get")
        s.turn()
        s.poll("a")
        assert s.moved()[("host", "nowhere", "evicted")] == (1, 3, 3 * PAGE_BYTES)
        assert s.moved()[("storage", "host", "miss")] == (1, 0, 0)
        s.reference.submit("b", tokens(4, 1))
        ended = s.telemetries[0].metrics.ended()
        assert ended["declined", "too_short"].count == 1
        assert ended["fetched", "failed_page"].count == 1
        s.finish()

    def test_how_long_it_took(self) -> None:
        s = Told(async_copies=True)
        s.runtime.hold("write.landed")
        s.runtime.hold("io.copied")
        s.submit("a", tokens(2, 2))
        s.reference.prefill(tokens(1, 3))
        s.turn()
        s.runtime.advance(2.5)
        s.runtime.release_all()
        s.turn()
        s.poll("a")
        s.reference.quiesce()
        moved = s.telemetries[0].metrics.moved()
        for key in (("device", "host", "write_through"), ("host", "storage", "stored"), ("storage", "host", "landed")):
            assert moved[key].durations.seconds == 2.5, key
        assert moved["storage", "host", "landed"].durations.count == 2
        assert s.telemetries[0].metrics.ended()["fetched", "complete"].durations.seconds == 2.5
        s.finish()

    def test_a_duration_is_in_the_first_bucket_that_holds_it(self) -> None:
        durations = Durations()
        for seconds in (0.0, BUCKETS_S[0], BUCKETS_S[-1], BUCKETS_S[-1] + 1):
            durations.add(seconds)
        assert durations.buckets == [2, *[0] * (len(BUCKETS_S) - 2), 1]
        assert (durations.longer, durations.count) == (1, 4)


SLOT_BYTES = 16
DRAFT = {"name": "draft", "kind": "sidecar", "layer_bytes": SLOT_BYTES}
STATE = {"name": "state", "kind": "state", "host_slots": 2, "device_slots": 2, "layer_bytes": SLOT_BYTES}


class TestSlots:
    @pytest.mark.parametrize("async_copies", [False, True])
    def test_what_moved_beside_pages(self, async_copies: bool) -> None:
        s = Told(ranks=2, async_copies=async_copies, tree="hi_mamba", pools=[DRAFT, {**STATE, "replicated": True}])
        s.reference.prefill(tokens(1, 3))
        s.reference.quiesce()
        s.reference.evict_device(3)
        s.reference.prefill(tokens(1, 3))
        s.fetch("a", tokens(2, 4))
        s.reference.quiesce()
        for rank in s.ranks:
            moved = s.telemetries[rank].metrics.moved_slots()
            assert {key: (of.slots, of.bytes) for key, of in moved.items()} == {
                ("draft", "device", "host", "write_through"): (3, 3 * SLOT_BYTES),
                ("state", "device", "host", "write_through"): (1, SLOT_BYTES),
                ("draft", "host", "storage", "stored"): (3, 3 * SLOT_BYTES),
                **({("state", "host", "storage", "stored"): (1, SLOT_BYTES)} if rank == 0 else {}),
                ("draft", "device", "nowhere", "evicted"): (3, 3 * SLOT_BYTES),
                ("state", "device", "nowhere", "evicted"): (1, SLOT_BYTES),
                ("draft", "host", "device", "load_back"): (3, 3 * SLOT_BYTES),
                ("state", "host", "device", "load_back"): (1, SLOT_BYTES),
                ("draft", "storage", "host", "landed"): (4, 4 * SLOT_BYTES),
                ("state", "storage", "host", "landed"): (1, SLOT_BYTES),
            }
        text = prometheus_text(CacheCollector([telemetry.metrics for telemetry in s.telemetries]))
        label = '{pool="draft",rank="1",reason="landed",source="storage",target="host"}'
        assert f"hicache_moved_slots_total{label} 4.0" in text
        assert f"hicache_moved_slot_bytes_total{label} {4.0 * SLOT_BYTES}" in text
        s.finish()

    def test_what_the_store_refused_or_lost(self) -> None:
        s = Told(pools=[DRAFT])
        s.reference.faults[0].miss("put")
        s.reference.prefill(tokens(1, 3))
        s.turn()
        assert s.telemetries[0].metrics.moved_slots()["draft", "host", "storage", "refused"].slots == 3
        s.reference.heal_storage()
        s.submit("a", tokens(2, 2))
        s.reference.lose(0, tokens(2, 1))
        s.turn()
        lost = s.telemetries[0].metrics.moved_slots()["draft", "storage", "host", "miss"]
        assert (lost.count, lost.slots) == (1, 0)
        s.poll("a")
        s.finish()

    def test_what_is_on_its_way_is_told_when_all_ranks_have_it(self) -> None:
        s = Told(ranks=2, async_copies=True, pools=[DRAFT])
        s.runtime.hold("write.landed", 1)
        s.reference.prefill(tokens(1, 3))
        s.turn()
        assert [event.tier for event in s.kv[0] if event.pool == "draft"] == ["device"]
        s.runtime.release_all()
        s.turn()
        s.turn()
        told = [(event.kind, event.tier, len(event.hashes)) for event in s.kv[0] if event.pool == "draft"]
        assert told == [("stored", tier, 3) for tier in ("device", "host", "storage")]
        assert told_pages(s.kv[0]) == {tier: set(s.kv[0][0].hashes) for tier in ("device", "host", "storage")}
        s.finish()

    def test_a_state_goes_while_its_pages_stay(self) -> None:
        s = Told(tree="hi_mamba", pools=[{**STATE, "host_slots": 1}])
        s.reference.prefill(tokens(1, 2))
        s.reference.quiesce()
        s.reference.prefill(tokens(2, 2))
        s.reference.quiesce()
        told = [(event.kind, event.tier) for event in s.kv[0] if event.pool == "state" and event.tier == "host"]
        assert told == [("stored", "host"), ("removed", "host"), ("stored", "host")]
        assert len(told_pages(s.kv[0])["host"]) == 4
        s.finish()

    def test_a_listener_notices_what_is_wrong(self) -> None:
        told = [KvEvent(0, 0, "stored", "host", (b"page",)), KvEvent(0, 1, "stored", "host", (b"page",), pool="draft")]
        assert told_pages(told)["host"] == {b"page"}
        with pytest.raises(ValueError, match="P29 1 pages are told stored on the host a second time"):
            told_pages([*told, KvEvent(0, 2, "stored", "host", (b"page",), pool="draft")])
        again = [KvEvent(0, 2, "cleared", ""), KvEvent(0, 3, "stored", "host", (b"page",), pool="draft")]
        assert told_pages([*told, *again])["host"] == set()


class TestPrometheus:
    def samples(self, text: str) -> Iterator[tuple[str, dict[str, str], float]]:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                yield sample.name, dict(sample.labels), sample.value

    def test_the_text_says_what_was_counted(self) -> None:
        s = Told(ranks=2, async_copies=True)
        s.fetch("a", tokens(1, 3))
        s.reference.prefill(tokens(2, 2))
        s.reference.quiesce()
        metrics = [telemetry.metrics for telemetry in s.telemetries]
        text = prometheus_text(CacheCollector(metrics, lambda: s.reference.observe()["ranks"]))
        found = list(self.samples(text))
        down = {"rank": "1", "source": "device", "target": "host", "reason": "write_through"}
        assert ("hicache_moved_pages_total", down, 2.0) in found
        assert ("hicache_moved_bytes_total", down, 2.0 * PAGE_BYTES) in found
        assert ("hicache_moves_total", down, 1.0) in found
        assert ("hicache_move_seconds_count", down, 1.0) in found
        assert ("hicache_move_seconds_bucket", {**down, "le": "+Inf"}, 1.0) in found
        assert ("hicache_operations_total", {"rank": "0", "state": "fetched", "reason": "complete"}, 1.0) in found
        seen = s.reference.observe()
        for name in ("free_pages", "resident_pages", "device_free_pages"):
            assert (f"hicache_{name}", {"rank": "0"}, float(seen[name])) in found
        s.finish()

    def test_buckets_add_up(self) -> None:
        s = Told()
        for seconds in (0.0, 0.002, 99.0):
            s.telemetries[0].moved("device", "host", "write_through", 1, seconds)
        found = list(self.samples(prometheus_text(CacheCollector([s.telemetries[0].metrics]))))
        counts = [value for name, _, value in found if name == "hicache_move_seconds_bucket"]
        assert counts == sorted(counts)
        assert (counts[0], counts[-2], counts[-1]) == (1.0, 2.0, 3.0)
        assert not any(name.startswith("hicache_free") for name, _, _ in found), "nobody observes"
        s.finish()


class TestLog:
    def lines(self, level: int) -> tuple[logging.Logger, list[dict[str, Any]]]:
        written: list[dict[str, Any]] = []

        class Kept(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                written.append(json.loads(self.format(record)))

        logger, handler = logging.Logger("told", level), Kept()
        handler.setFormatter(JsonFormatter())
        logger.addHandler(handler)
        return logger, written

    def test_each_event_is_a_line(self) -> None:
        logger, written = self.lines(logging.DEBUG)
        s = Told(logger, ranks=2)
        s.fetch("a", tokens(1, 3))
        s.reference.prefill(tokens(2, 2))
        s.reference.quiesce()
        for rank in s.ranks:
            events = [event for event in s.reference.logs()[rank].take_since(0) if event.kind not in ("joined", "left")]
            lines = [line for line in written if line["rank"] == rank]
            assert len(lines) == len(events)
            assert {(line["event"], line.get("pages")) for line in lines} == {
                (event.kind, event.data.get("pages")) for event in events
            }
        fetched = next(line for line in written if line["event"] == "fetched")
        assert (fetched["op"], fetched["pages"], fetched["reason"]) == (["a", 1], 3, "complete")
        assert (fetched["level"], next(line for line in written if line["event"] == "io_landed")["level"]) == (
            "info",
            "debug",
        )
        s.finish()

    def test_the_level_says_how_much(self) -> None:
        logger, written = self.lines(logging.WARNING)
        s = Told(logger)
        s.submit("a", tokens(1, 3))
        s.reference.faults[0].raise_on("get")
        s.turn()
        assert [(line["event"], line["level"], line["reason"]) for line in written] == [
            ("io_failed", "warning", "raised")
        ]
        s.poll("a")
        s.finish()

    def test_other_records_are_lines_too(self) -> None:
        logger, written = self.lines(logging.INFO)
        logger.info("%d pages", 3)
        (line,) = written
        assert line.pop("time") > 0
        assert line == {"level": "info", "logger": "told", "message": "3 pages"}

    def test_without_a_logger_nothing_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.DEBUG):
            s = Told()
            s.fetch("a", tokens(1, 3))
            s.finish()
        assert not [record for record in caplog.records if record.name.startswith("hicache")]


class TestKvEvents:
    def test_one_event_for_each_store(self) -> None:
        s = Told(ranks=2)
        s.reference.prefill(tokens(1, 3))
        s.turn()
        hashes = s.reference.caches[0].tree.root.children[s.reference.key(tokens(1, 1)).pages[0]].hashes
        for rank in s.ranks:
            assert [(e.kind, e.tier, e.hashes) for e in s.kv[rank]] == [
                ("stored", tier, hashes) for tier in ("device", "host", "storage")
            ]
        s.reference.evict_device(3)
        assert [(e.kind, e.tier) for e in s.kv[0][3:]] == [("removed", "device")]
        s.finish()

    def test_the_parent_is_the_page_before(self) -> None:
        s = Told()
        s.reference.prefill(tokens(1, 2))
        s.reference.prefill(tokens(1, 3))
        first, second = [event for event in s.kv[0] if event.tier == "device"]
        assert second.parent == first.hashes[-1]
        assert json.loads(second.as_json()) == {
            "rank": 0,
            "number": second.number,
            "kind": "stored",
            "tier": "device",
            "hashes": [page_hash.hex() for page_hash in second.hashes],
            "parent": first.hashes[-1].hex(),
            "pool": None,
        }
        s.finish()

    def test_what_is_on_its_way_is_told_when_all_ranks_have_it(self) -> None:
        s = Told(ranks=2, async_copies=True)
        s.runtime.hold("write.landed", 1)
        s.reference.prefill(tokens(1, 3))
        s.turn()
        assert [event.tier for event in s.kv[0]] == ["device"]
        s.runtime.release_all()
        s.turn()
        assert [event.tier for event in s.kv[0][:2]] == ["device", "host"]
        s.finish()

    def test_what_is_loaded_is_told_when_it_is_there(self) -> None:
        s = Told(async_copies=True)
        s.fetch("a", tokens(1, 3))
        s.runtime.hold("load.take")
        cache = s.reference.caches[0]
        cache.load_back(cache.match(s.reference.key(tokens(1, 3))))
        s.turn()
        assert [event.tier for event in s.kv[0]] == ["host"]
        s.runtime.release_all()
        s.turn()
        assert [event.tier for event in s.kv[0]] == ["host", "device"]
        s.finish()

    def test_a_refused_backup_is_not_told(self) -> None:
        s = Told()
        s.reference.faults[0].miss("put", times=1)
        s.reference.prefill(tokens(1, 2))
        s.turn()
        assert [event.tier for event in s.kv[0]] == ["device", "host"]
        s.finish()

    def test_a_flush_clears(self) -> None:
        s = Told()
        s.reference.prefill(tokens(1, 2))
        s.turn()
        assert s.reference.flush()
        assert s.kv[0][-1].kind == "cleared"
        s.reference.prefill(tokens(1, 2))
        known = told_pages(s.kv[0])
        assert known["device"] == pages_of(s.reference.caches[0], "device") != set()
        s.finish()

    def test_a_listener_notices_what_is_wrong(self) -> None:
        page = (b"page",)
        stored = KvEvent(0, 0, "stored", "host", page)
        with pytest.raises(ValueError, match="P29 1 pages are told stored on the host a second time"):
            told_pages([stored, KvEvent(0, 1, "stored", "host", page)])
        with pytest.raises(ValueError, match="P29 pages are told removed that were not on the device"):
            told_pages([stored, KvEvent(0, 1, "removed", "device", page)])
        with pytest.raises(ValueError, match="event 1 is missing, 2 came"):
            told_pages([stored, KvEvent(0, 2, "removed", "host", page)])

    @pytest.mark.heavy
    @pytest.mark.parametrize("async_copies", [False, True])
    @pytest.mark.parametrize("write_policy", WRITE_POLICIES)
    def test_what_is_told_is_what_the_tree_has(self, write_policy: str, async_copies: bool) -> None:
        checked: list[int] = []

        class Listened(Reference):
            """Its audit compares what was told with the tree."""

            def __init__(self) -> None:
                self.told: dict[int, list[KvEvent]] = defaultdict(list)
                super().__init__(
                    settings={"write_policy": write_policy, "async_copies": async_copies}, telemetry=self._open
                )

            def _open(self, config: CacheConfig, rank: int, runtime: Runtime) -> Telemetry:
                return Telemetry(config, rank, runtime, take=self.told[rank].append)

            def audit(self) -> list[str]:
                problems = super().audit()
                for cache in self.caches:
                    known = told_pages(self.told[cache.rank])
                    checked.append(len(self.told[cache.rank]))
                    problems += [
                        f"P29 of the {tier} other pages are told than it has"
                        for tier in ("device", "host")
                        if known[tier] != pages_of(cache, tier)
                    ]
                return problems

        run = run_stateful(Listened, 2, "wait_complete", 60)
        assert run.failure is None, run.failure
        assert sum(checked) > 100
