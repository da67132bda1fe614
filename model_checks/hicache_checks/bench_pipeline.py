"""`hicheck bench pipeline`: how fast pages come from storage to the host, what the scheduler's calls cost, and a whole
trace; beside the limit of the machine, and beside a published release on the same machine.

Everything that is compared takes turns, so that a slow moment of the machine meets all of it, and of all rounds the
median counts. Where others are at work, seconds of processors say more than seconds.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hicache_checks.bench_tick import BENCHMARKS
from hicache_checks.conformance.target import kind_of
from hicache_checks.implementations import load
from hicache_checks.reporting import InputError, Outcome, Screen, Verdict, print_rows
from hicache_checks.targets.sglang.speed import Moved, ReleaseProcess, SpeedError
from hicache_checks.targets.trees import is_release, tree_of

FETCH, STEPS, SCHEDULER, TRACE = "fetch", "steps", "scheduler", "trace"
PARTS = (FETCH, STEPS, SCHEDULER, TRACE)
STORES = ("memory", "lmdb", "file", "redis", "mooncake")
PAGE_KIB = (64, 256, 2048)
TARGET, NO_TARGET = "sglang==0.5.18", "none"
WANTED_SHARE, WANTED_TIMES = 0.7, 3.0
"""Of the limit, from memory and lmdb without checksums; and so many times what a release reads from its files."""
WANTED_OF = ("memory", "lmdb")
UNDISTURBED = 0.9
"""Who had less of a core while copying shares it with others."""
COPY = "copy"
PENDING, NODES, PAGES = (10, 100, 1_000, 10_000), (1_000, 100_000), 1_000_000
TREE_TOKENS = 4
REPLAYS = 3
GB, MIB, KIB, MICROSECONDS = 1e9, 1 << 20, 1 << 10, 1e6


@dataclass(frozen=True)
class PipelineOptions:
    """`parts`: of PARTS; `rounds`: in so many all take turns; `round_mib`: moved by each; `target`: a release, or
    NO_TARGET; `trace`: a file for the part of that name, `requests`: so many of it; `trace_store`: on this store.
    """

    parts: tuple[str, ...] = PARTS
    stores: tuple[str, ...] = STORES
    page_kib: tuple[int, ...] = PAGE_KIB
    rounds: int = 9
    round_mib: int = 256
    target: str = TARGET
    wheels: Path | None = None
    trace: str | None = None
    requests: int | None = None
    trace_store: str = "lmdb"
    pending: tuple[int, ...] = PENDING
    nodes: tuple[int, ...] = NODES
    pages: int = PAGES


@dataclass(frozen=True)
class Lane:
    """A way for pages to come, with what its rounds took. `checksums`: None where there is no such choice."""

    page_kib: int
    name: str
    checksums: bool | None
    round_bytes: int
    pages: int
    extra_copies: int | None = None
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    reader_seconds: list[float] = field(default_factory=list)

    def took(self, one: Any) -> None:
        """A round."""
        self.seconds.append(one.seconds)
        self.cpu_seconds.append(one.cpu_seconds)
        if one.reader_seconds is not None:
            self.reader_seconds.append(one.reader_seconds)

    @property
    def gb_per_s(self) -> float:
        """10^9 bytes a second, by the median round."""
        return self.round_bytes / statistics.median(self.seconds) / GB

    @property
    def cpu_us(self) -> float:
        """Of all threads, for a page."""
        return statistics.median(self.cpu_seconds) / self.pages * MICROSECONDS

    @property
    def reader_us(self) -> float | None:
        """Of the processor's time that the reading thread had, for a page; None: nobody knows which it is."""
        return statistics.median(self.reader_seconds) / self.pages * MICROSECONDS if self.reader_seconds else None


