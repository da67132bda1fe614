"""Kernels as C: one function an action instance, one for all guards, one for the invariants."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Iterable, Sequence

from hicache_checks.engine.compile.cases import Case, Cases, Split, cases_of, conjuncts
from hicache_checks.engine.compile.expressions import Node, in_order
from hicache_checks.engine.compile.kernels import Compiled, Kernel
from hicache_checks.engine.compile.layout import Layout
from hicache_checks.engine.compile.symmetry import Image

INT_BITS = 31


class _Code:
    """Statements that compute expressions, each expression once."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.lines: list[str] = []
        self.known: set[int] = set()
        self.outer: list[set[int]] = []

    def compute(self, roots: Iterable[Node]) -> None:
        """Make the values of these expressions available."""
        for node in in_order(roots):
            if node.op != "const" and node.number not in self.known:
                self.known.add(node.number)
                self.lines.append(f"const {_type(node)} {name(node)} = {self.formula(node)};")

    def begin(self, opening: str) -> None:
        """A block: what is computed in it is known in it only."""
        self.lines.append(opening)
        self.outer.append(set(self.known))

    def end(self) -> None:
        """The end of the block."""
        self.lines.append("}")
        self.known = self.outer.pop()

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
            return f"({_type(node)}){a[0]} << ({a[1]} & {63 if _type(node) == 'i64' else INT_BITS})"
        if node.op == "clear":
            return f"{a[0]} & ~(1LL << ({a[1]} & 63))"
        if node.op in ("shr", "bitand"):
            return f"{a[0]} {'>>' if node.op == 'shr' else '&'} {node.value}"
        if node.op == "not":
            return f"!{a[0]}"
        sign = {"add": "+", "sub": "-", "mul": "*", "eq": "==", "lt": "<", "and": "&", "or": "|", "bitor": "|"}[node.op]
        return f"({_type(node)}){a[0]} {sign} {a[1]}" if node.op in ("add", "sub", "mul") else f"{a[0]} {sign} {a[1]}"


def name(node: Node) -> str:
    """How a node is called in the C text."""
    return str(node.value) if node.is_constant else f"n{node.number}"


def _type(node: Node) -> str:
    return "int" if node.low > -(1 << INT_BITS) and node.high < 1 << INT_BITS else "i64"


def _padded(table: Sequence[int]) -> int:
    return 1 << max(0, len(table) - 1).bit_length()


def _table_name(node: Node) -> str:
    return "_".join(str(x).replace("-", "m") for x in node.table)


def kernels_header(compiled: Compiled, images: Sequence[Image] = ()) -> str:
    """The text of kernels.h. Without images of states every state stands for itself."""
    parts = [f"#define WORDS {compiled.layout.words}", *_tables(compiled)]
    live = [k for k in compiled.kernels if not (k.guard.is_constant and not k.guard.value)]
    rules = [list(g) for _, g in itertools.groupby(live, key=lambda k: k.step.rule.name)]
    sets: dict[int, int] = {(1 << len(compiled.violated)) - 1: 0}
    parts += [_rule(compiled, kernels, sets) for kernels in rules]
    parts += [_expand(rules), _invariants(compiled, sets), _at_rest(compiled)]
    parts += [_renaming_tables(images), _canonical(compiled.layout.words, images)]
    return "\n\n".join(parts) + "\n"


def _tables(compiled: Compiled) -> list[str]:
    roots = [*compiled.violated, compiled.at_rest]
    for k in compiled.kernels:
        roots += [k.guard, k.leaves, *k.changes.values(), *(x for _, x in (*k.broken, *k.reached))]
    tables = {_table_name(n): n.table for n in in_order(roots) if n.op == "table"}
    texts = []
    for known_as, table in tables.items():
        cells = [*table, *[0] * (_padded(table) - len(table))]
        wide = min(table) <= -(1 << INT_BITS) or max(table) >= 1 << INT_BITS
        texts.append(
            f"static const {'i64' if wide else 'int'} T{known_as}[{len(cells)}] = {{{', '.join(map(str, cells))}}};"
        )
    return texts


