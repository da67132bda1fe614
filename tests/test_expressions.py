"""Expressions: whatever the builder makes simpler still has the same value, and that value is in its interval."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hicache_checks.engine.compile.cases import _Facts
from hicache_checks.engine.compile.expressions import Builder, Node, in_order

Values = NDArray[np.int64]
RANGES = ((0, 3), (-1, 2), (0, 1), (0, 1), (2, 5))
"""The values of the slots: a number or a packed queue, an optional, two flags, something that is never zero."""
STATES = np.array(list(itertools.product(*(range(low, high + 1) for low, high in RANGES))), np.int64)
DIGITS = 1
TABLE = (3, -1, 4, 1)


class Pool:
    """Expressions, each with its values in all states, by the definition of its operation."""

    def __init__(self) -> None:
        self.b = Builder()
        self._values: dict[int, Values] = {}
        self.slots = [self.b.slot(i, *range_) for i, range_ in enumerate(RANGES)]
        self.leaves = [*self.slots, *(self.b.const(c) for c in (-1, 0, 1, 2, 3))]
        self.compared = 0

    def of(self, node: Node) -> Values:
        """The values of an expression."""
        for part in in_order([node]):
            if part.number not in self._values:
                self._values[part.number] = self._computed(part, *(self._values[a.number] for a in part.args))
        return self._values[node.number]

    @staticmethod
    def _computed(node: Node, *a: Any) -> Values:
        by_definition: dict[str, Callable[[], Any]] = {
            "const": lambda: np.full(len(STATES), node.value),
            "slot": lambda: STATES[:, node.value],
            "add": lambda: a[0] + a[1],
            "sub": lambda: a[0] - a[1],
            "mul": lambda: a[0] * a[1],
            "min": lambda: np.minimum(*a),
            "max": lambda: np.maximum(*a),
            "shl": lambda: a[0] << a[1],
            "shr": lambda: a[0] >> node.value,
            "bitand": lambda: a[0] & node.value,
            "bitor": lambda: a[0] | a[1],
            "clear": lambda: a[0] & ~(1 << a[1]),
            "queue_length": lambda: sum(a[0] >= 1 << node.value * i for i in range(20)),
            "table": lambda: np.array(node.table)[a[0]],
            "eq": lambda: a[0] == a[1],
            "lt": lambda: a[0] < a[1],
            "and": lambda: a[0] & a[1],
            "or": lambda: a[0] | a[1],
            "not": lambda: 1 - a[0],
            "select": lambda: np.where(a[0], a[1], a[2]),
        }
        return np.asarray(by_definition[node.op](), np.int64)

    def check(self, node: Node, meant: Any) -> Node:
        """The expression has these values, and its interval holds them."""
        values = self.of(node)
        assert np.array_equal(values, meant), node
        assert node.low <= values.min(), node
        assert values.max() <= node.high, node
        self.compared += 1
        return node

    # -- families of expressions, each checked as it is made

    def arithmetic(self, x: Node, y: Node) -> list[Node]:
        """What can be made of two numbers."""
        b, p, q = self.b, self.of(x), self.of(y)
        return [
            self.check(b.add(x, y), p + q),
            self.check(b.sub(x, y), p - q),
            self.check(b.mul(x, y), p * q),
            self.check(b.minimum(x, y), np.minimum(p, q)),
            self.check(b.maximum(x, y), np.maximum(p, q)),
        ]

    def bits(self, x: Node, y: Node) -> list[Node]:
        """What can be made of the bits of two numbers that are not negative."""
        b, p, q = self.b, self.of(x), self.of(y)
        return [
            self.check(b.bit_or(x, y), p | q),
            self.check(b.shift_left(x, y), p << q),
            self.check(b.clear_bit(x, y), p & ~(1 << q)),
            self.check(b.shift_right(x, 1), p >> 1),
            self.check(b.bit_and(x, 2), p & 2),
            self.check(b.bit_and(x, 3), p & 3),
            self.check(b.queue_length(x, DIGITS), sum(p >= 1 << DIGITS * i for i in range(20))),
            self.check(b.queue_length(x, 2), sum(p >= 1 << 2 * i for i in range(20))),
        ]

    def comparisons(self, x: Node, y: Node) -> list[Node]:
        """What can be asked of two numbers."""
        b, p, q = self.b, self.of(x), self.of(y)
        return [
            self.check(b.equal(x, y), p == q),
            self.check(b.less(x, y), p < q),
            self.check(b.at_most(x, y), p <= q),
            self.check(b.within(x, 0, 1), (p >= 0) & (p <= 1)),
            self.check(b.truth(x), p != 0),
        ]

    def logic(self, x: Node, y: Node) -> list[Node]:
        """What can be made of two truth values."""
        b, p, q = self.b, self.of(x), self.of(y)
        return [
            self.check(b.both(x, y), p & q),
            self.check(b.either(x, y), p | q),
            self.check(b.negate(x), 1 - p),
            self.check(b.both(x, b.negate(y)), p & (1 - q)),
            self.check(b.either(b.negate(x), y), (1 - p) | q),
        ]

    def choices(self, c: Node, x: Node, y: Node) -> list[Node]:
        """What can be chosen by a truth value."""
        return [
            self.check(self.b.select(c, x, y), np.where(self.of(c), self.of(x), self.of(y))),
            self.check(self.b.select(self.b.negate(c), x, y), np.where(self.of(c), self.of(y), self.of(x))),
        ]


def distinct(families: Iterable[list[Node]], every: int = 1) -> list[Node]:
    """Each expression once, in the order of its number; or every second, third ..."""
    found = {node.number: node for family in families for node in family}
    return [found[number] for number in sorted(found)][::every]


@pytest.fixture(scope="module")
def pool() -> Pool:
    return Pool()


@pytest.fixture(scope="module")
def numbers(pool: Pool) -> list[Node]:
    """Numbers made of two leaves each, and leaves."""
    pairs = list(itertools.product(pool.leaves, repeat=2))
    positive = [n for n in pool.leaves if n.low >= 0]
    made = distinct([pool.arithmetic(x, y) for x, y in pairs], every=5)
    made += distinct([pool.bits(x, y) for x, y in itertools.product(positive, repeat=2)], every=3)
    return distinct([pool.leaves, made])


@pytest.fixture(scope="module")
def truths(pool: Pool, numbers: list[Node]) -> list[Node]:
    """Truth values: flags, comparisons, and some that are made of two."""
    simple = distinct([pool.comparisons(x, y) for x, y in itertools.product(pool.leaves, repeat=2)])
    chosen = [*pool.slots[2:4], *simple[::8]]
    return distinct([chosen, *(pool.logic(x, y) for x, y in itertools.product(chosen[:8], repeat=2))])


def test_numbers_compare_as_they_are_meant_to(pool: Pool, numbers: list[Node]) -> None:
    for x, y in itertools.product(numbers, repeat=2):
        pool.comparisons(x, y)
    assert pool.compared > 10_000


def test_lengths_of_queues_compare_with_any_number(pool: Pool) -> None:
    b = pool.b
    for queue, bits in itertools.product(pool.slots[:1] + pool.slots[2:], (1, 2)):
        length = b.queue_length(queue, bits)
        for constant in range(-1, 5):
            pool.comparisons(length, b.const(constant))
            pool.comparisons(b.const(constant), length)


def test_sums_and_choices_equal_constants_as_they_are_meant_to(pool: Pool, truths: list[Node]) -> None:
    b = pool.b
    for x, first, second in itertools.product(pool.slots, (-2, 1, 3), range(-3, 5)):
        pool.comparisons(b.add(x, b.const(first)), b.const(second))
        pool.arithmetic(b.add(x, b.const(first)), b.const(second))
    for c, x, constant in itertools.product(truths[:20], pool.leaves, range(-1, 4)):
        pool.comparisons(b.select(c, x, b.const(2)), b.const(constant))
        pool.comparisons(b.select(c, b.const(-1), x), b.const(constant))


@pytest.mark.heavy
def test_truth_values_join_as_they_are_meant_to(pool: Pool, truths: list[Node]) -> None:
    for x, y in itertools.product(truths, repeat=2):
        pool.logic(x, y)


@pytest.mark.heavy
def test_choices_within_choices_are_what_they_are_meant_to_be(pool: Pool, truths: list[Node]) -> None:
    for c in truths[::4]:
        sides = distinct([pool.choices(c, x, y) for x, y in itertools.pairwise(pool.leaves)])
        sides += [*truths[:4], pool.slots[0], pool.b.false, pool.b.true]
        for x, y in itertools.product(sides, repeat=2):
            pool.choices(c, x, y)


def test_a_table_gives_its_cells(pool: Pool, numbers: list[Node]) -> None:
    b = pool.b
    for x in numbers:
        inside = b.minimum(b.maximum(x, b.false), b.const(3))
        pool.check(b.lookup(TABLE, inside), np.array(TABLE)[np.clip(pool.of(x), 0, 3)])


def test_what_is_known_may_be_used_where_it_holds(pool: Pool, numbers: list[Node], truths: list[Node]) -> None:
    b = pool.b
    for condition, holds in itertools.product(truths, (True, False)):
        if condition.is_constant:
            continue
        facts, here = _Facts.of(b, condition, holds), pool.of(condition) == holds
        nodes = [
            *numbers[::5],
            *truths[::3],
            b.select(condition, numbers[3], numbers[7]),
            b.select(truths[2], condition, truths[5]),
        ]
        for node in nodes:
            assert np.array_equal(pool.of(facts.under(node))[here], pool.of(node)[here]), (condition, holds, node)


def test_an_expression_of_constants_is_a_constant() -> None:
    b = Builder()
    constants = [b.const(c) for c in range(-2, 6)]
    positive = constants[2:]
    made = [op(x, y) for op in (b.add, b.sub, b.mul, b.minimum, b.maximum) for x in constants for y in constants]
    made += [op(x, y) for op in (b.equal, b.less, b.at_most) for x in constants for y in constants]
    made += [op(x, y) for op in (b.bit_or, b.shift_left, b.clear_bit) for x in positive for y in positive]
    made += [op(x, n) for op in (b.shift_right, b.bit_and, b.queue_length) for x in positive for n in (1, 2)]
    made += [op(x, y) for op in (b.both, b.either) for x in (b.false, b.true) for y in (b.false, b.true)]
    made += [b.lookup(TABLE, x) for x in positive[:4]] + [b.select(b.true, *constants[:2]), b.negate(b.false)]
    assert all(node.is_constant for node in made)


def test_a_node_that_is_made_again_from_its_arguments_has_its_values(
    pool: Pool, numbers: list[Node], truths: list[Node]
) -> None:
    for node in in_order([*numbers, *truths]):
        if node.args:
            pool.check(pool.b.again(node, node.args), pool.of(node))


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