def run(options: PipelineOptions, screen: Screen) -> Outcome:
    """Measure and report. How fast it is, is said, and no verdict. Raises InputError."""
    _check(options)
    keys: dict[str, Any] = {}
    tree = _tree(options, screen)
    if FETCH in options.parts:
        lanes, unavailable = _fetched(options, tree, screen)
        screen.progress.clear()
        _print_fetch(lanes, unavailable, options, screen)
        keys[FETCH] = {"rows": [_fetch_keys(lane, lanes) for lane in lanes], "unavailable": unavailable}
    if STEPS in options.parts:
        steps = _stepped(options, screen)
        screen.progress.clear()
        _print_steps(steps, screen)
        keys[STEPS] = {"rows": steps}
    if SCHEDULER in options.parts:
        rows = _scheduled(options, tree, screen)
        screen.progress.clear()
        _print_scheduler(rows, options, screen)
        keys[SCHEDULER] = {"rows": rows}
    if TRACE in options.parts and options.trace is None:
        screen.say("no trace was given, so none is replayed")
    elif TRACE in options.parts:
        measured = _replayed(options, screen)
        screen.progress.clear()
        _print_trace(measured, screen)
        keys[TRACE] = measured
    return Outcome(Verdict.PASS, {"target": options.target, "round_mib": options.round_mib, **keys})


def _check(options: PipelineOptions) -> None:
    """Raises InputError."""
    for part in options.parts:
        if part not in PARTS:
            raise InputError(f"the parts are {', '.join(PARTS)}, not {part!r}")
    if options.parts == (TRACE,) and options.trace is None:
        raise InputError("give the file of a trace")


def _tree(options: PipelineOptions, screen: Screen) -> tuple[Path, str | None] | None:
    """Where the release is, and the kind of its tree. Raises InputError."""
    if options.target == NO_TARGET:
        return None
    named, kind = kind_of(options.target)
    if not is_release(named):
        raise InputError(f"give a published release, or {NO_TARGET}, not {options.target!r}")
    return tree_of(named, options.wheels, screen.progress.update), kind


# ---- from storage to the host


def _fetched(
    options: PipelineOptions, tree: tuple[Path, str | None] | None, screen: Screen
) -> tuple[list[Lane], dict[str, str]]:
    """The lanes of all sizes, and why some stores have none. Raises InputError."""
    lanes: list[Lane] = []
    unavailable: dict[str, str] = {}
    for page_kib in options.page_kib:
        screen.progress.update(f"pages of {page_kib:,} KiB: filling the stores")
        try:
            with ExitStack() as stack:
                lanes += _fetched_in(page_kib, options, tree, screen, stack, unavailable)
        except (SpeedError, ValueError) as error:
            raise InputError(f"pages of {page_kib} KiB: {error}") from error
    return lanes, unavailable


def _fetched_in(
    page_kib: int,
    options: PipelineOptions,
    tree: tuple[Path, str | None] | None,
    screen: Screen,
    stack: ExitStack,
    unavailable: dict[str, str],
) -> list[Lane]:
    fetch = stack.enter_context(load(BENCHMARKS, "fetch")(options.stores, page_kib * KIB, options.round_mib * MIB))
    unavailable |= fetch.unavailable
    shape = fetch.shape
    ways: list[tuple[Lane, Callable[[], object], Callable[[], Any]]] = []
    for way in fetch.lanes:
        copies = fetch.extra_copies.get(way.store)
        lane = Lane(page_kib, way.store, way.checksums, shape.total_bytes, shape.pages, copies)
        ways.append((lane, lambda way=way: fetch.check(way), lambda way=way: fetch.round(way)))  # type: ignore[misc]
    if tree is not None:
        release = stack.enter_context(ReleaseProcess(*tree))
        release.open_fetch(Moved(shape.page_bytes, shape.page_tokens, shape.operation_pages, shape.operations))
        lane = Lane(page_kib, options.target, None, shape.total_bytes, shape.pages)
        ways.append((lane, release.check_fetch, release.fetch))
    for lane, check, _ in ways:
        screen.progress.update(f"pages of {page_kib:,} KiB: {lane.name}, are its bytes right?")
        check()
    for number in range(options.rounds):
        screen.progress.update(f"pages of {page_kib:,} KiB: round {number + 1} of {options.rounds}")
        for lane, _, measure in ways:
            lane.took(measure())
    return [lane for lane, _, _ in ways]


def _of(lanes: Sequence[Lane], page_kib: int, name: str, checksums: bool | None) -> Lane | None:
    return next((one for one in lanes if (one.page_kib, one.name, one.checksums) == (page_kib, name, checksums)), None)


def _share(lane: Lane | None, lanes: Sequence[Lane]) -> float | None:
    """Of the limit, by the clock."""
    limit = None if lane is None else _of(lanes, lane.page_kib, COPY, None)
    return None if lane is None or limit is None else lane.gb_per_s / limit.gb_per_s


