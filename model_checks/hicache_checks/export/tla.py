"""A bound specification as a TLA+ module, with the configuration file for TLC.

The state is one record. An action is its guards and the state that follows; what a rule does in steps of its own is a
chain of definitions s1, s2, ... The sizes and switches of the bounds are constants, given in the configuration file.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from hicache_checks.export.actions import Action, possible
from hicache_checks.export.functions import Function
from hicache_checks.export.program import Judged, Program
from hicache_checks.export.tla_formulas import Formulas
from hicache_checks.export.tla_layout import after, defined, folded, leaf
from hicache_checks.export.tla_rules import Rules
from hicache_spec import BoundSpec
from hicache_spec.binding import Variable
from hicache_spec.language import Rule

DEADLOCK = "deadlock"
STATE_IN_BOUNDS = "state_in_bounds"
WORDS = r"""
\* -- words of every export
Min(S) == CHOOSE x \in S : \A y \in S : x <= y
Max(S) == CHOOSE x \in S : \A y \in S : x >= y
Number(condition) == IF condition THEN 1 ELSE 0
Is(condition) == condition = TRUE   \* in a guard: TLC would take a disjunction for a choice of steps
Holds(queue, x) == \E i \in DOMAIN queue : queue[i] = x
Queue(S, capacity) == UNION {[1 .. length -> S] : length \in 0 .. capacity}
Table(entries) == [i \in 0 .. Len(entries) - 1 |-> entries[i + 1]]   \* the tables count from zero
RECURSIVE Sum(_, _)
Sum(f, i) == IF i \in DOMAIN f THEN f[i] + Sum(f, i + 1) ELSE 0   \* f[i], f[i + 1] and so on
ForEach(S, first, Step(_, _)) ==   \* S is a range of numbers; in their order
    LET after[i \in Int] == IF i \in S THEN Step(after[i - 1], i) ELSE first
    IN  IF S = {} THEN first ELSE after[Max(S)]
