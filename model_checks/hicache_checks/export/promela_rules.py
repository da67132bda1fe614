"""Functions and actions with effect, as Promela inlines.

A local name becomes a temporary: a global variable that is no part of the state. An inline's arguments are put in place
by their text, so an argument that the function might change under its feet goes into a temporary first.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from hicache_checks.export.actions import Action, effect_part, guard_part
from hicache_checks.export.functions import SETTERS, Function, assigned, called, is_queue_call
from hicache_checks.export.kinds import arguments_of
from hicache_checks.export.promela_formulas import Formulas
from hicache_checks.export.promela_words import SUM, conjunction, negation
from hicache_checks.export.terms import Term, has_return, range_ends, static_range

INDENT = "    "


class Rules:
    """Writes functions with effect as inlines; `temporaries` are the names that they need."""

    def __init__(self, formulas: Formulas) -> None:
        self.formulas = formulas
        self.temporaries: dict[str, None] = {}

    def inline(self, function: Function) -> list[str]:
        """A helper function with effect."""
        formulas = self.formulas
        known = formulas.parameters(function)
        head = [known[p].text for p in function.parameters]
        result = formulas.names.parameter("result") if function.returns else None
        lines = self._locals(function, function.tree.body, known)
        lines += self._block(function.tree.body, function, known, result)
        arguments = ", ".join([*head, *([result] if result else [])])
        return [f"inline {formulas.names.name(function.name)}({arguments}) {{", *_indented(lines or ["skip"]), "}"]

    def guard(self, action: Action) -> list[str]:
        """The guards of an action, each with its reason, as a macro."""
        function = action.function
        known = self.formulas.parameters(function)
        arguments = ", ".join(known[p].text for p in function.parameters)
        guards = list(self.formulas.guards(guard_part(function), function, dict(known)))
        head = f"#define {self.can(action)}({arguments}) ("
        if not guards:
            return [f"{head}1)"]
        width = max((len(_operand(g)) for g, _ in guards if len(_operand(g)) <= 60), default=0)
        lines = [f"{_operand(g).ljust(width)} /* {reason} */" for g, reason in guards]
        body = [f"{INDENT}{'   ' if i == 0 else '&& '}{line}" for i, line in enumerate(lines)]
        return [f"{head} \\", *(f"{line} \\" for line in body[:-1]), f"{body[-1]} )"]

    def action(self, action: Action) -> list[str]:
        """An action: one step, taken where its guards hold."""
        function = action.function
        known = self.formulas.parameters(function)
        arguments = ", ".join(known[p].text for p in function.parameters)
        body = effect_part(function)
        effect = self._locals(function, body, known)
        effect += self._block(body, function, known, None)
        name = self.formulas.names.name(function.name)
        shown = ", ".join(["%d"] * len(function.parameters))
        said = f'printf("{name}({shown})\\n"{f", {arguments}" if arguments else ""});'
        step = ["d_step {", *_indented([f"{self.can(action)}({arguments}) ->", said, *effect, "forget()"]), "}"]
        return [f"inline {name}({arguments}) {{", *_indented(step), "}"]

    def can(self, action: Action) -> str:
        """The name of an action's guards."""
        return self.formulas.names.name(f"can_{action.function.name}")

    # -- statements

    def _locals(self, function: Function, body: Sequence[ast.stmt], known: dict[str, Term]) -> list[str]:
        """Local names are temporaries from here on; one that is a parameter, too, begins with the argument."""
        lines = []
        for name in assigned(body):
            temporary = self._temporary(name, function)
            if name in function.parameters:
                lines.append(f"{temporary} = {known[name].text};")
            known[name] = Term(temporary)
        return lines

    def _block(
        self, body: Sequence[ast.stmt], function: Function, known: dict[str, Term], result: str | None
    ) -> list[str]:
        lines: list[str] = []
        for i, statement in enumerate(body):
            if isinstance(statement, ast.Return):
                if statement.value is not None:
                    assert result is not None
                    lines += self._store(result, statement.value, function, known)
                return lines
            if isinstance(statement, ast.If):
                rest = body[i + 1 :] if has_return(statement) else []
                test = self._value(statement.test, function, known, lines)
                ways = [
                    self._block([*part, *rest], function, dict(known), result)
                    for part in (statement.body, statement.orelse)
                ]
                lines += _choice(test, *ways)
                if rest or has_return(statement):
                    return lines
            elif isinstance(statement, ast.For):
                if static_range(statement.iter, function) is None and not has_return(statement):
                    lines += self._loop(statement, function, known)
                else:
                    each = self.formulas.unrolled(statement, function)
                    return lines + self._block([*each, *body[i + 1 :]], function, known, result)
            else:
                lines += self._simple(statement, function, known)
        return lines

    def _simple(self, statement: ast.stmt, function: Function, known: dict[str, Term]) -> list[str]:
        if isinstance(statement, ast.Assign):
            target = statement.targets[0]
            if isinstance(target, ast.Name):
                return self._store(known[target.id].text, statement.value, function, known)
            return self._assign(target, statement.value, function, known)
        if isinstance(statement, ast.AugAssign):
            return self._change(statement, function, known)
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            return self._call(statement.value, function, known)
        raise function.error(statement, "a statement that is not exported")

    def _assign(self, target: ast.expr, value: ast.expr, function: Function, known: dict[str, Term]) -> list[str]:
        lines: list[str] = []
        term = self._value(value, function, known, lines)
        place = self.formulas.place(target, function, known)
        text = f"1 + {term.at(SUM - 1)}" if self.formulas.is_optional(target, function) else term.text
        if text == f"1 + {self.formulas.names.name('NONE')}":
            text = "0"
        return [*lines, f"{place} = {text};"]

    def _change(self, statement: ast.AugAssign, function: Function, known: dict[str, Term]) -> list[str]:
        lines: list[str] = []
        term = self._value(statement.value, function, known, lines)
        if isinstance(statement.target, ast.Name):
            place = known[statement.target.id].text
        else:
            place = self.formulas.place(statement.target, function, known)
        sign = "+" if isinstance(statement.op, ast.Add) else "-"
        change = f"{place}{sign}{sign};" if term.text == "1" else f"{place} = {place} {sign} {term.at(SUM - 1)};"
        return [*lines, change]

    def _call(self, node: ast.Call, function: Function, known: dict[str, Term]) -> list[str]:
        lines: list[str] = []
        callee = function.callee(node)
        if callee is not None:
            if callee.writes:
                given = self._arguments(callee, node, function, known, lines)
                if callee.returns:
                    given.append(self._temporary("ignored", function))
                lines.append(f"{self.formulas.names.name(callee.name)}({', '.join(given)});")
            return lines
        if called(node) in SETTERS:
            place = self.formulas.place(node.args[0], function, known)
            inside = self.formulas.term(node.args[1], function, known).text
            return [f"{place}.has[{inside}] = {int(called(node) == 'insert')};"]
        if is_queue_call(node):
            assert isinstance(node.func, ast.Attribute)
            place = self.formulas.place(node.func.value, function, known)
            capacity = self.formulas.capacity(node.func.value, function)
            if node.func.attr == "pop":
                return [f"take_{capacity}({place});"]
            inside = self._value(node.args[0], function, known, lines).text
            return [*lines, f"put({place}, {inside});"]
        raise function.error(node, "a call that is not exported")

    def _loop(self, statement: ast.For, function: Function, known: dict[str, Term]) -> list[str]:
        """A loop whose length depends on the state or on a parameter."""
        ends = range_ends(statement.iter)
        assert isinstance(statement.target, ast.Name)
        first = self.formulas.term(ends[0], function, known).text if len(ends) == 2 else "0"
        counter = self._temporary(statement.target.id, function)
        end = self.formulas.term(ends[-1], function, known)
        if function.reads_of(ends[-1]) & function.writes:
            raise function.error(statement, "a loop that may change its own length")
        inner = {**known, statement.target.id: Term(counter)}
        body = self._block(statement.body, function, inner, None)
        again = [f":: {counter} < {end.at(SUM)} ->", *_indented([*body, f"{counter}++"])]
        return [f"{counter} = {first};", "do", *again, ":: else -> break", "od;"]

    # -- values

    def _store(self, place: str, value: ast.expr, function: Function, known: dict[str, Term]) -> list[str]:
        lines: list[str] = []
        callee = function.callee(value)
        if callee is not None and callee.writes:
            assert isinstance(value, ast.Call)
            given = [*self._arguments(callee, value, function, known, lines), place]
            return [*lines, f"{self.formulas.names.name(callee.name)}({', '.join(given)});"]
        if is_queue_call(value):
            assert isinstance(value, ast.Call)
            assert isinstance(value.func, ast.Attribute)
            queue = self.formulas.place(value.func.value, function, known)
            capacity = self.formulas.capacity(value.func.value, function)
            return [f"{place} = {queue}.at[0];", f"take_{capacity}({queue});"]
        term = self.formulas.term(value, function, known)
        return [] if term.text == place else [f"{place} = {term.text};"]

    def _value(self, node: ast.expr, function: Function, known: dict[str, Term], lines: list[str]) -> Term:
        """An expression as a term; one that changes the state is stored first."""
        if not function.changes(node):
            return self.formulas.term(node, function, known)
        temporary = self._temporary("value", function)
        lines += self._store(temporary, node, function, known)
        return Term(temporary)

    def _arguments(
        self, callee: Function, node: ast.Call, function: Function, known: dict[str, Term], lines: list[str]
    ) -> list[str]:
        given = []
        for parameter, argument in arguments_of(callee, node, function):
            if function.changes(argument) or function.reads_of(argument) & callee.writes:
                temporary = self._temporary(parameter, callee)
                lines += self._store(temporary, argument, function, known)
                given.append(temporary)
            else:
                given.append(self.formulas.term(argument, function, known).text)
        return given

    def _temporary(self, name: str, function: Function) -> str:
        """A name of its own: Spin makes a global variable of its verifier of it, beside the verifier's own."""
        found = self.formulas.names.name(f"{function.name}_{name.lstrip('_') or 'round'}", "(temporary)")
        self.temporaries[found] = None
        return found


def _operand(term: Term) -> str:
    return term.at(conjunction([term, term]).level)


def _choice(test: Term, then: list[str], otherwise: list[str]) -> list[str]:
    if not then and not otherwise:
        return []
    if not then:
        return _choice(negation(test), otherwise, then)
    option = [f":: {test.text} ->", *_indented(then)]
    other = [":: else ->", *_indented(otherwise)] if otherwise else [":: else"]
    return ["if", *option, *other, "fi;"]


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"{INDENT}{line}" for line in lines]