def _reader_share(lane: Lane, lanes: Sequence[Lane]) -> float | None:
    """Of the limit, by the processor's time of the reading thread alone: what is left when nobody else is at work."""
    limit = _of(lanes, lane.page_kib, COPY, None)
    if limit is None or limit.reader_us is None or not lane.reader_us:
        return None
    return limit.reader_us / lane.reader_us


def _times(lane: Lane, lanes: Sequence[Lane], target: str) -> float | None:
    """So many times the release's speed."""
    release = _of(lanes, lane.page_kib, target, None)
    return None if release is None or release is lane or lane.name == COPY else lane.gb_per_s / release.gb_per_s


def _print_fetch(
    lanes: Sequence[Lane], unavailable: Mapping[str, str], options: PipelineOptions, screen: Screen
) -> None:
    headers = (
        *("page", "from", "GB/s", "of copies", "checked GB/s", "of copies", "CPU us/page", "reader us/page"),
        *("of copies", "times the release", "extra copies"),
    )
    cells = []
    for lane in lanes:
        if lane.checksums:
            continue
        checked = _of(lanes, lane.page_kib, lane.name, True)
        cells.append(
            (
                f"{lane.page_kib:,} KiB",
                "copy_, page by page" if lane.name == COPY else lane.name,
                f"{lane.gb_per_s:.2f}",
                _percent(_share(lane, lanes)),
                "" if checked is None else f"{checked.gb_per_s:.2f}",
                "" if checked is None else _percent(_share(checked, lanes)),
                f"{lane.cpu_us:,.1f}",
                "" if lane.reader_us is None else f"{lane.reader_us:,.1f}",
                _percent(_reader_share(lane, lanes)),
                _times_cell(_times(lane, lanes, options.target)),
                "" if lane.extra_copies is None else str(lane.extra_copies),
            )
        )
    print_rows(screen.console, headers, cells, right=frozenset(range(2, 11)))
    for store, reason in unavailable.items():
        screen.say(f"{store} is not measured: {reason}")
    for line in _unmet(lanes, options.target):
        screen.say(line)
    if _is_disturbed(lanes):
        screen.say("others were at work: by the clock it says little, and by the reading thread's own time more")


def _unmet(lanes: Sequence[Lane], target: str) -> list[str]:
    """A line for each figure that is less than wanted."""
    said = []
    for lane in lanes:
        where = f"{lane.name}, {lane.page_kib:,} KiB"
        share, times = _share(lane, lanes), _times(lane, lanes, target)
        if lane.checksums is False and lane.name in WANTED_OF and share is not None and share < WANTED_SHARE:
            said.append(f"{where}: {share:.0%} of copies, wanted are {WANTED_SHARE:.0%}")
        if lane.checksums is False and lane.name in WANTED_OF and times is not None and times < WANTED_TIMES:
            release = _share(_of(lanes, lane.page_kib, target, None), lanes) or 0.0
            said.append(
                f"{where}: {times:.1f} times the release, wanted are {WANTED_TIMES:.0f}; the release has {release:.0%} "
                "of copies"
            )
    return said


def _is_disturbed(lanes: Sequence[Lane]) -> bool:
    copies = [lane for lane in lanes if lane.name == COPY]
    return any(sum(lane.cpu_seconds) < UNDISTURBED * sum(lane.seconds) for lane in copies)


def _fetch_keys(lane: Lane, lanes: Sequence[Lane]) -> dict[str, Any]:
    return {
        "page_kib": lane.page_kib,
        "from": lane.name,
        "checksums": lane.checksums,
        "gb_per_s": lane.gb_per_s,
        "share_of_copies": _share(lane, lanes),
        "cpu_us_per_page": lane.cpu_us,
        "reader_us_per_page": lane.reader_us,
        "reader_share_of_copies": _reader_share(lane, lanes),
        "extra_copies": lane.extra_copies,
        "rounds_seconds": lane.seconds,
    }


# ---- the steps of reading


