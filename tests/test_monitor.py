"""The monitor: merging logs, explaining them, and refusing what did not happen that way."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cache_scenario import Scenario, tokens
from hicache_checks.conformance.logs import explain_logs
from hicache_checks.conformance.merge import Merger
from hicache_checks.conformance.monitor import Finding, Monitor, MonitorConfig
from hicache_checks.conformance.observation import Event, LogError, checked, read_log

CONFIG = MonitorConfig(ranks=2, host_pages=6, threshold_pages=1, limit_pages=99, policy="wait_complete")


def recorded() -> list[list[Event]]:
    """Two ranks that fetch three pages, abort one request, fail a page, write through and evict: their logs."""
    scenario = Scenario(ranks=2, host_pages=6, threshold_pages=1)
    reference = scenario.reference
    scenario.fetch("whole", tokens(1, 3))
    scenario.submit("gone", tokens(2, 2))
    scenario.turn()
    reference.abort("gone")
    scenario.submit("early", tokens(6, 1))
    reference.abort("early")
    scenario.submit("miss", tokens(3, 2), stored=0)
    scenario.turn()
    reference.break_storage(1, "get", "miss")
    scenario.submit("half", tokens(4, 3))
    scenario.turn()
    assert scenario.poll("half")[:2] == (True, "fetched")
    reference.heal_storage()
    reference.quiesce()
    reference.prefill(tokens(5, 4))
    reference.quiesce()
    logs = [list(checked(log.take_since(0))) for log in reference.logs()]
    reference.close()
    return logs


LOGS = recorded()


def explain(logs: list[list[Event]], config: MonitorConfig = CONFIG) -> Finding | None:
    monitor, merger = Monitor(config), Merger(len(logs))
    for rank, log in enumerate(logs):
        merger.push(rank, log)
    for event in merger.ready():
        monitor.feed(event)
    if monitor.finding is None and merger.stuck():
        return Finding("stuck", "", None)
    monitor.finish()
    return monitor.finding


def test_what_happened_is_explained() -> None:
    assert explain(LOGS) is None
    kinds = {event.kind for event in LOGS[0]}
    assert {"fetched", "revoked", "allocated", "marked", "evicted", "written", "stored", "reclaimed"} <= kinds


@settings(suppress_health_check=list(HealthCheck), max_examples=15)
@given(st.data())
def test_any_order_that_respects_collectives_is_explained(data: st.DataObject) -> None:
    """Feed the ranks' logs in chunks of any size: the merged orders differ, the verdict does not."""
    monitor, merger = Monitor(CONFIG), Merger(2)
    taken = [0, 0]
    while taken != [len(log) for log in LOGS]:
        rank = data.draw(st.integers(0, 1))
        size = data.draw(st.sampled_from((1, 3, 10, 40, 100)))
        merger.push(rank, LOGS[rank][taken[rank] : taken[rank] + size])
        taken[rank] = min(len(LOGS[rank]), taken[rank] + size)
        for event in merger.ready():
            monitor.feed(event)
    monitor.finish()
    assert monitor.finding is None


# Events whose loss, repetition or change nobody could see: a load-back moves no host page.
UNSEEN = {"loaded", "closed"}
CHANGEABLE = [
    (rank, index) for rank, log in enumerate(LOGS) for index, event in enumerate(log) if event.kind not in UNSEEN
]


def test_every_lost_event_is_noticed() -> None:
    for rank, index in CHANGEABLE:
        logs = [list(log) for log in LOGS]
        del logs[rank][index]
        assert explain(logs) is not None, f"without {LOGS[rank][index]}"


def test_every_event_that_happened_twice_is_noticed() -> None:
    for rank, index in CHANGEABLE:
        logs = [list(log) for log in LOGS]
        logs[rank].insert(index, logs[rank][index])
        assert explain(logs) is not None, f"twice {LOGS[rank][index]}"


# Numbers that nothing depends on: node ids, how many pages of a fetch the tree knew, a higher answer of one rank (the
# MIN is another's), which page of a tail is released, what could be evicted at a revoke that is not for memory.
IDLE = ("node", "anchor", "base", "number", "failed", "known")


def says_something(event: Event, name: str) -> bool:
    if name in IDLE or event.kind in (*UNSEEN, "query_asked"):
        return False
    if name == "page" and event.kind == "io_released":
        return False
    return not (name == "evictable" and event.data.get("reason") != "no_memory")


NUMBERS = [
    (rank, index, name)
    for rank, log in enumerate(LOGS)
    for index, event in enumerate(log)
    for name, value in event.data.items()
    if type(value) is int and says_something(event, name)
]


