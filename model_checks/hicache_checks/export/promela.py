"""A bound specification as Promela: one process, one option of a loop for each instance of an action.

Each option is a `d_step`, so a step here is a step there, and the states that Spin stores are the states of the
specification. Names that a step needs on its way are `hidden` from the state; for Spin's breadth-first search, which
does not allow that, they are set back to zero (`-DNO_HIDDEN`). Properties are checked once a state, by options that are
possible only where a property is violated; `-DUNCHECKED` leaves them out.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from typing import Any

from hicache_checks.export.actions import possible
from hicache_checks.export.functions import Function
from hicache_checks.export.program import Program
from hicache_checks.export.promela_formulas import Formulas
from hicache_checks.export.promela_rules import INDENT, Rules
from hicache_checks.export.promela_words import conjunction, disjunction
from hicache_checks.export.terms import Term
from hicache_spec import BoundSpec
from hicache_spec.binding import Step, Variable, at

DEADLOCK = "deadlock"
STATE_IN_BOUNDS = "state_in_bounds"
WIDTH = 118


class Promela:
    """The text. `extra_states` is how many states Spin stores beside those of the specification."""

    def __init__(self, spec: BoundSpec, configuration: str) -> None:
        self.program = Program(spec)
        self.configuration = configuration
        self.formulas = Formulas(self.program)
        self.rules = Rules(self.formulas)
        self._start = list(self._start_lines())
        self.extra_states = 1 if self._start else 0
        self.properties = [STATE_IN_BOUNDS, *(j.rule.name for j in self.program.invariants), DEADLOCK]

    def text(self) -> str:
        """The whole model."""
        roots_of_actions = [a.function for a in self.program.actions]
        roots = [*roots_of_actions, *self.program.rest, *(j.function for j in self.program.invariants)]
        functions = [
            (function, self.rules.inline(function) if function.writes else folded(self.formulas.macro(function)))
            for function in self.program.used_by(roots)
            if function not in roots_of_actions
        ]
        actions = [(a, [*self.rules.guard(a), *self.rules.action(a)]) for a in self.program.actions]
        parts = [
            self._head(),
            self._values(),
            self._state(),
            self._temporaries(),
            *("\n".join([*_comment(f), *lines]) for f, lines in functions),
            *("\n".join([*_comment(a.function), *lines]) for a, lines in actions),
            self._properties(),
            self._process(),
        ]
        return "\n\n".join(part.rstrip() for part in parts if part) + "\n"

    # -- parts of the text

    def _head(self) -> str:
        design = self.program.spec.design
        rows = [
            f"{design.name}, configuration {self.configuration}:",
            f"{design.summary}.",
            "Written by `hicheck export --promela` from the specification; the sections are those of SPEC.md.",
            "",
            "    spin -a -o2 THIS && cc -O3 -DSAFETY -DNOREDUCE -DNOCOMP -o pan pan.c && ./pan -m100000",
            "",
            "For spin: -DUNCHECKED leaves the properties out, -DNO_HIDDEN is for breadth-first search (cc -DBFS).",
            "-o2 keeps Spin from leaving out variables that no option reads.",
            "A name with `_` at its end is like another name. Loops over index sets are unrolled.",
        ]
        return "\n".join(["/*", *(f" * {row}".rstrip() for row in rows), " */"])

    def _values(self) -> str:
        lines = []
        tables = []
        for value in sorted(self.program.values.values(), key=lambda v: not v.from_bounds):
            if isinstance(value.value, tuple):
                tables += folded(self.formulas.table(value))
            elif not isinstance(value.value, range):
                text = f"({value.value})" if value.value < 0 else str(int(value.value))
                lines.append(f"#define {self.formulas.names.name(value.name)} {text}")
        lines += tables
        lines.append("#define opt(x) ((x) - 1) /* an optional number is stored plus one, so that NONE is 0 */")
        lines.append("#define least(a, b) ((a) < (b) -> (a) : (b))")
        lines.append("#define most(a, b) ((a) > (b) -> (a) : (b))")
        return "\n".join(["/* values */", *lines])

    def _state(self) -> str:
        types: dict[str, str] = {}
        declared = []
        for v in self.program.variables.values():
            name = self._type(v, types)
            text = f"{name} {self.formulas.names.name(v.name)}{f'[{v.sizes[0]}]' if v.sizes else ''}"
            declared.append(f"{text}{self._initially(v)};")
        queues = sorted({int(v.type.capacity) for v in self.program.variables.values() if v.type.kind == "queue"})
        lines = [line for capacity in queues for line in _queue_words(capacity)]
        if queues:
            lines.insert(0, "#define put(queue, x) queue.at[queue.length] = x; queue.length++")
        return "\n".join(["/* the state */", *types.values(), *declared, *lines])

    def _type(self, v: Variable, types: dict[str, str]) -> str:
        t = v.type
        if t.kind in ("queue", "set"):
            size = int(t.capacity) if t.kind == "queue" else int(t.high) + 1
            element = smallest(int(t.high)) if t.kind == "queue" else "bool"
            name = f"{t.kind}_{size}" if element in ("byte", "bool") else f"{t.kind}_{size}_{element}"
            cells = f"byte length; {element} at[{size}]" if t.kind == "queue" else f"bool has[{size}]"
            types.setdefault(name, f"typedef {name} {{ {cells} }};")
        else:
            name = "bool" if t.kind == "flag" else smallest(int(t.high) + (1 if t.low < 0 else 0))
        for size in reversed(v.sizes[1:]):
            row = f"{name}_by_{size}"
            types.setdefault(row, f"typedef {row} {{ {name} at[{size}] }};")
            name = row
        return name

    def _initially(self, v: Variable) -> str:
        """The initial value, where a declaration can say it."""
        if v.type.kind in ("queue", "set") or len(v.sizes) > 1:
            return ""
        values = [self._stored(v, at(self.program.spec.initial(), v.name, place)) for place in v.places()]
        if not any(values):
            return ""
        if len(set(values)) == 1:
            return f" = {values[0]}"
        return " = {" + ", ".join(map(str, values)) + "}"

    @staticmethod
    def _stored(v: Variable, value: Any) -> int:
        return int(value) + (1 if v.type.low < 0 else 0)

    def _start_lines(self) -> Iterator[str]:
        """What no declaration can say of the initial state."""
        first = self.program.spec.initial()
        for v in self.program.variables.values():
            for place in v.places():
                value = at(first, v.name, place)
                name = self.formulas.names.name(v.name)
                text = name + "".join(f"[{i}]" if d == 0 else f".at[{i}]" for d, i in enumerate(place))
                if v.type.kind == "queue" and value:
                    yield from (f"{text}.at[{i}] = {x};" for i, x in enumerate(value))
                    yield f"{text}.length = {len(value)};"
                elif v.type.kind == "set":
                    yield from (f"{text}.has[{x}] = 1;" for x in value)
                elif v.type.kind != "queue" and len(v.sizes) > 1 and self._stored(v, value):
                    yield f"{text} = {self._stored(v, value)};"

    def _temporaries(self) -> str:
        names = list(self.rules.temporaries)
        forget = "; ".join(f"{name} = 0" for name in names) or "skip"
        lines = ["/* names for values on the way through a step */", "#ifdef NO_HIDDEN", "#define TEMPORARY int"]
        lines += [*folded(f"#define forget() {forget}"), "#else", "#define TEMPORARY hidden int"]
        lines += ["#define forget() skip", "#endif", *(f"TEMPORARY {name};" for name in names)]
        return "\n".join(lines)

    def _properties(self) -> str:
        lines = ["/* properties */"]
        ranges = conjunction([Term(text) for v in self.program.variables.values() for text in self._in_bounds(v)])
        lines += folded(f"#define {STATE_IN_BOUNDS}() ({ranges.text})")
        fair = disjunction([Term(self._guard(s)) for a in self.program.actions if a.rule.fairness for s in possible(a)])
        rest = conjunction([Term(f"{self.formulas.names.name(f.name)}()") for f in self.program.rest])
        lines += folded(f"#define no_{DEADLOCK}() ({disjunction([fair, rest]).text})")
        holds = conjunction([Term(f"{p}()") for p in self._conditions()])
        lines += folded(f"#define all_hold() ({holds.text})")
        lines += [
            "#ifndef UNCHECKED",
            "#ifdef NO_HIDDEN",
            "#define FLAG bit",
            "#else",
            "#define FLAG hidden byte",
            "#endif",
        ]
        lines += [f"FLAG {p}_is_violated;" for p in self._conditions()]
        lines += ["#define check(p) p##_is_violated = !p(); assert(!p##_is_violated)", "#endif"]
        return "\n".join(lines)

    def _conditions(self) -> list[str]:
        """The names of what must hold."""
        names = [self.formulas.names.name(j.function.name) for j in self.program.invariants]
        return [STATE_IN_BOUNDS, *names, f"no_{DEADLOCK}"]

    def _in_bounds(self, v: Variable) -> Iterator[str]:
        for place in v.places():
            name = self.formulas.names.name(v.name)
            text = name + "".join(f"[{i}]" if d == 0 else f".at[{i}]" for d, i in enumerate(place))
            if v.type.kind == "queue":
                yield f"{text}.length <= {v.type.capacity}"
            elif v.type.kind == "int":
                yield f"{text} <= {v.type.high + (1 if v.type.low < 0 else 0)}"

    def _guard(self, step: Step) -> str:
        action = next(a for a in self.program.actions if a.rule == step.rule)
        return f"{self.rules.can(action)}({_values_of(step)})"

    def _process(self) -> str:
        lines = ["active proctype system() {"]
        if self._start:
            lines += [f"{INDENT}d_step {{", *(f"{INDENT * 2}{line}" for line in self._start), f"{INDENT}}}"]
        lines += ["end:", f"{INDENT}do"]
        for action in self.program.actions:
            steps = possible(action)
            if not steps:
                lines.append(f"{INDENT}/* {action.rule.name}: never possible in this configuration */")
            name = self.formulas.names.name(action.function.name)
            lines += [f"{INDENT}:: {name}({_values_of(step)})" for step in steps]
        lines += ["#ifndef UNCHECKED", f"{INDENT}:: d_step {{ !all_hold() ->"]
        lines += [f"{INDENT * 2}check({p});" for p in self._conditions()]
        lines += [f"{INDENT}}}", "#endif", f"{INDENT}od", "}"]
        return "\n".join(lines)


def folded(macro: str) -> list[str]:
    """A macro on as many lines as it needs, each but the last with a backslash."""
    lines = [""]
    for piece in re.split(r"(?<= )(?=(?:&&|\|\||:|\+) )|(?<=; )", macro):
        if len(lines[-1]) + len(piece) > WIDTH - 2 and lines[-1].strip():
            lines.append(INDENT)
        lines[-1] += piece
    return [*(f"{line.rstrip()} \\" for line in lines[:-1]), lines[-1]]


def smallest(high: int) -> str:
    """The smallest type of Promela that holds 0 .. high."""
    return "byte" if high <= 255 else "short" if high <= 32767 else "int"


def _queue_words(capacity: int) -> Iterator[str]:
    shift = " ".join(f"queue.at[{i}] = queue.at[{i + 1}];" for i in range(capacity - 1))
    yield f"#define take_{capacity}(queue) {shift} queue.at[{capacity - 1}] = 0; queue.length--"
    tests = " || ".join(f"(queue.length > {i} && queue.at[{i}] == (x))" for i in range(capacity))
    yield from folded(f"#define holds_{capacity}(queue, x) ({tests})")


def _values_of(step: Step) -> str:
    return ", ".join(str(v) for v in step.arguments.values())


def _comment(function: Function) -> list[str]:
    text = f"§{function.section} {function.title}" if function.section else function.title
    lines = textwrap.wrap(text.replace("*/", "* /"), WIDTH - 6)
    if not lines:
        return []
    lines = [f"/* {lines[0]}", *(f" * {line}" for line in lines[1:])]
    return [*lines[:-1], f"{lines[-1]} */"]
