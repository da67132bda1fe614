"""A rule or helper function as the exporters read it: its text without events, and what its names mean."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from hicache_spec.subset import place

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


def guard_of(node: ast.stmt) -> tuple[ast.expr, str] | None:
    """The condition of a guard and its reason; None for any other statement."""
    if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and is_require(node)):
        return None
    condition, reason = node.value.args
    assert isinstance(reason, ast.Constant)
    return condition, str(reason.value)


def without_events(tree: ast.FunctionDef) -> ast.FunctionDef:
    """The function without what it shows to observers, and without its docstring."""
    tree = copy.copy(tree)  # what is inside is shared and never changed
    tree.body = without(tree.body, DROPPED)
    return tree


def without(body: list[ast.stmt], names: frozenset[str]) -> list[ast.stmt]:
    """The statements without calls of these functions, without lone texts, and without what is then empty."""
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
            statement.body = without(statement.body, names)
            statement.orelse = without(statement.orelse, names)
            if not statement.body and not statement.orelse:
                continue
        kept.append(statement)
    return kept


def read_state(function: Function) -> None:
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
