"""`hicheck bench pipeline`: all that is compared takes turns, the table says what the rounds took, and figures that are
not met are said. What is measured is made up here, but for the last tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from conform_run import ran
from hicache_checks import bench_pipeline, cli
from hicache_checks.bench_pipeline import (
    COPY,
    FETCH,
    NO_TARGET,
    SCHEDULER,
    STEPS,
    TRACE,
    PipelineOptions,
)
from hicache_checks.conformance.target import kind_of
from hicache_checks.reporting import Outcome, Verdict
from hicache_checks.targets.sglang.speed import Moved, ReleaseProcess, SpeedError, Took
from hicache_checks.targets.trees import tree_of
from release_under_test import have
from test_readme import between

RELEASE = "sglang==0.5.18"
PAGES, PAGE_BYTES = 10, 64 << 10


@dataclass(frozen=True)
class Way:
    store: str
    checksums: bool | None


@dataclass
class MadeUp:
    """Lanes that take `us` microseconds a page; `turns` is who was measured, in order. `busy`: a core was shared."""

    us: dict[tuple[str, bool | None], float]
    busy: float = 1.0
    turns: list[str] = field(default_factory=list)
    unavailable: dict[str, str] = field(default_factory=lambda: {"redis": "there is none"})
    extra_copies: dict[str, int] = field(default_factory=lambda: {"memory": 0, "lmdb": 0})

    @property
    def lanes(self) -> list[Way]:
        return [Way(*key) for key in self.us if key[0] != RELEASE]

    @property
    def shape(self) -> SimpleNamespace:
        return SimpleNamespace(
            total_bytes=PAGES * PAGE_BYTES,
            pages=PAGES,
            page_bytes=PAGE_BYTES,
            page_tokens=64,
            operation_pages=PAGES,
            operations=1,
        )

    def check(self, way: Way) -> None:
        self.turns.append(f"check {way.store}")

    def round(self, way: Way) -> Took:
        self.turns.append(way.store)
        seconds = self.us[way.store, way.checksums] * PAGES / 1e6
        return Took(seconds * self.busy, seconds, seconds)


MET = {
    (COPY, None): 7.0,
    ("memory", False): 10.0,
    ("memory", True): 14.0,
    ("lmdb", False): 10.0,
    ("lmdb", True): 20.0,
    (RELEASE, None): 30.0,
}


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> MadeUp:
    measured = MadeUp(dict(MET))

    @contextmanager
    def opened(stores: Any, page_bytes: int, round_bytes: int) -> Iterator[MadeUp]:
        assert (stores, page_bytes, round_bytes) == (("memory", "lmdb", "redis"), 64 << 10, 5 << 20)
        yield measured

    class Process:
        def __init__(self, tree: Any, kind: str | None) -> None:
            assert (tree, kind) == ("/there", "unified")

        def __enter__(self) -> Process:
            return self

        def __exit__(self, *_: object) -> None:
            measured.turns.append("end")

        def open_fetch(self, moved: Moved) -> None:
            assert moved == Moved(PAGE_BYTES, 64, PAGES, 1)

        def check_fetch(self) -> None:
            measured.turns.append("check release")

        def fetch(self) -> Took:
            return measured.round(Way(RELEASE, None))

        def ask(self, what: str, size: int, page_tokens: int) -> list[dict[str, Any]]:
            if what == "allocations":
                raise SpeedError("allocations does not return")
            return [{"work": what, "size": size, "us": 30.0}]

    def scheduled(pending: Any, nodes: Any, pages: int, page_tokens: int, tell: Any) -> list[dict[str, Any]]:
        return [{"work": "ticks", "size": pending[0], "us": 10.0}, {"work": "alone", "size": 1, "us": 2.0}]

    registered = {"fetch": opened, "scheduler_cost": scheduled}
    monkeypatch.setattr(bench_pipeline, "load", lambda group, name: registered[name])
    monkeypatch.setattr(bench_pipeline, "ReleaseProcess", Process)
    monkeypatch.setattr(bench_pipeline, "tree_of", lambda *_: "/there")
    monkeypatch.setattr(bench_pipeline, "kind_of", lambda name: (name, "unified"))
    return measured


def options(**more: Any) -> PipelineOptions:
    given = {"parts": (FETCH,), "stores": ("memory", "lmdb", "redis"), "page_kib": (64,), "rounds": 2, "round_mib": 5}
    return PipelineOptions(**{**given, **more})


def test_all_take_turns_after_their_bytes_were_checked(made_up: MadeUp) -> None:
    said = ran(lambda screen: bench_pipeline.run(options(), screen))
    assert said.code == 0
    names = [COPY, "memory", "memory", "lmdb", "lmdb"]
    assert made_up.turns == [
        *(f"check {name}" for name in names),
        "check release",
        *[*names, RELEASE] * 2,
        "end",
    ]


def test_the_table(made_up: MadeUp) -> None:
    said = ran(lambda screen: bench_pipeline.run(options(), screen))
    lines = [line.split("  ") for line in said.text.splitlines()]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    assert cells == [
        [
            *("page", "from", "GB/s", "of copies", "checked GB/s", "of copies", "CPU us/page", "reader us/page"),
            *("of copies", "times the release", "extra copies"),
        ],
        ["64 KiB", "copy_, page by page", "9.36", "100%", "7.0", "7.0", "100%"],
        ["64 KiB", "memory", "6.55", "70%", "4.68", "50%", "10.0", "10.0", "70%", "3.0", "0"],
        ["64 KiB", "lmdb", "6.55", "70%", "3.28", "35%", "10.0", "10.0", "70%", "3.0", "0"],
        ["64 KiB", RELEASE, "2.18", "23%", "30.0", "30.0", "23%"],
        ["redis is not measured: there is none"],
    ]
    rows = said.keys["fetch"]["rows"]
    assert [row["rounds_seconds"] for row in rows if row["from"] == COPY] == [[7e-5, 7e-5]]
    assert [row["share_of_copies"] for row in rows if row["checksums"]] == pytest.approx([0.5, 0.35])
    assert said.keys["fetch"]["unavailable"] == {"redis": "there is none"}


def test_the_page_shows_this_table_of_all_stores_and_sizes(made_up: MadeUp) -> None:
    said = ran(lambda screen: bench_pipeline.run(options(), screen))
    command, headers, *rows = between("pipeline output").splitlines()
    assert command == "$ hicheck bench pipeline --part fetch"
    assert headers.split() == said.text.splitlines()[0].split()
    shown = [tuple(re.split(r"\s{2,}", row)[:2]) for row in rows if re.match(r"\S+ KiB  ", row)]
    sources = ("copy_, page by page", *bench_pipeline.STORES, bench_pipeline.TARGET)
    assert shown == [(f"{kib:,} KiB", source) for kib in bench_pipeline.PAGE_KIB for source in sources]


def test_what_is_less_than_wanted_is_said(made_up: MadeUp) -> None:
    made_up.us["lmdb", False] = 10.1
    said = ran(lambda screen: bench_pipeline.run(options(), screen))
    assert said.code == 0
    assert said.text.splitlines()[-2:] == [
        "lmdb, 64 KiB: 69% of copies, wanted are 70%",
        "lmdb, 64 KiB: 3.0 times the release, wanted are 3; the release has 23% of copies",
    ]


@pytest.mark.parametrize(("busy", "is_said"), [(1.0, False), (1.1, False), (1.2, True)])
def test_on_a_busy_machine_that_is_said(made_up: MadeUp, busy: float, is_said: bool) -> None:
    made_up.busy = busy
    said = ran(lambda screen: bench_pipeline.run(options(), screen))
    assert ("others were at work" in said.text) == is_said


def test_without_a_release_there_is_nothing_beside_it(made_up: MadeUp) -> None:
    said = ran(lambda screen: bench_pipeline.run(options(target=NO_TARGET), screen))
    assert RELEASE not in said.text
    assert RELEASE not in made_up.turns
    said = ran(lambda screen: bench_pipeline.run(options(target=NO_TARGET, parts=(SCHEDULER,)), screen))
    assert [row["release_us"] for row in said.keys["scheduler"]["rows"]] == [None, None]


def test_the_table_of_steps(made_up: MadeUp, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(group: str, name: str) -> Any:
        assert name == "fetch_steps"
        return lambda page_bytes, round_bytes, rounds: [{"step": "names", "us": page_bytes / 1024 + rounds}]

    monkeypatch.setattr(bench_pipeline, "load", load)
    said = ran(lambda screen: bench_pipeline.run(options(target=NO_TARGET, parts=(STEPS,), page_kib=(4, 8)), screen))
    assert said.keys[STEPS]["rows"] == [
        {"page_kib": 4, "step": "names", "us": 6.0},
        {"page_kib": 8, "step": "names", "us": 10.0},
    ]
    assert re.search(r"^names +6\.00 +10\.00$", said.text, re.MULTILINE)


def test_the_scheduler_s_table(made_up: MadeUp, monkeypatch: pytest.MonkeyPatch) -> None:
    small = options(parts=(SCHEDULER,), pending=(7,), nodes=())
    assert ran(lambda screen: bench_pipeline.run(small, screen)).text == f"{RELEASE}: allocations does not return"
    process = vars(bench_pipeline)["ReleaseProcess"]
    monkeypatch.setattr(process, "ask", lambda _, what, size, tokens: [{"work": what, "size": size, "us": 30.0}])
    said = ran(lambda screen: bench_pipeline.run(small, screen))
    assert [line.split() for line in said.text.splitlines()[1:]] == [
        ["ticks", "7", "10.00", "30.00", "3.0"],
        ["alone", "1", "2.00"],
    ]


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"parts": ("fetch", "speed")}, "the parts are fetch, steps, scheduler, trace, not 'speed'"),
        ({"parts": (TRACE,)}, "give the file of a trace"),
        ({"target": "reference"}, "give a published release, or none, not 'reference'"),
    ],
)
def test_input_that_makes_no_sense(given: dict[str, Any], line: str) -> None:
    said = ran(lambda screen: bench_pipeline.run(options(**given), screen))
    assert (said.code, said.text) == (2, line)


def test_without_a_trace_that_is_said(made_up: MadeUp) -> None:
    said = ran(lambda screen: bench_pipeline.run(options(parts=(FETCH, TRACE)), screen))
    assert said.text.endswith("no trace was given, so none is replayed\n")
    assert "trace" not in said.keys


def test_what_the_command_line_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[PipelineOptions] = []

    def run(chosen: PipelineOptions, screen: Any) -> Outcome:
        asked.append(chosen)
        return Outcome(Verdict.PASS, {})

    monkeypatch.setattr(bench_pipeline, "run", run)
    words = "--part fetch,trace --store lmdb --store file --page-kib 64 --rounds 2 --round-mib 3 --target none"
    for more in ([], [*words.split(), "--trace", "t.jsonl", "--requests", "4"]):
        with pytest.raises(SystemExit) as left:
            cli.main(["bench", "pipeline", *more])
        assert left.value.code == 0
    assert asked == [
        PipelineOptions(),
        PipelineOptions(("fetch", "trace"), ("lmdb", "file"), (64,), 2, 3, "none", None, "t.jsonl", 4),
    ]


def test_a_trace_that_is_not_there(tmp_path: Any) -> None:
    missing = str(tmp_path / "none.jsonl")
    said = ran(lambda screen: bench_pipeline.run(options(parts=(TRACE,), trace=missing, target=NO_TARGET), screen))
    assert (said.code, said.text) == (2, f"{missing}: no such file")


def test_the_trace_s_table(monkeypatch: pytest.MonkeyPatch) -> None:
    hits = {"device": 512, "host": 1024, "storage": 2048}
    measured = {
        "requests": 100,
        "seconds": [2.0, 1.0],
        "hit_tokens": [hits, hits],
        "computed_tokens": [5120, 0],
        "resident_bytes": [100 << 20, 101 << 20],
        "peak_bytes": 300 << 20,
        "store": "lmdb",
    }
    monkeypatch.setattr(bench_pipeline, "load", lambda *_: lambda *__: measured)
    said = ran(lambda screen: bench_pipeline.run(options(parts=(TRACE,), trace="t", target=NO_TARGET), screen))
    lines = said.text.splitlines()
    assert [line.split() for line in lines[1:3]] == [
        ["1", "50", "512", "1,024", "2,048", "5,120", "100"],
        ["2", "100", "512", "1,024", "2,048", "0", "101"],
    ]
    assert lines[3].endswith("at most 300 MiB with the mapped store; resident memory differs by 1.0%")


# --- a release -----------------------------------------------------------------------------------------------------


@pytest.mark.heavy
@pytest.mark.parametrize("name", [RELEASE, "sglang==0.5.23"])
def test_a_release_reads_its_files_and_answers_its_scheduler(name: str) -> None:
    have(name)
    named, kind = kind_of(name)
    with ReleaseProcess(tree_of(named), kind) as release:
        moved = Moved(PAGE_BYTES, 64, 4, 2)
        release.open_fetch(moved)
        release.check_fetch()
        for _ in range(2):
            took = release.fetch()
            assert took.seconds > 0
            assert took.reader_seconds is not None
            assert took.reader_seconds > 0
            assert took.cpu_seconds > 0
        works = [
            row["work"]
            for what, size in (("ticks", 3), ("tree", 40), ("allocations", 640))
            for row in release.ask(what, size, 4)
        ]
        assert works == [
            "tick, nothing finished",
            "tick, 8 finished",
            "match a conversation",
            "insert a turn",
            "evict a node",
            "allocate a page",
            "allocate a page of 64",
        ]
        with pytest.raises(SpeedError, match="a page has a multiple of 1024 bytes, not 1000"):
            release.open_fetch(Moved(1000, 64, 4, 2))
