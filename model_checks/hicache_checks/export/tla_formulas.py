"""Expressions in TLA+. A state is a record of functions; queues are sequences, which count from one."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace

from hicache_checks.export.functions import Function, called
from hicache_checks.export.kinds import Kind, Kinds, arguments_of
from hicache_checks.export.program import Program
from hicache_checks.export.terms import ATOM, Names, Term, range_ends

PRODUCT, SUM, COMPARISON, NEGATION, JUNCTION, OPEN = 2, 3, 5, 6, 7, 20
"""How loosely operators bind. OPEN: quantifiers and IF, which reach as far to the right as they can."""
ARITHMETIC = {ast.Add: ("+", SUM), ast.Sub: ("-", SUM), ast.Mult: ("*", PRODUCT)}
COMPARED = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "=", ast.NotEq: "/="}
RESERVED_WORDS = """
ASSUME ASSUMPTION AXIOM BY CASE CHOOSE CONSTANT CONSTANTS DEF DEFINE DEFS DOMAIN ELSE ENABLED EXCEPT EXTENDS HAVE
HIDE IF IN INSTANCE LAMBDA LEMMA LET LOCAL MODULE NEW OBVIOUS OMITTED ONLY OTHER PICK PROOF PROPOSITION PROVE QED
RECURSIVE SF_ STATE STRONG SUBSET SUFFICES TAKE TEMPORAL THEN THEOREM UNCHANGED UNION USE VARIABLE VARIABLES WF_
WITH WITNESS TRUE FALSE BOOLEAN STRING Nat Int Real Seq Len Append Head Tail SubSeq SelectSeq Cardinality
IsFiniteSet state state_in_bounds empty_state Init Next Spec FairSpec Fairness Min Max Sum Number Is Holds ForEach
Table Queue
"""
RESERVED = frozenset(RESERVED_WORDS.split())


@dataclass
class Scene:
    """Where an expression stands: its function, the texts of its local names and states, and the names in use.

    `named` are the names that the export has given to values on the way, with their kinds.
    """

    function: Function
    names: Names
    locals: dict[str, str] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    named: dict[str, Kind] = field(default_factory=dict)

    def branch(self) -> Scene:
        """The same place on a way of its own."""
        return replace(self, locals=dict(self.locals), states=dict(self.states))


class Formulas:
    """Writes expressions as TLA+."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.kinds = Kinds(program)
        self.names = Names(RESERVED)
        for value in program.values.values():
            self.names.name(value.name)
        for function in program.functions:
            self.names.name(function.name)

    def scene(self, function: Function) -> Scene:
        """The beginning of a function."""
        names = self.names.inner()
        scene = Scene(function, names)
        scene.states = {s: names.name(s) for s in function.states}
        scene.locals = {p: names.name(p) for p in function.parameters}
        return scene

    # -- values of a kind

    def condition(self, node: ast.expr, scene: Scene) -> Term:
        """An expression as a condition."""
        term = self.term(node, scene)
        return term if self.is_condition(node, scene) else Term(f"{term.at(SUM)} /= 0", COMPARISON)

    def number(self, node: ast.expr, scene: Scene) -> Term:
        """An expression as a number."""
        term = self.term(node, scene)
        return Term(f"Number({term.text})") if self.is_condition(node, scene) else term

    def of_kind(self, kind: Kind, node: ast.expr, scene: Scene) -> Term:
        """An expression as a condition or as a number."""
        return self.condition(node, scene) if kind is Kind.CONDITION else self.number(node, scene)

    def is_condition(self, node: ast.expr, scene: Scene) -> bool:
        """Is this expression a condition as it stands?"""
        if isinstance(node, ast.Name) and node.id in scene.named:
            return scene.named[node.id] is Kind.CONDITION
        return self.kinds.of(node, scene.function) is Kind.CONDITION

    # -- places in the state

    def place(self, node: ast.AST, scene: Scene) -> str:
        """A place in the state; an element of a queue counts from one here."""
        path = scene.function.path(node)
        if path is None:
            raise scene.function.error(node, "not a place in the state")
        variable = self.program.variables[path.variable]
        text = f"{scene.states[path.state]}.{path.variable}"
        for depth, index in enumerate(path.indices):
            if depth == len(variable.sizes):
                if isinstance(index, ast.Constant) and index.value == 0:
                    return f"Head({text})"
                text += f"[{self.number(index, scene).at(SUM)} + 1]"
            else:
                text += f"[{self.number(index, scene).text}]"
        return text

    # -- expressions

    def term(self, node: ast.expr, scene: Scene) -> Term:
        """An expression, of the kind that it has; raises ExportError for what TLA+ cannot say."""
        function = scene.function
        if isinstance(node, ast.Constant):
            if isinstance(node.value, bool):
                return Term(str(node.value).upper())
            return Term(str(node.value))
        if isinstance(node, ast.Name):
            return Term(scene.locals.get(node.id) or self.names.name(node.id))
        if isinstance(node, ast.BinOp):
            sign, level = ARITHMETIC[type(node.op)]
            left, right = self.number(node.left, scene), self.number(node.right, scene)
            return Term(f"{left.at(level)} {sign} {right.at(level - 1)}", level)
        if isinstance(node, ast.UnaryOp):
            if isinstance(node.op, ast.Not):
                return Term(f"~{self.condition(node.operand, scene).at(ATOM)}", NEGATION)
            return Term(f"-{self.number(node.operand, scene).at(ATOM)}", SUM)
        if isinstance(node, ast.BoolOp):
            sign = " /\\ " if isinstance(node.op, ast.And) else " \\/ "
            return Term(sign.join(self.condition(v, scene).at(NEGATION) for v in node.values), JUNCTION)
        if isinstance(node, ast.Compare):
            return self._comparison(node, scene)
        if isinstance(node, ast.IfExp):
            kind = self.kinds.of(node, function)
            one, other = (self.of_kind(kind, n, scene) for n in (node.body, node.orelse))
            test = self.condition(node.test, scene).text
            return Term(f"IF {test} THEN {one.text} ELSE {other.text}", OPEN)
        if isinstance(node, ast.Call):
            return self._call(node, scene)
        if function.path(node) is not None:
            return Term(self.place(node, scene))
        if isinstance(node, ast.Subscript):
            return Term(f"{self.term(node.value, scene).at(ATOM)}[{self.number(node.slice, scene).text}]")
        raise function.error(node, f"'{type(node).__name__.lower()}' has no counterpart in TLA+")

    def _comparison(self, node: ast.Compare, scene: Scene) -> Term:
        parts = []
        left = node.left
        for op, right in zip(node.ops, node.comparators, strict=True):
            if isinstance(op, (ast.In, ast.NotIn)):
                part = self._is_in(left, right, scene)
                parts.append(Term(f"~{part.at(ATOM)}", NEGATION) if isinstance(op, ast.NotIn) else part)
            else:
                both = self.is_condition(left, scene) and self.is_condition(right, scene)
                one, other = (self.term(n, scene) if both else self.number(n, scene) for n in (left, right))
                parts.append(Term(f"{one.at(SUM)} {COMPARED[type(op)]} {other.at(SUM)}", COMPARISON))
            left = right
        return parts[0] if len(parts) == 1 else Term(" /\\ ".join(p.at(NEGATION) for p in parts), JUNCTION)

    def _is_in(self, node: ast.expr, group: ast.expr, scene: Scene) -> Term:
        one = self.number(node, scene)
        if isinstance(group, ast.Tuple):
            members = ", ".join(self.number(m, scene).text for m in group.elts)
            return Term(f"{one.at(SUM)} \\in {{{members}}}", COMPARISON)
        path = scene.function.path(group)
        if path is None:
            raise scene.function.error(group, "'in' something that is not a queue, a set or a tuple")
        place = self.place(group, scene)
        if self.program.variables[path.variable].type.kind == "set":
            return Term(f"{one.at(SUM)} \\in {place}", COMPARISON)
        return Term(f"Holds({place}, {one.text})")

    def _call(self, node: ast.Call, scene: Scene) -> Term:
        function = scene.function
        callee = function.callee(node)
        if callee is not None:
            if callee.writes:
                raise function.error(
                    node, f"{callee.name} changes the state inside an expression; name its value first"
                )
            return Term(self.call(callee, node, scene))
        name = called(node)
        if name in ("any", "all", "sum", "min", "max") and len(node.args) == 1:
            generator = node.args[0]
            assert isinstance(generator, ast.GeneratorExp)
            return self._generator(name, generator, scene)
        if name == "len" and isinstance(node.args[0], ast.Name):
            return Term(f"Cardinality({self.names.name(node.args[0].id)})")
        if name == "len":
            path = function.path(node.args[0])
            if path is None:
                raise function.error(node, "the length of something that is not a queue or a set")
            is_set = self.program.variables[path.variable].type.kind == "set"
            return Term(f"{'Cardinality' if is_set else 'Len'}({self.place(node.args[0], scene)})")
        parts = [self.number(a, scene) for a in node.args]
        if name == "abs":
            return Term(f"Max({{{parts[0].text}, -{parts[0].at(ATOM)}}})")
        if name in ("min", "max"):
            return Term(f"{name.title()}({{{', '.join(p.text for p in parts)}}})")
        raise function.error(node, f"a call of {name or 'a method'} inside an expression")

    def call(self, callee: Function, node: ast.Call, scene: Scene) -> str:
        """A call of a function of the specification, its states included."""
        states = [scene.states[a.id] for a in node.args if isinstance(a, ast.Name) and a.id in scene.function.states]
        given = [
            self.of_kind(self.kinds.name(callee, parameter), argument, scene).text
            for parameter, argument in arguments_of(callee, node, scene.function)
        ]
        arguments = ", ".join([*states, *given])
        return f"{self.names.name(callee.name)}({arguments})"

    def _generator(self, name: str, node: ast.GeneratorExp, scene: Scene) -> Term:
        clause = node.generators[0]
        assert isinstance(clause.target, ast.Name)
        domain = self.domain(clause.iter, scene)
        inner = scene.branch()
        variable = inner.locals[clause.target.id] = scene.names.name(clause.target.id)
        filters = [self.condition(c, inner) for c in clause.ifs]
        if name in ("any", "all"):
            element = self.condition(node.elt, inner)
            sign, joint = ("\\E", "/\\") if name == "any" else ("\\A", "=>")
            text = element.text if not filters else f" {joint} ".join(t.at(COMPARISON) for t in (*filters, element))
            return Term(f"{sign} {variable} \\in {domain.at(COMPARISON)} : {text}", OPEN)
        value = self.number(node.elt, inner).text
        test = " /\\ ".join(f.at(NEGATION) for f in filters)
        if name == "sum":
            value = f"IF {test} THEN {value} ELSE 0" if filters else value
            return Term(f"Sum([{variable} \\in {domain.text} |-> {value}], {self._first(clause.iter, scene)})")
        if filters:
            domain = Term(f"{{{variable} \\in {domain.text} : {test}}}")
        return Term(f"{name.title()}({{{value} : {variable} \\in {domain.text}}})")

    def _first(self, node: ast.expr, scene: Scene) -> str:
        """The first number of the range that a loop or generator runs through."""
        return (
            self.number(range_ends(node)[0], scene).text if isinstance(node, ast.Call) and len(node.args) > 1 else "0"
        )

    def domain(self, node: ast.expr, scene: Scene) -> Term:
        """The set that a loop or generator runs through."""
        if isinstance(node, ast.Name):
            return Term(self.names.name(node.id))
        ends = range_ends(node)
        if len(ends) > 2:
            raise scene.function.error(node, "a range with steps")
        first = self.number(ends[0], scene).at(SUM) if len(ends) == 2 else "0"
        return Term(f"{first} .. {self.number(ends[-1], scene).at(SUM)} - 1", COMPARISON)


def splits_a_step(node: ast.AST, function: Function) -> bool:
    """Would TLC take this guard, which holds a disjunction, for a choice of steps?"""
    for inner in ast.walk(node):
        if (isinstance(inner, ast.BoolOp) and isinstance(inner.op, ast.Or)) or called(inner) == "any":
            return True
        callee = function.callee(inner)
        if callee is not None and splits_a_step(callee.tree, callee):
            return True
    return False
