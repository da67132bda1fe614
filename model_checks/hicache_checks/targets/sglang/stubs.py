"""What stands for a package that is not installed: it can be imported, subclassed, called and used as a decorator.

It answers nothing: whatever is asked of it is another one, is false, and has no members. What it cannot stand in for
shows as an error where it is used.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

VERSION = "99.0.0"
"""Newer than any minimum that a program may ask for."""


class Base:
    """The base of classes that would have a missing class as theirs."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __init_subclass__(cls, **kwargs: Any) -> None:
        pass


class Stub:
    """Some name of a missing module."""

    def __init__(self, name: str) -> None:
        self.__dict__["_name"] = name

    def __getattr__(self, name: str) -> Any:
        return _attribute(self, "_name", name)

    def __repr__(self) -> str:
        return f"<stub {self._name}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As a decorator it leaves what it decorates as it is."""
        if (
            len(args) == 1
            and not kwargs
            and isinstance(args[0], types.FunctionType | type | staticmethod | classmethod)
        ):
            return args[0]
        return Stub(f"{self._name}()")

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        """One `Base` for all the stubs among the bases."""
        return (Base,) if next(base for base in bases if isinstance(base, Stub)) is self else ()

    def __getitem__(self, key: Any) -> Stub:
        return self

    def __or__(self, other: Any) -> Any:
        return other

    __ror__ = __or__

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return False

    def __enter__(self) -> Stub:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def __instancecheck__(self, instance: Any) -> bool:
        return False

    def __subclasscheck__(self, cls: type) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stub) and other._name == self._name

    def __hash__(self) -> int:
        return hash(self._name)

    def __lt__(self, other: object) -> bool:
        return False

    __gt__ = __le__ = __ge__ = __lt__

    def __index__(self) -> int:
        return 0

    __int__ = __index__

    def __float__(self) -> float:
        return 0.0


class StubModule(types.ModuleType):
    """A missing module, or one of the release's own that could not be loaded; what it has, stays."""

    def __getattr__(self, name: str) -> Any:
        return _attribute(self, "__name__", name)


def _attribute(owner: Any, named_by: str, name: str) -> Any:
    if name == "__version__":
        return VERSION
    if name == "__name__":
        return vars(owner)[named_by].rpartition(".")[2]
    if name.startswith("__") and name.endswith("__"):
        raise AttributeError(name)
    made = vars(owner)[name] = Stub(f"{vars(owner)[named_by]}.{name}")
    return made
