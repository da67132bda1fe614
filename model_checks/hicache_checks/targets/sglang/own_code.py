"""Single functions of a release's module, without the rest of it: the scheduler cannot be loaded whole, what it decides
about the cache can.

A function is taken from the module's text when it is asked for. The names that it uses are imported then, as the module
would import them.
"""

from __future__ import annotations
import __future__

import ast
import builtins
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

Node = TypeVar("Node", bound=ast.AST)


class OwnCode:
    """The functions of one module of a release. `name`: the module's."""

    def __init__(self, name: str, file: Path) -> None:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        self._file = str(file)
        self._functions = {f"{c.name}.{f.name}": f for c in _of(tree, ast.ClassDef) for f in _of(c, ast.FunctionDef)}
        self._made: dict[str, Callable[..., Any]] = {}
        self._names = _Names(name, tree)

    def has(self, name: str) -> bool:
        """Is there such a method? `Class.method`."""
        return name in self._functions

    def method(self, name: str) -> Callable[..., Any]:
        """The method, as a function. KeyError: there is none."""
        if name not in self._made:
            self._made[name] = self._compiled(self._functions[name])
        return self._made[name]

    def _compiled(self, function: ast.FunctionDef) -> Callable[..., Any]:
        bare = ast.FunctionDef(**{**dict(ast.iter_fields(function)), "decorator_list": []})
        module = ast.Module([ast.copy_location(bare, function)], [])
        code = compile(module, self._file, "exec", flags=__future__.annotations.compiler_flag, dont_inherit=True)
        names: dict[str, Any] = {}
        exec(code, self._names, names)
        made: Callable[..., Any] = names[function.name]
        return made


class _Names(dict[str, Any]):
    """The global names of a module: what it imports, imported when it is first used."""

    def __init__(self, name: str, tree: ast.Module) -> None:
        super().__init__(__name__=name, __builtins__=builtins)
        self._imports = dict(_imports(tree))

    def __missing__(self, name: str) -> Any:
        statement = self._imports[name]
        found = vars(builtins)["__import__"](*_arguments(statement, dict(self)))
        if isinstance(statement, ast.ImportFrom):
            original = next(alias.name for alias in statement.names if (alias.asname or alias.name) == name)
            found = getattr(found, original)
        self[name] = found
        return found


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
