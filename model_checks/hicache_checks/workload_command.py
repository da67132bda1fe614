"""`hicheck workload`: replay a request trace through an implementation and hold its logs to the specification."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from hicache_checks.conformance.logs import Explained, explain_traces
from hicache_checks.conformance.monitor import MonitorConfig
from hicache_checks.conformance.observation import LogError
from hicache_checks.conformance.traces import LogFile
from hicache_checks.implementations import WORKLOADS, load
from hicache_checks.rank_layout import RankLayout, described
from hicache_checks.reporting import InputError, Outcome, Screen, Verdict, print_rows

Runner = Callable[[Mapping[str, object], Callable[[str], None]], dict[str, Any]]

# How many rejected lines of a trace, and how many violations, are printed; the JSON document has more.
SHOWN_BAD_LINES = 5
IN_A_FOLDER = ("lmdb", "file")
SHOWN_VIOLATIONS = 10


@dataclass(frozen=True)
class WorkloadOptions:
    """What to replay and on what.

    `trace` is a path, or None together with `synthetic`; rates are shares of requests; `pools` are the fields of what
    is kept beside the pages; `target` is the name under which an implementation registered its runner.
    """

    trace: str | None
    synthetic: bool
    requests: int | None
    layout: RankLayout
    storage: str
    policy: str
    abort_rate: float
    stop_rate: float
    page_bytes: int
    host_pages: int
    device_pages: int
    speed: float | None
    seed: int
    fault: str | None
    threshold_pages: int = 2
    tree: str = "hiradix"
    pools: Sequence[Mapping[str, object]] = ()
    replicated: bool = False
    device: str = "cpu"
    backend: str = "gloo"
    target: str = "reference"


def pool_fields(text: str) -> dict[str, object]:
    """What `NAME=KIND[,FIELD=VALUE]...` says of a pool. InputError: it is not of this form."""
    first, *others = (tuple(part.partition("=")) for part in text.split(","))
    if not all(name and equals and value for name, equals, value in (first, *others)):
        raise InputError(f"a pool is NAME=KIND[,FIELD=VALUE]..., not {text!r}")
    fields: dict[str, object] = {"name": first[0], "kind": first[2]}
    return fields | {name: _value(value) for name, _, value in others}


def _value(text: str) -> object:
    return int(text) if text.isdecimal() else {"true": True, "false": False}.get(text, text)


def run(options: WorkloadOptions, screen: Screen) -> Outcome:
    """Replay the trace with the monitor on, and report. Errors: see `replay`."""
    outcome = replay(options, screen)
    screen.progress.clear()
    _print(outcome.keys, outcome.verdict, screen)
    return outcome


def replay(options: WorkloadOptions, screen: Screen) -> Outcome:
    """Replay the trace and hold the logs to the specification.

    Raises InputError when there is no trace to replay, it cannot be read, or the options contradict each other.
    """
    if options.synthetic == (options.trace is not None):
        raise InputError("give a trace FILE or --synthetic, one of them")
    runner: Runner = load(WORKLOADS, options.target)
    given = asdict(options)
    del given["target"]
    with tempfile.TemporaryDirectory(prefix="hicheck-workload-") as folder:
        try:
            keys = runner(
                {**given, "storage": _placed(options.storage, folder), "logs": folder}, screen.progress.update
            )
        except ValueError as error:
            # The runner's contract: a ValueError is one line about the options or the trace.
            raise InputError(str(error)) from error
        logs = [Path(path) for path in keys.pop("logs")]
        try:
            explained = _explain(logs, options, screen)
        except LogError as error:
            if not keys["violations"]:
                raise InputError(str(error)) from error
            # A rank that was ended in the middle of a line: that it was, is in the report already.
            explained = Explained(0, 0, False, None)
    keys["violations"] += [] if explained.finding is None else [str(explained.finding)]
    keys["events_explained"] = explained.events
    keys["events_unobserved"] = explained.unobserved
    return Outcome(_verdict(keys), keys)


def _placed(storage: str, folder: str) -> str:
    """A store of files that is named without a directory lies in the folder of the run, and goes with it."""
    return f"{storage}:{Path(folder) / 'store'}" if storage in IN_A_FOLDER else storage


def _explain(logs: Sequence[Path], options: WorkloadOptions, screen: Screen) -> Explained:
    """Hold the traces of all replicas to the specification, up to the first that has a finding. Raises LogError."""
    events = unobserved = 0
    ranks = options.layout.ranks
    for first in range(0, len(logs), ranks):
        explained = _explain_replica(logs[first : first + ranks], options, screen)
        events += explained.events
        unobserved += explained.unobserved
        if explained.finding is not None:
            break
    return replace(explained, events=events, unobserved=unobserved)


def _explain_replica(logs: Sequence[Path], options: WorkloadOptions, screen: Screen) -> Explained:
    config = MonitorConfig(
        ranks=options.layout.ranks,
        host_pages=options.host_pages,
        threshold_pages=options.threshold_pages,
        limit_pages=options.host_pages,
        policy=options.policy,
    )
    with ExitStack() as opened:
        files = [opened.enter_context(closing(LogFile(path))) for path in logs]
        for file in files:
            if file.header.config != config:
                raise LogError(f"{file.path}, line 1: the trace of another system than was asked for")
        return explain_traces(files, screen.progress.update)


def _verdict(keys: Mapping[str, Any]) -> Verdict:
    if keys["violations"] or keys["pages_left"]:
        return Verdict.FAIL
    return Verdict.PASS if keys["requests"] and keys["events_explained"] else Verdict.ERROR


def _print(keys: Mapping[str, Any], verdict: Verdict, screen: Screen) -> None:
    bad = keys["bad_lines"]
    for line in bad["first"][:SHOWN_BAD_LINES]:
        screen.say(f"line {line['line']} skipped: {line['reason']}")
    if bad["count"] > SHOWN_BAD_LINES:
        screen.say(f"{bad['count']:,} lines skipped in all")
    requests = {
        "aborted for good": keys["aborted_requests"],
        "aborted and resubmitted": keys["resubmitted_requests"],
        "stopped": keys["stopped_requests"],
        "truncated": keys["truncated_requests"],
    }
    rows = [
        ["requests", f"{keys['requests']:,}: {_counts(requests)}"],
        [
            "tokens",
            _counts(
                {f"{tier} hit": n for tier, n in keys["hit_tokens"].items()} | {"computed": keys["computed_tokens"]}
            ),
        ],
        ["fetched", _counts(keys["operations"]["fetched"])],
        ["revoked", _counts(keys["operations"]["revoked"])],
        ["declined", _counts(keys["declined"])],
        ["terminated", f"{keys['terminated']:,} operations passed through"],
        ["storage", _counts({name: n for name, n in keys["storage"].items() if n})],
        ["raised", _counts({name: n for name, n in keys["storage_errors"].items() if n})],
        ["fault", f"{keys['fault']}, {keys['damaged_files']} files damaged" if keys["fault"] else "none"],
        [
            "verified",
            f"{keys['pages_verified']:,} pages ({keys['pages_fetched']:,} fetched), {keys['bytes_verified']:,} bytes",
        ],
        ["monitor", f"{keys['events_explained']:,} events explained, {keys['events_unobserved']:,} taken on trust"],
        ["speed", f"{keys['pages_per_second']:,.0f} pages/s, {keys['seconds']:.1f} s, {described(keys['layout'])}"],
        ["memory", f"{keys['peak_rss_bytes'] / 2**20:,.0f} MiB at most in a process"],
        ["verdict", f"{verdict.value}: {_reasons(keys)}"],
    ]
    print_rows(screen.console, [], rows)
    for violation in keys["violations"][:SHOWN_VIOLATIONS]:
        screen.say(f"violation: {violation}")


def _reasons(keys: Mapping[str, Any]) -> str:
    reasons = f"{len(keys['violations'])} violations, {keys['pages_left']} pages left over"
    return reasons if keys["requests"] else reasons + ", no request was replayed"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {number:,}" for name, number in counts.items()) or "none"
