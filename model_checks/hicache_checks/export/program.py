"""A bound specification as the exporters read it: values, functions in the order of use, actions, properties.

Events are for observers of steps and no part of the state, so they are left out here: `emit` statements are dropped,
and so are properties that look at events.
"""

from __future__ import annotations

import ast
import builtins
import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import FunctionType
from typing import Any

from hicache_spec import BoundSpec
from hicache_spec.binding import Property, Step, Variable
from hicache_spec.language import EventKind, Field, Rule, Symbol
from hicache_spec.subset import place, source

DROPPED = frozenset({"emit"})
SETTERS = frozenset({"insert", "discard"})
QUEUE_METHODS = frozenset({"append", "pop"})
ASSIGNMENTS = (ast.Assign, ast.AugAssign)


class ExportError(Exception):
    """A specification that cannot be written down in the other language: says where and why, in one line."""


@dataclass(frozen=True)
class Value:
    """A named value of the text: a number, a condition, an index set (`range`) or a table (nested tuples)."""

    name: str
    value: Any
    from_bounds: bool


@dataclass(frozen=True)
class Path:
    """A place in the state: the name of the state, the variable, and the index expressions."""

    state: str
    variable: str
    indices: tuple[ast.expr, ...]


@dataclass(eq=False)
class Function:
    """A rule or helper function: its text without docstring and events, and what its names mean.

    `calls` holds the functions that it calls, by the name used in its text. `reads` and `writes` are the variables that
    it, or a function that it calls, reads and writes.
    """

    name: str
    original: Callable[..., Any]
    tree: ast.FunctionDef
    scope: Mapping[str, Any]
    calls: Mapping[str, Function]
    title: str
    section: str = ""
    reads: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)

    @property
    def states(self) -> tuple[str, ...]:
        """The parameters that are states."""
        return tuple(a.arg for a in self.tree.args.args if a.arg in ("s", "t"))

    @property
    def parameters(self) -> tuple[str, ...]:
        """The other parameters."""
        return tuple(a.arg for a in self.tree.args.args if a.arg not in ("s", "t"))

    @cached_property
    def returns(self) -> bool:
        """Does it return a value?"""
        return any(isinstance(n, ast.Return) and n.value is not None for n in ast.walk(self.tree))

    @cached_property
    def locals(self) -> tuple[str, ...]:
        """Names that it assigns, loop variables excepted, in the order of the text."""
        return assigned(self.tree.body)

    @cached_property
    def own(self) -> frozenset[str]:
        """Every name that means something of its own here: parameters, local names, loop variables."""
        return frozenset((*self.states, *self.parameters, *self.locals, *loop_variables(self.tree)))

    def error(self, node: ast.AST, why: str) -> ExportError:
        """An error at a node of this function."""
        return ExportError(f"{place(self.original, node)}: {self.name}: {why}")

    def path(self, node: ast.AST) -> Path | None:
        """The place in the state that an expression names; None if it names none."""
        indices: list[ast.expr] = []
        while isinstance(node, ast.Subscript):
            indices.append(node.slice)
            node = node.value
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in self.states:
            return Path(node.value.id, node.attr, tuple(reversed(indices)))
        return None

    def callee(self, node: ast.AST) -> Function | None:
        """The function of the specification that a node calls."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return self.calls.get(node.func.id)
        return None

    def changes(self, node: ast.AST) -> bool:
        """Does evaluating this change the state?"""
        for inner in ast.walk(node):
            callee = self.callee(inner)
            if (callee is not None and callee.writes) or is_queue_call(inner) or called(inner) in SETTERS:
                return True
        return False

    def reads_of(self, node: ast.AST) -> set[str]:
        """The variables that an expression reads, itself or by the functions that it calls."""
        found = {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute) and self.path(n) is not None}
        for inner in ast.walk(node):
            callee = self.callee(inner)
            if callee is not None:
                found |= callee.reads
        return found


@dataclass(frozen=True)
class Action:
    """An action: its rule, its function, the index set of each parameter, and its instances."""

    rule: Rule
    function: Function
    domains: Mapping[str, Value]
    steps: tuple[Step, ...]


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
        tree = _without_events(source(original))
        called_names = {n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
        calls = {
            used: self._read(value, original_of(value).__name__)
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
        _read_state(function)
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


def original_of(bound: Callable[..., Any]) -> Callable[..., Any]:
    """The function as it stands in the text."""
    wrapped: Callable[..., Any] = getattr(bound, "__wrapped__", bound)
    return wrapped


def called(node: ast.AST) -> str:
    """The name of the function that a node calls by name; empty for anything else."""
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""


def is_queue_call(node: ast.AST) -> bool:
    """Is this `append` or `pop` of a queue?"""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in QUEUE_METHODS


def assigned(body: Sequence[ast.stmt]) -> tuple[str, ...]:
    """The local names that these statements assign, in the order of the text."""
    nodes = [n for statement in body for n in ast.walk(statement) if isinstance(n, ASSIGNMENTS)]
    targets = [t for n in nodes for t in (n.targets if isinstance(n, ast.Assign) else [n.target])]
    return tuple(dict.fromkeys(t.id for t in targets if isinstance(t, ast.Name)))


def loop_variables(tree: ast.AST) -> set[str]:
    """The names that loops and generators bind."""
    return {
        n.target.id
        for n in ast.walk(tree)
        if isinstance(n, (ast.For, ast.comprehension)) and isinstance(n.target, ast.Name)
    }


def is_require(node: ast.stmt) -> bool:
    """Is this statement a guard?"""
    return isinstance(node, ast.Expr) and called(node.value) == "require"


def guard_part(function: Function) -> list[ast.stmt]:
    """The statements of an action up to its last guard: they change nothing."""
    body = function.tree.body
    last = max((i for i, s in enumerate(body) if any(is_require(n) for n in _statements(s))), default=-1)
    return body[: last + 1]


def effect_part(function: Function, done: Sequence[ast.stmt] = ()) -> list[ast.stmt]:
    """The statements of an action without its guards, and without what only its guards need.

    `done` are statements at the beginning that have been dealt with.
    """
    body = [s for s in function.tree.body if not any(s is d for d in done)]
    return _without_dead_locals(_without(body, frozenset({"require"})), function)


def possible(action: Action) -> list[Step]:
    """The instances of an action that no guard about its parameters and the bounds alone rules out."""
    return [step for step in action.steps if not _is_ruled_out(action.function, step)]


def _is_ruled_out(function: Function, step: Step) -> bool:
    for statement in guard_part(function):
        if not (isinstance(statement, ast.Expr) and is_require(statement) and isinstance(statement.value, ast.Call)):
            continue
        condition = statement.value.args[0]
        names = {n.id for n in ast.walk(condition) if isinstance(n, ast.Name)}
        if names.isdisjoint((*function.states, *function.locals)):
            code = compile(ast.fix_missing_locations(ast.Expression(copy.deepcopy(condition))), function.name, "eval")
            if not eval(code, dict(function.scope), dict(step.arguments)):
                return True
    return False


def _statements(node: ast.stmt) -> Iterator[ast.stmt]:
    yield node
    for inner in (*getattr(node, "body", ()), *getattr(node, "orelse", ())):
        yield from _statements(inner)


def _without_events(tree: ast.FunctionDef) -> ast.FunctionDef:
    tree = copy.copy(tree)  # what is inside is shared and never changed
    tree.body = _without(tree.body, DROPPED)
    return tree


def _without(body: list[ast.stmt], names: frozenset[str]) -> list[ast.stmt]:
    kept: list[ast.stmt] = []
    for statement in body:
        if isinstance(statement, ast.Expr) and (
            isinstance(statement.value, ast.Constant) or called(statement.value) in names
        ):
            continue
        if isinstance(statement, ast.Pass):
            continue
        if isinstance(statement, (ast.If, ast.For)):
            statement = copy.copy(statement)
            statement.body = _without(statement.body, names)
            statement.orelse = _without(statement.orelse, names)
            if not statement.body and not statement.orelse:
                continue
        kept.append(statement)
    return kept


def _without_dead_locals(body: list[ast.stmt], function: Function) -> list[ast.stmt]:
    while True:
        read = {n.id for s in body for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        dead = [
            s
            for s in body
            if isinstance(s, ast.Assign)
            and isinstance(s.targets[0], ast.Name)
            and s.targets[0].id not in read
            and not function.changes(s.value)
        ]
        if not dead:
            return body
        body = [s for s in body if s not in dead]


def _read_state(function: Function) -> None:
    """Fill in what the function reads and writes."""
    for node in ast.walk(function.tree):
        if isinstance(node, ASSIGNMENTS):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                path = function.path(target)
                if path is not None:
                    function.writes.add(path.variable)
        elif is_queue_call(node):
            assert isinstance(node, ast.Call)
            assert isinstance(node.func, ast.Attribute)
            path = function.path(node.func.value)
            assert path is not None
            function.writes.add(path.variable)
        elif called(node) in SETTERS:
            assert isinstance(node, ast.Call)
            path = function.path(node.args[0])
            assert path is not None
            function.writes.add(path.variable)
        if isinstance(node, ast.Attribute) and function.path(node) is not None:
            function.reads.add(node.attr)
    for callee in function.calls.values():
        function.reads |= callee.reads
        function.writes |= callee.writes


def _first_sentence(text: str | None) -> str:
    return " ".join((text or "").split("\n\n")[0].split())