def _stepped(options: PipelineOptions, screen: Screen) -> list[dict[str, Any]]:
    """A row for each step and size of pages. Raises InputError."""
    rows: list[dict[str, Any]] = []
    for page_kib in options.page_kib:
        screen.progress.update(f"pages of {page_kib:,} KiB: step by step")
        try:
            steps = load(BENCHMARKS, "fetch_steps")(page_kib * KIB, options.round_mib * MIB, options.rounds)
        except ValueError as error:
            raise InputError(f"pages of {page_kib} KiB: {error}") from error
        rows += [{"page_kib": page_kib, **row} for row in steps]
    return rows


def _print_steps(rows: Sequence[Mapping[str, Any]], screen: Screen) -> None:
    us = {(row["step"], row["page_kib"]): row["us"] for row in rows}
    steps, sizes = (list(dict.fromkeys(part)) for part in zip(*us, strict=True))
    headers = ("CPU us a page, on one thread", *(f"{page_kib:,} KiB" for page_kib in sizes))
    cells = [(step, *(f"{us[step, page_kib]:,.2f}" for page_kib in sizes)) for step in steps]
    print_rows(screen.console, headers, cells, right=frozenset(range(1, len(headers))))


# ---- the scheduler's calls


def _scheduled(options: PipelineOptions, tree: tuple[Path, str | None] | None, screen: Screen) -> list[dict[str, Any]]:
    """A row for each kind of work: `us`, and `release_us` (None: it was not measured). Raises InputError."""
    tell = screen.progress.update
    ours = load(BENCHMARKS, "scheduler_cost")(options.pending, options.nodes, options.pages, TREE_TOKENS, tell)
    theirs: dict[tuple[str, int], float] = {}
    if tree is not None:
        asked = (
            *(("ticks", count) for count in options.pending),
            *(("tree", count) for count in options.nodes),
            ("allocations", options.pages),
        )
        try:
            with ReleaseProcess(*tree) as release:
                for what, size in asked:
                    tell(f"{options.target}: {what}, {size:,}")
                    theirs |= {(row["work"], row["size"]): row["us"] for row in release.ask(what, size, TREE_TOKENS)}
        except SpeedError as error:
            raise InputError(f"{options.target}: {error}") from error
    return [{**row, "release_us": theirs.get((row["work"], row["size"]))} for row in ours]


def _print_scheduler(rows: Sequence[Mapping[str, Any]], options: PipelineOptions, screen: Screen) -> None:
    headers = ("work", "of", "us", f"us, {options.target}", "times")
    cells = [
        (
            row["work"],
            f"{row['size']:,}",
            f"{row['us']:,.2f}",
            "" if row["release_us"] is None else f"{row['release_us']:,.2f}",
            "" if row["release_us"] is None else _times_cell(row["release_us"] / row["us"]),
        )
        for row in rows
    ]
    print_rows(screen.console, headers, cells, right=frozenset({1, 2, 3, 4}))


# ---- a whole trace


def _replayed(options: PipelineOptions, screen: Screen) -> dict[str, Any]:
    """Raises InputError."""
    replay = load(BENCHMARKS, "trace_speed")
    try:
        measured: dict[str, Any] = replay(
            options.trace, options.requests, options.trace_store, REPLAYS, screen.progress.update
        )
    except ValueError as error:
        raise InputError(str(error)) from error
    return measured


def _print_trace(measured: Mapping[str, Any], screen: Screen) -> None:
    headers = ("replay", "requests/s", "device hits", "host hits", "storage hits", "computed", "resident MiB")
    cells = [
        (
            str(number),
            f"{measured['requests'] / seconds:,.0f}",
            *(f"{hits[tier]:,}" for tier in ("device", "host", "storage")),
            f"{computed:,}",
            f"{resident / MIB:,.0f}",
        )
        for number, (seconds, hits, computed, resident) in enumerate(
            zip(
                measured["seconds"],
                measured["hit_tokens"],
                measured["computed_tokens"],
                measured["resident_bytes"],
                strict=True,
            ),
            1,
        )
    ]
    print_rows(screen.console, headers, cells, right=frozenset(range(7)))
    least, most = min(measured["resident_bytes"]), max(measured["resident_bytes"])
    screen.say(
        f"{measured['requests']:,} requests on {measured['store']}, hits and computed in tokens; at most "
        f"{measured['peak_bytes'] / MIB:,.0f} MiB with the mapped store; resident memory differs by "
        f"{(most - least) / least:.1%}"
    )


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def _times_cell(times: float | None) -> str:
    return "" if times is None else f"{times:,.1f}"
