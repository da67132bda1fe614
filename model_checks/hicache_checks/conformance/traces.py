"""Traces: the events of a run as a file, one JSON object a line, that somebody else can validate later.

    {"hicheck_trace": 2, "producer": ..., "ranks": 2, "logs_of": [0, 1], "policy": ..., "host_pages": ..., ...}
    {"rank": 0, "seq": 0, "kind": "submitted", "op": ["a", 1], "data": {"span": 3, "base": 0, "anchor": 0}}
    ...
    {"end": [94, 93]}

The first line says what the run was and whose events the file holds; the last one, that they are all. `spec/EVENTS.md`
is the page for people. The file comes from outside: whatever is not exactly as described is refused by line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from reprlib import repr as shown
from typing import Any, BinaryIO, Protocol

from hicache_checks.conformance.explainer import MonitorConfig
from hicache_checks.conformance.merge import Merger
from hicache_checks.conformance.observation import (
    Event,
    LogError,
    Place,
    Seen,
    checked,
    is_count,
    is_operation,
    is_text,
    problem_of,
)
from hicache_spec.bounds import POLICY

VERSION = 2
LINE_BYTES_MAX = 2**16
RANKS_MAX = 2**10
PAGES_MAX = 2**24

HEADER: dict[str, tuple[Callable[[Any], bool], str]] = {
    "hicheck_trace": (is_count, f"the format's version, {VERSION}"),
    "producer": (is_text, "text"),
    "ranks": (lambda value: is_count(value) and 1 <= value <= RANKS_MAX, f"1 to {RANKS_MAX:,} ranks"),
    "logs_of": (lambda value: isinstance(value, list) and all(map(is_count, value)), "a list of ranks"),
    "policy": (POLICY.members.__contains__, ", ".join(POLICY.members)),
    "host_pages": (lambda value: is_count(value) and 1 <= value <= PAGES_MAX, f"1 to {PAGES_MAX:,} pages"),
    "threshold_pages": (lambda value: is_count(value) and value >= 1, "1 or more pages"),
    "limit_pages": (lambda value: is_count(value) and value >= 1, "1 or more pages"),
}
"""The keys of the first line: what each may hold, as a test and in words."""

LINE: dict[str, tuple[Callable[[Any], bool], str]] = {
    "rank": (is_count, "a rank"),
    "seq": (is_count, "a number"),
    "kind": (is_text, "text"),
    "op": (lambda value: value is None or is_operation(value), "null, or a request id and an attempt"),
    "data": (lambda value: isinstance(value, dict), "the fields of the event"),
}
"""The keys of an event's line."""


@dataclass(frozen=True)
class Header:
    """The first line of a file. `logs_of`: the ranks whose events it holds; `producer`: who wrote it, for people."""

    config: MonitorConfig
    logs_of: tuple[int, ...]
    producer: str = ""


