"""Kernels as C: one function an action instance, one for all guards, one for the invariants."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hicache_checks.engine.compile.expressions import Node, in_order
from hicache_checks.engine.compile.kernels import Compiled, Kernel
from hicache_checks.engine.compile.layout import Layout

INT_BITS = 31


class _Code:
    """Statements that compute expressions, each expression once."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.lines: list[str] = []
        self.known: set[int] = set()

    def compute(self, roots: Iterable[Node]) -> None:
        """Make the values of these expressions available."""
        for node in in_order(roots):
            if node.op != "const" and node.number not in self.known:
                self.known.add(node.number)
                self.lines.append(f"const {_type(node)} {name(node)} = {self.formula(node)};")

    def formula(self, node: Node) -> str:
        """The C expression of a node over its arguments."""
        a = [name(x) for x in node.args]
        if node.op == "slot":
            slot = self.layout.slots[node.value]
            stored = f"(int)(w[{slot.word}] >> {slot.shift} & {slot.mask})"
            return f"{stored} + {slot.offset}" if slot.offset else stored
        if node.op == "select":
            return f"{a[0]} ? {a[1]} : {a[2]}"
        if node.op in ("min", "max"):
            return f"{a[0]} {'<' if node.op == 'min' else '>'} {a[1]} ? {a[0]} : {a[1]}"
        if node.op == "table":
            return f"T{_table_name(node)}[{a[0]} & {_padded(node.table) - 1}]"
        if node.op == "queue_length":
            longest = node.high
            return " + ".join(f"({a[0]} >= {1 << (node.value * i)})" for i in range(longest)) or "0"
        if node.op == "shl":
            return f"({_type(node)}){a[0]} << ({a[1]} & {INT_BITS})"
        if node.op == "clear":
            return f"{a[0]} & ~(1 << ({a[1]} & {INT_BITS}))"
        if node.op in ("shr", "bitand"):
            return f"{a[0]} {'>>' if node.op == 'shr' else '&'} {node.value}"
        if node.op == "not":
            return f"!{a[0]}"
        sign = {"add": "+", "sub": "-", "mul": "*", "eq": "==", "lt": "<", "and": "&", "or": "|", "bitor": "|"}[node.op]
        return f"{a[0]} {sign} {a[1]}"


def name(node: Node) -> str:
    """How a node is called in the C text."""
    return str(node.value) if node.is_constant else f"n{node.number}"


def _type(node: Node) -> str:
    return "int" if -(1 << INT_BITS) < node.low and node.high < 1 << INT_BITS else "i64"


def _padded(table: Sequence[int]) -> int:
    return 1 << max(0, len(table) - 1).bit_length()


def _table_name(node: Node) -> str:
    return "_".join(str(x).replace("-", "m") for x in node.table)


def kernels_header(compiled: Compiled, symmetry: str = "") -> str:
    """The text of kernels.h. `symmetry` defines `canonical`; without it every state stands for itself."""
    parts = [f"#define WORDS {compiled.layout.words}", *_tables(compiled)]
    parts += [_step(compiled, kernel) for kernel in compiled.kernels]
    parts += [_expand(compiled), _invariants(compiled), _at_rest(compiled)]
    parts.append(symmetry or "static inline void canonical(const u64 *w, u64 *o) { memcpy(o, w, WORDS * 8); }")
    return "\n\n".join(parts) + "\n"


def _tables(compiled: Compiled) -> list[str]:
    roots = [*compiled.violated, compiled.at_rest]
    for k in compiled.kernels:
        roots += [k.guard, k.leaves, *k.changes.values(), *(x for _, x in (*k.broken, *k.reached))]
    tables = {_table_name(n): n.table for n in in_order(roots) if n.op == "table"}
    texts = []
    for known_as, table in tables.items():
        cells = [*table, *[0] * (_padded(table) - len(table))]
        texts.append(f"static const int T{known_as}[{len(cells)}] = {{{', '.join(map(str, cells))}}};")
    return texts


def _step(compiled: Compiled, kernel: Kernel) -> str:
    layout, code = compiled.layout, _Code(compiled.layout)
    code.compute([*kernel.changes.values(), kernel.leaves])
    lines = [*code.lines, "u64 o[WORDS], broken = 0, reached = 0;"]
    for word in range(layout.words):
        kept = (1 << 64) - 1
        packed = []
        for number, value in kernel.changes.items():
            slot = layout.slots[number]
            if slot.word == word:
                kept &= ~(slot.mask << slot.shift)
                stored = f"({name(value)} - {slot.offset})" if slot.offset else name(value)
                packed.append(f"((u64){stored} & {slot.mask}) << {slot.shift}")
        lines.append(f"o[{word}] = " + " | ".join([f"(w[{word}] & {hex(kept)}ULL)" if packed else f"w[{word}]", *packed]) + ";")
    code.lines = []
    code.compute(condition for _, condition in kernel.broken)
    lines += code.lines
    lines += [f"broken |= (u64){name(condition)} << {i};" for i, condition in kernel.broken]
    if kernel.reached:
        mask = sum(1 << i for i, _ in kernel.reached)
        code.lines = []
        code.compute(condition for _, condition in kernel.reached)
        lines.append(f"if ({hex(mask)}ULL & ~sink->reached) {{")
        lines += code.lines
        lines += [f"reached |= (u64){name(condition)} << {i};" for i, condition in kernel.reached]
        lines.append("}")
    lines.append(f"emit(sink, {kernel.number}, o, broken, reached, {name(kernel.leaves)});")
    body = "\n".join(f"    {line}" for line in lines)
    return f"/* {kernel.step.label} */\nstatic void step_{kernel.number}(const u64 *w, Sink *sink) {{\n{body}\n}}"


def _expand(compiled: Compiled) -> str:
    code = _Code(compiled.layout)
    for kernel in compiled.kernels:
        code.compute([kernel.guard])
        fair = "sink->goes_on = 1; " if kernel.step.rule.fairness else ""
        code.lines.append(f"if ({name(kernel.guard)}) {{ {fair}step_{kernel.number}(w, sink); }}")
    body = "\n".join(f"    {line}" for line in code.lines)
    return f"static void expand(const u64 *w, Sink *sink) {{\n{body}\n}}"


def _invariants(compiled: Compiled) -> str:
    code = _Code(compiled.layout)
    code.compute(compiled.violated)
    lines = [*code.lines, "u64 broken = 0;"]
    lines += [f"broken |= (u64){name(v)} << {i};" for i, v in enumerate(compiled.violated) if v.value or v.op != "const"]
    body = "\n".join(f"    {line}" for line in [*lines, "return broken;"])
    return f"static u64 invariants_broken(const u64 *w) {{\n    (void)w;\n{body}\n}}"


def _at_rest(compiled: Compiled) -> str:
    code = _Code(compiled.layout)
    code.compute([compiled.at_rest])
    body = "\n".join(f"    {line}" for line in [*code.lines, f"return {name(compiled.at_rest)};"])
    return f"static int at_rest(const u64 *w) {{\n    (void)w;\n{body}\n}}"
