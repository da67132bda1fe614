"""Assignments that do not read each other, as one EXCEPT."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from hicache_checks.export.functions import SETTERS, Function, called, is_queue_call
from hicache_checks.export.kinds import Kind
from hicache_checks.export.terms import static_range
from hicache_checks.export.tla_formulas import SUM, Formulas, Scene
from hicache_checks.export.tla_layout import WIDTH, Leaf


@dataclass(frozen=True)
class Change:
    """One change of one variable: where, and its new value as an expression of `old`."""

    variable: str
    indices: tuple[ast.expr, ...]
    node: ast.stmt


class Updates:
    """Writes changes of the state."""

    def __init__(self, formulas: Formulas) -> None:
        self.formulas = formulas

    def group(self, body: Sequence[ast.stmt], scene: Scene) -> int:
        """How many of the next statements fit one EXCEPT: none of them reads what another one has changed."""
        written: set[str] = set()
        for count, statement in enumerate(body):
            changes = self._changes(statement, scene.function)
            if changes is None:
                return count
            variables = {c.variable for c in changes}
            if variables & written or self._reads(statement, changes, scene.function) & written:
                return count
            written |= variables
        return len(body)

    def written(self, body: Sequence[ast.stmt], scene: Scene) -> Leaf:
        """These statements as one EXCEPT."""
        before = scene.states[scene.function.states[0]]
        clauses = []
        for statement in body:
            if isinstance(statement, ast.For):
                clauses += self._mapped(statement, scene)
            else:
                for change in self._changes(statement, scene.function) or ():
                    value = self._value(change.node, "@", scene)
                    clauses.append(f"!.{change.variable}{self._place(change, scene)} = {value}")
        head = f"[{before} EXCEPT "
        flat = f"{head}{', '.join(clauses)}]"
        if len(flat) <= WIDTH - 30:
            return Leaf([flat])
        lines = [f"{head if i == 0 else ' ' * len(head)}{clause}," for i, clause in enumerate(clauses)]
        return Leaf([*lines[:-1], f"{lines[-1][:-1]}]"])

    def _place(self, change: Change, scene: Scene) -> str:
        depth = len(self.formulas.program.variables[change.variable].sizes)
        texts = [self.formulas.number(i, scene).text for i in change.indices]
        return "".join(f"[{text}]" if i < depth else f"[({text}) + 1]" for i, text in enumerate(texts))

    # -- which statements

    def _changes(self, statement: ast.stmt, function: Function) -> list[Change] | None:
        """What a simple statement changes; None if it is not a simple one."""
        if isinstance(statement, ast.For):
            return self._changes_for_each(statement, function)
        target: ast.AST | None = None
        inside: list[ast.expr] = []
        if isinstance(statement, ast.Assign):
            target, inside = statement.targets[0], [statement.value]
        elif isinstance(statement, ast.AugAssign):
            target, inside = statement.target, [statement.value]
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            call = statement.value
            if is_queue_call(call):
                assert isinstance(call.func, ast.Attribute)
                is_pop = call.func.attr == "pop"
                target, inside = call.func.value, [] if is_pop else list(call.args)
            elif called(call) in SETTERS:
                target, inside = call.args[0], [call.args[1]]
        path = None if target is None else function.path(target)
        if path is None or any(function.changes(n) for n in (*inside, *path.indices)):
            return None
        return [Change(path.variable, path.indices, statement)]

    def _changes_for_each(self, loop: ast.For, function: Function) -> list[Change] | None:
        """A loop over all of an index set that changes, in each round, only its own element of each variable."""
        assert isinstance(loop.target, ast.Name)
        values = static_range(loop.iter, function) if isinstance(loop.iter, ast.Name) else None
        if values is None:
            return None
        found: list[Change] = []
        for statement in loop.body:
            if isinstance(statement, ast.For):
                return None
            changes = self._changes(statement, function)
            if changes is None:
                return None
            (change,) = changes
            first = change.indices[0] if change.indices else None
            sizes = self.formulas.program.variables[change.variable].sizes
            if not (isinstance(first, ast.Name) and first.id == loop.target.id and sizes[0] == len(values)):
                return None
            found.append(change)
        variables = [c.variable for c in found]
        if len(set(variables)) < len(variables):
            return None
        reads = set().union(*(self._reads(c.node, [c], function) for c in found))
        return None if reads & set(variables) else found

    def _reads(self, statement: ast.stmt, changes: Sequence[Change], function: Function) -> set[str]:
        """What a simple statement reads, beside the old value of what it changes."""
        if isinstance(statement, ast.For):
            return set().union(*(self._reads(c.node, [c], function) for c in changes))
        (change,) = changes
        found = set().union(*(function.reads_of(i) for i in change.indices))
        if isinstance(statement, (ast.Assign, ast.AugAssign)):
            found |= function.reads_of(statement.value)
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            arguments = statement.value.args
            for argument in arguments[1:] if called(statement.value) in SETTERS else arguments:
                found |= function.reads_of(argument)
        return found

    # -- their texts

    def _mapped(self, loop: ast.For, scene: Scene) -> list[str]:
        assert isinstance(loop.target, ast.Name)
        inner = scene.branch()
        variable = inner.locals[loop.target.id] = scene.names.name(loop.target.id)
        domain = self.formulas.domain(loop.iter, scene).text
        clauses = []
        for change in self._changes_for_each(loop, scene.function) or ():
            old = f"{scene.states[scene.function.states[0]]}.{change.variable}[{variable}]"
            deeper = "".join(f"[{self.formulas.number(i, inner).text}]" for i in change.indices[1:])
            if deeper:
                value = f"[{old} EXCEPT !{deeper} = {self._value(change.node, '@', inner)}]"
            else:
                value = self._value(change.node, old, inner)
            clauses.append(f"!.{change.variable} = [{variable} \\in {domain} |-> {value}]")
        return clauses

    def _value(self, statement: ast.stmt, old: str, scene: Scene) -> str:
        """The new value of what a simple statement changes; `old` is the text of the old one."""
        formulas = self.formulas
        if isinstance(statement, ast.Assign):
            path = scene.function.path(statement.targets[0])
            assert path is not None
            is_flag = formulas.program.variables[path.variable].type.kind == "flag"
            return formulas.of_kind(Kind.CONDITION if is_flag else Kind.NUMBER, statement.value, scene).text
        if isinstance(statement, ast.AugAssign):
            sign = "+" if isinstance(statement.op, ast.Add) else "-"
            return f"{old} {sign} {formulas.number(statement.value, scene).at(SUM - 1)}"
        assert isinstance(statement, ast.Expr)
        assert isinstance(statement.value, ast.Call)
        call = statement.value
        if is_queue_call(call):
            assert isinstance(call.func, ast.Attribute)
            if call.func.attr == "pop":
                return f"Tail({old})"
            return f"Append({old}, {formulas.number(call.args[0], scene).text})"
        element = formulas.number(call.args[1], scene).text
        return f"{old} \\union {{{element}}}" if called(call) == "insert" else f"{old} \\ {{{element}}}"