class LogFile:
    """The events of one file, in its order; each knows its line. Everything raises LogError.

    `counts`: events by rank so far. `is_whole`: the line was read that says that these are all.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_whole = False
        try:
            self._stream: BinaryIO = path.open("rb")
        except OSError as error:
            raise LogError(f"{path}: {error.strerror}") from None
        self._lines = self._read_lines()
        self.header = self._read_header()
        self.counts = dict.fromkeys(self.header.logs_of, 0)
        self._last_line: dict[int, int] = {}

    def __iter__(self) -> Iterator[Event]:
        for number, raw in self._lines:
            if raw.keys() == {"end"}:
                self._end(number, raw["end"])
                return
            yield self._event(number, raw)

    def close(self) -> None:
        """No more of it is read."""
        self._stream.close()

    def _read_lines(self) -> Iterator[tuple[int, dict[str, Any]]]:
        number = 0
        while line := self._stream.readline(LINE_BYTES_MAX + 1):
            number += 1
            if len(line) > LINE_BYTES_MAX:
                raise self._error(number, f"the line is longer than {LINE_BYTES_MAX:,} bytes")
            if not line.endswith(b"\n"):
                raise self._error(number, "the line is cut")
            try:
                raw = json.loads(line.decode("utf-8"), object_pairs_hook=_unique)
            except (ValueError, RecursionError) as error:
                raise self._error(number, f"not a JSON object ({' '.join(str(error).split())})") from None
            if not isinstance(raw, dict):
                raise self._error(number, "not a JSON object")
            yield number, raw

    def _read_header(self) -> Header:
        number, raw = next(self._lines, (1, {}))
        if "hicheck_trace" not in raw:
            raise self._error(number, "not the first line of a trace: it has no 'hicheck_trace'")
        if raw["hicheck_trace"] != VERSION or type(raw["hicheck_trace"]) is not int:
            raise self._error(number, f"format version {shown(raw['hicheck_trace'])} is not known, only {VERSION}")
        self._check(number, raw, HEADER)
        ranks, logs_of = raw["ranks"], tuple(raw["logs_of"])
        if not logs_of or len(set(logs_of)) < len(logs_of) or max(logs_of) >= ranks:
            raise self._error(number, f"logs_of is {shown(list(logs_of))}, expected different ranks below {ranks}")
        sizes = {name: raw[name] for name in ("host_pages", "threshold_pages", "limit_pages")}
        return Header(MonitorConfig(ranks=ranks, policy=raw["policy"], **sizes), logs_of, raw["producer"])

    def _event(self, number: int, raw: dict[str, Any]) -> Event:
        self._check(number, raw, LINE)
        op = None if raw["op"] is None else (raw["op"][0], raw["op"][1])
        event = Event(raw["rank"], raw["seq"], raw["kind"], op, raw["data"], Place(str(self.path), number))
        self._check_number(number, event)
        problem = problem_of(event)
        if problem is not None:
            raise self._error(number, problem)
        self.counts[event.rank] += 1
        self._last_line[event.rank] = number
        return event

    def _check(self, number: int, raw: dict[str, Any], keys: dict[str, tuple[Callable[[Any], bool], str]]) -> None:
        unknown, missing = raw.keys() - keys.keys(), keys.keys() - raw.keys()
        if unknown:
            raise self._error(number, f"unknown field {', '.join(map(shown, sorted(unknown)))}")
        if missing:
            raise self._error(number, f"without {', '.join(map(repr, sorted(missing)))}")
        for name, (admits, words) in keys.items():
            if not admits(raw[name]):
                raise self._error(number, f"{name} is {shown(raw[name])}, expected {words}")

    def _check_number(self, number: int, event: Event) -> None:
        """The events of a rank are numbered from 0, without a gap and without a repetition."""
        rank, seq = event.rank, event.seq
        if rank not in self.counts:
            raise self._error(number, f"an event of rank {rank}, but the file holds {_ranks(self.header.logs_of)}")
        expected = self.counts[rank]
        if seq != expected:
            after = f"after line {self._last_line[rank]}" if expected else "as its first"
            raise self._error(number, f"event {seq} of rank {rank}, expected event {expected} {after}")

    def _end(self, number: int, counts: object) -> None:
        """The last line: how many events of each rank there are, in the order of `logs_of`."""
        if not isinstance(counts, list) or len(counts) != len(self.counts) or not all(map(is_count, counts)):
            raise self._error(number, f"end is {shown(counts)}, expected one number for each of {_ranks(self.counts)}")
        for (rank, found), count in zip(self.counts.items(), counts, strict=True):
            if found != count:
                upto = f", up to line {self._last_line[rank]}" if found else ""
                raise self._error(number, f"{count} events of rank {rank} are announced, there are {found}{upto}")
        self.is_whole = True
        for surplus, _ in self._lines:
            raise self._error(surplus, "a line after the end")

    def _error(self, number: int, text: str) -> LogError:
        return LogError(f"{Place(str(self.path), number)}: {text}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice")
    return found


def _ranks(ranks: Sequence[int] | dict[int, int]) -> str:
    return f"rank{'' if len(ranks) == 1 else 's'} {', '.join(map(str, ranks))}"


# ---- writing


class Log(Protocol):
    """One rank's events, as an adapter hands them out."""

    def take_since(self, seq: int, /) -> Sequence[Seen]:
        """The events from number `seq` on."""


def write_trace(
    path: Path, config: MonitorConfig, logs: Sequence[Log], producer: str = "", is_whole: bool = True
) -> int:
    """Write what the logs of all ranks hold, in an order in which it can have happened; returns how many events.

    `is_whole`: the run came to its end. Raises LogError for an event that is not one.
    """
    merger = Merger(config.ranks)
    counts = []
    for rank, log in enumerate(logs):
        events = list(checked(log.take_since(0)))
        counts.append(len(events))
        merger.push(rank, events)
    ordered = list(merger.ready())
    with path.open("w", encoding="utf-8") as stream:
        first = {"hicheck_trace": VERSION, "producer": producer, "logs_of": list(range(config.ranks)), **asdict(config)}
        _write(stream, {name: first[name] for name in HEADER})
        for e in [*ordered, *merger.rest()]:
            _write(stream, {"rank": e.rank, "seq": e.seq, "kind": e.kind, "op": e.op, "data": e.data})
        if is_whole:
            _write(stream, {"end": counts})
    return sum(counts)


def _write(stream: Any, line: dict[str, Any]) -> None:
    stream.write(json.dumps(line, separators=(",", ":")) + "\n")
