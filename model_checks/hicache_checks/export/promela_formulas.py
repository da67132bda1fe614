"""Expressions and functions without effect, as Promela: C-like expressions and macros, with loops unrolled."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from hicache_checks.export.functions import Function, Value, assigned, called, guard_of, is_require
from hicache_checks.export.kinds import arguments_of
from hicache_checks.export.program import Program
from hicache_checks.export.promela_words import (
    EQUALITY,
    OPERATORS,
    ORDER,
    RESERVED,
    SUM,
    UNARY,
    addition,
    both,
    conditional,
    conjunction,
    disjunction,
    entries,
    extreme,
    negation,
)
from hicache_checks.export.terms import (
    ANYTHING,
    ATOM,
    Names,
    Term,
    has_return,
    range_ends,
    rounds,
    static,
    static_range,
    substituted,
    unrolled,
)


class Formulas:
    """Writes expressions as Promela. `names` are the names of locals as terms; functions without effect are macros."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.names = Names(RESERVED)
        for variable in program.variables:
            self.names.name(variable)
        for value in program.values.values():
            self.names.name(value.name)
        for function in program.functions:
            self.names.name(function.name)

    # -- places in the state

    def place(self, node: ast.AST, function: Function, known: Mapping[str, Term]) -> str:
        """The text of a place in the state; a queue or set that is a whole is its record."""
        path = function.path(node)
        if path is None:
            raise function.error(node, "not a place in the state")
        variable = self.program.variables[path.variable]
        text = self.names.name(variable.name)
        for depth, index in enumerate(path.indices):
            inside = self.term(index, function, known).text
            if depth == len(variable.sizes):
                text += f".{'has' if variable.type.kind == 'set' else 'at'}[{inside}]"
            else:
                text += f"[{inside}]" if depth == 0 else f".at[{inside}]"
        return text

    def capacity(self, node: ast.AST, function: Function) -> int:
        """The capacity of a queue, or the size of a set."""
        path = function.path(node)
        assert path is not None
        t = self.program.variables[path.variable].type
        return int(t.high) + 1 if t.kind == "set" else int(t.capacity)

    def is_optional(self, node: ast.AST, function: Function) -> bool:
        """Is this a place whose values may be NONE? Those are stored plus one."""
        path = function.path(node)
        return path is not None and self.program.variables[path.variable].type.low < 0

    # -- expressions

    def term(self, node: ast.expr, function: Function, known: Mapping[str, Term]) -> Term:
        """An expression as a term; raises ExportError for what Promela cannot say."""
        if isinstance(node, ast.Constant):
            return Term(str(int(node.value)) if isinstance(node.value, (int, bool)) else "0")
        if isinstance(node, ast.Name):
            if node.id in known:
                return known[node.id]
            return Term(self.names.name(node.id))
        if isinstance(node, ast.BinOp):
            sign, level = OPERATORS[type(node.op)]
            left, right = self.term(node.left, function, known), self.term(node.right, function, known)
            return Term(f"{left.at(level)} {sign} {right.at(level - 1)}", level)
        if isinstance(node, ast.UnaryOp):
            operand = self.term(node.operand, function, known)
            return negation(operand) if isinstance(node.op, ast.Not) else Term(f"-{operand.at(ATOM)}", UNARY)
        if isinstance(node, ast.BoolOp):
            parts = [self.term(v, function, known) for v in node.values]
            return conjunction(parts) if isinstance(node.op, ast.And) else disjunction(parts)
        if isinstance(node, ast.Compare):
            return self._comparison(node, function, known)
        if isinstance(node, ast.IfExp):
            parts = [self.term(n, function, known) for n in (node.test, node.body, node.orelse)]
            return conditional(*parts)
        if isinstance(node, ast.Call):
            return self._call(node, function, known)
        if function.path(node) is not None:
            text = self.place(node, function, known)
            return Term(f"opt({text})" if self.is_optional(node, function) else text)
        if isinstance(node, ast.Subscript):
            return self._table(node, function, known)
        raise function.error(node, f"'{type(node).__name__.lower()}' has no counterpart in Promela")

    def _comparison(self, node: ast.Compare, function: Function, known: Mapping[str, Term]) -> Term:
        parts = []
        left = node.left
        for op, right in zip(node.ops, node.comparators, strict=True):
            if isinstance(op, (ast.In, ast.NotIn)):
                part = self._is_in(left, right, function, known)
                parts.append(negation(part) if isinstance(op, ast.NotIn) else part)
            else:
                sign, level = OPERATORS[type(op)]
                one, other = self.term(left, function, known), self.term(right, function, known)
                parts.append(Term(f"{one.at(level - 1)} {sign} {other.at(level - 1)}", level))
            left = right
        return conjunction(parts)

    def _is_in(self, node: ast.expr, group: ast.expr, function: Function, known: Mapping[str, Term]) -> Term:
        one = self.term(node, function, known)
        if isinstance(group, ast.Tuple):
            members = [self.term(member, function, known) for member in group.elts]
            return disjunction([Term(f"{one.at(ORDER)} == {m.at(ORDER)}", EQUALITY) for m in members])
        path = function.path(group)
        if path is None:
            raise function.error(group, "'in' something that is not a queue, a set or a tuple")
        place = self.place(group, function, known)
        if self.program.variables[path.variable].type.kind == "set":
            return Term(f"{place}.has[{one.text}]")
        return Term(f"holds_{self.capacity(group, function)}({place}, {one.text})")

    def _call(self, node: ast.Call, function: Function, known: Mapping[str, Term]) -> Term:
        callee = function.callee(node)
        if callee is not None:
            if callee.writes:
                raise function.error(
                    node, f"{callee.name} changes the state inside an expression; name its value first"
                )
            given = [self.term(a, function, known).text for _, a in arguments_of(callee, node, function)]
            return Term(f"{self.names.name(callee.name)}({', '.join(given)})")
        name = called(node)
        if name in ("any", "all", "sum", "min", "max") and len(node.args) == 1:
            generator = node.args[0]
            assert isinstance(generator, ast.GeneratorExp)
            return self._generator(name, generator, function, known)
        if name == "len":
            return self._length(node.args[0], function, known)
        parts = [self.term(a, function, known) for a in node.args]
        if name == "abs":
            return conditional(Term(f"{parts[0].at(ORDER)} < 0", ORDER), Term(f"-{parts[0].at(ATOM)}", UNARY), parts[0])
        if name in ("min", "max"):
            return extreme(name, parts)
        raise function.error(node, f"a call of {name or 'a method'} inside an expression")

    def _length(self, node: ast.expr, function: Function, known: Mapping[str, Term]) -> Term:
        if isinstance(node, ast.Name):
            return Term(str(len(function.scope[node.id])))
        path = function.path(node)
        if path is None:
            raise function.error(node, "the length of something that is not a queue or a set")
        place = self.place(node, function, known)
        if self.program.variables[path.variable].type.kind == "queue":
            return Term(f"{place}.length")
        return addition([Term(f"{place}.has[{i}]") for i in range(self.capacity(node, function))])

    def _generator(self, name: str, node: ast.GeneratorExp, function: Function, known: Mapping[str, Term]) -> Term:
        clause = node.generators[0]
        assert isinstance(clause.target, ast.Name)
        parts = []
        for value, within in self._values(clause.iter, function, known):
            element = substituted(node.elt, clause.target.id, value)
            filters = [substituted(c, clause.target.id, value) for c in clause.ifs]
            conditions = [within] if within is not None else []
            conditions += [self.term(c, function, known) for c in filters if isinstance(c, ast.expr)]
            assert isinstance(element, ast.expr)
            parts.append((conditions, self.term(element, function, known)))
        if name == "any":
            return disjunction([conjunction([*conditions, element]) for conditions, element in parts])
        if name == "all":
            return conjunction(
                [disjunction([*(negation(c) for c in conditions), element]) for conditions, element in parts]
            )
        if name == "sum":
            return addition([conditional(conjunction(c), e, Term("0")) if c else e for c, e in parts])
        if any(conditions for conditions, _ in parts):
            raise function.error(node, f"{name} over a part of an index set")
        return extreme(name, [e for _, e in parts])

    def _values(
        self, domain: ast.expr, function: Function, known: Mapping[str, Term]
    ) -> Iterator[tuple[int, Term | None]]:
        """The values that a loop may take, each with the condition that it does; None if it always does."""
        values = static_range(domain, function)
        if values is not None:
            yield from ((value, None) for value in values)
            return
        ends = range_ends(domain)
        if len(ends) != 1:
            raise function.error(domain, "a range that begins at a value of the state")
        end = self.term(ends[0], function, known)
        for value in range(self.highest(ends[0], function)):
            yield value, Term(f"{value} < {end.at(SUM)}", ORDER)

    def unrolled(self, loop: ast.For, function: Function) -> list[ast.stmt]:
        """The statements of a loop, each round by itself. Raises ExportError if nobody knows how many there may be."""
        values = static_range(loop.iter, function)
        if values is not None:
            return unrolled(loop, values)
        ends = range_ends(loop.iter)
        names = {n.id for n in ast.walk(ends[-1]) if isinstance(n, ast.Name)}
        if len(ends) != 1 or names & set(assigned(loop.body)) or function.reads_of(ends[0]) & function.writes:
            raise function.error(loop, "a loop whose ends change on the way")
        return rounds(loop, self.highest(ends[0], function))

    def highest(self, node: ast.expr, function: Function) -> int:
        """A number that an expression never exceeds; raises ExportError if none is known."""
        value = static(node, function)
        if value is not None:
            return value
        if called(node) == "len":
            assert isinstance(node, ast.Call)
            return self.capacity(node.args[0], function)
        if called(node) in ("min", "max") and isinstance(node, ast.Call) and len(node.args) > 1:
            ends = [self.highest(a, function) for a in node.args]
            return min(ends) if called(node) == "min" else max(ends)
        path = function.path(node)
        if path is not None:
            return int(self.program.variables[path.variable].type.high)
        raise function.error(node, "a range without a known end")

    def _table(self, node: ast.Subscript, function: Function, known: Mapping[str, Term]) -> Term:
        indices: list[str] = []
        table: ast.expr = node
        while isinstance(table, ast.Subscript):
            indices.insert(0, self.term(table.slice, function, known).text)
            table = table.value
        if not isinstance(table, ast.Name) or table.id in function.own:
            raise function.error(node, "an index into something that is not a variable or a table")
        return Term(f"{self.names.name(table.id)}({', '.join(indices)})")

    # -- functions without effect

    def macro(self, function: Function) -> str:
        """A function without effect, as a macro."""
        known = self.parameters(function)
        value = self._run(function.tree.body, function, dict(known))
        if value is None:
            raise function.error(function.tree, "a way through the function returns nothing")
        head = f"#define {self.names.name(function.name)}({', '.join(known[p].text for p in function.parameters)})"
        return f"{head} ({value.text})"

    def parameters(self, function: Function) -> dict[str, Term]:
        """The parameters of a function as terms: any expression may stand for them."""
        return {p: Term(self.names.parameter(p), ANYTHING) for p in function.parameters}

    def guards(
        self, body: Sequence[ast.stmt], function: Function, known: dict[str, Term]
    ) -> Iterator[tuple[Term, str]]:
        """The guards among these statements, with their reasons; `known` learns the locals on the way."""
        for statement in body:
            guard = guard_of(statement)
            if guard is not None:
                yield self.term(guard[0], function, known), guard[1]
            elif isinstance(statement, ast.If):
                test = self.term(statement.test, function, known)
                for part, unless in ((statement.body, negation(test)), (statement.orelse, test)):
                    inner = dict(known)
                    for condition, reason in self.guards(part, function, inner):
                        yield disjunction([unless, condition]), reason
                self._run([statement], function, known)
            elif isinstance(statement, ast.For):
                yield from self.guards(self.unrolled(statement, function), function, known)
            else:
                self._run([statement], function, known)

    def _run(self, body: Sequence[ast.stmt], function: Function, known: dict[str, Term]) -> Term | None:
        """Follow statements without effect: `known` learns the locals; the term that is returned, if one is."""
        for i, statement in enumerate(body):
            if isinstance(statement, ast.Return):
                assert statement.value is not None
                return self.term(statement.value, function, known)
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                known[statement.targets[0].id] = self.term(statement.value, function, known)
            elif isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
                old = ast.copy_location(ast.Name(statement.target.id, ast.Load()), statement)
                total = ast.copy_location(ast.BinOp(old, statement.op, statement.value), statement)
                known[statement.target.id] = self.term(total, function, known)
            elif isinstance(statement, ast.For):
                return self._run([*self.unrolled(statement, function), *body[i + 1 :]], function, known)
            elif isinstance(statement, ast.If):
                test = self.term(statement.test, function, known)
                if has_return(statement):
                    rest = body[i + 1 :]
                    ways = [self._run([*part, *rest], function, dict(known)) for part in both(statement)]
                    if None in ways:
                        return None
                    return conditional(test, *[way for way in ways if way is not None])
                self._branch(statement, test, function, known)
            elif not is_require(statement):
                raise function.error(statement, "a statement that is not exported here")
        return None

    def _branch(self, statement: ast.If, test: Term, function: Function, known: dict[str, Term]) -> None:
        ways = []
        for part in both(statement):
            inner = dict(known)
            self._run(part, function, inner)
            ways.append(inner)
        for name in {**ways[0], **ways[1]}:
            one, other = ways[0].get(name), ways[1].get(name)
            if one is None or other is None:
                known.pop(name, None)  # it has a value on one way only, so nobody may ask for it later
            elif one != other:
                known[name] = conditional(test, one, other)

    def table(self, value: Value) -> str:
        """A constant table as a macro: a cascade over the entries that differ from the most frequent one."""
        cells = dict(entries(value.value))
        values = list(cells.values())
        usual = max(sorted(set(values)), key=values.count)
        depth = len(next(iter(cells)))
        names = "ijkl"[:depth]
        text = str(usual)
        for place, entry in reversed(list(cells.items())):
            if entry != usual:
                test = " && ".join(f"({name}) == {index}" for name, index in zip(names, place, strict=True))
                text = f"({test} -> {entry} : {text})"
        return f"#define {self.names.name(value.name)}({', '.join(names)}) {text}"
