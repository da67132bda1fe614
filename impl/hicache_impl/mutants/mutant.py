"""What a mutant of the implementation is, and how one is made from a faulty part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hicache_impl.cache import HiCache
from hicache_impl.controller import Controller
from hicache_impl.operation import Operation
from hicache_impl.trees.hiradix import HiRadixTree


@dataclass(frozen=True)
class ImplMutant:
    """A fault of the implementation.

    `builds`: the faulty classes and what else they need, as keywords of `hicache_impl.adapter.Reference`. `ranks`: how
    many it needs to show. `race`: which gates must be held while what happens; None when plain calls show it.
    """

    name: str
    builds: Mapping[str, Any]
    summary: str
    ranks: int = 1
    race: str | None = None


def faulty_cache(name: str, part: type[HiCache], ranks: int = 1, race: str | None = None) -> ImplMutant:
    """The fault is in the scheduler's side."""
    return ImplMutant(name, {"cache_class": part}, _summary(part), ranks, race)


def faulty_controller(name: str, part: type[Controller], ranks: int = 1, race: str | None = None) -> ImplMutant:
    """The fault is in a worker thread, or in the store that it sees."""
    return ImplMutant(name, {"controller_class": part}, _summary(part), ranks, race)


def faulty_operation(name: str, part: type[Operation], ranks: int = 1, race: str | None = None) -> ImplMutant:
    """The fault is in a step of an operation."""
    cache = type(f"{part.__name__}Cache", (HiCache,), {"operation_class": part})
    return ImplMutant(name, {"cache_class": cache}, _summary(part), ranks, race)


def faulty_tree(name: str, part: type[HiRadixTree], ranks: int = 1, race: str | None = None) -> ImplMutant:
    """The fault is in the tree."""
    cache = type(f"{part.__name__}Cache", (HiCache,), {"tree_class": part})
    return ImplMutant(name, {"cache_class": cache}, _summary(part), ranks, race)


def _summary(part: type) -> str:
    return (part.__doc__ or "").strip()
