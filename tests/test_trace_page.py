"""EVENTS.md against the vocabulary of the specification and the code that reads a trace."""

from __future__ import annotations

from pathlib import Path

from hicache_checks.conformance import logs, observation, traces
from hicache_checks.conformance.logs import explain_traces
from hicache_checks.conformance.observation import FIELDS, values_of
from hicache_checks.conformance.traces import HEADER, LINE, LogFile
from hicache_spec.events import LOGGED_LOCKSTEP, LOGGED_THREAD
from spec_tables import Table, fenced, page_tables

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "spec" / "EVENTS.md").read_text(encoding="utf-8")


def table_with(*headers: str) -> Table:
    """The columns of the one table that has them, without the marks of code."""
    (found,) = (
        table for tables in page_tables(PAGE).values() for table in tables if set(headers) <= set(table.headers)
    )
    rows = tuple(tuple(cell.strip("`") for cell in row) for row in found.select(headers).rows)
    return Table(headers, rows)


def test_the_events_are_those_of_the_specification() -> None:
    logged = {"lockstep": LOGGED_LOCKSTEP, "thread": LOGGED_THREAD}
    assert table_with("event", "kind", "`op`", "fields").rows == tuple(
        (name, kind, "null" if name in observation.WITHOUT_OPERATION else "yes", ", ".join(fields) or "none")
        for kind, lines in logged.items()
        for name, fields in lines.items()
    )


def test_the_fields_are_those_of_the_events_with_what_they_may_hold() -> None:
    rows = [row for row in table_with("event", "field", "values").rows if row[1] != "op"]
    assert rows == [(kind, name, values_of(kind, name).words) for kind, fields in FIELDS.items() for name in fields]


def test_the_keys_are_those_that_are_read() -> None:
    assert table_with("key of the header", "value").rows == tuple((name, words) for name, (_, words) in HEADER.items())
    assert table_with("key of an event", "value").rows == tuple((name, words) for name, (_, words) in LINE.items())


def test_the_numbers_on_the_page_are_those_of_the_code() -> None:
    assert f"**Format version {traces.VERSION}.**" in PAGE
    assert f"at most {traces.LINE_BYTES_MAX // 1024} KiB long" in PAGE
    assert f"more\n  than {logs.BACKLOG_EVENTS_MAX:,} events" in PAGE


def test_the_example_is_a_trace_that_the_specification_explains(tmp_path: Path) -> None:
    (example,) = fenced(PAGE, "jsonl")
    path = tmp_path / "example.jsonl"
    path.write_text(example, encoding="utf-8")
    explained = explain_traces([LogFile(path)], lambda _: None)
    assert (explained.finding, explained.whole) == (None, True)
    assert explained.events == example.count("\n") - 2


def test_every_file_on_the_page_exists() -> None:
    for name in ("model_checks/hicache_checks/conformance/traces.py", "tests/test_trace_page.py"):
        assert name in PAGE
        assert (ROOT / name).exists()
