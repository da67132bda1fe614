"""What an implementation registers by name. The checks look it up here and never import an implementation."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from hicache_checks.reporting import InputError

TARGETS = "hicheck.targets"
WORKLOADS = "hicheck.workloads"
SOAKS = "hicheck.soaks"
MUTANTS = "hicheck.mutants"
STORES = "hicheck.stores"


def load(group: str, name: str) -> Any:
    """The object that is registered as `name` in an entry-point group, or at `module:object`.

    Raises InputError when nothing is registered under the name or it cannot be imported.
    """
    if ":" in name:
        module, _, attribute = name.partition(":")
        try:
            return getattr(import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise InputError(f"cannot load {name}: {error}") from error
    known = {point.name: point for point in entry_points(group=group)}
    if name not in known:
        raise InputError(f"no {name!r} is registered in {group}; known: {', '.join(sorted(known)) or 'none'}")
    try:
        return known[name].load()
    except (ImportError, AttributeError) as error:
        raise InputError(f"cannot load {known[name].value}: {error}") from error
