"""What a step changed in the specification's state, in the words of the log: operations by name, ranks together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from hicache_checks.conformance.explainer import name_of
from hicache_checks.conformance.observation import OpId
from hicache_spec import BoundSpec
from hicache_spec.binding import Variable, at
from hicache_spec.language import NONE, State, Symbol

# Names of index sets (`hicache_spec.state`). Every operation that is followed has a request of its own.
OPERATIONS = ("op", "request")
RANKS = "rank"
# Variables that only say where an operation is kept.
BOOKKEEPING = ("attempts", "record", "chain", "base")
PHASE = "phase"


@dataclass(frozen=True)
class Change:
    """A variable at one place. `rank` None: it is not one of a rank."""

    where: str
    rank: int | None
    old: str
    new: str


def difference(spec: BoundSpec, before: State, after: State, names: Mapping[int, OpId]) -> list[Change]:
    """What differs, in the order of the state's declaration. `names`: the operations by slot.

    That an operation that has ended forgets its numbers is not told.
    """
    is_ended = spec.function("is_ended")
    ended = {slot for slot in names if is_ended(after, slot)}
    changes = []
    for v in spec.variables:
        if v.name in BOOKKEEPING:
            continue
        dims = _dims(spec, v)
        for place in v.places():
            old, new = at(before, v.name, place), at(after, v.name, place)
            slots = {index for dim, index in zip(dims, place, strict=True) if dim in OPERATIONS}
            if old == new or (slots & ended and v.name != PHASE and new == v.type.initial()):
                continue
            rank = place[dims.index(RANKS)] if RANKS in dims else None
            shown = _shown_as(spec, v, names)
            changes.append(Change(_where(v, dims, place, names), rank, shown(old), shown(new)))
    return changes


def together(first: Iterable[Change], then: Iterable[Change]) -> list[Change]:
    """What two steps changed, one after the other."""
    changes = {(change.where, change.rank): change for change in first}
    for change in then:
        place = (change.where, change.rank)
        changes[place] = replace(change, old=changes[place].old) if place in changes else change
    return [change for change in changes.values() if change.old != change.new]


def said(changes: Iterable[Change], of: Sequence[int], ranks: int) -> list[str]:
    """One text a change. Ranks that changed alike are told together; they are named if they are neither the ranks `of`
    the step, nor all."""
    alike: dict[tuple[str, str, str], list[int]] = {}
    for change in changes:
        theirs = alike.setdefault((change.where, change.old, change.new), [])
        if change.rank is not None:
            theirs.append(change.rank)
    texts = []
    for (where, old, new), theirs in alike.items():
        is_clear = not theirs or sorted(theirs) in (sorted(of), list(range(ranks)))
        whose = "" if is_clear else f" on rank {', '.join(map(str, sorted(theirs)))}"
        texts.append(f"{where}{whose}: {old} -> {new}")
    return texts


def _dims(spec: BoundSpec, v: Variable) -> list[str]:
    """The names of a variable's index sets."""
    return [cast(Symbol, dim).name for dim in spec.design.fields()[v.name].dims]


def _where(v: Variable, dims: Sequence[str], place: Sequence[int], names: Mapping[int, OpId]) -> str:
    where = v.name
    for dim, index, size in zip(dims, place, v.sizes, strict=True):
        if dim in OPERATIONS:
            where += f"[{name_of(names.get(index))}]"
        elif dim != RANKS and size > 1:
            where += f"[{index}]"
    return where


def _shown_as(spec: BoundSpec, v: Variable, names: Mapping[int, OpId]) -> Any:
    """How values of a variable are written."""
    if getattr(spec.design.fields()[v.name].type.high, "name", "") not in OPERATIONS:
        return v.type.show
    if v.type.kind == "queue":
        return lambda slots: f"[{', '.join(name_of(names.get(slot)) for slot in slots)}]"
    return lambda slot: "none" if slot == NONE else name_of(names.get(slot))
