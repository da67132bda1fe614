"""Loading a release on a machine that lacks most of what it wants: what is missing is stubbed, and said.

An import statement of the release that finds no such package gets a stub, and nobody else does: stubs are in no table
of Python's. So torch finds missing what is missing, and so do the release's own probes. A statement that the release
guards against failing, fails: the release then goes its own way without the package. A module of the release that
breaks while it is loaded is replaced by what it had defined by then, and stubs, unless it belongs to what is to be
tested.
"""

from __future__ import annotations

import ast
import builtins
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import tokenize
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from hicache_checks.targets.sglang.stubs import StubModule

NEVER = ("torch", "hicache_checks", "hicache_spec", "hicache_impl")
CAUGHT = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}


@dataclass
class Imports:
    """What became of the imports of a release. Keys are modules; values, who imported it or what broke.

    `package` is the release's; the modules under `kept` must load as they are. `loaded` is told every module of it.
    `stubbed` were missing; `missing` were, too, and the release is prepared for that; `broken` are the release's own.
    """

    package: str
    kept: tuple[str, ...]
    loaded: Callable[[types.ModuleType], object]
    stubbed: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)

    def is_own(self, name: str) -> bool:
        """A module of the release?"""
        return _is_in(name, self.package)

    def is_kept(self, name: str) -> bool:
        """A module that must load as it is?"""
        return any(_is_in(name, kept) for kept in self.kept)


@contextmanager
def importing(tree: Path, imports: Imports) -> Iterator[None]:
    """Within this block the release can be imported from its directory, also later, from within its functions.

    Nothing else in that directory can. Afterwards another release can be: what went by the name before, does again,
    and the environment's variables and torch's operators are as they were. Another one may also be open besides: which
    modules go by the name is then for the caller to see to.
    """
    before = _taken_out(imports)
    guards = _Guards(imports)
    finder = _OwnModules(str(tree), imports, guards)
    sys.meta_path.insert(0, finder)
    try:
        new_import = _Importer(str(tree), imports, guards, builtins.__import__).import_
        with mock.patch.object(builtins, "__import__", new_import), mock.patch.dict(os.environ):
            yield
    finally:
        sys.meta_path.remove(finder)
        _take_back_operators(_taken_out(imports).values())
        sys.modules.update(before)


def _taken_out(imports: Imports) -> dict[str, types.ModuleType]:
    return {name: sys.modules.pop(name) for name in list(sys.modules) if imports.is_own(name)}


def _take_back_operators(modules: Iterable[types.ModuleType]) -> None:
    """Those that the modules gave to torch, which takes none of the same name twice."""
    for library in [value for module in modules for value in vars(module).values()]:
        if isinstance(library, torch.library.Library):
            library._destroy()


class _Importer:
    """What an import statement asks."""

    def __init__(self, tree: str, imports: Imports, guards: _Guards, real_import: Callable[..., Any]) -> None:
        self._tree = tree
        self._imports = imports
        self._guards = guards
        self._real_import = real_import
        self._stubs: dict[str, StubModule] = {}

    def import_(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        """See builtins.__import__."""
        names, imports = globals or {}, self._imports
        importer, file = str(names.get("__name__", "")), str(names.get("__file__", ""))
        try:
            return self._real_import(name, globals, locals, fromlist, level)
        except ModuleNotFoundError as error:
            lacking = error.name or ""
            is_its_own = imports.is_own(importer) and (not file or _is_below(file, self._tree))
            is_foreign = not imports.is_own(lacking) and lacking.partition(".")[0] not in NEVER
            if level or not is_its_own or not is_foreign or not _is_in(name, lacking):
                raise
            if self._guards.are_around():
                imports.missing.setdefault(name, importer)
                raise
            if "." in lacking and not fromlist:
                # A real package of which a part is missing: it is everybody's, and no place for a stub.
                raise
        imports.stubbed.setdefault(name, importer)
        leaf = self._stub(name) if "." in lacking else self._stub_below(name)
        return leaf if fromlist else self._stub(name.partition(".")[0])

    def _stub_below(self, name: str) -> StubModule:
        """The stub, as a member of its parents'."""
        stub, (parent, _, last) = self._stub(name), name.rpartition(".")
        if parent:
            setattr(self._stub_below(parent), last, stub)
        return stub

    def _stub(self, name: str) -> StubModule:
        return self._stubs.setdefault(name, StubModule(name))


class _OwnModules(importlib.abc.MetaPathFinder):
    """Finds the release's own modules as Python does, in the one directory, and sees them load."""

    def __init__(self, tree: str, imports: Imports, guards: _Guards) -> None:
        self._tree = tree
        self._imports = imports
        self._guards = guards

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """See MetaPathFinder."""
        if not self._imports.is_own(name):
            return None
        if path is not None and not all(_is_below(place, self._tree) for place in path):
            # Another release is open besides, and this is a part of that one.
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, [self._tree] if path is None else path)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _Seeing(name, spec.loader.path, self._imports, self._guards)
        return spec


