"""A bound specification as the exporters read it: values, functions in the order of use, actions, properties.

Events are for observers of steps and no part of the state, so they are left out here: `emit` statements are dropped,
and so are properties that look at events.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

from hicache_checks.export.actions import Action
from hicache_checks.export.functions import ExportError, Function, Value, read_state, without_events
from hicache_spec import BoundSpec
from hicache_spec.binding import Property, Step, Variable
from hicache_spec.language import EventKind, Field, Rule, Symbol
from hicache_spec.subset import source


@dataclass(frozen=True)
class Judged:
    """A property and its function; `goal` and `domains` are those of a liveness property."""

    rule: Rule
    function: Function
    goal: Function | None = None
    domains: Mapping[str, Value] = field(default_factory=dict)


class Program:
    """What there is to be written down of a bound specification. Raises ExportError."""

    def __init__(self, spec: BoundSpec) -> None:
        self.spec = spec
        self.variables: dict[str, Variable] = {v.name: v for v in spec.variables}
        self.fields: Mapping[str, Field] = spec.design.fields()
        self.functions: list[Function] = []
        self.values: dict[str, Value] = {}
        self._known: dict[tuple[Any, ...], Function] = {}
        self._seen: dict[Callable[..., Any], Function] = {}
        self._symbols: dict[Symbol, str] = {}
        for module in spec.design.modules:
            for name, value in vars(module).items():
                if isinstance(value, Symbol):
                    self._symbols.setdefault(value, name)
        by_rule: dict[str, list[Step]] = {}
        for step in spec.steps:
            by_rule.setdefault(step.rule.name, []).append(step)
        self.actions = [self._action(tuple(steps)) for steps in by_rule.values()]
        initial = [rule for rule in spec.design.rules() if rule.kind == "initial"]
        self.initial = [self._read(spec.function(rule.name), rule.name, rule) for rule in initial]
        self.rest = [self._read(holds, holds.__name__) for holds in spec.quiescence]
        self.invariants = self._judged(spec.invariants)
        self.step_properties = self._judged([p for p in spec.step_properties if not p.events])
        self.left_out = [p.rule for p in spec.step_properties if p.events]
        self.live = self._judged(spec.live)
        order = {name: i for i, name in enumerate(n for m in spec.design.modules for n in vars(m))}
        self.values = dict(sorted(self.values.items(), key=lambda item: order.get(item[0], len(order))))

    def used_by(self, roots: Sequence[Function]) -> list[Function]:
        """These functions and all that they call, in the order of use: a function stands after those it calls."""
        found: set[Function] = set()
        waiting = list(roots)
        while waiting:
            function = waiting.pop()
            if function not in found:
                found.add(function)
                waiting += function.calls.values()
        return [f for f in self.functions if f in found]

    def index_sets(self, variable: str) -> list[Value]:
        """The index sets of a state variable, outermost first."""
        return [self._index_set(d) for d in self.fields[variable].dims]

    def type_ends(self, variable: str) -> tuple[str, str]:
        """The highest value of a variable's type and, for a queue, its capacity, as the text names them."""
        t = self.fields[variable].type
        return self._symbols.get(t.high, ""), self._symbols.get(t.capacity, "")

    # -- reading

    def _action(self, steps: tuple[Step, ...]) -> Action:
        rule = steps[0].rule
        domains = {name: self._index_set(d) for name, d in rule.params.items()}
        return Action(rule, self._read(steps[0].function, rule.name, rule), domains, steps)

    def _judged(self, properties: list[Property]) -> list[Judged]:
        found = []
        for p in properties:
            function = self._read(p.holds, p.rule.name, p.rule)
            goal = p.rule.waits_for
            domains = {name: self._index_set(d) for name, d in p.rule.params.items()}
            bound = None if goal is None else self.spec.function(goal.__name__)
            found.append(
                Judged(p.rule, function, None if bound is None else self._read(bound, bound.__name__), domains)
            )
        return found

    def _index_set(self, symbol: Any) -> Value:
        if not isinstance(symbol, Symbol) or symbol not in self._symbols:
            raise ExportError(f"{self.spec.design.name}: the index set {symbol!r} has no name in the text")
        return self._value(self._symbols[symbol], symbol.resolve(self.spec.bounds), from_bounds=True)

    def _value(self, name: str, value: Any, from_bounds: bool) -> Value:
        known = self.values.setdefault(name, Value(name, value, from_bounds))
        if known.value != value:
            raise ExportError(f"{self.spec.design.name}: the name {name} stands for {known.value!r} and for {value!r}")
        return known

    def _read(self, bound: Callable[..., Any], name: str, rule: Rule | None = None) -> Function:
        assert isinstance(bound, FunctionType)
        if bound in self._seen:
            return self._seen[bound]
        original: Callable[..., Any] = bound.__dict__["__wrapped__"]
        tree = without_events(source(original))
        called_names = {n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
        calls = {
            used: self._read(value, _original_of(value).__name__)
            for used, value in sorted(bound.__globals__.items())
            if used in called_names and isinstance(value, FunctionType) and "__wrapped__" in value.__dict__
        }
        # Bound once for rules and once for properties, a function may be the same text with the same helpers.
        key = (original, tuple(calls.items()))
        if key in self._known:
            return self._seen.setdefault(bound, self._known[key])
        title = rule.title if rule else _first_sentence(original.__doc__)
        function = Function(
            self._free_name(name), original, tree, bound.__globals__, calls, title, rule.section if rule else ""
        )
        self._known[key] = self._seen[bound] = function
        self.functions.append(function)
        self._read_names(function)
        read_state(function)
        return function

    def _free_name(self, name: str) -> str:
        taken = {f.name for f in self.functions}
        number = 2
        free = name
        while free in taken:
            free, number = f"{name}_{number}", number + 1
        return free

    def _read_names(self, function: Function) -> None:
        unbound = getattr(function.original, "__globals__", {})
        for node in ast.walk(function.tree):
            if not isinstance(node, ast.Name) or node.id in function.own or node.id in function.calls:
                continue
            value = function.scope.get(node.id)
            if value is None or callable(value) or isinstance(value, EventKind) or hasattr(builtins, node.id):
                continue
            self._value(node.id, value, isinstance(unbound.get(node.id), Symbol))


def _original_of(bound: Callable[..., Any]) -> Callable[..., Any]:
    """The function as it stands in the text."""
    wrapped: Callable[..., Any] = getattr(bound, "__wrapped__", bound)
    return wrapped


def _first_sentence(text: str | None) -> str:
    return " ".join((text or "").split("\n\n")[0].split())
