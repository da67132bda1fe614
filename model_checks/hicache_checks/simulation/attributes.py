"""Fine-grained runs: reading and writing an attribute of an object of named classes is a step of its own.

Threads share more than locks and queues. With these steps a run can be switched between the two halves of `x.n += 1`;
without them, but with the attributes declared, `exhaustive` knows at least which steps do not commute.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from hicache_checks.simulation.world import World, current

# What a class has of these is how its objects behave, not what they hold.
BEHAVIOUR = (types.FunctionType, types.BuiltinFunctionType, property, classmethod, staticmethod)


@contextmanager
def attributes_of(*classes: type, points: bool = True) -> Iterator[None]:
    """Within this block, for these classes and those made of them. `points` False: the attributes are touched in the
    steps that there are anyway.

    TypeError: a class that is written in C.
    """
    with ExitStack() as stack:
        for cls in classes:
            # The others have it from their base.
            if not any(cls is not other and issubclass(cls, other) for other in classes):
                _watch(cls, "__getattribute__", "read", points, stack)
                _watch(cls, "__setattr__", "write", points, stack)
                _watch(cls, "__delattr__", "delete", points, stack)
        yield


def _watch(cls: type, method: str, doing: str, points: bool, stack: ExitStack) -> None:
    original: Callable[..., Any] = getattr(cls, method)
    is_data: dict[tuple[type, str], bool] = {}

    def watched(self: Any, name: str, *value: Any) -> Any:
        world = current()
        if world is None:
            return original(self, name, *value)
        kind = (type(self), name)
        if kind not in is_data:
            is_data[kind] = _is_data(*kind)
        if is_data[kind]:
            what = f"{_name_of(world, self)}.{name}"
            if points:
                world.point(f"{doing} {what}", what)
            else:
                world.touch(what)
        return original(self, name, *value)

    if method in vars(cls):
        stack.callback(setattr, cls, method, original)
    else:
        stack.callback(delattr, cls, method)
    setattr(cls, method, watched)


def _is_data(cls: type, name: str) -> bool:
    found = next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)
    return not isinstance(found, BEHAVIOUR) and not (name.startswith("__") and name.endswith("__"))


_names: WeakKeyDictionary[World, dict[int, tuple[Any, str]]] = WeakKeyDictionary()
"""Of the objects of a world, by identity; they are kept, so that no other gets the same."""


def _name_of(world: World, thing: Any) -> str:
    known = _names.setdefault(world, {})
    if id(thing) not in known:
        known[id(thing)] = (thing, world.label(type(thing).__name__))
    return known[id(thing)][1]
