"""Kernels as Python functions over columns: each line computes one expression for a whole batch of states.

The text uses a handful of words (`pick`, `least`, `most`, `cast`, `take`, `shifted`) that columns.py defines for NumPy
and for torch. Numbers travel in the smallest signed integer type that holds their interval, truth values as
booleans; types are chosen here, never by promotion.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hicache_checks.engine.compile.cases import Case, Cases, Split, cases_of
from hicache_checks.engine.compile.expressions import Node, in_order
from hicache_checks.engine.compile.kernels import Compiled
from hicache_checks.engine.compile.layout import Layout

Tables = dict[tuple[str, tuple[int, ...]], str]
"""The constant tables that a text names: (type, content) -> name."""

DEEPEST = 2
"""Splits of a case: each costs a gathering of its rows."""
WIDTHS = (("i1", 7), ("i2", 15), ("i4", 31), ("i8", 63))


def name(node: Node) -> str:
    """How a node is called in the text."""
    if node.is_constant:
        return str(node.value)
    return f"n{node.number}"


def type_of(nodes: Iterable[Node]) -> str:
    """The smallest integer type that holds all values of all these expressions."""
    low, high = zip(*((n.low, n.high) for n in nodes), strict=True)
    return next(t for t, bits in WIDTHS if -(1 << bits) <= min(low) and max(high) < 1 << bits)


class _Function:
    """The text of one function: every expression it needs, once."""

    def __init__(self, compiled: Compiled, head: str) -> None:
        self.compiled = compiled
        self.lines = [head]
        self.known: set[int] = set()
        self.tables: Tables = {}

    def say(self, line: str) -> None:
        """A statement of its body."""
        self.lines.append("    " + line)

    def compute(self, roots: Iterable[Node]) -> None:
        """Make the values of these expressions available."""
        for node in in_order(roots):
            if node.op != "const" and node.number not in self.known:
                self.known.add(node.number)
                self.say(f"{name(node)} = {self.formula(node)}")

    def typed(self, node: Node, wanted: str) -> str:
        """The value of a node in an integer type."""
        if node.is_constant:
            return str(node.value)
        is_already = not node.is_truth and type_of([node]) == wanted
        return name(node) if is_already else f"cast({name(node)}, {wanted})"

    def formula(self, node: Node) -> str:
        """The Python expression of a node over its arguments."""
        a = node.args
        if node.op == "slot":
            return self._slot(node)
        if node.is_truth and node.op in ("not", "and", "or", "select", "eq", "table"):
            return self._truth(node)
        t = type_of([node, *a])
        v = [self.typed(x, t) for x in a]
        own = type_of([node])
        simple = {"add": "+", "sub": "-", "mul": "*", "bitor": "|", "lt": "<", "eq": "=="}
        if node.op in simple:
            text = f"{v[0]} {simple[node.op]} {v[1]}"
            return text if node.op in ("lt", "eq") else self._narrow(text, t, node)
        if node.op == "select":
            return f"pick({name(a[0])}, {self.typed(a[1], own)}, {self.typed(a[2], own)}, {own})"
        if node.op in ("min", "max"):
            return self._narrow(f"{'least' if node.op == 'min' else 'most'}({v[0]}, {v[1]})", t, node)
        if node.op in ("shr", "bitand"):
            return self._narrow(f"{v[0]} {'>>' if node.op == 'shr' else '&'} {node.value}", t, node)
        if node.op == "shl":
            return self._narrow(f"shifted({v[0]}, {self.typed(a[1], t)}, {t})", t, node)
        if node.op == "clear":
            return self._narrow(f"{v[0]} & ~shifted(1, {self.typed(a[1], t)}, {t})", t, node)
        if node.op == "queue_length":
            if node.is_truth:
                return f"{v[0]} >= 1"
            parts = [f"cast({v[0]} >= {1 << (node.value * i)}, i1)" for i in range(node.high)]
            return " + ".join(parts)
        assert node.op == "table", node.op
        return f"take({self._table(node, own)}, {self._index(node)})"

    def _narrow(self, text: str, computed: str, node: Node) -> str:
        if node.is_truth:
            return f"({text}) != 0"
        own = type_of([node])
        return text if own == computed else f"cast({text}, {own})"

    def _slot(self, node: Node) -> str:
        slot = self.compiled.layout.slots[node.value]
        stored = f"w{slot.word} >> {slot.shift} & {slot.mask}"
        if node.is_truth:
            return f"({stored}) != 0"
        own = type_of([node])
        return f"cast({stored}, {own})" + (f" + {slot.offset}" if slot.offset else "")

    def _truth(self, node: Node) -> str:
        a = node.args
        v = [repr(bool(x.value)) if x.is_constant else name(x) for x in a]
        if node.op == "not":
            return f"~{v[0]}"
        if node.op in ("and", "or"):
            return f"{v[0]} {'&' if node.op == 'and' else '|'} {v[1]}"
        if node.op == "select":
            return f"({v[0]} & {v[1]}) | (~{v[0]} & {v[2]})"
        if node.op == "table":
            return f"take({self._table(node, 'truth')}, {self._index(node)})"
        if all(x.is_truth and not x.is_constant for x in a):
            return f"{v[0]} == {v[1]}"
        t = type_of(a)
        return f"{self.typed(a[0], t)} == {self.typed(a[1], t)}"

    def _index(self, node: Node) -> str:
        index = node.args[0]
        t = type_of([index, self.compiled.builder.const(len(node.table))])
        return f"{self.typed(index, t)} & {padded(node.table) - 1}"

    def _table(self, node: Node, t: str) -> str:
        known = f"T{len(self.tables)}"
        return self.tables.setdefault((t, node.table), known)


def padded(table: Sequence[int]) -> int:
    """The length of a table whose index is cut to bits, so that no index is out of it."""
    return 1 << max(0, len(table) - 1).bit_length()


@dataclass(frozen=True)
class Either:
    """A case analysis by names of functions: `condition` gives a mask, and each side is gone on with where it is so."""

    condition: str
    yes: Either | str
    no: Either | str


@dataclass(frozen=True)
class KernelsText:
    """The text of all kernels, the tables that it names, and for each action instance the functions of its cases.

    `guards(w0, ...)` gives a mask an action instance, and where a fair one is enabled. A case's function gives the
    words after the step, where it leaves the types, and a mask for each step property that it may break. `reached_i`
    gives a mask for each outcome, `broken_invariants` a mask an invariant, `at_rest` a mask.
    """

    text: str
    tables: Tables
    steps: dict[int, Either | str]


def kernels_text(compiled: Compiled) -> KernelsText:
    """Generate the text."""
    words = ", ".join(f"w{i}" for i in range(compiled.layout.words))
    functions: list[_Function] = []

    def function(title: str, roots: Sequence[Node]) -> _Function:
        made = _Function(compiled, f"def {title}({words}):")
        made.tables = functions[0].tables if functions else {}
        made.compute(roots)
        functions.append(made)
        return made

    def step(title: str, cases: Cases) -> Either | str:
        if isinstance(cases, Split):
            function(f"{title}_if", [cases.condition]).say(f"return {name(cases.condition)}")
            return Either(f"{title}_if", step(f"{title}_yes", cases.yes), step(f"{title}_no", cases.no))
        (case,) = cases
        _finish_step(compiled.layout, case, function(title, case.results))
        return title

    guards = function("guards", [*(k.guard for k in compiled.kernels), compiled.goes_on])
    guards.say(f"return [{', '.join(name(k.guard) for k in compiled.kernels)}], {name(compiled.goes_on)}")
    steps = {}
    for kernel in compiled.kernels:
        if not (kernel.guard.is_constant and not kernel.guard.value):
            cases = cases_of(compiled.builder, compiled.before, [kernel], DEEPEST)
            steps[kernel.number] = step(f"step_{kernel.number}", cases)
            reached = function(f"reached_{kernel.number}", [condition for _, condition in kernel.reached])
            reached.say(f"return [{', '.join(f'({i}, {name(c)})' for i, c in kernel.reached)}]")
    invariants = function("broken_invariants", compiled.violated)
    invariants.say(f"return [{', '.join(map(name, compiled.violated))}]")
    function("at_rest", [compiled.at_rest]).say(f"return {name(compiled.at_rest)}")
    text = "\n".join("\n".join(f.lines) for f in functions) + "\n"
    return KernelsText(text, functions[0].tables, steps)


def values_text(compiled: Compiled, roots: Sequence[Node]) -> tuple[str, Tables]:
    """The text of `values(w0, ...)`, which gives these expressions, and its tables."""
    made = _Function(compiled, f"def values({', '.join(f'w{i}' for i in range(compiled.layout.words))}):")
    made.compute(roots)
    made.say(f"return [{', '.join(map(name, roots))}]")
    return "\n".join(made.lines) + "\n", made.tables


def _finish_step(layout: Layout, case: Case, made: _Function) -> None:
    after = []
    for word in range(layout.words):
        kept, packed, fixed = (1 << 64) - 1, [], 0
        for number, value in case.changes.items():
            slot = layout.slots[number]
            if slot.word != word:
                continue
            kept &= ~(slot.mask << slot.shift)
            if value.is_constant:
                fixed |= ((value.value - slot.offset) & slot.mask) << slot.shift
                continue
            stored = f"(cast({name(value)}, i8) - {slot.offset})" if slot.offset else f"cast({name(value)}, i8)"
            packed.append(f"({stored} << {slot.shift})")
        parts = [f"(w{word} & {signed(kept)})" if kept != (1 << 64) - 1 else f"w{word}", *packed]
        after.append(" | ".join([*parts, *([str(signed(fixed))] if fixed else [])]))
    conditions = ", ".join(f"({i}, {name(condition)})" for i, condition in case.broken)
    made.say(f"return ({', '.join(after)},), {name(case.leaves)}, [{conditions}]")


def signed(word: int) -> int:
    """The word as the signed number with the same bits."""
    return word - (1 << 64) if word >> 63 else word
