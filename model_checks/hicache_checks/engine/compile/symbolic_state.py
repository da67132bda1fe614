"""A state whose values are expressions, and how a rule reads and writes it.

An index may depend on the state: it then names one of several places, each under a condition. What cannot be named,
such as the head of an empty queue, has some value that is never used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hicache_checks.engine.compile.expressions import Builder, Node
from hicache_checks.engine.compile.layout import Layout, Slot, element_bits
from hicache_spec.binding import Variable

Values = dict[int, Node]
"""The value of each slot, by number."""


@dataclass
class SymbolicState:
    """The values of all slots; writing replaces them."""

    builder: Builder
    layout: Layout
    values: Values

    def part(self, name: str) -> Part:
        """A state variable by name, without an index yet."""
        return Part(self, next(v for v in self.layout.spec.variables if v.name == name), ())

    def leaves_its_types(self) -> Node:
        """Is some value not of its variable's type?"""
        return self.builder.some(self._leaves(slot, self.values[slot.number]) for slot in self.layout.slots)

    def _leaves(self, slot: Slot, value: Node) -> Node:
        b = self.builder
        if value.low >= slot.offset and value.high <= slot.high:
            return b.false
        if slot.variable.type.kind == "queue":
            digits = element_bits(slot.variable)
            too_long = b.less(b.const((1 << slot.bits) - 1), value)
            top = slot.variable.type.high + 1
            if top == (1 << digits) - 1:
                return too_long
            elements = (digit(b, value, i, digits) for i in range(slot.variable.type.capacity))
            return b.either(too_long, b.some(b.less(b.const(top), x) for x in elements))
        return b.negate(b.within(value, slot.offset, slot.high))


@dataclass(frozen=True)
class Part:
    """A state variable under some of its indices. With all of them it is one number, one queue or one set."""

    state: SymbolicState
    variable: Variable
    index: tuple[Node, ...]

    @property
    def is_one(self) -> bool:
        """Does every index set have its index?"""
        return len(self.index) == len(self.variable.sizes)

    @property
    def is_number(self) -> bool:
        """Is it one number, and neither a queue nor a set?"""
        return self.is_one and self.variable.type.kind in ("int", "flag")

    def at(self, index: Node) -> Part:
        """The part under one more index."""
        return Part(self.state, self.variable, (*self.index, index))

    def load(self) -> Node:
        """The value, a queue or a set as its bits; that of the last candidate where no other is named."""
        values, candidates = self.state.values, self._places()
        result = values[candidates[-1][1]]
        for condition, number in reversed(candidates[:-1]):
            result = self.state.builder.select(condition, values[number], result)
        return result

    def store(self, value: Node) -> None:
        """Put a value into the place that the index names."""
        values = self.state.values
        for condition, number in self._places():
            values[number] = self.state.builder.select(condition, value, values[number])

    def _places(self) -> list[tuple[Node, int]]:
        """The slots that the index may name, each with the condition that it does."""
        b, numbers = self.state.builder, self.state.layout.number_of
        found: list[tuple[Node, tuple[int, ...]]] = [(b.true, ())]
        for index, size in zip(self.index, self.variable.sizes, strict=True):
            chosen = [(b.either(b.equal(index, b.const(i)), b.equal(index, b.const(i - size))), i) for i in range(size)]
            chosen = [c for c in chosen if c[0] is not b.false] or chosen[:1]
            found = [(b.both(when, here), (*done, i)) for when, done in found for here, i in chosen]
        return [(condition, numbers[self.variable.name, done]) for condition, done in found]

    # -- queues and sets

    def length(self) -> Node:
        """How many elements a queue, or members a set, has."""
        b, packed = self.state.builder, self.load()
        if self.variable.type.kind == "queue":
            return b.queue_length(packed, element_bits(self.variable))
        result = b.false
        for i in range(self.variable.type.high + 1):
            result = b.add(result, digit(b, packed, i, 1))
        return result

    def contains(self, value: Node) -> Node:
        """Is the value an element of the queue, or a member of the set?"""
        b, packed = self.state.builder, self.load()
        if self.variable.type.kind == "set":
            return b.some(
                b.both(b.equal(value, b.const(m)), digit(b, packed, m, 1))
                for m in range(max(0, value.low), min(value.high, self.variable.type.high) + 1)
            )
        digits, stored = element_bits(self.variable), b.add(value, b.true)
        found = b.some(b.equal(digit(b, packed, i, digits), stored) for i in range(_longest(packed, digits)))
        return b.both(b.at_most(b.false, value), found)  # what a free place holds looks like -1

    def element(self, index: Node) -> Node:
        """An element of a queue; a negative index counts from the end."""
        b, packed, digits = self.state.builder, self.load(), element_bits(self.variable)
        index = from_the_end(b, index, self.length())
        longest = max(1, _longest(packed, digits))
        result = digit(b, packed, longest - 1, digits)
        for i in reversed(range(longest - 1)):
            result = b.select(b.equal(index, b.const(i)), digit(b, packed, i, digits), result)
        return b.add(result, b.const(-1))

    def append(self, value: Node) -> None:
        """Put a value behind the last element of a queue."""
        b, packed, digits = self.state.builder, self.load(), element_bits(self.variable)
        stored = b.bit_and(b.add(value, b.true), (1 << digits) - 1)
        behind = b.mul(b.queue_length(packed, digits), b.const(digits))
        self.store(b.bit_or(packed, b.shift_left(stored, behind)))

    def pop(self) -> Node:
        """Take the head of a queue."""
        head = self.element(self.state.builder.false)
        self.store(self.state.builder.shift_right(self.load(), element_bits(self.variable)))
        return head

    def insert(self, value: Node) -> None:
        """Put a value into a set."""
        b = self.state.builder
        self.store(b.bit_or(self.load(), b.shift_left(b.true, self._position(value))))

    def discard(self, value: Node) -> None:
        """Take a value out of a set, if it is there."""
        b, packed = self.state.builder, self.load()
        inside = b.within(value, 0, self.variable.type.high)
        self.store(b.select(inside, b.clear_bit(packed, self._position(value)), packed))

    def admits(self, value: Node) -> Node:
        """May the value be an element or a member?"""
        return self.state.builder.within(value, 0, self.variable.type.high)

    def _position(self, value: Node) -> Node:
        b = self.state.builder
        return b.minimum(b.maximum(value, b.false), b.const(self.variable.type.high))


def digit(builder: Builder, packed: Node, i: int, digits: int) -> Node:
    """The i-th group of so many bits."""
    return builder.bit_and(builder.shift_right(packed, digits * i), (1 << digits) - 1)


def from_the_end(builder: Builder, index: Node, length: Node) -> Node:
    """The index, with negative ones counted from the end."""
    return builder.select(builder.less(index, builder.false), builder.add(index, length), index)


def member_of(builder: Builder, members: Sequence[int | Node], value: Node) -> Node:
    """Is the value one of these?"""
    return builder.some(builder.equal(value, builder.const(m) if isinstance(m, int) else m) for m in members)


def _longest(packed: Node, digits: int) -> int:
    return -(-packed.high.bit_length() // digits)