"""


class Tla:
    """The module and its configuration file, by the name of the configuration."""

    def __init__(self, spec: BoundSpec, configuration: str, module: str = "") -> None:
        self.program = Program(spec)
        self.formulas = Formulas(self.program)
        self.rules = Rules(self.formulas)
        self.configuration = configuration
        self.module = module or f"{spec.design.name}_{configuration}"
        self.properties = [STATE_IN_BOUNDS, *(j.rule.name for j in self.program.invariants), DEADLOCK]
        self.step_properties = [j.rule.name for j in self.program.step_properties]

    # -- the configuration file

    def cfg(self, checked: bool = True) -> str:
        """What TLC is to do; `checked`: with the properties."""
        lines = [f"\\* {self.program.spec.design.name}, configuration {self.configuration}", "SPECIFICATION Spec"]
        lines += [
            "\\* run TLC with -deadlock, which turns its own check off: deadlock_holds says when the system may rest"
        ]
        lines += ["CONSTANTS"]
        lines += [f"    {self.formulas.names.name(v.name)} = {_literal(v.value)}" for v in self._constants()]
        if checked:
            lines += ["INVARIANTS", *(f"    {name}" for name in self._names(self.properties))]
            if self.step_properties:
                lines += ["PROPERTIES", *(f"    {name}" for name in self._names(self.step_properties))]
        return "\n".join(lines) + "\n"

    def _names(self, names: Sequence[str]) -> list[str]:
        return [f"{name}_holds" for name in names]

    def _constants(self) -> list[Any]:
        return [v for v in self.program.values.values() if v.from_bounds and not isinstance(v.value, tuple)]

    # -- the module

    def text(self) -> str:
        """The module."""
        program = self.program
        actions = [a.function for a in program.actions]
        roots = [*program.initial, *actions, *program.rest, *(j.function for j in program.invariants)]
        roots += [j.function for j in (*program.step_properties, *program.live)]
        roots += [j.goal for j in program.live if j.goal is not None]
        inner = [f for f in program.used_by(roots) if f not in actions and f not in program.initial]
        helpers = [f for f in inner if not f.section or f in program.rest]
        parts = [
            self._head(),
            WORDS.strip(),
            self._values(),
            self._state(),
            *("\n".join([*_comment(f), *self.rules.operator(f)]) for f in helpers),
            *(self._start(f) for f in program.initial),
            *("\n".join([*_comment(a.function), *self.rules.action(a)]) for a in program.actions),
            self._system(),
            *("\n".join([*_comment(f), *self.rules.operator(f)]) for f in inner if f not in helpers),
            self._properties(),
            "=" * 100,
        ]
        return "\n\n".join(part.rstrip() for part in parts if part) + "\n"

    def _head(self) -> str:
        design = self.program.spec.design
        left_out = [r.name for r in self.program.left_out]
        rows = [
            f"{design.name}: {design.summary}. Configuration {self.configuration}.",
            "Written by `hicheck export --tla` from the specification; the sections are those of SPEC.md.",
        ]
        if left_out:
            rows.append(f"Events are no part of the state, so these are left out: {', '.join(left_out)}.")
        bar = "-" * 10
        comment = [f"\\* {line}" for row in rows for line in textwrap.wrap(row, 110)]
        return "\n".join([f"{bar} MODULE {self.module} {bar}", *comment, "EXTENDS Integers, Sequences, FiniteSets"])

    def _values(self) -> str:
        names = self.formulas.names
        lines = ["\\* -- from the bounds", *after("CONSTANTS ", folded(self._list_of_constants()))]
        values = sorted(self.program.values.values(), key=lambda v: isinstance(v.value, tuple))
        lines += [
            line
            for v in values
            if not v.from_bounds or isinstance(v.value, tuple)
            for line in defined(names.name(v.name), leaf(_literal(v.value)))
        ]
        return "\n".join(line.rstrip() for line in lines)

    def _list_of_constants(self) -> str:
        return ", ".join(self.formulas.names.name(v.name) for v in self._constants())

    def _state(self) -> str:
        rows = []
        first = []
        for v in self.program.variables.values():
            sets = [self.formulas.names.name(d.name) for d in self.program.index_sets(v.name)]
            rows.append(f"{v.name} : {_over(sets, self._type(v))}")
            first.append(f"{v.name} |-> {_filled(sets, v)}")
        lines = ["\\* -- the state", "VARIABLE state", ""]
        lines += [f"{STATE_IN_BOUNDS}(s) == s \\in", *(f"    {line}" for line in _bracketed(rows))]
        lines += ["", "empty_state ==", *(f"    {line}" for line in _bracketed(first))]
        return "\n".join(lines)

    def _type(self, v: Variable) -> str:
        t = v.type
        high, capacity = self.program.type_ends(v.name)
        values = self.program.values
        elements = high if high in values and isinstance(values[high].value, range) else ""
        if t.kind == "flag":
            return "BOOLEAN"
        if t.kind == "queue":
            count = f"Cardinality({capacity})" if capacity in values else str(t.capacity)
            return f"Queue({elements or f'0 .. {t.high}'}, {count})"
        if t.kind == "set":
            return f"SUBSET {elements or f'(0 .. {t.high})'}"
        if t.low < 0:
            return f"{elements or f'(0 .. {t.high})'} \\union {{-1}}"
        return elements or f"0 .. {high if high in values else t.high}"

    def _start(self, function: Function) -> str:
        return "\n".join([*_comment(function), *self.rules.operator(function)])

    def _system(self) -> str:
        state = "empty_state"
        for function in self.program.initial:
            state = f"{self.formulas.names.name(function.name)}({state})"
        steps = [self._steps(a.rule, a.function) for a in self.program.actions]
        lines = ["\\* -- the system", f"Init == state = {state}", "Next ==", *(f"    \\/ {s}" for s in steps)]
        lines += ["Spec == Init /\\ [][Next]_state"]
        fair = [self._fair(a.rule, a.function) for a in self.program.actions if a.rule.fairness]
        if fair:
            lines += ["Fairness ==", *(f"    /\\ {text}" for text in fair), "FairSpec == Spec /\\ Fairness"]
        return "\n".join(lines)

    def _steps(self, rule: Rule, function: Function, but: Sequence[str] = ()) -> str:
        """The action for some values of its parameters, those in `but` excepted."""
        action = next(a for a in self.program.actions if a.rule is rule)
        names = self._bound_names(function)
        call = self.formulas.names.name(function.name)
        call += f"({', '.join(names.values())})" if names else ""
        bound = [f"{names[p]} \\in {d.name}" for p, d in action.domains.items() if p not in but]
        return f"\\E {', '.join(bound)} : {call}" if bound else call

    def _possible(self, action: Action) -> str:
        names = self._bound_names(action.function)
        call = f"{self.rules.can(action)}({', '.join(['state', *names.values()])})"
        bound = ", ".join(f"{names[p]} \\in {d.name}" for p, d in action.domains.items())
        return f"\\E {bound} : {call}" if bound else call

    def _fair(self, rule: Rule, function: Function) -> str:
        """Weak fairness for each value of the parameters by itself, except for the chosen ones."""
        action = next(a for a in self.program.actions if a.rule is rule)
        names = self._bound_names(function)
        own = [p for p in action.domains if p not in rule.chosen]
        bound = ", ".join(f"{names[p]} \\in {action.domains[p].name}" for p in own)
        fair = f"WF_state({self._steps(rule, function, own)})"
        return f"\\A {bound} : {fair}" if bound else fair

    def _bound_names(self, function: Function) -> dict[str, str]:
        scene = self.formulas.scene(function)
        return {p: scene.locals[p] for p in function.parameters}

    def _properties(self) -> str:
        lines = ["\\* -- properties"]
        lines.append(f"{STATE_IN_BOUNDS}_holds == {STATE_IN_BOUNDS}(state)")
        lines += [f"{self._name(j)}_holds == {self._name(j)}(state)" for j in self.program.invariants]
        rest = " /\\ ".join(f"{self.formulas.names.name(f.name)}(state)" for f in self.program.rest) or "FALSE"
        fair = [a for a in self.program.actions if a.rule.fairness and possible(a)]
        lines.append(f"{DEADLOCK}_holds ==   \\* where no fair action is possible, the system is at rest")
        lines += [f"    \\/ {rest}", *(f"    \\/ {self._possible(a)}" for a in fair)]
        lines += [
            f"{self._name(j)}_holds == [][{self._name(j)}(state, state')]_state" for j in self.program.step_properties
        ]
        lines += list(self._live())
        return "\n".join(lines)

    def _live(self) -> Iterator[str]:
        for judged in self.program.live:
            assert judged.goal is not None
            names = self._bound_names(judged.function)
            arguments = ", ".join(["state", *names.values()])
            bound = ", ".join(f"{names[p]} \\in {d.name}" for p, d in judged.domains.items())
            goal = self.formulas.names.name(judged.goal.name)
            text = f"({self._name(judged)}({arguments}) ~> {goal}({arguments}))"
            each = f"\\A {bound} : " if bound else ""
            yield f"{self._name(judged)}_holds == {each}{text}   \\* of FairSpec"

    def _name(self, judged: Judged) -> str:
        return self.formulas.names.name(judged.function.name)


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, range):
        return "{" + ", ".join(map(str, value)) + "}"
    if isinstance(value, tuple):
        return f"Table(<<{', '.join(map(_literal, value))}>>)"
    return str(value)


def _over(sets: Sequence[str], inside: str) -> str:
    for name in reversed(sets):
        inside = f"[{name} -> {inside}]"
    return inside


def _filled(sets: Sequence[str], v: Variable) -> str:
    value = v.type.initial()
    text = {"queue": "<<>>", "set": "{}", "flag": "FALSE"}.get(v.type.kind, str(value))
    for number, name in reversed(list(enumerate(sets))):
        text = f"[{'ijk'[number]} \\in {name} |-> {text}]"
    return text


def _bracketed(rows: Sequence[str]) -> list[str]:
    """A record over several lines."""
    lines = [f"{'[' if i == 0 else ' '}{row}," for i, row in enumerate(rows)]
    return [*lines[:-1], f"{lines[-1][:-1]}]"]


def _comment(function: Function) -> list[str]:
    text = f"§{function.section} {function.title}" if function.section else function.title
    return [f"\\* {line}" for line in textwrap.wrap(text, 110)]
