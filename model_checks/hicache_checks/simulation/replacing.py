"""Replacing things in modules that are imported already, and putting them back.

What is replaced is found in the module's names; in its classes: their bases, attributes and methods; in its functions:
default values and what they close over; and in the attributes of objects of its classes that it keeps. What hides
elsewhere, in a list for instance, is not found.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any


@dataclass(frozen=True)
class Kind:
    """Objects of exactly the type `old`, which are replaced by what `make_new` makes, and the way back.

    `alike(make, value)`: a new one like the value; None: not now, because somebody uses it.
    """

    old: type
    make_old: Callable[..., Any]
    new: type
    make_new: Callable[..., Any]
    alike: Callable[[Callable[..., Any], Any], Any]


@dataclass
class Replacements:
    """What is to be put for what: things themselves, and objects of a kind."""

    things: list[tuple[Any, Any]]
    kinds: Sequence[Kind]
    _by_id: dict[int, Any] = field(default_factory=dict)
    _kept: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._by_id = {id(old): new for old, new in self.things}

    def inverse(self) -> Replacements:
        """The way back."""
        kinds = [Kind(kind.new, kind.make_new, kind.old, kind.make_old, kind.alike) for kind in self.kinds]
        return Replacements([(new, old) for old, new in self.things], kinds)

    def of(self, value: Any) -> Any:
        """What is to be put for it; itself, if nothing."""
        found = self._by_id.get(id(value), value)
        if found is value:
            for kind in self.kinds:
                if type(value) is kind.old and (made := kind.alike(kind.make_new, value)) is not None:
                    # Everybody who has this one is to have the same new one.
                    self._by_id[id(value)] = found = made
                    self._kept.append(value)
        return found


@contextmanager
def replaced(modules: Collection[types.ModuleType], replacements: Replacements) -> Iterator[None]:
    """In these modules, within the block. TypeError: a class cannot change its base once it is there."""
    with ExitStack() as undo:
        _Walk(replacements, {module.__name__ for module in modules}, undo).over(modules)
        yield


def replace_for_good(modules: Collection[types.ModuleType], replacements: Replacements) -> None:
    """In these modules, but for the bases that a class cannot change."""
    _Walk(replacements, {module.__name__ for module in modules}, None).over(modules)


class _Walk:
    """`undo` takes what puts everything back; without it, what cannot be replaced is left."""

    def __init__(self, replacements: Replacements, modules: set[str], undo: ExitStack | None) -> None:
        self._replacements = replacements
        self._modules = modules
        self._undo = undo
        self._seen: set[int] = set()

    def over(self, modules: Iterable[types.ModuleType]) -> None:
        for module in modules:
            self._names(module)

    def _names(self, owner: Any) -> None:
        """The attributes of a module, a class or an object."""
        put = partial(setattr, owner) if isinstance(owner, type) else vars(owner).__setitem__
        for name, value in list(vars(owner).items()):
            if isinstance(owner, types.ModuleType) and name.startswith("__"):
                continue
            new = self._replacements.of(value)
            if new is not value:
                self._put(partial(put, name), value, new)
            else:
                self._inside(value)

    def _inside(self, value: Any) -> None:
        if isinstance(value, staticmethod | classmethod):
            value = value.__func__
        if id(value) in self._seen:
            return
        self._seen.add(id(value))
        if isinstance(value, property):
            for function in (value.fget, value.fset, value.fdel):
                self._inside(function)
        elif isinstance(value, types.FunctionType):
            self._function(value)
        elif isinstance(value, type):
            if value.__module__ in self._modules:
                self._class(value)
        elif type(value).__module__ in self._modules and hasattr(value, "__dict__"):
            self._names(value)

    def _class(self, cls: type) -> None:
        bases = tuple(map(self._replacements.of, cls.__bases__))
        if bases != cls.__bases__:
            try:
                self._put(partial(setattr, cls, "__bases__"), cls.__bases__, bases)
            except TypeError as error:
                if self._undo is not None:
                    raise TypeError(
                        f"{cls.__module__}.{cls.__qualname__} must be imported in the block: {error}"
                    ) from error
        self._names(cls)

    def _function(self, function: types.FunctionType) -> None:
        of = self._replacements.of
        if function.__defaults__:
            new = tuple(map(of, function.__defaults__))
            self._put(partial(setattr, function, "__defaults__"), function.__defaults__, new)
        named = function.__kwdefaults__ or {}
        for name, value in list(named.items()):
            self._put(partial(named.__setitem__, name), value, of(value))
        for cell in function.__closure__ or ():
            try:
                value = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
            new = of(value)
            if new is not value:
                self._put(partial(setattr, cell, "cell_contents"), value, new)
            else:
                self._inside(value)

    def _put(self, put: Callable[[Any], None], old: Any, new: Any) -> None:
        put(new)
        if self._undo is not None:
            self._undo.callback(put, old)
