"""The standard library's own text, executed again over stand-ins: what is written in Python there is not copied."""

from __future__ import annotations

import builtins
import inspect
import textwrap
import types
from collections.abc import Mapping
from typing import Any


def module_over(real: types.ModuleType, standins: Mapping[str, Any]) -> types.ModuleType:
    """The module, with these in place of what it imports under their names."""

    def import_(name: str, *rest: Any, **named: Any) -> Any:
        return standins[name] if name in standins else builtins.__import__(name, *rest, **named)

    made = types.ModuleType(real.__name__)
    made.__dict__["__builtins__"] = {**vars(builtins), "__import__": import_}
    exec(compile(inspect.getsource(real), real.__file__ or real.__name__, "exec"), made.__dict__)
    return made


def class_over(real: type, standins: Mapping[str, Any]) -> Any:
    """The class, with these in place of the names of its module."""
    module = inspect.getmodule(real)
    names: dict[str, Any] = {**vars(module), **standins}
    exec(compile(textwrap.dedent(inspect.getsource(real)), real.__module__, "exec"), names)
    return names[real.__name__]
