"""`hicheck diff-targets A B`: the same programs on two targets, and the shortest that ends differently on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import zip_longest
from typing import Any

from hicache_checks.conformance.differ import ASSUMPTIONS, DiffOptions
from hicache_checks.conformance.target import fetch
from hicache_checks.conformance.workers import work
from hicache_checks.reporting import InputError, Outcome, Screen, Verdict, counted, print_rows, printable
from hicache_spec.assumptions import ASSUMPTIONS as OF_THE_SPECIFICATION

LOOP = ("tick(", "poll(")
Call = Mapping[str, Any]


def run(options: DiffOptions, screen: Screen) -> Outcome:
    """Compare and report. Raises InputError for assumptions and targets that cannot be used."""
    check(options)
    said: list[Mapping[str, Any]] = []

    def hear(document: Mapping[str, Any]) -> None:
        if "compared" in document:
            said.append(document["compared"])
        else:
            screen.progress.update(document["doing"])

    for name in (options.left, options.right):
        fetch(name, tell=screen.progress.update)
    both = f"{options.left} and {options.right}"
    crash = work({"do": "compare", "target": both, "options": asdict(options)}, hear)
    screen.progress.clear()
    if crash is not None:
        raise InputError(f"{both} cannot be compared: the process {crash.how}{f': {crash.words}' * bool(crash.words)}")
    compared = said[-1]
    verdict = verdict_of(compared)
    _print(options, compared, verdict, screen)
    lists = {"assume": list(options.assume), "policies": list(options.policies)}
    return Outcome(verdict, {**asdict(options), **lists, **_keys(compared)})


def check(options: DiffOptions) -> None:
    """Raises InputError for an assumption that is none, or that says nothing of programs."""
    for name in options.assume:
        if name in ASSUMPTIONS:
            continue
        what = "an assumption about runs of the specification" if name in OF_THE_SPECIFICATION else "no assumption"
        raise InputError(f"{name} is {what}; of programs there are {', '.join(ASSUMPTIONS)}")


def verdict_of(compared: Mapping[str, Any]) -> Verdict:
    """One difference is enough; for none, every program must have been run."""
    if compared["difference"] is not None:
        return Verdict.FAIL
    return Verdict.UNKNOWN if compared["out_of_time"] else Verdict.PASS


def _keys(compared: Mapping[str, Any]) -> dict[str, Any]:
    difference = compared["difference"]
    if difference is None:
        return {"programs": compared["programs"], "differing": 0, "difference": None}
    return {
        "programs": compared["programs"],
        "differing": compared["differing"],
        "difference": {
            "number": difference["number"],
            "setup": difference["program"]["setup"],
            "program": [_step(step) for step in difference["program"]["steps"]],
            "left": difference["left"],
            "right": difference["right"],
        },
    }


def _step(step: Mapping[str, Any]) -> str:
    return f"{step['kind']}({', '.join(repr(_tuples(argument)) for argument in step['args'])})"


def _tuples(argument: Any) -> Any:
    """As it was before it was JSON."""
    return tuple(map(_tuples, argument)) if isinstance(argument, list) else argument


def _print(options: DiffOptions, compared: Mapping[str, Any], verdict: Verdict, screen: Screen) -> None:
    difference = compared["difference"]
    if difference is not None:
        _tell(options, difference, screen)
    assumed = f", assuming {', '.join(options.assume)}" if options.assume else ""
    found = "no difference in" if difference is None else f"they end differently in {compared['differing']} of"
    ran = counted(compared["programs"], "program")
    of = f" of {options.programs:,}: the time is up" if compared["out_of_time"] else ""
    screen.say(f"{options.left} and {options.right}{assumed}: {found} {ran}{of}; {verdict.value}")


def _tell(options: DiffOptions, difference: Mapping[str, Any], screen: Screen) -> None:
    """Both sides, call by call, but for turns of a scheduler's loop of which nothing came."""
    setup, left, right = difference["program"]["setup"], difference["left"], difference["right"]
    stored = ", ".join(map(str, map(tuple, setup["stored"]))) or "nothing"
    screen.say(
        f"{counted(setup['ranks'], 'rank')}, {setup['policy']}, {counted(setup['host_pages'], 'host page')}, "
        f"threshold {setup['threshold_pages']}, limit {setup['limit_pages']}; stored: {stored}"
    )
    rows = []
    for number, (a, b) in enumerate(zip_longest(left["calls"], right["calls"]), 1):
        calls = [call for call in (a, b) if call is not None]
        if any(call["below"] or not call["text"].startswith(LOOP) for call in calls):
            rows += _lines(str(number), _cell(a), _cell(b))
    rows += _lines("end", _end(left), _end(right))
    headers = ("call", f"LEFT: {options.left}", f"RIGHT: {options.right}")
    print_rows(screen.console, headers, [tuple(map(printable, row)) for row in rows], right=frozenset({0}))


def _cell(call: Call | None) -> list[str]:
    if call is None:
        return []
    answer = f" -> {call['answer']}" if call["answer"] else ""
    return [f"{call['text']}{answer}", *(f"  {line}" for line in call["below"])]


def _end(run: Mapping[str, Any]) -> list[str]:
    ends = [f"{operation} {how}" for operation, how in run["ends"].items()]
    rest = [f"{name} {value}" for name, value in run["rest"].items() if name != "operations"]
    return [*ends, *rest, *([f"broken: {run['broken']}: {run['why']}"] if run["broken"] else [])]


def _lines(number: str, left: Sequence[str], right: Sequence[str]) -> list[tuple[str, str, str]]:
    """One row of the table, in as many lines as it needs; a line that differs is marked."""
    rows = []
    for place, (a, b) in enumerate(zip_longest(left, right, fillvalue="")):
        rows.append((number if place == 0 else "", a, b if a == b else f"{b}  <-"))
    return rows
