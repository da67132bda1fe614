"""What a function of a specification does by its own text: whom it calls, what it requires, writes and emits.

Helpers that it calls are not followed: which function a name means is the business of the design that it stands in.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from hicache_spec import language
from hicache_spec.language import EventKind
from hicache_spec.subset import QUEUE_METHODS, WRITING_CALLS, source

Function = Callable[..., Any]


@dataclass(frozen=True)
class Guard:
    """A `require` of a rule: the condition as it stands in the text, and its reason."""

    condition: str
    reason: str


def calls(function: Function) -> Iterator[tuple[str, Function]]:
    """The helper functions that a function names, as its own module has them."""
    assert isinstance(function, FunctionType)
    for name, _ in _named_calls(function):
        called = function.__globals__.get(name)
        if isinstance(called, FunctionType) and called.__module__ != language.__name__:
            yield name, called


def written(function: Function) -> Iterator[str]:
    """The state variables that a function writes itself."""
    for node in ast.walk(source(function)):
        targets: Sequence[ast.expr] = ()
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AugAssign):
            targets = [node.target]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in QUEUE_METHODS:
            targets = [node.func.value]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in WRITING_CALLS:
            targets = node.args[:1]
        for target in targets:
            while isinstance(target, ast.Subscript):
                target = target.value
            if isinstance(target, ast.Attribute):
                yield target.attr


def emitted(function: Function) -> Iterator[str]:
    """The names of the events that a function emits itself."""
    assert isinstance(function, FunctionType)
    for name, node in _named_calls(function):
        if name == language.emit.__name__:
            kind = node.args[1]
            event = function.__globals__.get(kind.id) if isinstance(kind, ast.Name) else None
            assert isinstance(event, EventKind), f"{function.__qualname__} emits something that is no event"
            yield event.name


def guards(function: Function) -> tuple[Guard, ...]:
    """What a function requires itself, in the order of the text."""
    text, found = textwrap.dedent(inspect.getsource(function)), []
    for name, node in _named_calls(function):
        if name == language.require.__name__:
            condition, reason = node.args
            assert isinstance(reason, ast.Constant), f"{function.__qualname__}: a reason is a text"
            found.append(Guard(" ".join((ast.get_source_segment(text, condition) or "").split()), str(reason.value)))
    return tuple(found)


def _named_calls(function: Function) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(source(function)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id, node