def _rule(compiled: Compiled, kernels: Sequence[Kernel], sets: dict[int, int]) -> str:
    """One C function for all instances of an action. Instances that have most of their work in common form a group:
    they have their cases in common, and what several of them need is computed once."""
    code = _Code(compiled.layout)
    for group in _groups(kernels):
        conditions = [*_in_common(group), compiled.builder.some(k.guard for k in group)]
        for condition in conditions:
            code.compute([condition])
            code.begin(f"if ({name(condition)}) {{")
        _cases(compiled, group, cases_of(compiled.builder, compiled.before, group), code, sets)
        for _ in conditions:
            code.end()
    title = f"{kernels[0].step.rule.name}: {kernels[0].step.rule.title}".replace("*/", "")
    return f"/* {title} */\nstatic void rule_{kernels[0].number}(const u64 *w, Sink *sink) {{\n{_body(code.lines)}\n}}"


def _cases(compiled: Compiled, group: Sequence[Kernel], cases: Cases, code: _Code, sets: dict[int, int]) -> None:
    if isinstance(cases, Split):
        code.compute([cases.condition])
        code.begin(f"if ({name(cases.condition)}) {{")
        _cases(compiled, group, cases.yes, code, sets)
        code.end()
        code.begin("else {")
        _cases(compiled, group, cases.no, code, sets)
        code.end()
        return
    users = Counter(node.number for case in cases for node in in_order(case.results))
    code.compute(node for case in cases for node in in_order(case.results) if users[node.number] > 1)
    for kernel, case in zip(group, cases, strict=True):
        code.compute([kernel.guard])
        code.begin(f"if ({name(kernel.guard)}) {{ /* {kernel.step.label} */")
        touched = sum(1 << i for i, reads in enumerate(compiled.read_by) if reads & case.changes.keys())
        _step(compiled.layout, kernel, case, code, sets.setdefault(touched, len(sets)))
        code.end()


def _step(layout: Layout, kernel: Kernel, case: Case, code: _Code, touched: int) -> None:
    if kernel.step.rule.fairness:
        code.lines.append("sink->goes_on = 1;")
    code.compute(case.results)
    code.lines.append("u64 o[WORDS], broken = 0, reached = 0;")
    for word in range(layout.words):
        kept, packed = (1 << 64) - 1, []
        for number, value in case.changes.items():
            slot = layout.slots[number]
            if slot.word == word:
                kept &= ~(slot.mask << slot.shift)
                stored = f"({name(value)} - {slot.offset})" if slot.offset else name(value)
                packed.append(f"((u64){stored} & {slot.mask}) << {slot.shift}")
        rest = f"(w[{word}] & {hex(kept)}ULL)" if packed else f"w[{word}]"
        code.lines.append(f"o[{word}] = {' | '.join([rest, *packed])};")
    code.lines += [f"broken |= (u64){name(condition)} << {i};" for i, condition in case.broken]
    if case.reached:
        mask = sum(1 << i for i, _ in case.reached)
        code.begin(f"if ({hex(mask)}ULL & ~sink->reached) {{")
        code.compute(condition for _, condition in case.reached)
        code.lines += [f"reached |= (u64){name(condition)} << {i};" for i, condition in case.reached]
        code.end()
    code.lines.append(f"emit(sink, {kernel.number}, o, broken, reached, {name(case.leaves)}, {touched});")


def _in_common(group: Sequence[Kernel]) -> list[Node]:
    """What all guards of a group require, the cheapest first: most states fail there already."""
    parts = [{n.number: n for n in conjuncts(k.guard)} for k in group]
    shared = [n for number, n in parts[0].items() if all(number in p for p in parts)]
    return sorted(shared, key=lambda n: (len(in_order([n])), n.number))


