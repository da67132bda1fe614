"""What an expression is: a condition, a number, or an element of an index set that may be NONE.

Python needs no types; TLA+ keeps conditions and numbers apart, and Promela stores NONE as a number of its own. The
kinds of parameters, local names and results are found from all calls, until nothing changes.
"""

from __future__ import annotations

import ast
import enum

from hicache_checks.export.program import Function, Program, called
from hicache_spec.language import NONE


class Kind(enum.Enum):
    """The kinds of values; `OPTIONAL` is a number that may be NONE."""

    CONDITION = "condition"
    NUMBER = "number"
    OPTIONAL = "optional"

    def join(self, other: Kind | None) -> Kind:
        """The kind of a name that has values of both kinds."""
        if other is None or other is self:
            return self
        return Kind.OPTIONAL if Kind.OPTIONAL in (self, other) else Kind.NUMBER


NUMBER_CALLS = frozenset({"len", "sum", "min", "max", "abs"})


class Kinds:
    """The kinds of every name of every function of a program."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._names: dict[tuple[Function, str], Kind] = {}
        self._results: dict[Function, Kind] = {}
        for action in program.actions:
            self._names.update({(action.function, p): Kind.NUMBER for p in action.function.parameters})
        for judged in program.live:
            for function in (judged.function, judged.goal):
                if function is not None:
                    self._names.update({(function, p): Kind.NUMBER for p in function.parameters})
        before = -1
        while before != (before := self._size()):
            for function in program.functions:
                self._visit(function)

    def name(self, function: Function, name: str) -> Kind:
        """The kind of a parameter or local name; one that nobody gives a value is a number."""
        return self._names.get((function, name), Kind.NUMBER)

    def result(self, function: Function) -> Kind:
        """The kind of what a function returns."""
        return self._results.get(function, Kind.NUMBER)

    def of(self, node: ast.expr, function: Function) -> Kind:
        """The kind of an expression."""
        if isinstance(node, ast.Constant):
            return Kind.CONDITION if isinstance(node.value, bool) else Kind.NUMBER
        if isinstance(node, ast.Name):
            return self._of_name(node, function)
        if isinstance(node, (ast.Compare, ast.BoolOp)) or (
            isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
        ):
            return Kind.CONDITION
        if isinstance(node, ast.IfExp):
            return self.of(node.body, function).join(self.of(node.orelse, function))
        if isinstance(node, ast.Call):
            callee = function.callee(node)
            if callee is not None:
                return self.result(callee)
            return Kind.CONDITION if called(node) in ("any", "all") else Kind.NUMBER
        path = function.path(node)
        if path is not None:
            t = self._program.variables[path.variable].type
            return Kind.CONDITION if t.kind == "flag" else Kind.OPTIONAL if t.low < 0 else Kind.NUMBER
        return Kind.NUMBER

    def _of_name(self, node: ast.Name, function: Function) -> Kind:
        if (function, node.id) in self._names or node.id not in function.scope:
            return self.name(function, node.id)
        value = function.scope[node.id]
        if isinstance(value, bool):
            return Kind.CONDITION
        return Kind.OPTIONAL if value == NONE else Kind.NUMBER

    def _size(self) -> int:
        widest = list(Kind)
        return sum(1 + widest.index(k) for k in (*self._names.values(), *self._results.values()))

    def _visit(self, function: Function) -> None:
        for node in ast.walk(function.tree):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self._widen(function, node.targets[0].id, self.of(node.value, function))
            elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                self._widen(function, node.target.id, Kind.NUMBER)
            elif isinstance(node, (ast.For, ast.comprehension)) and isinstance(node.target, ast.Name):
                self._widen(function, node.target.id, Kind.NUMBER)
            elif isinstance(node, ast.Return) and node.value is not None:
                self._results[function] = self.of(node.value, function).join(self._results.get(function))
            callee = function.callee(node)
            if callee is not None:
                assert isinstance(node, ast.Call)
                arguments = [a for a in node.args if not (isinstance(a, ast.Name) and a.id in function.states)]
                for parameter, argument in zip(callee.parameters, arguments, strict=True):
                    self._widen(callee, parameter, self.of(argument, function))

    def _widen(self, function: Function, name: str, kind: Kind) -> None:
        self._names[function, name] = kind.join(self._names.get((function, name)))
