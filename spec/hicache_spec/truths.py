"""§A.2 Truths and numbers: a flag of the state is given a truth, everything else of it numbers.

Python counts True as 1, and so do the compiled engines, which store a flag that is 1 and one that is True alike. The
plain engine does not: to it they are two states, and the one with the 1 leaves its type. So a rule is followed from its
parameters to what it assigns, and refused if the wrong kind may arrive there. What is a truth or a number only by the
values of a run, such as an element of a table, is left alone.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from .language import Design, Field, Rule, Symbol
from .rule_source import SubsetError, helper_called, place, source

Kinds = frozenset[str]
"""What a value may be: a truth, a number, either or, where that is not known, none."""
UNKNOWN: Kinds = frozenset()
TRUTH: Kinds = frozenset({"truth"})
NUMBER: Kinds = frozenset({"number"})


def check_truths(rule: Rule, design: Design) -> None:
    """Refuse an action or initial rule that gives a flag a number, or anything else a truth; raises SubsetError."""
    _Follower(rule, design).call(rule.function, [NUMBER] * len(rule.params))


class _Follower:
    """Follows what kinds of values a rule, and the helper functions it calls, have."""

    def __init__(self, rule: Rule, design: Design) -> None:
        self.rule, self.design, self.fields = rule, design, design.fields()
        self.results: dict[tuple[Callable[..., Any], tuple[Kinds, ...]], Kinds] = {}

    def call(self, function: Callable[..., Any], arguments: Sequence[Kinds]) -> Kinds:
        """What a function returns, given arguments of these kinds for its parameters other than states."""
        called = (function, tuple(arguments))
        if called not in self.results:
            self.results[called] = UNKNOWN
            tree = source(function)
            parameters = [a.arg for a in tree.args.args if a.arg not in ("s", "t")]
            call = _Call(self, function, dict(zip(parameters, arguments, strict=False)))
            call.block(tree.body)
            self.results[called] = call.returned
        return self.results[called]


class _Call:
    """One call of a function: what its local names may be by now, and what it may have returned."""

    def __init__(self, follower: _Follower, function: Callable[..., Any], names: dict[str, Kinds]) -> None:
        self.follower, self.function, self.names = follower, function, names
        self.returned = UNKNOWN

    def block(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Assign):
            self.assign(node.targets[0], self.of(node.value))
        elif isinstance(node, ast.AugAssign):
            self.of(node.value)
            self.assign(node.target, NUMBER)
        elif isinstance(node, ast.If):
            self.of(node.test)
            before = dict(self.names)
            self.block(node.body)
            ways = [] if _returns(node.body) else [self.names]
            self.names = before
            self.block(node.orelse)
            ways += [] if _returns(node.orelse) else [self.names]
            self.names = {}
            for names in ways:
                self.join(names)
        elif isinstance(node, ast.For):
            self.loop(node)
        elif isinstance(node, ast.Return) and node.value is not None:
            self.returned |= self.of(node.value)
        elif isinstance(node, ast.Expr):
            self.of(node.value)

    def loop(self, node: ast.For) -> None:
        """Any number of rounds: until another one brings nothing new."""
        before: object = None
        while before != self.names:
            before = dict(self.names)
            assert isinstance(node.target, ast.Name)
            self.names[node.target.id] = NUMBER
            self.block(node.body)
            self.join(before)

    def join(self, others: dict[str, Kinds]) -> None:
        """The names may also be what they are there."""
        for name, kinds in others.items():
            self.names[name] = self.names.get(name, UNKNOWN) | kinds

    def assign(self, target: ast.expr, kinds: Kinds) -> None:
        if isinstance(target, ast.Name):
            self.names[target.id] = kinds
        else:
            self.store(target, target, kinds)

    def store(self, node: ast.AST, target: ast.expr, kinds: Kinds) -> None:
        """A value of these kinds goes to a place of the state: is that its kind?"""
        (held,) = self.of(target)
        for wrong in kinds - {held}:
            raise SubsetError(
                f"{place(self.function, node)}: in {self.follower.rule.name}, a {wrong} goes to {ast.unparse(target)}, "
                f"which holds a {held} (§A.2: a flag holds a truth, all else numbers)"
            )

    def of(self, node: ast.expr) -> Kinds:
        """What an expression may be; what it calls or changes on the way is followed."""
        if isinstance(node, ast.Constant):
            return _of_value(node.value)
        if isinstance(node, ast.Name):
            known = self.names.get(node.id)
            return _of_value(self.function.__globals__.get(node.id)) if known is None else known
        if isinstance(node, (ast.Attribute, ast.Subscript)):
            return self.of_place(node)
        if isinstance(node, ast.Call):
            return self.of_call(node)
        if isinstance(node, ast.GeneratorExp):
            return self.of_generator(node)
        parts = [self.of(part) for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
        if isinstance(node, ast.Compare) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)):
            return TRUTH
        if isinstance(node, ast.BoolOp):
            return UNKNOWN.union(*parts)
        if isinstance(node, ast.IfExp):
            return parts[1] | parts[2]
        return NUMBER

    def of_place(self, node: ast.expr) -> Kinds:
        """A place of the state, or a cell of a table."""
        while isinstance(node, ast.Subscript):
            self.of(node.slice)
            node = node.value
        field = self.follower.fields.get(node.attr) if isinstance(node, ast.Attribute) else None
        if isinstance(field, Field):
            return TRUTH if field.type.kind == "flag" else NUMBER
        return UNKNOWN

    def of_call(self, node: ast.Call) -> Kinds:
        if isinstance(node.func, ast.Attribute):
            for argument in node.args:
                kinds = self.of(argument)
                if node.func.attr == "append":
                    self.store(node, node.func.value, kinds)
            return NUMBER
        given = [(a, self.of(a)) for a in node.args if not (isinstance(a, ast.Name) and a.id in ("s", "t"))]
        helper = helper_called(self.function, self.follower.design, node)
        if helper is not None:
            return self.follower.call(helper, [kinds for _, kinds in given])
        assert isinstance(node.func, ast.Name)
        if node.func.id == "insert":
            self.store(node, given[0][0], given[1][1])
        if node.func.id in ("min", "max"):
            return UNKNOWN.union(*(kinds for _, kinds in given))
        return TRUTH if node.func.id in ("any", "all", "emitted") else NUMBER

    def of_generator(self, node: ast.GeneratorExp) -> Kinds:
        """What its elements may be."""
        clause, names = node.generators[0], self.names
        assert isinstance(clause.target, ast.Name)
        self.names = {**names, clause.target.id: NUMBER}
        kinds = [self.of(part) for part in (*clause.ifs, node.elt)]
        self.names = names
        return kinds[-1]


def _returns(body: Sequence[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], ast.Return)


def _of_value(value: object) -> Kinds:
    """The kind of a constant of the text or of the module."""
    if isinstance(value, bool) or (isinstance(value, Symbol) and value.is_truth):
        return TRUTH
    return NUMBER if isinstance(value, (int, Symbol)) else UNKNOWN