def _groups(kernels: Sequence[Kernel]) -> list[list[Kernel]]:
    """Neighbouring instances, as long as each has at least half of its work in common with the first of its group."""
    groups: list[list[Kernel]] = []
    work: set[int] = set()
    for kernel in kernels:
        roots = [*kernel.changes.values(), kernel.leaves]
        mine = {n.number for n in in_order(roots) if n.op not in ("slot", "const")}
        if groups and 2 * len(mine & work) > len(mine):
            groups[-1].append(kernel)
        else:
            groups.append([kernel])
            work = mine
    return groups


def _expand(rules: Sequence[Sequence[Kernel]]) -> str:
    lines = [f"rule_{kernels[0].number}(w, sink);" for kernels in rules]
    return f"static void expand(const u64 *w, Sink *sink) {{\n{_body(lines)}\n}}"


def _body(lines: Iterable[str]) -> str:
    return "\n".join(f"    {line}" for line in lines if line)


def _renaming_tables(images: Sequence[Image]) -> str:
    tables = sorted({r.table for image in images for r in image.renamings})
    texts = [f"static const u32 R{_digest(t)}[{len(t)}] = {{{', '.join(map(str, t))}}};" for t in tables]
    return "\n".join(texts)


def _digest(table: Sequence[int]) -> str:
    return hashlib.sha256(",".join(map(str, table)).encode()).hexdigest()[:12]


def _canonical(words: int, images: Sequence[Image]) -> str:
    """The least of a state's images, words compared in order."""
    lines = ["memcpy(o, w, WORDS * 8);"]
    for image in images:
        parts: list[list[str]] = [[] for _ in range(words)]
        for m in image.moves:
            shift = f" << {m.left}" if m.left > 0 else f" >> {-m.left}" if m.left < 0 else ""
            parts[m.target].append(f"((w[{m.source}] & {hex(m.mask)}ULL){shift})")
        for r in image.renamings:
            found = f"(u64)R{_digest(r.table)}[w[{r.source}] >> {r.shift} & {r.mask}]"
            parts[r.target].append(f"({found} << {r.left})")
        lines.append(f"{{ const u64 t[WORDS] = {{{', '.join(' | '.join(p) or '0' for p in parts)}}};")
        less = "0"
        for word in reversed(range(words)):
            less = f"t[{word}] < o[{word}] || (t[{word}] == o[{word}] && ({less}))"
        lines.append(f"if ({less}) memcpy(o, t, WORDS * 8); }}")
    return f"static inline void canonical(const u64 *w, u64 *o) {{\n{_body(lines)}\n}}"


def _invariants(compiled: Compiled, sets: Iterable[int]) -> str:
    """A function for each set of invariants, given as bits, and one that chooses by the number of the set."""
    parts, cases = [], []
    for number, wanted in enumerate(sets):
        violated = [
            (i, v) for i, v in enumerate(compiled.violated) if wanted >> i & 1 and v is not compiled.builder.false
        ]
        code = _Code(compiled.layout)
        code.compute(v for _, v in violated)
        lines = [*code.lines, "(void)w;", f"return {' | '.join(f'(u64){name(v)} << {i}' for i, v in violated) or '0'};"]
        parts.append(f"static u64 broken_of_set_{number}(const u64 *w) {{\n{_body(lines)}\n}}")
        cases.append(f"case {number}: return broken_of_set_{number}(w);")
    lines = ["switch (set) {", *cases, "}", "return 0;"]
    return "\n\n".join([*parts, f"static u64 invariants_broken(const u64 *w, int set) {{\n{_body(lines)}\n}}"])


def _at_rest(compiled: Compiled) -> str:
    code = _Code(compiled.layout)
    code.compute([compiled.at_rest])
    lines = [*code.lines, f"return {name(compiled.at_rest)};"]
    return f"static int at_rest(const u64 *w) {{\n    (void)w;\n{_body(lines)}\n}}"
