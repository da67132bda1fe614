"""Typed expressions: integers with an interval, each distinct expression built once.

An expression is a node of a graph. Building a node folds constants and applies the identities that if-conversion makes
worth while, so that most of a step property vanishes for an action that does not touch what it speaks of. Truth values
are the integers 0 and 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

NUMBERS_END = 1 << 62


@dataclass(frozen=True, eq=False, slots=True)
class Node:
    """An expression: `op` over `args`, with all its values in `low .. high`.

    Leaves: `const` (`value`), `slot` (`value` is the number of a state slot). `table` looks its one argument up in
    `table`; `queue_length` and the shifts carry the bits of an element or the distance in `value`.
    """

    number: int
    op: str
    args: tuple[Node, ...]
    low: int
    high: int
    value: int = 0
    table: tuple[int, ...] = ()

    @property
    def is_constant(self) -> bool:
        """Is it one known number?"""
        return self.op == "const"

    @property
    def is_truth(self) -> bool:
        """Are all its values 0 or 1?"""
        return self.low >= 0 and self.high <= 1


class Builder:
    """Makes expressions; equal ones are the same object. Raises OverflowError for numbers that no back end holds."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], Node] = {}
        self.false, self.true = self.const(0), self.const(1)

    def __len__(self) -> int:
        return len(self._known)

    def _node(
        self, op: str, args: tuple[Node, ...], low: int, high: int, value: int = 0, table: tuple[int, ...] = ()
    ) -> Node:
        if low == high and op != "const":
            return self.const(low)
        if low < -NUMBERS_END or high >= NUMBERS_END:
            raise OverflowError(f"{op}: {low} .. {high}")
        key = (op, value, table, *(a.number for a in args))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Node(len(self._known), op, args, low, high, value, table)
        return found

    def again(self, node: Node, args: tuple[Node, ...]) -> Node:
        """The same operation on other arguments, simplified."""
        two: dict[str, Callable[[Node, Node], Node]] = {
            "add": self.add,
            "sub": self.sub,
            "mul": self.mul,
            "min": self.minimum,
            "max": self.maximum,
        }
        two |= {"eq": self.equal, "lt": self.less, "and": self.both, "or": self.either}
        two |= {"shl": self.shift_left, "bitor": self.bit_or, "clear": self.clear_bit}
        if node.op in two:
            return two[node.op](*args)
        if node.op == "select":
            return self.select(*args)
        if node.op == "not":
            return self.negate(*args)
        if node.op == "table":
            return self.lookup(node.table, *args)
        (a,) = args
        one = {"shr": self.shift_right, "bitand": self.bit_and, "queue_length": self.queue_length}
        return one[node.op](a, node.value)

    # -- leaves

    def const(self, value: int) -> Node:
        """A number."""
        value = int(value)
        return self._node("const", (), value, value, value)

    def slot(self, number: int, low: int, high: int) -> Node:
        """The value of a state slot."""
        return self._node("slot", (), low, high, number)

    # -- arithmetic

    def add(self, a: Node, b: Node) -> Node:
        """a + b."""
        if a.is_constant:
            a, b = b, a
        if b.is_constant:
            if b.value == 0:
                return a
            if a.op == "add" and a.args[1].is_constant:
                return self.add(a.args[0], self.const(a.args[1].value + b.value))
        elif a.number > b.number:
            a, b = b, a
        return self._node("add", (a, b), a.low + b.low, a.high + b.high)

    def sub(self, a: Node, b: Node) -> Node:
        """a - b."""
        if b.is_constant:
            return self.add(a, self.const(-b.value))
        if a is b:
            return self.false
        return self._node("sub", (a, b), a.low - b.high, a.high - b.low)

    def mul(self, a: Node, b: Node) -> Node:
        """a * b."""
        if a.is_constant:
            a, b = b, a
        if b.is_constant and b.value in (0, 1):
            return a if b.value else b
        corners = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
        return self._node("mul", (a, b), min(corners), max(corners))

    def minimum(self, a: Node, b: Node) -> Node:
        """The smaller one."""
        if a is b or a.high <= b.low:
            return a
        if b.high <= a.low:
            return b
        return self._node("min", _sorted(a, b), min(a.low, b.low), min(a.high, b.high))

    def maximum(self, a: Node, b: Node) -> Node:
        """The larger one."""
        if a is b or a.low >= b.high:
            return a
        if b.low >= a.high:
            return b
        return self._node("max", _sorted(a, b), max(a.low, b.low), max(a.high, b.high))

    # -- bits

    def shift_left(self, a: Node, distance: Node) -> Node:
        """a << distance, for a >= 0."""
        if distance.is_constant and distance.value == 0:
            return a
        return self._node("shl", (a, distance), a.low << max(distance.low, 0), a.high << max(distance.high, 0))

    def shift_right(self, a: Node, distance: int) -> Node:
        """a >> distance, for a >= 0."""
        if distance == 0:
            return a
        if a.is_constant:
            return self.const(a.value >> distance)
        return self._node("shr", (a,), a.low >> distance, a.high >> distance, distance)

    def bit_and(self, a: Node, mask: int) -> Node:
        """a & mask, for a >= 0; a mask may be negative (all bits but some)."""
        if mask >= 0 and a.high <= mask and mask & (mask + 1) == 0:
            return a
        if a.is_constant:
            return self.const(a.value & mask)
        return self._node("bitand", (a,), 0, a.high if mask < 0 else min(a.high, mask), mask)

    def bit_or(self, a: Node, b: Node) -> Node:
        """a | b, for both >= 0."""
        if b.is_constant and b.value == 0:
            return a
        if a.is_constant and a.value == 0:
            return b
        if a.is_constant and b.is_constant:
            return self.const(a.value | b.value)
        high = (1 << max(a.high.bit_length(), b.high.bit_length())) - 1
        return self._node("bitor", _sorted(a, b), max(a.low, b.low), high)

    def clear_bit(self, a: Node, position: Node) -> Node:
        """a without the bit at a position."""
        if a.is_constant and position.is_constant and position.value >= 0:
            return self.const(a.value & ~(1 << position.value))
        return self._node("clear", (a, position), 0, a.high)

    def queue_length(self, queue: Node, bits: int) -> Node:
        """The number of elements of a packed queue: its last element is not zero."""
        longest = -(-queue.high.bit_length() // bits)
        shortest = -(-queue.low.bit_length() // bits)
        return self._node("queue_length", (queue,), shortest, longest, bits)

    def lookup(self, table: Sequence[int], index: Node) -> Node:
        """table[index]; what is beyond the table is nobody's business: such a value is never used."""
        inside = table[max(index.low, 0) : index.high + 1] or table
        return self._node("table", (index,), min(inside), max(inside), 0, tuple(table))

    # -- comparisons

    def equal(self, a: Node, b: Node) -> Node:
        """a == b."""
        if a is b:
            return self.true
        if a.high < b.low or b.high < a.low:
            return self.false
        if a.is_constant:
            a, b = b, a
        if b.is_constant:
            simpler = self._equals_constant(a, b.value)
            if simpler is not None:
                return simpler
        return self._node("eq", (a, b) if b.is_constant else _sorted(a, b), 0, 1)

    def _equals_constant(self, a: Node, value: int) -> Node | None:
        if a.is_truth:
            return a if value == 1 else self.negate(a)
        if a.op == "select" and (a.args[1].is_constant or a.args[2].is_constant):
            constant = self.const(value)
            return self.select(a.args[0], self.equal(a.args[1], constant), self.equal(a.args[2], constant))
        if a.op == "add" and a.args[1].is_constant:
            return self.equal(a.args[0], self.const(value - a.args[1].value))
        if a.op == "queue_length" and value == 0:
            return self.equal(a.args[0], self.false)
        return None

    def less(self, a: Node, b: Node) -> Node:
        """a < b."""
        if a is b or a.low >= b.high:
            return self.false
        if a.high < b.low:
            return self.true
        if a.is_constant and b.op == "queue_length":
            return self.less(self.const((1 << (b.value * a.value)) - 1), b.args[0])
        if b.is_constant and a.op == "queue_length":
            return self.less(a.args[0], self.const(1 << (a.value * (b.value - 1))))
        if a.is_constant and b.low == 0 and a.value == 0:
            return self.negate(self.equal(b, self.false))
        if b.is_constant and a.low == 0 and b.value == 1:
            return self.equal(a, self.false)
        return self._node("lt", (a, b), 0, 1)

    def at_most(self, a: Node, b: Node) -> Node:
        """a <= b."""
        return self.negate(self.less(b, a))

    def within(self, a: Node, low: int, high: int) -> Node:
        """low <= a <= high."""
        return self.both(self.at_most(self.const(low), a), self.at_most(a, self.const(high)))

    # -- truth

    def truth(self, a: Node) -> Node:
        """Is it not zero?"""
        return a if a.is_truth else self.negate(self.equal(a, self.false))

    def negate(self, a: Node) -> Node:
        """not a."""
        if a.is_constant:
            return self.false if a.value else self.true
        return a.args[0] if a.op == "not" else self._node("not", (a,), 0, 1)

    def both(self, a: Node, b: Node) -> Node:
        """a and b."""
        if a.is_constant:
            return b if a.value else a
        if b.is_constant:
            return a if b.value else b
        if a is b or self._implies(a, b):
            return a
        if self._implies(b, a):
            return b
        if a is self.negate(b) or self._excludes(a, b) or self._excludes(b, a):
            return self.false
        return self._node("and", _sorted(a, b), 0, 1)

    def either(self, a: Node, b: Node) -> Node:
        """a or b."""
        if a.is_constant:
            return a if a.value else b
        if b.is_constant:
            return b if b.value else a
        if a is b or self._implies(a, b):
            return b
        if self._implies(b, a):
            return a
        if a is self.negate(b):
            return self.true
        return self._node("or", _sorted(a, b), 0, 1)

    @staticmethod
    def _implies(a: Node, b: Node) -> bool:
        """Is it plain to see that a implies b: b is a part of the conjunction a, or a of the disjunction b?"""
        return (a.op == "and" and b in a.args) or (b.op == "or" and a in b.args)

    def _excludes(self, a: Node, b: Node) -> bool:
        """Is the contrary of a a part of the conjunction b, or do both say of one thing that it is two numbers?"""
        if b.op == "and" and self.negate(a) in b.args:
            return True
        return (
            a.op == b.op == "eq"
            and a.args[0] is b.args[0]
            and a.args[1].is_constant
            and b.args[1].is_constant
            and a is not b
        )

    def every(self, parts: Iterable[Node]) -> Node:
        """All of them."""
        result = self.true
        for part in parts:
            result = self.both(result, part)
        return result

    def some(self, parts: Iterable[Node]) -> Node:
        """Any of them."""
        result = self.false
        for part in parts:
            result = self.either(result, part)
        return result

    def select(self, condition: Node, a: Node, b: Node) -> Node:
        """a if condition else b."""
        if condition.is_constant:
            return a if condition.value else b
        if a is b:
            return a
        if condition.op == "not":
            return self.select(condition.args[0], b, a)
        if a.op == "select" and a.args[0] is condition:
            a = a.args[1]
        if b.op == "select" and b.args[0] is condition:
            b = b.args[2]
        if a is b:
            return a
        if a.is_truth and b.is_truth:
            if a.is_constant:
                return self.either(condition, b) if a.value else self.both(self.negate(condition), b)
            if b.is_constant:
                return self.either(self.negate(condition), a) if b.value else self.both(condition, a)
        return self._node("select", (condition, a, b), min(a.low, b.low), max(a.high, b.high))


def _sorted(a: Node, b: Node) -> tuple[Node, Node]:
    return (a, b) if a.number <= b.number else (b, a)


def in_order(roots: Iterable[Node]) -> list[Node]:
    """The nodes that the roots need, each once, arguments before what uses them."""
    needed: dict[int, Node] = {}
    waiting = list(roots)
    while waiting:
        node = waiting.pop()
        if node.number not in needed:
            needed[node.number] = node
            waiting += node.args
    return [needed[number] for number in sorted(needed)]
