"""What differs between two designs, for somebody who reviews the change: state, rules, guards, helpers, events.

A design is its variables and the functions that its rules reach, with replacements in place. Two designs are compared
name by name. A replacement that calls what it replaces is a *wrapper*: its own text is all that is new.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

from hicache_checks.rule_effects import Function, Guard, calls, emitted, guards, written
from hicache_spec.language import Design, Field, Rule, Symbol, Type
from hicache_spec.subset import source

ADDED, DROPPED, CHANGED = "added", "dropped", "changed"
UNUSED, USED = "no longer written", "newly written"
HELPER, WORD = "helper", "word"
PROPERTIES = ("invariant", "step", "sometimes", "live")


@dataclass(frozen=True)
class VariableChange:
    """A state variable that one design has and the other has not, or has otherwise, or never writes."""

    name: str
    change: str
    left: str
    right: str


@dataclass(frozen=True)
class RuleChange:
    """A rule or function of one design that the other has not, or has otherwise.

    `kind`: that of the rule; `helper` for a function that actions call, `word` for one that only properties call.
    `reached_by`: the rules that call a helper. `left` and `right`: section, instances and fairness of the rule on each
    side, empty where it is absent. `text`: a unified diff without line numbers.
    """

    name: str
    kind: str
    change: str
    sentence: str
    left: str
    right: str
    wraps: bool
    reached_by: tuple[str, ...] = ()
    guards_dropped: tuple[Guard, ...] = ()
    guards_added: tuple[Guard, ...] = ()
    text: tuple[str, ...] = ()


@dataclass(frozen=True)
class EventChange:
    """The events that an action emits in one design only."""

    action: str
    dropped: tuple[str, ...]
    added: tuple[str, ...]


@dataclass(frozen=True)
class SpecDiff:
    """All that differs between two designs, and what each is known to violate."""

    left: str
    right: str
    variables: tuple[VariableChange, ...]
    rules: tuple[RuleChange, ...]
    events: tuple[EventChange, ...]
    left_violates: tuple[str, ...]
    right_violates: tuple[str, ...]


def compare(left: Design, right: Design) -> SpecDiff:
    """Compare two designs: `left` is what was, `right` is what is proposed."""
    was, now = _Reading(left), _Reading(right)
    return SpecDiff(
        left.name,
        right.name,
        tuple(_variables(was, now)),
        tuple(_rules(was, now)),
        tuple(_events(was, now)),
        left.violates,
        right.violates,
    )


# ---- reading one design


@dataclass
class _Part:
    """A function of a design under the name by which it is called, and its rule if it is one."""

    name: str
    kind: str
    function: Function
    rule: Rule | None = None
    wraps: bool = False
    reached_by: list[str] = field(default_factory=list)


class _Reading:
    """The parts of a design by name, and what its actions write and emit."""

    def __init__(self, design: Design) -> None:
        self.design = design
        self.parts: dict[str, _Part] = {}
        self.written: set[str] = set()
        self.emitted: dict[str, set[str]] = {}
        rules = design.rules()
        for rule in rules:
            self.parts[rule.name] = _Part(rule.name, rule.kind, rule.function, rule)
        for rule in rules:
            acts = rule.kind in ("action", "initial")
            self._walk(rule.name, rule.function, rule, acts, set())
            if rule.waits_for is not None:
                goal = rule.waits_for.__name__
                self.parts.setdefault(goal, _Part(goal, WORD, rule.waits_for)).reached_by.append(rule.name)
                self._walk(goal, rule.waits_for, rule, acts, set())

    def _walk(self, name: str, function: Function, rule: Rule, acts: bool, seen: set[tuple[str, Function]]) -> None:
        seen.add((name, function))
        if rule.kind == "action":
            self.written |= set(written(function))
            self.emitted.setdefault(rule.name, set()).update(emitted(function))
        for used, called in calls(function):
            called = self.design.meant(used, called, function, judging=not acts)
            if used == name and called is not function:
                self.parts[name].wraps = True
            if used not in self.parts:
                self.parts[used] = _Part(used, HELPER if acts else WORD, called)
            part = self.parts[used]
            if part.kind == (HELPER if acts else WORD) and used != name and rule.name not in part.reached_by:
                part.reached_by.append(rule.name)
            if (used, called) not in seen:
                self._walk(used, called, rule, acts, seen)


# ---- comparing two


def _variables(was: _Reading, now: _Reading) -> Iterator[VariableChange]:
    left, right = was.design.fields(), now.design.fields()
    for name in dict.fromkeys((*left, *right)):
        old, new = (_variable(fields[name]) if name in fields else "" for fields in (left, right))
        if old != new:
            yield VariableChange(name, CHANGED if old and new else ADDED if new else DROPPED, old, new)
        elif (name in was.written) != (name in now.written):
            yield VariableChange(name, UNUSED if name in was.written else USED, old, new)


def _rules(was: _Reading, now: _Reading) -> Iterator[RuleChange]:
    for name in dict.fromkeys((*was.parts, *now.parts)):
        old, new = was.parts.get(name), now.parts.get(name)
        if old is None or new is None:
            yield _one_sided(old, new)
        elif old.function is not new.function:
            yield _changed(old, new)


def _one_sided(old: _Part | None, new: _Part | None) -> RuleChange:
    part = old or new
    assert part is not None
    lines = _text(part)
    return RuleChange(
        part.name,
        part.kind,
        ADDED if old is None else DROPPED,
        _sentence(part),
        "" if old is None else _heading(old),
        "" if new is None else _heading(new),
        part.wraps,
        tuple(part.reached_by),
        guards(part.function) if new is None else (),
        guards(part.function) if old is None else (),
        tuple(("+" if old is None else "-") + line for line in lines),
    )


def _changed(old: _Part, new: _Part) -> RuleChange:
    old_guards, new_guards = guards(old.function), guards(new.function)
    # What is wrapped has not changed: the wrapper's own lines come or go.
    if _is_around(new, old):
        text = tuple("+" + line for line in _text(new))
    elif _is_around(old, new):
        text = tuple("-" + line for line in _text(old))
    else:
        text = tuple(_difference(_text(old), _text(new)))
    return RuleChange(
        new.name,
        new.kind,
        CHANGED,
        _sentence(new),
        _heading(old),
        _heading(new),
        new.wraps,
        tuple(dict.fromkeys((*old.reached_by, *new.reached_by))),
        tuple(g for g in old_guards if g not in new_guards),
        tuple(g for g in new_guards if g not in old_guards),
        text,
    )


def _is_around(outer: _Part, inner: _Part) -> bool:
    """Does the outer function call the inner one by the name under which both are known?"""
    assert isinstance(outer.function, FunctionType)
    return outer.wraps and outer.function.__globals__.get(outer.name) is inner.function


def _events(was: _Reading, now: _Reading) -> Iterator[EventChange]:
    for action in dict.fromkeys((*was.emitted, *now.emitted)):
        old, new = was.emitted.get(action, set()), now.emitted.get(action, set())
        if old != new:
            yield EventChange(action, tuple(sorted(old - new)), tuple(sorted(new - old)))


# ---- words


def _variable(f: Field) -> str:
    """The type of a variable and its index sets."""
    where = ", ".join(named(d) for d in f.dims)
    return f"{_type(f.type)}, for each {where}" if where else _type(f.type)


def _type(t: Type) -> str:
    if t.kind in ("queue", "set"):
        return f"{t.kind} of {named(t.high)}"
    if t.kind == "flag":
        return "yes or no"
    if t.names:
        return "one of " + " ".join(t.names)
    return f"{named(t.high)} or none" if t.low < 0 else f"0 .. {named(t.high)}"


def named(value: Any) -> str:
    """An index set or constant by its name, a number as it is."""
    return value.name if isinstance(value, Symbol) else str(value)


def _heading(part: _Part) -> str:
    """Section, instances and fairness of a rule; the section alone of a function, if it has one."""
    if part.rule is None:
        return _section(part.function)
    words = [_section(part.function) or f"§{part.rule.section}"]
    if part.kind == "action":
        words += [f"{'any' if p in part.rule.chosen else 'each'} {p}" for p in part.rule.params] or ["once"]
        words.append(f"{part.rule.fairness or 'no'} fairness")
    return ", ".join(words)


def _section(function: Function) -> str:
    found = re.match(r"§[0-9A-Z.]*[0-9A-Z]", function.__doc__ or "")
    return found.group() if found else ""


def _sentence(part: _Part) -> str:
    paragraph = " ".join((part.function.__doc__ or "").split("\n\n")[0].split())
    return re.sub(r"^§[0-9A-Z.]+\s*", "", paragraph)


def _text(part: _Part) -> list[str]:
    """The lines of a function without its decorator and its docstring, under the name that it goes by in the design.

    A wrapper keeps its own name: the other one stands in its text for what it wraps.
    """
    tree = source(part.function)
    lines = textwrap.dedent(inspect.getsource(part.function)).splitlines()
    first = tree.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        assert first.end_lineno is not None
        kept = lines[tree.lineno - 1 : first.lineno - 1] + lines[first.end_lineno :]
    else:
        kept = lines[tree.lineno - 1 :]
    if not part.wraps:
        kept[0] = kept[0].replace(f"def {part.function.__name__}(", f"def {part.name}(", 1)
    return kept


def _difference(left: list[str], right: list[str]) -> Iterator[str]:
    """A unified diff without file names and line numbers; `...` where something is left out."""
    for number, line in enumerate(difflib.unified_diff(left, right, n=2, lineterm="")):
        if line.startswith("@@"):
            if number > 2:
                yield "..."
        elif number >= 2:
            yield line
