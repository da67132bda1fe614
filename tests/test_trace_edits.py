"""A recorded trace with one line changed is refused, and the line that is named is that line (property tests).

What may be changed without anybody noticing is listed in spec/EVENTS.md, and here the list is shown to be exact.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hicache_checks.conformance.logs import Explained, explain_traces
from hicache_checks.conformance.observation import FIELDS, OF_CONTROL, LogError, values_of
from hicache_checks.conformance.traces import LogFile
from recorded_trace import recorded, recorded_clamp, write_recorded
from spec_tables import page_tables

PAGE = (Path(__file__).resolve().parents[1] / "spec" / "EVENTS.md").read_text(encoding="utf-8")
LINES_OF_A_KIND = 12
OF_POOLS = ("clamped", "slots_taken", "slots_freed")
OTHER_TEXTS = ("other", "sched", "query", "min", "max", "barrier")


@cache
def trace(ranks: int) -> tuple[str, ...]:
    """The lines of a recorded trace of all ranks in one file: a header, events, an end."""
    with TemporaryDirectory() as folder:
        return tuple(write_recorded(Path(folder) / "trace.jsonl", recorded(ranks)))


def explain(lines: list[str]) -> Explained | LogError:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trace.jsonl"
        path.write_text("".join(lines), encoding="utf-8")
        try:
            return explain_traces([LogFile(path)], lambda _: None)
        except LogError as error:
            return error


def is_refused(outcome: Explained | LogError) -> bool:
    return isinstance(outcome, LogError) or outcome.finding is not None


def named(outcome: Explained | LogError) -> set[int]:
    """The lines that a refusal is about.

    A number that is out of order may be that of any line since the one before of its rank. Where two lines contradict
    each other, both are named.
    """
    if isinstance(outcome, LogError):
        lines = [int(line) for line in re.findall(r"line (\d+)", str(outcome))]
        first = 1 if "as its first" in str(outcome) else min(lines)
        return set(range(first, max(lines) + 1))
    assert outcome.finding is not None
    events = [outcome.finding.event, *outcome.finding.related]
    return {event.place.line for event in events if event is not None and event.place is not None}


def alterations(line: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every field of an event with other values that it may have, and its name."""
    event = json.loads(line)
    kind, op, data = event["kind"], event["op"], event["data"]
    for name, value in data.items():
        yield from ((name, event | {"data": data | {name: other}}) for other in others(kind, name, value))
    for other in FIELDS:
        if other != kind and set(FIELDS[other]) == data.keys():
            yield "kind", event | {"kind": other}
    if op is not None:
        ops = [[rid, attempt] for rid in (op[0], "whole", "gone", "half", "other") for attempt in (1, 2)]
        yield from (("op", event | {"op": other}) for other in ops if other != op)
    yield "rank", event | {"rank": 1 - event["rank"]}
    yield from (("seq", event | {"seq": event["seq"] + more}) for more in (-1, 1, 5))


def others(kind: str, name: str, value: Any) -> list[Any]:
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + more for more in (-1, 1, 5) if value + more >= 0]
    words = values_of(kind, name).words
    return [word for word in (OTHER_TEXTS if words == "text" else words.split(", ")) if word != value]


def free_on_the_page(column: str) -> set[tuple[str, str]]:
    """The fields of which EVENTS.md says that nobody notices when they change."""
    table = next(table for tables in page_tables(PAGE).values() for table in tables if column in table.headers)
    cells = table.select(("event", "field", column)).rows
    return {(event.strip("`"), field.strip("`")) for event, field, free in cells if free == "free"}


def is_free(line: str, name: str) -> bool:
    return (json.loads(line)["kind"], name) in free_on_the_page("ranks that compare")


lines = st.integers(1, len(trace(2)) - 2)


def test_the_recorded_trace_is_explained() -> None:
    for ranks in (1, 2):
        outcome = explain(list(trace(ranks)))
        assert isinstance(outcome, Explained)
        assert outcome.finding is None
        assert (outcome.whole, outcome.events) == (True, len(trace(ranks)) - 2)
    kinds = {json.loads(line).get("kind") for line in trace(2)}
    assert kinds >= set(FIELDS) - {"died", *OF_POOLS, *OF_CONTROL}, "an event that is never recorded is never altered"


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_clamp_that_is_altered_is_noticed_at_its_line(ranks: int) -> None:
    """It happens to models only that keep more than pages, so it has a recording of its own."""
    with TemporaryDirectory() as folder:
        whole = write_recorded(Path(folder) / "trace.jsonl", recorded_clamp(ranks))
    outcome = explain(whole)
    assert isinstance(outcome, Explained)
    assert outcome.finding is None
    clamps = [number for number, line in enumerate(whole) if json.loads(line).get("kind") == "clamped"]
    assert len(clamps) == ranks
    for number in clamps:
        for name, event in alterations(whole[number]):
            if ranks == 1 and ("clamped", name) in free_on_the_page("one rank"):
                continue
            outcome = explain([*whole[:number], json.dumps(event) + "\n", *whole[number + 1 :]])
            assert is_refused(outcome), f"{name}: {event}"
            assert number + 1 in named(outcome), f"{name}: {event}: {outcome}"