class _Seeing(importlib.machinery.SourceFileLoader):
    """Loads a module of the release; one that breaks, and is not to be tested, becomes a stub."""

    def __init__(self, name: str, path: str, imports: Imports, guards: _Guards) -> None:
        super().__init__(name, path)
        self._imports = imports
        self._guards = guards

    def exec_module(self, module: types.ModuleType) -> None:
        """See Loader."""
        imports, name = self._imports, module.__name__
        try:
            super().exec_module(module)
        except Exception as error:
            if imports.is_kept(name) or (isinstance(error, ImportError) and self._guards.are_around()):
                raise
            imports.broken[name] = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            module.__class__ = _Broken
        imports.loaded(module)


class _Broken(StubModule):
    """What a module had defined when it broke, the modules in it if it is a package, and stubs."""

    def __getattr__(self, name: str) -> Any:
        if "__path__" in vars(self) and importlib.util.find_spec(f"{self.__name__}.{name}") is not None:
            return importlib.import_module(f"{self.__name__}.{name}")
        return super().__getattr__(name)


class _Guards:
    """Statements of the release that are prepared for an import to fail."""

    def __init__(self, imports: Imports) -> None:
        self._imports = imports
        self._lines: dict[str, frozenset[int]] = {}

    def are_around(self) -> bool:
        """Is the release's import statement that runs now one of them?"""
        frame: types.FrameType | None = sys._getframe(2)
        while frame is not None and not self._imports.is_own(str(frame.f_globals.get("__name__"))):
            frame = frame.f_back
        if frame is None:
            return False
        file = frame.f_code.co_filename
        if file not in self._lines:
            self._lines[file] = _guarded_lines(file)
        return frame.f_lineno in self._lines[file]


def _guarded_lines(file: str) -> frozenset[int]:
    try:
        with tokenize.open(file) as text:
            tree = ast.parse(text.read())
    except OSError:
        return frozenset()
    return frozenset(line for node in _guarded(tree, False) for line in range(node.lineno, (node.end_lineno or 0) + 1))


def _guarded(node: ast.AST, is_guarded: bool) -> Iterator[ast.stmt]:
    """The import statements that run within a `try`, or a `with suppress(...)`, that catches their failure."""
    if is_guarded and isinstance(node, ast.Import | ast.ImportFrom):
        yield node
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        is_guarded = False
    guarded_body = isinstance(node, ast.Try | ast.With) and _catches(node)
    for name, children in ast.iter_fields(node):
        for child in children if isinstance(children, list) else [children]:
            if isinstance(child, ast.AST):
                yield from _guarded(child, is_guarded or (guarded_body and name == "body"))


def _catches(node: ast.Try | ast.With) -> bool:
    if isinstance(node, ast.Try):
        return any(handler.type is None or CAUGHT & set(_names(handler.type)) for handler in node.handlers)
    calls = [item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call)]
    return any("suppress" in _names(call.func) and CAUGHT & {n for a in call.args for n in _names(a)} for call in calls)


def _names(kinds: ast.expr) -> Iterator[str]:
    """What is named, alone or in a tuple: `a`, `x.a`, `(a, x.b)`."""
    for kind in kinds.elts if isinstance(kinds, ast.Tuple) else [kinds]:
        yield getattr(kind, "id", getattr(kind, "attr", ""))


def _is_in(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def _is_below(place: str, tree: str) -> bool:
    return Path(place).is_relative_to(tree)
