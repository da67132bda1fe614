"""§A.3 Binding: a design under given bounds, as plain Python objects that run.

Every rule function is rebuilt with its index sets, constants and tables replaced by their values, and its helper
functions by the design's. Nothing is global: two bound specifications, of one design or of two, live side by side.
"""

from __future__ import annotations

import builtins
import itertools
import marshal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from types import CodeType, FunctionType
from typing import Any

from . import language
from .language import Design, EventKind, Rule, SpecError, State, Symbol, Type
from .subset import check_rule


@dataclass(frozen=True)
class Variable:
    """A state variable under the bounds: `sizes` are the sizes of its index sets, outermost first."""

    name: str
    type: Type
    sizes: tuple[int, ...]

    def places(self) -> Iterator[tuple[int, ...]]:
        """Every index of the variable."""
        return itertools.product(*map(range, self.sizes))


@dataclass(frozen=True)
class Step:
    """One instance of an action: the bound action with values for its parameters, and both together in `run`."""

    rule: Rule
    arguments: Mapping[str, int]
    function: Callable[..., None]
    run: Callable[[State], None]

    @property
    def label(self) -> str:
        """The step as text, such as `query_put(rank=1)`."""
        return f"{self.rule.name}({', '.join(f'{k}={v}' for k, v in self.arguments.items())})"


@dataclass(frozen=True)
class Property:
    """A bound property: its rule and the function that decides it."""

    rule: Rule
    holds: Callable[..., bool]
    events: frozenset[str]
    """The kinds of events that the property, or a helper of it, looks for."""
    goal: Callable[..., bool] | None = None
    """What a `@leads_to` property waits for; same parameters."""


