"""Interchangeable elements: what a permutation of requests or of ranks does to a packed state and to an action.

A specification declares an index set `symmetric`; a set that has a block of elements for each of its members moves with
it. A permutation moves the values along those index sets, and renames the elements that values are (a record, the
members of a queue).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hicache_checks.engine.compile.layout import DoesNotFit, Layout, Slot, Words, element_bits
from hicache_spec import BoundSpec
from hicache_spec.language import Symbol

TABLE_BITS_MAX = 16

Permutation = Mapping[str, tuple[int, ...]]
"""The image of each element of each index set that moves, by the name of the set."""


@dataclass(frozen=True)
class Move:
    """Bits of one word that go to another word (or the same) without change, all shifted by the same distance."""

    source: int
    mask: int
    target: int
    left: int


@dataclass(frozen=True)
class Renaming:
    """A field whose value names elements: it is looked up in a table and put at its new place."""

    source: int
    shift: int
    mask: int
    table: tuple[int, ...]
    target: int
    left: int


@dataclass(frozen=True)
class Image:
    """A permutation as it acts on packed states and on the steps: step i becomes step `steps[i]`."""

    permutation: Permutation
    moves: tuple[Move, ...]
    renamings: tuple[Renaming, ...]
    steps: tuple[int, ...]

    def of(self, states: Words) -> Words:
        """The images of states, shape (n, words)."""
        images = np.zeros_like(states)
        for m in self.moves:
            bits = states[:, m.source] & np.uint64(m.mask)
            images[:, m.target] |= bits << np.uint64(m.left) if m.left >= 0 else bits >> np.uint64(-m.left)
        for r in self.renamings:
            old = (states[:, r.source] >> np.uint64(r.shift)) & np.uint64(r.mask)
            images[:, r.target] |= np.array(r.table, np.uint64)[old.astype(np.intp)] << np.uint64(r.left)
        return images


def images(layout: Layout) -> list[Image]:
    """Every permutation of the declared symmetries but the identity. Empty without any. Raises DoesNotFit."""
    spec = layout.spec
    return [_image(layout, p) for p in _permutations(spec)][1:]


def _symbols(spec: BoundSpec) -> dict[str, Symbol]:
    """The index sets that the state and the parameters of the actions use."""
    found: list[Any] = []
    for declared in spec.design.fields().values():
        found += [*declared.dims, declared.type.high]
    for step in spec.steps:
        found += step.rule.params.values()
    return {s.name: s for s in found if isinstance(s, Symbol) and s.is_index}


def _permutations(spec: BoundSpec) -> Iterator[Permutation]:
    symbols = _symbols(spec)
    sizes = {name: len(s.resolve(spec.bounds)) for name, s in symbols.items()}
    moving = sorted(name for name, s in symbols.items() if s.symmetric)
    followers = {name: s.blocks_of.name for name, s in symbols.items() if s.blocks_of and s.blocks_of.symmetric}
    for choice in itertools.product(*(itertools.permutations(range(sizes[name])) for name in moving)):
        chosen = dict(zip(moving, choice, strict=True))
        for name, leader in followers.items():
            if leader in chosen:
                block = sizes[name] // sizes[leader]
                chosen[name] = tuple(chosen[leader][i // block] * block + i % block for i in range(sizes[name]))
        yield chosen


def _image(layout: Layout, permutation: Permutation) -> Image:
    fields = layout.spec.design.fields()
    moved: dict[tuple[int, int, int], int] = {}
    renamings = []
    for slot in layout.slots:
        declared = fields[slot.variable.name]
        place = tuple(_moved(permutation, d, i) for d, i in zip(declared.dims, slot.place, strict=True))
        target = layout.slots[layout.number_of[slot.variable.name, place]]
        renamed = permutation.get(_name(declared.type.high))
        if renamed is not None and list(renamed) != sorted(renamed):
            table = _table(slot, renamed)
            renamings.append(Renaming(slot.word, slot.shift, slot.mask, table, target.word, target.shift))
        else:
            key = (slot.word, target.word, target.shift - slot.shift)
            moved[key] = moved.get(key, 0) | slot.mask << slot.shift
    moves = [Move(source, mask, target, left) for (source, target, left), mask in moved.items()]
    return Image(permutation, tuple(moves), tuple(renamings), _steps(layout.spec, permutation))


def _steps(spec: BoundSpec, permutation: Permutation) -> tuple[int, ...]:
    number = {step.label: i for i, step in enumerate(spec.steps)}
    found = []
    for step in spec.steps:
        arguments = {k: _moved(permutation, step.rule.params[k], v) for k, v in step.arguments.items()}
        found.append(number[f"{step.rule.name}({', '.join(f'{k}={v}' for k, v in arguments.items())})"])
    return tuple(found)


def _name(index_set: Any) -> str:
    return index_set.name if isinstance(index_set, Symbol) else ""


def _moved(permutation: Permutation, index_set: Any, i: int) -> int:
    moved = permutation.get(_name(index_set))
    return i if moved is None else moved[i]


def _table(slot: Slot, renamed: Sequence[int]) -> tuple[int, ...]:
    """What each stored value of a field becomes when elements are renamed."""
    if slot.bits > TABLE_BITS_MAX:
        raise DoesNotFit(
            f"{slot.variable.name}: {slot.bits} bits in one variable, more than the {TABLE_BITS_MAX} that symmetry "
            "reduction can rename; explore without it"
        )
    kind = slot.variable.type.kind

    def rename(stored: int) -> int:
        if kind == "set":
            return sum(1 << renamed[i] for i in range(len(renamed)) if stored >> i & 1)
        if kind == "queue":
            digits = element_bits(slot.variable)
            result = 0
            for i in range(slot.bits // digits):
                element = stored >> (digits * i) & ((1 << digits) - 1)
                result |= (renamed[element - 1] + 1 if 0 < element <= len(renamed) else element) << (digits * i)
            return result
        value = stored + slot.offset
        return renamed[value] - slot.offset if 0 <= value < len(renamed) else stored

    return tuple(rename(stored) for stored in range(slot.mask + 1))