@given(lines)
def test_a_removed_event_is_noticed_at_its_line(line: int) -> None:
    edited = [*trace(2)[:line], *trace(2)[line + 1 :]]
    outcome = explain(edited)
    assert is_refused(outcome)
    # What stood in this line is now between the lines that are named.
    assert {line, line + 1} & named(outcome)


@given(lines)
def test_an_event_that_stands_twice_is_noticed_at_its_line(line: int) -> None:
    outcome = explain([*trace(2)[: line + 1], trace(2)[line], *trace(2)[line + 1 :]])
    assert is_refused(outcome)
    assert line + 2 in named(outcome)


@given(lines)
def test_two_neighbours_that_change_places_are_noticed_unless_they_are_of_two_ranks(line: int) -> None:
    assume(line + 1 < len(trace(2)) - 1)
    one, other = trace(2)[line : line + 2]
    outcome = explain([*trace(2)[:line], other, one, *trace(2)[line + 2 :]])
    if json.loads(one)["rank"] != json.loads(other)["rank"]:
        assert not is_refused(outcome), "lines of two ranks have no order"
    else:
        assert is_refused(outcome)
        assert line + 1 in named(outcome)


@pytest.mark.heavy
@settings(max_examples=300)
@given(lines, st.data())
def test_an_altered_field_is_noticed_at_its_line(line: int, data: st.DataObject) -> None:
    name, event = data.draw(st.sampled_from(list(alterations(trace(2)[line]))))
    assume(not is_free(trace(2)[line], name))
    outcome = explain([*trace(2)[:line], json.dumps(event) + "\n", *trace(2)[line + 1 :]])
    assert is_refused(outcome), f"{name} of line {line + 1}"
    assert line + 1 in named(outcome), f"{name} of line {line + 1}: {outcome}"


@settings(max_examples=100)
@given(lines, st.sampled_from(("remove", "repeat")))
def test_an_edit_that_is_numbered_anew_is_noticed_from_its_line_on(line: int, how: str) -> None:
    """Whoever takes an event out, or puts one in, and counts again, is found by what no longer follows."""
    assume(json.loads(trace(2)[line])["kind"] != "closed")
    kept = [trace(2)[line]] * 2 if how == "repeat" else []
    outcome = explain(numbered([*trace(2)[:line], *kept, *trace(2)[line + 1 :]]))
    assert is_refused(outcome)
    assert isinstance(outcome, Explained)
    assert outcome.finding is not None
    assert outcome.finding.event is None or max(named(outcome)) >= line


def numbered(edited: list[str]) -> list[str]:
    """The events of each rank numbered from 0, and the end as it should be."""
    counts = [0, 0]
    out = edited[:1]
    for line in edited[1:-1]:
        event = json.loads(line)
        out.append(json.dumps(event | {"seq": counts[event["rank"]]}) + "\n")
        counts[event["rank"]] += 1
    return [*out, json.dumps({"end": counts}) + "\n"]


@pytest.mark.heavy
@pytest.mark.parametrize(("ranks", "column"), [(2, "ranks that compare"), (1, "one rank")])
def test_the_list_of_what_is_free_is_exact(ranks: int, column: str) -> None:
    free = set()
    whole = trace(ranks)
    tried: Counter[str] = Counter()
    for line in range(1, len(whole) - 1):
        kind = json.loads(whole[line])["kind"]
        tried[kind] += 1
        if tried[kind] > LINES_OF_A_KIND:
            continue
        for name, event in alterations(whole[line]):
            outcome = explain([*whole[:line], json.dumps(event) + "\n", *whole[line + 1 :]])
            if not is_refused(outcome):
                free.add((kind, name))
    assert free == {name for name in free_on_the_page(column) if name[0] not in (*OF_POOLS, *OF_CONTROL)}
