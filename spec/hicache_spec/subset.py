"""§A.2 The subset of Python that a rule may use, and the check that it uses nothing else.

Statements: assignment and augmented assignment (`+= -=`) to a local name or to `s.variable[...]`; `if`/`elif`/`else`;
`for name in` an index set or `range(...)`; `return`; `pass`; a docstring; a call.

Expressions: constants; local names and names of constants, enumerators, tables and functions; `s.variable[...]`;
`+ - *`; comparisons, `in` and `not in` a queue, a set or a tuple; `and or not`; a conditional expression; `min max len
abs`; `any all sum min max` over one generator; calls of helper functions; `append` and `pop(0)` on a queue variable;
`require`, `emit`, `emitted`, `insert`, `discard`. Strings appear only as reasons of `require`. A queue, a set or an
array of the state gets no second name: it is indexed, asked for its length or for an element, or changed, where it
stands.

Guards first: in an action no `require` stands after a write, and helper functions have no `require`. Properties write
nothing. A flag is given a truth and everything else a number (`truths.py`). A parameter named `s` or `t` is a state.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from types import FunctionType
from typing import Any

from . import language
from .language import Design, Field, Rule
from .rule_source import SubsetError, helper_called, place, source
from .truths import check_truths

__all__ = ["QUEUE_METHODS", "WRITING_CALLS", "SubsetError", "check_rule", "place", "source"]

STATEMENTS = (ast.Assign, ast.AugAssign, ast.If, ast.For, ast.Return, ast.Pass, ast.Expr)
EXPRESSIONS = (
    *(ast.Constant, ast.Name, ast.Attribute, ast.Subscript, ast.BinOp, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.IfExp),
    *(ast.Call, ast.GeneratorExp, ast.Tuple),
)
OPERATORS = (ast.Add, ast.Sub, ast.Mult)
UNARY = (ast.Not, ast.USub)
COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn)
BUILTINS = {"min", "max", "len", "abs", "any", "all", "sum", "range"}
GENERATOR_CALLS = {"any", "all", "sum", "min", "max"}
QUEUE_METHODS = {"append", "pop"}
WRITING_CALLS = {"insert", "discard"}
TAKE_A_WHOLE = {"len", *WRITING_CALLS}
WORDS = {"require", "emit", "emitted", *WRITING_CALLS}
NO_WRITES = ("invariant", "step", "sometimes", "live", "quiescent")

_checked: set[tuple[Callable[..., Any], str]] = set()


def check_rule(rule: Rule, design: Design) -> None:
    """Check a rule and every helper function it reaches; raises SubsetError."""
    replaced = tuple(
        sorted((name, id(f), *map(id, design.beneath.get(name, ()))) for name, f in design.replaces.items())
    )
    if (rule.function, f"{rule.kind}{replaced}") in _checked:
        return
    tree = source(rule.function)
    _Checker(rule.function, tree, design).check()
    for helper in _helpers(rule.function, design, set()):
        checker = _Checker(helper, source(helper), design)
        checker.check()
        if checker.requires:
            raise checker.error(checker.requires[0], "'require' in a helper function")
    writes = _writes(rule.function, design, set())
    if rule.kind in NO_WRITES and writes is not None:
        raise SubsetError(f"{writes}: a property writes the state")
    if rule.kind == "action":
        _guards_first(rule.function, tree.body, design)
    if rule.kind in ("action", "initial"):
        check_truths(rule, design)
    _checked.add((rule.function, f"{rule.kind}{replaced}"))


class _Checker:
    def __init__(self, function: Callable[..., Any], tree: ast.FunctionDef, design: Design) -> None:
        self.function, self.tree, self.design = function, tree, design
        self.parameters = [a.arg for a in tree.args.args]
        self.states = {p for p in self.parameters if p in ("s", "t")}
        self.requires: list[ast.AST] = []

    def error(self, node: ast.AST, construct: str) -> SubsetError:
        return SubsetError(f"{place(self.function, node)}: {construct} is outside the specification language (§A.2)")

    def check(self) -> None:
        a = self.tree.args
        if a.vararg or a.kwarg or a.kwonlyargs or a.defaults or a.posonlyargs:
            raise self.error(self.tree, "a parameter list other than plain names")
        self.block(self.tree.body)

    def block(self, body: list[ast.stmt]) -> None:
        for statement in body:
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        if not isinstance(node, STATEMENTS):
            raise self.error(node, _words(node))
        if isinstance(node, ast.Assign):
            if len(node.targets) != 1:
                raise self.error(node, "an assignment to several targets")
            self.expression(node.value)
            self.target(node.targets[0])
        elif isinstance(node, ast.AugAssign):
            if not isinstance(node.op, (ast.Add, ast.Sub)):
                raise self.error(node, _words(node.op))
            self.expression(node.value)
            self.target(node.target)
        elif isinstance(node, ast.If):
            self.expression(node.test)
            self.block(node.body)
            self.block(node.orelse)
        elif isinstance(node, ast.For):
            if node.orelse or not isinstance(node.target, ast.Name):
                raise self.error(node, "a 'for' with 'else' or an unpacking target")
            self.domain(node.iter)
            self.block(node.body)
        elif isinstance(node, ast.Return):
            if node.value is not None:
                self.expression(node.value)
        elif isinstance(node, ast.Expr):
            if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
                return
            if not isinstance(node.value, ast.Call):
                raise self.error(node, "an expression without effect")
            self.expression(node.value)

    def target(self, node: ast.expr) -> None:
        if isinstance(node, ast.Name):
            if node.id in self.states:
                raise self.error(node, "an assignment to the state itself")
            return
        if self.part(node) is None:
            raise self.error(node, "an assignment to something that is not a state variable or a local name")
        if not self.is_one(node, "int", "flag"):
            raise self.error(node, "an assignment to a queue, a set, an array or an element of a queue")
        self.indices(node)

    def indices(self, node: ast.expr) -> None:
        while isinstance(node, ast.Subscript):
            self.expression(node.slice)
            node = node.value

    def domain(self, node: ast.expr) -> None:
        if isinstance(node, ast.Name):
            return
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":
            for argument in node.args:
                self.expression(argument)
            return
        raise self.error(node, "a loop over something that is not an index set or range()")

    def expression(self, node: ast.expr, whole: bool = False) -> None:
        """Check an expression; `whole`: it may be a whole queue, set or array, not only a single value."""
        if not isinstance(node, EXPRESSIONS):
            raise self.error(node, _words(node))
        if not whole and self.is_whole(node):
            raise self.error(node, "a second name for a queue, a set or an array")
        if isinstance(node, ast.Constant):
            if node.value is not None and type(node.value) not in (int, bool):
                raise self.error(node, f"the constant {node.value!r}")
        elif isinstance(node, ast.Attribute):
            if not (isinstance(node.value, ast.Name) and node.value.id in self.states):
                raise self.error(node, f"the attribute .{node.attr}")
        elif isinstance(node, ast.Subscript):
            if isinstance(node.slice, ast.Slice):
                raise self.error(node, "a slice")
            self.expression(node.value, whole=True)
            self.expression(node.slice)
        elif isinstance(node, ast.BinOp):
            if not isinstance(node.op, OPERATORS):
                raise self.error(node, _words(node.op))
            self.expression(node.left)
            self.expression(node.right)
        elif isinstance(node, ast.UnaryOp):
            if not isinstance(node.op, UNARY):
                raise self.error(node, _words(node.op))
            self.expression(node.operand)
        elif isinstance(node, ast.Compare):
            for op in node.ops:
                if not isinstance(op, COMPARISONS):
                    raise self.error(node, _words(op))
            self.expression(node.left)
            for op, part in zip(node.ops, node.comparators, strict=True):
                self.expression(part, whole=isinstance(op, (ast.In, ast.NotIn)))
        elif isinstance(node, (ast.BoolOp, ast.Tuple)):
            for part in node.values if isinstance(node, ast.BoolOp) else node.elts:
                self.expression(part)
        elif isinstance(node, ast.IfExp):
            for part in (node.test, node.body, node.orelse):
                self.expression(part)
        elif isinstance(node, ast.Call):
            self.call(node)
        elif isinstance(node, ast.GeneratorExp):
            raise self.error(node, "a generator outside any, all, sum, min, max")

    def call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute):
            self.queue_method(node, node.func)
            return
        if not isinstance(node.func, ast.Name):
            raise self.error(node, "a call of a computed function")
        name = node.func.id
        self.known_function(node, name)
        arguments = list(node.args)
        if name == "require":
            self.requires.append(node)
            reason = arguments.pop() if len(arguments) == 2 else None
            if not (isinstance(reason, ast.Constant) and isinstance(reason.value, str) and reason.value):
                raise self.error(node, "a 'require' without a reason")
        if name in ("emit", "emitted"):
            arguments = arguments[2:]
        for keyword in node.keywords:
            if name != "emitted" or keyword.arg is None:
                raise self.error(node, "a keyword argument")
            self.expression(keyword.value)
        for argument in arguments:
            if isinstance(argument, ast.GeneratorExp) and name in GENERATOR_CALLS:
                self.generator(argument)
            elif isinstance(argument, ast.Starred):
                raise self.error(argument, "a starred argument")
            else:
                self.expression(argument, whole=name in TAKE_A_WHOLE)
        if name in WRITING_CALLS and not self.is_one(node.args[0], "set"):
            raise self.error(node, f"{name}() into something that is not a set")

    def part(self, node: ast.expr) -> tuple[Field, int] | None:
        """The state variable that an expression is a part of, and under how many indices; None if it is of none."""
        depth = 0
        while isinstance(node, ast.Subscript):
            depth, node = depth + 1, node.value
        if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in self.states):
            return None
        variable = self.design.fields().get(node.attr)
        if variable is None:
            raise self.error(node, f"the state variable {node.attr!r}, which is not declared,")
        return variable, depth

    def is_whole(self, node: ast.expr) -> bool:
        """Is this a state variable, or a part of one, that is not a single value?"""
        part = self.part(node)
        return part is not None and part[1] < len(part[0].dims) + (part[0].type.kind in ("queue", "set"))

    def is_one(self, node: ast.expr, *kinds: str) -> bool:
        """Is this a state variable of one of these kinds under all its indices?"""
        part = self.part(node)
        return part is not None and part[0].type.kind in kinds and part[1] == len(part[0].dims)

    def known_function(self, node: ast.AST, name: str) -> None:
        value = self.function.__globals__.get(name)
        if isinstance(value, FunctionType):
            if value.__module__ == language.__name__ and name not in WORDS:
                raise self.error(node, f"a call of {name}()")
        elif name not in BUILTINS:
            raise self.error(node, f"a call of {name}()")

    def queue_method(self, node: ast.Call, f: ast.Attribute) -> None:
        if f.attr not in QUEUE_METHODS or node.keywords:
            raise self.error(node, f"the method .{f.attr}()")
        first = node.args[0] if len(node.args) == 1 else None
        if f.attr == "pop" and not (isinstance(first, ast.Constant) and first.value == 0):
            raise self.error(node, "a pop() from anywhere but the front")
        if not self.is_one(f.value, "queue"):
            raise self.error(node, f"the method .{f.attr}() of something that is not a queue")
        self.indices(f.value)
        for argument in node.args:
            self.expression(argument)

    def generator(self, node: ast.GeneratorExp) -> None:
        if len(node.generators) != 1 or node.generators[0].is_async:
            raise self.error(node, "a generator with several 'for'")
        clause = node.generators[0]
        if not isinstance(clause.target, ast.Name):
            raise self.error(node, "an unpacking target")
        self.domain(clause.iter)
        for condition in clause.ifs:
            self.expression(condition)
        self.expression(node.elt)


def _helpers(function: Callable[..., Any], design: Design, seen: set[Callable[..., Any]]) -> list[Callable[..., Any]]:
    found = []
    for node in ast.walk(source(function)):
        helper = helper_called(function, design, node)
        if helper is not None and helper not in seen:
            seen.add(helper)
            found += [helper, *_helpers(helper, design, seen)]
    return found


def _writes(function: Callable[..., Any], design: Design, seen: set[Callable[..., Any]]) -> str | None:
    """The place of the first write of the state by a function, itself or through helpers; None if there is none."""
    seen.add(function)
    return _writes_in(function, source(function), design, seen)


def _writes_in(
    function: Callable[..., Any], tree: ast.AST, design: Design, seen: set[Callable[..., Any]]
) -> str | None:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Assign, ast.AugAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(not isinstance(t, ast.Name) for t in targets):
                return place(function, node)
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr in QUEUE_METHODS:
                return place(function, node)
            if isinstance(node.func, ast.Name) and node.func.id in WRITING_CALLS:
                return place(function, node)
            helper = helper_called(function, design, node)
            if helper is not None and helper not in seen:
                inner = _writes(helper, design, seen)
                if inner is not None:
                    return inner
    return None


def _guards_first(function: Callable[..., Any], body: list[ast.stmt], design: Design) -> None:
    """Refuse a `require` after a write in the order of the text, one that writes, and one in a loop that writes."""
    written: str | None = None
    for statement in _flat(body):
        if _is_guard(statement):
            written = written or _writes_in(function, statement, design, {function})
            if written is not None:
                where = place(function, statement)
                raise SubsetError(f"{where}: a 'require' after a write at {written} (§A.2: guards first)")
        elif isinstance(statement, ast.For):
            guarded = any(_is_guard(inner) for inner in _flat(statement.body))
            # A later round's guard comes after an earlier round's write.
            written = written or (_writes_in(function, statement, design, {function}) if guarded else None)
        elif written is None:
            part = statement.test if isinstance(statement, ast.If) else statement
            written = _writes_in(function, part, design, {function})


def _is_guard(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Call)
        and isinstance(statement.value.func, ast.Name)
        and statement.value.func.id == "require"
    )


def _flat(body: list[ast.stmt]) -> list[ast.stmt]:
    found: list[ast.stmt] = []
    for statement in body:
        found.append(statement)
        if isinstance(statement, (ast.If, ast.For)):
            found += _flat(statement.body) + _flat(statement.orelse)
    return found


def _words(node: ast.AST) -> str:
    """The construct in a reader's words."""
    return f"'{type(node).__name__.lower()}'"
