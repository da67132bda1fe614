"""Pieces that both exporters build their texts from: terms with precedence, free names, unrolled loops."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hicache_checks.export.functions import Function, called

ATOM = 0
ANYTHING = 99
"""How loosely the text binds: a parameter may stand for any expression."""


@dataclass(frozen=True)
class Term:
    """An expression of the other language: its text, and how loosely it binds (0: never needs parentheses)."""

    text: str
    level: int = ATOM

    def at(self, level: int) -> str:
        """The text, in parentheses if it binds more loosely than the place allows."""
        return self.text if self.level <= level else f"({self.text})"


class Names:
    """Gives every name of a text a free name of the export, always the same one."""

    def __init__(self, reserved: Iterable[str]) -> None:
        self._taken = set(reserved)
        self._given: dict[tuple[str, str], str] = {}

    def name(self, name: str, owner: str = "") -> str:
        """The name in the export of `name`, a local one of the function `owner` or, without one, a global one."""
        key = (owner, name)
        if key not in self._given:
            free = name.lstrip("_") or "unused"
            while free in self._taken:
                free += "_"
            self._taken.add(free)
            self._given[key] = free
        return self._given[key]

    def parameter(self, name: str) -> str:
        """A name for a parameter: it may be used by many functions, but by nothing else."""
        return self.name(name, "(parameter)")

    def inner(self) -> Names:
        """Names for the inside of one function: none of them hides a global one."""
        return Names(self._taken)

    def fresh(self, name: str) -> str:
        """A name that nothing has yet: `name` itself, or with a number."""
        free, number = name, 0
        while free in self._taken:
            number += 1
            free = f"{name}{number}"
        self._taken.add(free)
        return free

    def release(self, name: str) -> None:
        """The name is not used after all."""
        self._taken.discard(name)


class _Substitute(ast.NodeTransformer):
    def __init__(self, name: str, value: int) -> None:
        self._name, self._value = name, value

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id == self._name and isinstance(node.ctx, ast.Load):
            return ast.copy_location(ast.Constant(self._value), node)
        return node


def substituted(node: ast.AST, name: str, value: int) -> ast.AST:
    """A copy of the tree with a value in place of a name."""
    return _Substitute(name, value).visit(copy.deepcopy(node))


def static(node: ast.expr, function: Function) -> int | None:
    """The value of an expression that the bounds alone decide; None if it depends on more."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return int(node.value)
    if isinstance(node, ast.Name) and node.id not in function.own:
        value = function.scope[node.id]
        return int(value) if isinstance(value, int) else None
    if isinstance(node, ast.Call) and called(node) == "len" and isinstance(node.args[0], ast.Name):
        return len(function.scope[node.args[0].id])
    if isinstance(node, ast.BinOp):
        left, right = static(node.left, function), static(node.right, function)
        if left is None or right is None:
            return None
        if isinstance(node.op, ast.Add):
            return left + right
        return left - right if isinstance(node.op, ast.Sub) else left * right
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = static(node.operand, function)
        return None if inner is None else -inner
    return None


def static_range(domain: ast.expr, function: Function) -> range | None:
    """The values of a loop whose ends the bounds alone decide; None for any other loop."""
    if isinstance(domain, ast.Name):
        value = function.scope.get(domain.id)
        if isinstance(value, range):
            return value
        raise function.error(domain, f"a loop over {domain.id}, which is not an index set")
    ends = [static(a, function) for a in range_ends(domain)]
    known = [e for e in ends if e is not None]
    return range(*known) if len(known) == len(ends) else None


def range_ends(domain: ast.expr) -> Sequence[ast.expr]:
    """The arguments of a `range(...)`."""
    assert isinstance(domain, ast.Call)
    return domain.args


def unrolled(loop: ast.For, values: Iterable[int]) -> list[ast.stmt]:
    """The statements of a loop, once for each value."""
    assert isinstance(loop.target, ast.Name)
    found: list[ast.stmt] = []
    for value in values:
        for statement in loop.body:
            copied = substituted(statement, loop.target.id, value)
            assert isinstance(copied, ast.stmt)
            found.append(copied)
    return found


def rounds(loop: ast.For, count: int) -> list[ast.stmt]:
    """A loop over `range(end)` as `count` rounds, each of them taken only if the range is so long."""
    (end,) = range_ends(loop.iter)
    found: list[ast.stmt] = []
    for value in range(count):
        test = ast.copy_location(ast.Compare(ast.Constant(value), [ast.Lt()], [end]), loop)
        found.append(ast.copy_location(ast.If(test, unrolled(loop, [value]), []), loop))
    return found


def has_return(statement: ast.stmt) -> bool:
    """Does the function end inside this statement, on some way through it?"""
    return any(isinstance(n, ast.Return) for n in ast.walk(statement))
