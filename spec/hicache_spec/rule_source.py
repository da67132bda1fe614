"""The text of a rule: its syntax tree, where a node of it stands, and which helper function a call means."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from types import FunctionType
from typing import Any

from . import language
from .language import Design, SpecError

_trees: dict[Callable[..., Any], ast.FunctionDef] = {}


class SubsetError(SpecError):
    """A rule uses something outside the language; the message names file, line and construct."""


def place(function: Callable[..., Any], node: ast.AST) -> str:
    """`file:line` of a node of a function's source."""
    code = function.__code__
    return f"{code.co_filename}:{code.co_firstlineno + getattr(node, 'lineno', 1) - 1}"


def source(function: Callable[..., Any]) -> ast.FunctionDef:
    """The syntax tree of a rule or helper function, bound or not; read once. Raises SubsetError."""
    function = getattr(function, "__wrapped__", function)
    if function not in _trees:
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
        except (OSError, SyntaxError) as e:
            raise SubsetError(f"{function.__qualname__}: its source cannot be read ({e})") from None
        if not isinstance(tree, ast.FunctionDef):
            raise SubsetError(f"{place(function, tree)}: a rule is a plain function (§A.2)")
        if function.__code__.co_freevars:
            raise SubsetError(f"{place(function, tree)}: a closure is outside the specification language (§A.2)")
        _trees[function] = tree
    return _trees[function]


def helper_called(function: Callable[..., Any], design: Design, node: ast.AST) -> Callable[..., Any] | None:
    """The helper function that a call node calls, with the design's replacements; None for anything else."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        value = function.__globals__.get(node.func.id)
        if isinstance(value, FunctionType) and value.__module__ != language.__name__:
            return design.meant(node.func.id, value, function)
    return None
