"""`hicheck spec --diff LEFT RIGHT`: what a change from one design to another adds, drops and changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from hicache_checks.refine_command import verdicts
from hicache_checks.reporting import InputError, Outcome, Screen, Verdict
from hicache_checks.spec_diff import (
    ADDED,
    CHANGED,
    DROPPED,
    HELPER,
    PROPERTIES,
    WORD,
    EventChange,
    RuleChange,
    SpecDiff,
    VariableChange,
    compare,
)
from hicache_spec import DESIGNS

SIGNS = {ADDED: "+", DROPPED: "-", CHANGED: "~"}
PARTS = (
    ("actions", ("action",)),
    ("functions of the actions", (HELPER,)),
    ("initial state and rest", ("initial", "quiescent")),
    ("properties", PROPERTIES),
    ("functions of the properties", (WORD,)),
)


def run(left: str, right: str, screen: Screen) -> Outcome:
    """Compare two designs of the registry and report. Raises InputError for an unknown one."""
    for name in (left, right):
        if name not in DESIGNS:
            raise InputError(f"no design {name!r}; the designs are {', '.join(DESIGNS)}")
    diff = compare(DESIGNS[left], DESIGNS[right])
    for line in report(diff):
        screen.say(line)
    screen.progress.update(f"comparing the behaviour of {left} and {right}")
    refinement = ["the same design"] if left == right else verdicts(left, right)
    for line in ("", "refinement", *(f"  {verdict}" for verdict in refinement)):
        screen.say(line)
    keys = {
        "left": left,
        "right": right,
        "variables": [asdict(v) for v in diff.variables],
        "rules": [asdict(r) for r in diff.rules],
        "events": [asdict(e) for e in diff.events],
        "violates": {"left": list(diff.left_violates), "right": list(diff.right_violates)},
        "refinement": refinement,
    }
    return Outcome(Verdict.PASS, keys)


def report(diff: SpecDiff) -> Iterator[str]:
    """The comparison as text, a line each: `+` what comes, `-` what goes, `~` what changes."""
    yield f"{diff.left} -> {diff.right}"
    if diff.variables:
        yield from ("", "state")
        yield from (_variable(v) for v in diff.variables)
    for title, kinds in PARTS:
        changes = [r for r in diff.rules if r.kind in kinds]
        if changes:
            yield from ("", title)
        for change in changes:
            yield from _rule(change)
    if not diff.variables and not diff.rules:
        yield from ("", "no variable, rule or function differs")
    yield from ("", "events")
    yield from [_event(e) for e in diff.events] or ["  every action emits the same ones"]
    yield from ("", "known to violate")
    width = max(len(diff.left), len(diff.right))
    yield f"  {diff.left:{width}}  {', '.join(diff.left_violates) or 'nothing'}"
    yield f"  {diff.right:{width}}  {', '.join(diff.right_violates) or 'nothing'}"


def _variable(v: VariableChange) -> str:
    if v.change in (ADDED, DROPPED):
        return f"  {SIGNS[v.change]} {v.name}: {v.left or v.right}"
    if v.change == CHANGED:
        return f"  ~ {v.name}: {v.left} -> {v.right}"
    return f"  ~ {v.name}: {v.change}"


def _rule(r: RuleChange) -> Iterator[str]:
    of = f", of {', '.join(r.reached_by)}" if r.reached_by else ""
    yield f"  {SIGNS[r.change]} {r.name}{of}"
    if r.sentence:
        yield f"      {r.sentence}"
    if r.change == DROPPED:
        return
    if r.left != r.right and r.left:
        yield f"      was     {r.left}"
    if r.right:
        yield f"      {'now' if r.left not in ('', r.right) else 'is '}     {r.right}"
    if r.wraps:
        yield "      calls   what it replaces"
    if r.change == CHANGED:
        yield from (f"      guard - {g.condition}: {g.reason}" for g in r.guards_dropped)
        yield from (f"      guard + {g.condition}: {g.reason}" for g in r.guards_added)
    yield from (f"        {line}" for line in r.text)


def _event(e: EventChange) -> str:
    says = [f"no longer emits {', '.join(e.dropped)}"] if e.dropped else []
    says += [f"newly emits {', '.join(e.added)}"] if e.added else []
    return f"  {e.action} {'; '.join(says)}"
