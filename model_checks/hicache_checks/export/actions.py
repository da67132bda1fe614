"""An action as the exporters read it: its guards, its effect, and which of its instances are possible at all."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hicache_checks.export.functions import Function, Value, guard_of, is_require, without
from hicache_spec.binding import Step
from hicache_spec.language import Rule


@dataclass(frozen=True)
class Action:
    """An action: its rule, its function, the index set of each parameter, and its instances."""

    rule: Rule
    function: Function
    domains: Mapping[str, Value]
    steps: tuple[Step, ...]


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
    return _without_dead_locals(without(body, frozenset({"require"})), function)


def possible(action: Action) -> list[Step]:
    """The instances of an action that no guard about its parameters and the bounds alone rules out."""
    return [step for step in action.steps if not _is_ruled_out(action.function, step)]


def _is_ruled_out(function: Function, step: Step) -> bool:
    for statement in guard_part(function):
        guard = guard_of(statement)
        if guard is None:
            continue
        condition, _ = guard
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
