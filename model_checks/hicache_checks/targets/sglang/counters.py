"""What a class of a release counts for the whole process is counted by rank: ranks that share this process have each
their own elsewhere, and may compare what they counted.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

COUNTER = "counter"
"""The releases' name for the number of the next object of a class."""

_counted: list[dict[int, int]] = []


@contextmanager
def counted_by_rank(package: str, rank: Callable[[], int]) -> Iterator[None]:
    """Of all classes that a package makes meanwhile. `rank`: of the caller.

    A class that is read or written at by its name can only be seen at it by its own class, so it is made with one.
    """
    make = vars(builtins)["__build_class__"]

    def made(body: Any, name: str, *bases: Any, **options: Any) -> Any:
        counts = COUNTER in body.__code__.co_names
        if counts and str(body.__globals__.get("__name__")).startswith(f"{package}."):
            options["metaclass"] = _counting(options.get("metaclass", _class_of(bases)), rank)
        return make(body, name, *bases, **options)

    vars(builtins)["__build_class__"] = made
    try:
        yield
    finally:
        vars(builtins)["__build_class__"] = make


def begin_again() -> None:
    """All count from where a new process does."""
    for counts in _counted:
        counts.clear()


def _class_of(bases: tuple[Any, ...]) -> type:
    """The class that a class with these bases has."""
    found = type
    for base in bases:
        if issubclass(type(base), found):
            found = type(base)
    return found


def _counting(kind: type, rank: Callable[[], int]) -> type:
    counts: dict[int, int] = {}
    _counted.append(counts)

    def read(cls: type) -> int:
        start: int = next(vars(base)[COUNTER] for base in cls.__mro__ if COUNTER in vars(base))
        return counts.get(rank(), start)

    def write(cls: type, value: int) -> None:
        counts[rank()] = value

    return type(kind.__name__, (kind,), {COUNTER: property(read, write)})
