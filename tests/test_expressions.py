"""Expressions: whatever the builder makes simpler still has the same value, and that value is in its interval."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import add, mul, sub
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache_checks.engine.compile.cases import _Facts
from hicache_checks.engine.compile.expressions import Builder, Node, in_order

Slots = Mapping[int, int]
RANGES = ((0, 3), (-1, 2), (0, 1), (0, 1), (2, 5))
"""The values of the slots: numbers, a flag or two, an optional, one that is never zero."""
DIGITS = 2


def every_state() -> Iterator[Slots]:
    for values in itertools.product(*(range(low, high + 1) for low, high in RANGES)):
        yield dict(enumerate(values))


@dataclass(frozen=True)
class Made:
    """An expression, and what it is to be."""

    node: Node
    meant: Callable[[Slots], int]


def value(node: Node, slots: Slots) -> int:
    """The value of an expression, by its definition."""
    a = [value(x, slots) for x in node.args]
    match node.op:
        case "const":
            return node.value
        case "slot":
            return slots[node.value]
        case "add" | "sub" | "mul":
            return {"add": a[0] + a[-1], "sub": a[0] - a[-1], "mul": a[0] * a[-1]}[node.op]
        case "min" | "max":
            return min(a) if node.op == "min" else max(a)
        case "shl":
            return a[0] << a[1]
        case "shr":
            return a[0] >> node.value
        case "bitand":
            return a[0] & node.value
        case "bitor" | "or":
            return a[0] | a[1]
        case "clear":
            return a[0] & ~(1 << a[1])
        case "queue_length":
            return sum(a[0] >= 1 << node.value * i for i in range(30))
        case "table":
            return node.table[a[0]]
        case "eq" | "lt":
            return int(a[0] == a[1]) if node.op == "eq" else int(a[0] < a[1])
        case "and":
            return a[0] & a[1]
        case "not":
            return 1 - a[0]
        case "select":
            return a[1] if a[0] else a[2]
    raise AssertionError(node.op)


class Writer:
    """Draws expressions. Without `slots`, only of constants."""

    def __init__(self, draw: Callable[..., Any], slots: bool = True) -> None:
        self.draw, self.slots, self.b = draw, slots, Builder()

    def between(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def leaf(self) -> Made:
        if self.slots and self.between(0, 2):
            number = self.between(0, len(RANGES) - 1)
            return Made(self.b.slot(number, *RANGES[number]), lambda s: s[number])
        constant = self.between(-2, 5)
        return Made(self.b.const(constant), lambda s: constant)

    def number(self, depth: int) -> Made:
        if depth == 0:
            return self.leaf()
        b, x, y = self.b, self.number(depth - 1), self.number(depth - 1)
        kind = self.draw(st.sampled_from(("add", "sub", "mul", "min", "max", "select", "bits", "table", "truth")))
        if kind == "bits":
            return self.bits(depth)
        if kind == "truth":
            return self.truth(depth)
        if kind == "select":
            c = self.truth(depth - 1)
            return Made(b.select(c.node, x.node, y.node), lambda s: x.meant(s) if c.meant(s) else y.meant(s))
        if kind == "table":
            cells = tuple(self.between(-3, 9) for _ in range(4))
            inside = b.minimum(b.maximum(x.node, b.const(0)), b.const(3))
            return Made(b.lookup(cells, inside), lambda s: cells[min(max(x.meant(s), 0), 3)])
        make = {"add": b.add, "sub": b.sub, "mul": b.mul, "min": b.minimum, "max": b.maximum}[kind]
        means: dict[str, Callable[[int, int], int]] = {"add": add, "sub": sub, "mul": mul, "min": min, "max": max}
        return Made(make(x.node, y.node), lambda s: means[kind](x.meant(s), y.meant(s)))

    def positive(self, depth: int) -> Made:
        x = self.number(depth)
        return Made(self.b.maximum(x.node, self.b.false), lambda s: max(x.meant(s), 0))

    def bits(self, depth: int) -> Made:
        """What is done to the bits of a queue or a set."""
        b, x, y, n = self.b, self.positive(depth - 1), self.positive(depth - 1), self.between(0, 3)
        position = Made(b.minimum(y.node, b.const(6)), lambda s: min(y.meant(s), 6))
        small = Made(b.bit_and(x.node, 15), lambda s: x.meant(s) & 15)
        return self.draw(
            st.sampled_from(
                (
                    Made(b.shift_left(small.node, position.node), lambda s: small.meant(s) << position.meant(s)),
                    Made(b.shift_right(x.node, n), lambda s: x.meant(s) >> n),
                    Made(b.bit_and(x.node, n), lambda s: x.meant(s) & n),
                    Made(b.bit_or(x.node, y.node), lambda s: x.meant(s) | y.meant(s)),
                    Made(b.clear_bit(x.node, position.node), lambda s: x.meant(s) & ~(1 << position.meant(s))),
                    Made(b.queue_length(x.node, DIGITS), lambda s: -(-x.meant(s).bit_length() // DIGITS)),
                )
            )
        )

    def truth(self, depth: int) -> Made:
        b, x, y = self.b, self.number(max(0, depth - 1)), self.number(max(0, depth - 1))
        low, high = self.between(-1, 2), self.between(0, 4)
        compared = [
            Made(b.equal(x.node, y.node), lambda s: int(x.meant(s) == y.meant(s))),
            Made(b.less(x.node, y.node), lambda s: int(x.meant(s) < y.meant(s))),
            Made(b.at_most(x.node, y.node), lambda s: int(x.meant(s) <= y.meant(s))),
            Made(b.within(x.node, low, high), lambda s: int(low <= x.meant(s) <= high)),
            Made(b.truth(x.node), lambda s: int(x.meant(s) != 0)),
        ]
        if depth == 0:
            return self.draw(st.sampled_from(compared))
        p, q = self.truth(depth - 1), self.truth(depth - 1)
        joined = [
            Made(b.negate(p.node), lambda s: 1 - p.meant(s)),
            Made(b.both(p.node, q.node), lambda s: p.meant(s) & q.meant(s)),
            Made(b.either(p.node, q.node), lambda s: p.meant(s) | q.meant(s)),
            Made(b.both(p.node, b.negate(q.node)), lambda s: p.meant(s) & 1 - q.meant(s)),
        ]
        return self.draw(st.sampled_from(compared + joined))


@given(st.data())
def test_an_expression_has_the_value_it_is_meant_to_have_within_its_interval(data: st.DataObject) -> None:
    made = Writer(data.draw).number(3)
    for slots in every_state():
        assert value(made.node, slots) == made.meant(slots)
        assert made.node.low <= made.meant(slots) <= made.node.high


@given(st.data())
def test_an_expression_of_constants_is_a_constant(data: st.DataObject) -> None:
    made = Writer(data.draw, slots=False).number(3)
    assert made.node.is_constant
    assert made.node.value == made.meant({})


@given(st.data())
def test_what_is_known_makes_an_expression_simpler_where_it_holds(data: st.DataObject) -> None:
    writer = Writer(data.draw)
    made, condition, holds = writer.number(2), writer.truth(2), data.draw(st.booleans())
    if condition.node.is_constant:
        return
    simpler = _Facts.of(writer.b, condition.node, holds).under(made.node)
    for slots in every_state():
        if condition.meant(slots) == holds:
            assert value(simpler, slots) == made.meant(slots)


@given(st.data())
def test_a_node_that_is_made_again_from_its_arguments_is_itself(data: st.DataObject) -> None:
    writer = Writer(data.draw)
    for node in in_order([writer.number(3).node]):
        if node.args:
            again = writer.b.again(node, node.args)
            assert all(value(again, s) == value(node, s) for s in itertools.islice(every_state(), 0, None, 7))


def test_equal_expressions_are_one() -> None:
    b = Builder()
    x, y = b.slot(0, 0, 9), b.slot(1, 0, 9)
    assert b.add(x, y) is b.add(y, x)
    assert b.both(b.less(x, y), b.equal(x, y)) is b.both(b.equal(y, x), b.less(x, y))
    assert b.negate(b.negate(b.less(x, y))) is b.less(x, y)
    assert b.select(b.negate(b.less(x, y)), x, y) is b.select(b.less(x, y), y, x)
    assert b.add(b.add(x, b.const(2)), b.const(-2)) is x
    assert b.sub(x, x) is b.false
    assert len(Builder()) == 2, "false and true"


def test_arguments_come_before_what_uses_them_and_only_what_is_needed() -> None:
    b = Builder()
    x, y = b.slot(0, 0, 9), b.slot(1, 0, 9)
    unused, root = b.mul(x, y), b.minimum(b.add(x, y), y)
    found = in_order([root, root.args[0]])
    assert unused not in found
    assert found.index(root) > max(found.index(a) for a in root.args)
    assert len(found) == len(set(found)) == 4


def test_numbers_that_no_engine_holds_are_refused() -> None:
    b = Builder()
    x = b.slot(0, 0, 1 << 20)
    product = b.mul(b.mul(x, x), x)
    assert product.high == 1 << 60
    with pytest.raises(OverflowError, match="mul"):
        b.mul(product, x)
