"""What a value is: a condition or a number.

Python needs no types and counts conditions as numbers; TLA+ keeps them apart. The kinds of parameters, local names and
results are found from all calls, until nothing changes.
"""

from __future__ import annotations

import ast
import enum

from hicache_checks.export.functions import Function, called
from hicache_checks.export.program import Program


class Kind(enum.Enum):
    """The kinds of values."""

    CONDITION = "condition"
    NUMBER = "number"

    def join(self, other: Kind | None) -> Kind:
        """The kind of a name that has values of both kinds."""
        return self if other is None or other is self else Kind.NUMBER


class Kinds:
    """The kinds of every name of every function of a program."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._names: dict[tuple[Function, str], Kind] = {}
        self._results: dict[Function, Kind] = {}
        before: object = None
        while before != (after := (dict(self._names), dict(self._results))):
            before = after
            for function in program.functions:
                self._visit(function)

    def name(self, function: Function, name: str) -> Kind:
        """The kind of a parameter or local name; one that no text gives a value is a number."""
        return self._names.get((function, name), Kind.NUMBER)

    def result(self, function: Function) -> Kind:
        """The kind of what a function returns."""
        return self._results.get(function, Kind.NUMBER)

    def of(self, node: ast.expr, function: Function) -> Kind:
        """The kind of an expression."""
        return self._so_far(node, function) or Kind.NUMBER

    def _so_far(self, node: ast.expr, function: Function) -> Kind | None:
        if isinstance(node, ast.Constant):
            return _kind_of_value(node.value)
        if isinstance(node, ast.Name):
            if node.id in function.own:
                return self._names.get((function, node.id))
            return _kind_of_value(function.scope[node.id])
        if isinstance(node, (ast.Compare, ast.BoolOp)) or (
            isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
        ):
            return Kind.CONDITION
        if isinstance(node, ast.IfExp):
            one, other = self._so_far(node.body, function), self._so_far(node.orelse, function)
            return other if one is None else one.join(other)
        if isinstance(node, ast.Call):
            callee = function.callee(node)
            if callee is not None:
                return self._results.get(callee)
            return Kind.CONDITION if called(node) in ("any", "all") else Kind.NUMBER
        path = function.path(node)
        if path is not None:
            return Kind.CONDITION if self._program.variables[path.variable].type.kind == "flag" else Kind.NUMBER
        if isinstance(node, ast.Subscript):
            table = node.value
            while isinstance(table, ast.Subscript):
                table = table.value
            return _kind_of_value(function.scope[table.id]) if isinstance(table, ast.Name) else Kind.NUMBER
        return Kind.NUMBER

    def _visit(self, function: Function) -> None:
        for node in ast.walk(function.tree):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self._widen(function, node.targets[0].id, self._so_far(node.value, function))
            elif isinstance(node, (ast.For, ast.comprehension, ast.AugAssign)) and isinstance(node.target, ast.Name):
                self._widen(function, node.target.id, Kind.NUMBER)
            elif isinstance(node, ast.Return) and node.value is not None:
                found = self._so_far(node.value, function)
                if found is not None:
                    self._results[function] = found.join(self._results.get(function))
            callee = function.callee(node)
            if callee is not None:
                assert isinstance(node, ast.Call)
                for parameter, argument in arguments_of(callee, node, function):
                    self._widen(callee, parameter, self._so_far(argument, function))

    def _widen(self, function: Function, name: str, kind: Kind | None) -> None:
        if kind is not None:
            self._names[function, name] = kind.join(self._names.get((function, name)))


def arguments_of(callee: Function, node: ast.Call, caller: Function) -> list[tuple[str, ast.expr]]:
    """The arguments of a call other than states, with the parameters that they are for."""
    given = [a for a in node.args if not (isinstance(a, ast.Name) and a.id in caller.states)]
    return list(zip(callee.parameters, given, strict=True))


def _kind_of_value(value: object) -> Kind:
    while isinstance(value, tuple) and value:
        value = value[0]
    return Kind.CONDITION if isinstance(value, bool) else Kind.NUMBER
