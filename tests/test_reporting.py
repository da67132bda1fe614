"""What a user sees: the tables and the progress line, letter by letter."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from hicache_checks.reporting import Progress, Verdict, VerifyRow, counted, print_rows, print_verify_summary

SUMMARY = [
    VerifyRow("specification", "2 requests x 2 ranks", "12,531 states", 9.04, "31 properties hold", Verdict.PASS),
    VerifyRow("workload", "synthetic", "300 requests", 12.0, "2 pages left over", Verdict.FAIL),
    VerifyRow("releases", "", "", None, "not yet covered"),
]


def plain() -> Console:
    return Console(file=io.StringIO(), highlight=False, width=40)


def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, highlight=False, width=120)


def text_of(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_summary_is_plain_aligned_text_outside_a_terminal():
    console = plain()
    print_verify_summary(console, SUMMARY)
    assert text_of(console) == (
        "specification  2 requests x 2 ranks  12,531 states   9.0 s  31 properties hold\n"
        "workload       synthetic              300 requests  12.0 s  2 pages left over\n"
        "releases                                                    not yet covered\n"
    )


def test_the_summary_is_coloured_on_a_terminal():
    console = terminal()
    print_verify_summary(console, SUMMARY)
    assert "\x1b[32m31 properties hold" in text_of(console)
    assert "\x1b[1;31m2 pages left over" in text_of(console)


def test_a_table_with_headers_and_a_title():
    console = plain()
    print_rows(
        console, ["step", "action"], [["1", "[bold]sched_submit"], ["10", "io_read"]], right=frozenset({0}), title="run"
    )
    assert text_of(console) == "run\nstep  action\n   1  [bold]sched_submit\n  10  io_read\n"


def test_ragged_rows_are_refused():
    with pytest.raises(ValueError, match="a row of 1 cells in a table of 2 columns"):
        print_rows(plain(), ["a", "b"], [["1"]])


def test_one_thing_is_singular():
    assert [counted(n, "step") for n in (0, 1, 2, 1_000)] == ["0 steps", "1 step", "2 steps", "1,000 steps"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_in_a_log_is_a_line_every_few_seconds():
    now_s = 0.0
    stream = io.StringIO()
    progress = Progress(stream, clock=lambda: now_s)
    for tenths in range(120):
        now_s = tenths / 10
        progress.update(f"at {now_s:.0f} s")
    progress.clear()
    assert stream.getvalue() == "at 5 s\nat 10 s\n"


def test_progress_on_a_terminal_is_redrawn_in_place_and_taken_away():
    stream = Terminal()
    with Progress(stream, clock=lambda: 1.0) as progress:
        progress.update("one")
        progress.update("two")
    assert stream.getvalue() == "\r\x1b[Kone\r\x1b[K"