class BoundSpec:
    """A design under bounds. States are `State` objects; `encode` gives a compact key, `decode` a fresh state from
    it."""

    def __init__(self, design: Design, bounds: Any, words: Mapping[str, Callable[..., Any]] | None = None) -> None:
        """`words`: helper functions that an observer supplies instead of the text, such as the tree as it was seen.

        They are ordinary Python, used as they are, in rules and properties alike. Raises SpecError.
        """
        self.design, self.bounds, self.words = design, bounds, dict(words or {})
        self._functions: dict[tuple[Callable[..., Any], str, bool], Callable[..., Any]] = {}
        self.variables = [
            Variable(name, self._type(value.type), tuple(len(self._value(d)) for d in value.dims))
            for name, value in design.fields().items()
        ]
        self._names = [v.name for v in self.variables]
        get = attrgetter(*self._names)
        self._values: Callable[[State], Any] = get if len(self._names) > 1 else lambda s: (get(s),)
        self.state_class: type[State] = type(f"State_{design.name}", (State,), {"__slots__": tuple(self._names)})
        rules = design.rules()
        for rule in rules:
            check_rule(rule, design)
        self._actions = [rule for rule in rules if rule.kind == "action"]
        self.invariants = self._properties(rules, "invariant")
        self.step_properties = self._properties(rules, "step")
        self.sometimes = self._properties(rules, "sometimes")
        self.live = self._properties(rules, "live")
        self._initial = [self._bind(r.function, r.name) for r in rules if r.kind == "initial"]
        self.quiescence = [p.holds for p in self._properties(rules, "quiescent")]

    @cached_property
    def steps(self) -> list[Step]:
        """Every instance of every action, in the order of the text."""
        return [step for rule in self._actions for step in self._instances(rule)]

    # -- states

    def initial(self) -> State:
        """The initial state."""
        s = self.state_class()
        s.events = []
        for v in self.variables:
            setattr(s, v.name, _filled(v.sizes, v.type))
        for rule in self._initial:
            rule(s)
        return s

    def encode(self, s: State) -> bytes:
        """The state as bytes: equal states, equal bytes."""
        return marshal.dumps(self._values(s), 2)

    def decode(self, key: bytes) -> State:
        """A fresh state from `encode`'s bytes."""
        s = self.state_class()
        s.events = []
        for name, value in zip(self._names, marshal.loads(key), strict=True):
            setattr(s, name, value)
        return s

    def out_of_bounds(self, s: State) -> str | None:
        """The first variable whose value is not of its type, with that value; None if all are."""
        for v in self.variables:
            if not _admitted(v.type, v.sizes, getattr(s, v.name)):
                return next(
                    f"{v.name}{''.join(f'[{i}]' for i in place)} = {at(s, v.name, place)!r}"
                    for place in v.places()
                    if not v.type.admits(at(s, v.name, place))
                )
        return None

    def is_quiescent(self, s: State) -> bool:
        """May the system rest here?"""
        return all(rule(s) for rule in self.quiescence)

    def difference(self, before: State, after: State) -> list[str]:
        """What changed, one `variable[index]: old -> new` each, in the order of the state's declaration."""
        lines = []
        for v in self.variables:
            for place in v.places():
                old, new = at(before, v.name, place), at(after, v.name, place)
                if old != new:
                    where = "".join(f"[{i}]" for i in place)
                    lines.append(f"{v.name}{where}: {v.type.show(old)} -> {v.type.show(new)}")
        return lines

    def function(self, name: str) -> Callable[..., Any]:
        """A helper or rule of the design by name, bound: for an observer that asks the specification a question."""
        for module in self.design.modules:
            if isinstance(vars(module).get(name), FunctionType):
                return self._bind(self.design.replaces.get(name, vars(module)[name]), name)
        raise SpecError(f"{self.design.name} has no function {name!r}")

    # -- binding

    def _properties(self, rules: list[Rule], kind: str) -> list[Property]:
        bound = [(r, self._bind(r.function, r.name, judging=True)) for r in rules if r.kind == kind]
        goals = [self._bind(r.waits_for, "", judging=True) if r.waits_for else None for r, _ in bound]
        return [Property(r, f, frozenset(_event_kinds(f, set())), g) for (r, f), g in zip(bound, goals, strict=True)]

    def _instances(self, rule: Rule) -> Iterator[Step]:
        run = self._bind(rule.function, rule.name)
        domains = [self._value(d) for d in rule.params.values()]
        for values in itertools.product(*domains):
            arguments = dict(zip(rule.params, values, strict=True))
            yield Step(rule, arguments, run, _call(run, arguments))

    def _type(self, t: Type) -> Type:
        high, capacity = self._value(t.high), self._value(t.capacity)
        if isinstance(high, range):
            high = len(high) - 1
        if isinstance(capacity, range):
            capacity = len(capacity)
        return Type(t.kind, t.low, high, capacity, t.names)

    def _value(self, value: Any) -> Any:
        return value.resolve(self.bounds) if isinstance(value, Symbol) else value

    def _bind(self, function: Callable[..., Any], name: str, judging: bool = False) -> Callable[..., Any]:
        """The function with the names of its globals bound; inside a replacement, `name` means the original.

        `judging`: a property calls the original helper functions, so that a design cannot change the words it is
        judged by.
        """
        memo = (function, name, judging)
        if memo in self._functions:
            return self._functions[memo]
        assert isinstance(function, FunctionType)
        scope: dict[str, Any] = {"__builtins__": builtins}
        bound = FunctionType(function.__code__, scope, function.__name__, function.__defaults__, function.__closure__)
        bound.__dict__["__wrapped__"] = function  # where its source is
        self._functions[memo] = bound
        for used in sorted(_global_names(function.__code__)):
            if used in function.__globals__:
                scope[used] = self._bound_global(used, function.__globals__[used], function, judging)
        return bound

    def _bound_global(self, used: str, value: Any, user: FunctionType, judging: bool) -> Any:
        if used in self.words:
            return self.words[used]
        if isinstance(value, FunctionType) and value.__module__ != language.__name__:
            meant = self.design.meant(used, value, user, judging)
            return self._bind(meant, used, judging)
        return self._value(value)


def at(s: State, name: str, place: tuple[int, ...]) -> Any:
    """The value of a state variable at an index."""
    value = getattr(s, name)
    for i in place:
        value = value[i]
    return value


def _call(run: Callable[..., Any], arguments: dict[str, int]) -> Callable[[State], None]:
    values = tuple(arguments.values())
    return lambda s: run(s, *values)


def _admitted(t: Type, sizes: tuple[int, ...], value: Any) -> bool:
    return all(_admitted(t, sizes[1:], v) for v in value) if sizes else t.admits(value)


def _event_kinds(function: Callable[..., Any], seen: set[int]) -> Iterator[str]:
    seen.add(id(function))
    for value in function.__globals__.values():
        if isinstance(value, EventKind):
            yield value.name
        elif isinstance(value, FunctionType) and id(value) not in seen and value.__module__ is None:
            yield from _event_kinds(value, seen)


def _filled(sizes: tuple[int, ...], t: Type) -> Any:
    return [_filled(sizes[1:], t) for _ in range(sizes[0])] if sizes else t.initial()


def _global_names(code: CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _global_names(constant)
    return names
