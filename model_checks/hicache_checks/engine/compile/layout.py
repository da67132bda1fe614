"""The bit-packed state: where in which 64-bit word each value of each state variable lies.

A number takes as many bits as its type has values and is stored without its lower bound. A queue is one field: its
elements, each plus one, the head in the lowest bits, zeros behind the last; so taking the head is a shift and equal
queues are equal bits. A set is one bit a member. No field crosses a word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hicache_spec import BoundSpec
from hicache_spec.binding import Variable, at
from hicache_spec.language import SpecError, State

WORD_BITS = 64
FIELD_BITS_MAX = 31

Words = NDArray[np.uint64]


class DoesNotFit(SpecError):
    """A specification that cannot be compiled; the message names the rule or the state variable."""


@dataclass(frozen=True)
class Slot:
    """One field: which variable at which index, and where its bits are. A stored value is the value minus `offset`."""

    number: int
    variable: Variable
    place: tuple[int, ...]
    word: int
    shift: int
    bits: int

    @property
    def offset(self) -> int:
        """What is added to the stored bits to get the value: the lower bound of a number."""
        return self.variable.type.low if self.variable.type.kind == "int" else 0

    @property
    def high(self) -> int:
        """The largest value that is of the type (of a queue or a set: as its bits)."""
        t = self.variable.type
        if t.kind == "queue":
            digits = element_bits(self.variable)
            return sum((t.high + 1) << (digits * i) for i in range(t.capacity))
        return (1 << (t.high + 1)) - 1 if t.kind == "set" else int(t.high)

    @property
    def mask(self) -> int:
        """The bits of the field, not shifted."""
        return (1 << self.bits) - 1


def element_bits(variable: Variable) -> int:
    """The bits of one element of a queue variable."""
    return int(variable.type.high + 1).bit_length()


def _bits(variable: Variable) -> int:
    t = variable.type
    if t.kind == "queue":
        return element_bits(variable) * int(t.capacity)
    if t.kind == "set":
        return int(t.high) + 1
    return int(t.high - t.low).bit_length()


class Layout:
    """The packed form of a bound specification's states."""

    def __init__(self, spec: BoundSpec) -> None:
        """Raises DoesNotFit for a variable that is too wide."""
        self.spec = spec
        self.slots: list[Slot] = []
        self.number_of: dict[tuple[str, tuple[int, ...]], int] = {}
        fields = [(variable, place) for variable in spec.variables for place in variable.places()]
        filled = [0]
        for variable, place in fields:
            bits = _bits(variable)
            if bits > FIELD_BITS_MAX:
                raise DoesNotFit(f"{variable.name}: {bits} bits in one variable, more than {FIELD_BITS_MAX}")
            word = next((w for w, used in enumerate(filled) if used + bits <= WORD_BITS), len(filled))
            if word == len(filled):
                filled.append(0)
            self.number_of[variable.name, place] = len(self.slots)
            self.slots.append(Slot(len(self.slots), variable, place, word, filled[word], bits))
            filled[word] += bits
        self.words = len(filled)
        self.bits = sum(filled)

    def pack(self, s: State) -> tuple[int, ...]:
        """The words of a state. Its values must be of their types."""
        words = [0] * self.words
        for slot in self.slots:
            words[slot.word] |= self._stored(slot, at(s, slot.variable.name, slot.place)) << slot.shift
        return tuple(words)

    def unpack(self, words: Sequence[int]) -> State:
        """A fresh state from its words."""
        s = self.spec.initial()
        for slot in self.slots:
            _put(s, slot, self._value(slot, (int(words[slot.word]) >> slot.shift) & slot.mask))
        return s

    @staticmethod
    def _stored(slot: Slot, value: Any) -> int:
        kind = slot.variable.type.kind
        if kind == "queue":
            digits = element_bits(slot.variable)
            return sum((x + 1) << (digits * i) for i, x in enumerate(value))
        if kind == "set":
            return sum(1 << x for x in value)
        return int(value) - slot.offset

    @staticmethod
    def _value(slot: Slot, stored: int) -> Any:
        kind = slot.variable.type.kind
        if kind == "queue":
            digits = element_bits(slot.variable)
            members = []
            while stored:
                members.append((stored & ((1 << digits) - 1)) - 1)
                stored >>= digits
            return members
        if kind == "set":
            return [x for x in range(slot.bits) if stored >> x & 1]
        return bool(stored) if kind == "flag" else stored + slot.offset


def _put(s: State, slot: Slot, value: Any) -> None:
    if not slot.place:
        setattr(s, slot.variable.name, value)
        return
    holder = getattr(s, slot.variable.name)
    for i in slot.place[:-1]:
        holder = holder[i]
    holder[slot.place[-1]] = value
