"""Single functions of a release's module, without the rest of it: the scheduler cannot be loaded whole, what it decides
about the cache can.

A function is taken from the module's text when it is asked for. The names that it uses are imported then, as the module
would import them, or are set or defined as the module does.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

Node = TypeVar("Node", bound=ast.AST)


class OwnCode:
    """The functions of one module of a release. `name`: the module's."""

    def __init__(self, name: str, file: Path) -> None:
        self._text = file.read_text(encoding="utf-8")
        tree = ast.parse(self._text)
        self._file = str(file)
        self._functions = {f"{c.name}.{f.name}": f for c in _of(tree, ast.ClassDef) for f in _of(c, ast.FunctionDef)}
        self._made: dict[str, Callable[..., Any]] = {}
        self._names = _Names(name, tree)

    def mentions(self, name: str) -> bool:
        """Is the name anywhere in the module?"""
        return name in self._text

    def has(self, name: str) -> bool:
        """Is there such a method? `Class.method`."""
        return name in self._functions

    def method(self, name: str) -> Callable[..., Any]:
        """The method, as a function. KeyError: there is none."""
        if name not in self._made:
            self._made[name] = self._compiled(self._functions[name])
        return self._made[name]

    def is_property(self, name: str) -> bool:
        """Is there such a method, and is it a property?"""
        decorators = self._functions[name].decorator_list if self.has(name) else ()
        return any(isinstance(decorator, ast.Name) and decorator.id == "property" for decorator in decorators)

    def imported(self, name: str) -> Any:
        """What the module imports under a name. KeyError: it does not."""
        return self._names[name]

    def _compiled(self, function: ast.FunctionDef) -> Callable[..., Any]:
        bare = ast.FunctionDef(**{**dict(ast.iter_fields(function)), "decorator_list": []})
        names: dict[str, Any] = {}
        exec(_compiled([ast.copy_location(bare, function)], self._file), self._names, names)
        made: Callable[..., Any] = names[function.name]
        return made


class _Names(dict[str, Any]):
    """The global names of a module: what it imports, sets and defines, each when it is first used."""

    def __init__(self, name: str, tree: ast.Module) -> None:
        super().__init__(__name__=name, __builtins__=builtins)
        self._imports = dict(_imports(tree))
        self._set = dict(_set(tree))

    def __missing__(self, name: str) -> Any:
        if name in self._set:
            exec(_compiled([self._set[name]], str(self["__name__"])), self)
            return self[name]
        statement = self._imports[name]
        found = vars(builtins)["__import__"](*_arguments(statement, dict(self)))
        if isinstance(statement, ast.ImportFrom):
            original = next(alias.name for alias in statement.names if (alias.asname or alias.name) == name)
            found = getattr(found, original)
        self[name] = found
        return found


def _compiled(statements: list[ast.stmt], file: str) -> types.CodeType:
    module = ast.Module(statements, [])
    return compile(module, file, "exec", flags=__future__.annotations.compiler_flag, dont_inherit=True)


def _set(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    """What a module sets to a value, or defines as a function."""
    yield from ((function.name, function) for function in _of(tree, ast.FunctionDef))
    for statement in _of(tree, ast.Assign):
        yield from ((target.id, statement) for target in statement.targets if isinstance(target, ast.Name))


def _imports(tree: ast.Module) -> Iterator[tuple[str, ast.Import | ast.ImportFrom]]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from ((alias.asname or alias.name.partition(".")[0], node) for alias in node.names)


def _arguments(statement: ast.Import | ast.ImportFrom, names: dict[str, Any]) -> tuple[Any, ...]:
    if isinstance(statement, ast.ImportFrom):
        return statement.module or "", names, {}, [alias.name for alias in statement.names], statement.level
    return statement.names[0].name, names


def _of(tree: ast.Module | ast.ClassDef, kind: type[Node]) -> Iterator[Node]:
    return (node for node in tree.body if isinstance(node, kind))
