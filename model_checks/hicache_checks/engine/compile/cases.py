"""Case analysis: what an action does, as a tree of cases instead of one expression that computes all of them.

If-conversion makes `x = a if c else b` of every branch, so a step pays for what it seldom does, such as retiring an
operation. Where many slots depend on one condition the action is split by it: each case is simplified by what is known
in it. In a case whose condition is `x == 3`, x *is* 3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hicache_checks.engine.compile.expressions import Builder, Node, in_order
from hicache_checks.engine.compile.kernels import Kernel

FEWEST_TO_SPLIT = 3
CANDIDATES = 4
DEEPEST = 8
GROWTH_PERCENT = 125
"""A split may make the text longer by a quarter: it is worth while where one side has little to do."""

Conditions = tuple[tuple[int, Node], ...]


@dataclass(frozen=True)
class Case:
    """What a step does in one case; fields as in `Kernel`."""

    changes: dict[int, Node]
    leaves: Node
    broken: Conditions
    reached: Conditions

    @property
    def results(self) -> list[Node]:
        """What has to be computed for every such step."""
        return [*self.changes.values(), self.leaves, *(condition for _, condition in self.broken)]


@dataclass(frozen=True)
class Split:
    """Two ways to go on, by a condition."""

    condition: Node
    yes: Cases
    no: Cases


Cases = tuple[Case, ...] | Split
"""The cases of some instances of an action: one for each, or split further."""


class _Facts:
    """Rebuilds expressions under what is known of some of them."""

    def __init__(self, builder: Builder, known: dict[int, Node]) -> None:
        self.builder, self.known = builder, known

    @classmethod
    def of(cls, builder: Builder, condition: Node, holds: bool) -> _Facts:
        known: dict[int, Node] = {}
        waiting = [(condition, holds)]
        while waiting:
            node, value = waiting.pop()
            known[node.number] = builder.true if value else builder.false
            if node.op == "not":
                waiting.append((node.args[0], not value))
            elif (node.op, value) in (("and", True), ("or", False)):
                waiting += [(a, value) for a in node.args]
            elif node.op == "eq" and value and node.args[1].is_constant:
                known[node.args[0].number] = node.args[1]
        return cls(builder, known)

    def under(self, node: Node) -> Node:
        """The expression, simplified."""
        waiting = [node]
        while waiting:
            part = waiting[-1]
            missing = () if part.number in self.known else [a for a in part.args if a.number not in self.known]
            if missing:
                waiting += missing
                continue
            waiting.pop()
            if part.number not in self.known:
                arguments = tuple(self.known[a.number] for a in part.args)
                same = all(a is b for a, b in zip(arguments, part.args, strict=True))
                self.known[part.number] = part if same else self.builder.again(part, arguments)
        return self.known[node.number]

    def under_all(self, conditions: Conditions) -> Conditions:
        """The conditions that are still possible."""
        simpler = ((i, self.under(condition)) for i, condition in conditions)
        return tuple((i, c) for i, c in simpler if c is not self.builder.false)

    def case(self, case: Case, before: dict[int, Node]) -> Case:
        """The case, simplified; a slot that keeps its value is not a change."""
        changes = {n: self.under(value) for n, value in case.changes.items()}
        changes = {n: value for n, value in changes.items() if value is not self.under(before[n])}
        return Case(changes, self.under(case.leaves), self.under_all(case.broken), self.under_all(case.reached))


def cases_of(builder: Builder, before: dict[int, Node], kernels: Sequence[Kernel], deepest: int = DEEPEST) -> Cases:
    """The cases of some instances of one action, each under its guard. `before` are the slots' own expressions.

    `deepest`: so often may a case be split further.
    """
    cases = []
    for kernel in kernels:
        whole = Case(kernel.changes, kernel.leaves, kernel.broken, kernel.reached)
        cases.append(_Facts.of(builder, kernel.guard, True).case(whole, before))
    return _split(builder, before, tuple(cases), deepest)


def _split(builder: Builder, before: dict[int, Node], cases: tuple[Case, ...], depth: int) -> Cases:
    size = _size(cases)
    for condition in _dividing(cases) if depth else []:
        yes, no = (
            tuple(facts.case(case, before) for case in cases)
            for facts in (_Facts.of(builder, condition, holds) for holds in (True, False))
        )
        if _size(yes) + _size(no) <= size * GROWTH_PERCENT // 100:
            return Split(condition, _split(builder, before, yes, depth - 1), _split(builder, before, no, depth - 1))
    return cases


def _size(cases: Iterable[Case]) -> int:
    return len(in_order(node for case in cases for node in case.results))


def _dividing(cases: Iterable[Case]) -> list[Node]:
    """The conditions by which many slots are chosen, those of most slots first."""
    conditions = [v.args[0] for case in cases for v in case.changes.values() if v.op == "select"]
    by_number = {c.number: c for c in conditions}
    counted = Counter(c.number for c in conditions)
    best = sorted(counted, key=lambda number: (-counted[number], number))[:CANDIDATES]
    return [cheapest(by_number[number]) for number in best if counted[number] >= FEWEST_TO_SPLIT]


def conjuncts(node: Node) -> list[Node]:
    """The conditions that a conjunction requires, in order."""
    return [part for a in node.args for part in conjuncts(a)] if node.op == "and" else [node]


def cheapest(condition: Node) -> Node:
    """The part of a conjunction that is decided with the least work: often it settles the matter."""
    return min(conjuncts(condition), key=lambda n: (len(in_order([n])), n.number))