def test_every_altered_number_is_noticed() -> None:
    for rank, index, name in NUMBERS:
        logs = [list(log) for log in LOGS]
        event = logs[rank][index]
        more = {**event.data, name: event.data[name] + 1}
        logs[rank][index] = Event(event.rank, event.seq, event.kind, event.op, more)
        assert explain(logs) is not None, f"{name} + 1 in {event}"


def first(kind: str) -> int:
    return next(i for i, event in enumerate(LOGS[0]) if event.kind == kind)


def altered(change: Callable[[list[list[Event]]], None]) -> Finding:
    logs = [list(log) for log in LOGS]
    change(logs)
    finding = explain(logs)
    assert finding is not None
    return finding


def test_a_finding_names_the_property_and_the_event() -> None:
    def swap_attempts(logs: list[list[Event]]) -> None:
        for log in logs:
            index = next(i for i, event in enumerate(log) if event.kind == "skipped")
            log[index] = Event(log[index].rank, log[index].seq, "skipped", ("half", 1), {})

    finding = altered(swap_attempts)
    assert finding.property in ("inv_records_name_their_attempt", "step_drain_decides_its_own_attempt")
    assert "skipped half#1" in str(finding)


def test_ranks_that_differ_are_a_finding() -> None:
    def grant_less(logs: list[list[Event]]) -> None:
        index = first("allocated")
        event = logs[1][next(i for i, e in enumerate(logs[1]) if e.kind == "allocated")]
        logs[1][next(i for i, e in enumerate(logs[1]) if e.kind == "allocated")] = Event(
            1, event.seq, "allocated", event.op, {**event.data, "pages": 2}
        )
        assert index

    assert altered(grant_less).property == "P7 lockstep"


def test_a_pool_of_another_size_is_not_explained() -> None:
    finding = explain(LOGS, MonitorConfig(2, 5, 1, 99, "wait_complete"))
    assert finding is not None


def test_a_rank_that_never_joins_is_named(tmp_path: Path) -> None:
    cut = next(i for i, e in enumerate(LOGS[1]) if e.kind == "joined" and e.data["group"] == "sched")
    paths = [write(tmp_path, rank, log) for rank, log in enumerate([LOGS[0], LOGS[1][:cut]])]
    finding = explain_logs(paths, CONFIG, lambda _: None).finding
    assert finding is not None
    assert finding.property == "P7 lockstep"
    assert "never joined" in finding.message


# ---- logs as files


def write(folder: Path, rank: int, events: list[Event]) -> Path:
    path = folder / f"events-{rank}.jsonl"
    lines = [
        json.dumps({"rank": e.rank, "seq": e.seq, "kind": e.kind, "op": e.op, "data": e.data}) + "\n" for e in events
    ]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def test_logs_on_disk_are_explained(tmp_path: Path) -> None:
    paths = [write(tmp_path, rank, log) for rank, log in enumerate(LOGS)]
    explained = explain_logs(paths, CONFIG, lambda _: None)
    assert explained.finding is None
    assert explained.events == sum(map(len, LOGS))


def damage(lines: list[str]) -> Iterator[tuple[str, list[str], str]]:
    yield "cut", [*lines[:3], lines[3][:-5]], "line 4: the line is cut"
    yield "gap", [*lines[:3], *lines[4:]], "line 4: expected event 3 of rank 0"
    yield "not JSON", [*lines[:3], "{]\n", *lines[4:]], "line 4: not an event"
    yield "no list", [*lines[:3], '{"rank": 0}\n'], "line 4: not an event"
    strange = json.loads(lines[3]) | {"kind": "exploded"}
    yield "unknown", [*lines[:3], json.dumps(strange) + "\n"], "line 4: unknown event 'exploded'"
    richer = json.loads(lines[3]) | {"data": {"colour": "red"}}
    yield "field", [*lines[:3], json.dumps(richer) + "\n"], r"line 4: .* has the fields \['colour'\]"
    other = json.loads(lines[3]) | {"rank": 1}
    yield "rank", [*lines[:3], json.dumps(other) + "\n"], "line 4: expected event 3 of rank 0"


@pytest.mark.parametrize("kind", ["cut", "gap", "not JSON", "no list", "unknown", "field", "rank"])
def test_a_damaged_log_is_refused_by_line(kind: str, tmp_path: Path) -> None:
    path = write(tmp_path, 0, LOGS[0])
    lines, message = next(
        (lines, message)
        for name, lines, message in damage(path.read_text(encoding="utf-8").splitlines(keepends=True))
        if name == kind
    )
    path.write_text("".join(lines), encoding="utf-8")
    with pytest.raises(LogError, match=message):
        list(read_log(path))
