"""The words of Promela: operators with their precedence, reserved names, and terms put together."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from hicache_checks.export.terms import ATOM, Term

UNARY, PRODUCT, SUM, ORDER, EQUALITY, CONJUNCTION, DISJUNCTION = 1, 2, 3, 4, 5, 6, 7
OPERATORS: Mapping[type[ast.AST], tuple[str, int]] = {
    ast.Add: ("+", SUM),
    ast.Sub: ("-", SUM),
    ast.Mult: ("*", PRODUCT),
    ast.Lt: ("<", ORDER),
    ast.LtE: ("<=", ORDER),
    ast.Gt: (">", ORDER),
    ast.GtE: (">=", ORDER),
    ast.Eq: ("==", EQUALITY),
    ast.NotEq: ("!=", EQUALITY),
}
RESERVED_WORDS = """
active assert atomic bit bool break byte c_code c_decl c_expr c_state c_track chan d_step D_proctype do else empty
enabled eval false fi for full get_priority goto hidden if in init inline int len local ltl mtype nempty never nfull
notrace np_ of od pc_value pid printf printm priority proctype provided return run select set_priority short show
skip timeout trace true typedef unless unsigned xr xs accept end progress system at has length put take holds opt
least most forget check all_hold no_deadlock state_in_bounds FLAG TEMPORARY
"""
RESERVED = frozenset(RESERVED_WORDS.split())


def both(statement: ast.If) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """The two branches."""
    return statement.body, statement.orelse


def conjunction(parts: Sequence[Term]) -> Term:
    """All of them."""
    return _joined(parts, "&&", CONJUNCTION, "1")


def disjunction(parts: Sequence[Term]) -> Term:
    """Any of them."""
    return _joined(parts, "||", DISJUNCTION, "0")


def addition(parts: Sequence[Term]) -> Term:
    """Their sum."""
    return _joined(parts, "+", SUM, "0")


def negation(part: Term) -> Term:
    """Not that."""
    for sign, opposite in ((" != ", " == "), (" == ", " != ")):
        if part.level == EQUALITY and part.text.count(sign) == 1 and "(" not in part.text.split(sign)[1]:
            return Term(part.text.replace(sign, opposite), EQUALITY)
    return Term(f"!{part.at(ATOM)}", UNARY)


def conditional(test: Term, one: Term, other: Term) -> Term:
    """One if the test holds, else the other."""
    return Term(f"({test.at(DISJUNCTION)} -> {one.at(DISJUNCTION)} : {other.at(DISJUNCTION)})")


def extreme(name: str, parts: Sequence[Term]) -> Term:
    """The least (`min`) or the greatest (`max`) of them."""
    text = parts[-1].text
    for part in reversed(parts[:-1]):
        text = f"{'least' if name == 'min' else 'most'}({part.text}, {text})"
    return Term(text)


def _joined(parts: Sequence[Term], sign: str, level: int, nothing: str) -> Term:
    if len(parts) == 1:
        return parts[0]
    return Term(f" {sign} ".join(p.at(level) for p in parts), level) if parts else Term(nothing)


def entries(table: Any) -> Iterator[tuple[tuple[int, ...], int]]:
    """The places of a table with what stands there."""
    sizes = []
    inner = table
    while isinstance(inner, tuple):
        sizes.append(len(inner))
        inner = inner[0]
    for place in product(*map(range, sizes)):
        value = table
        for i in place:
            value = value[i]
        yield place, int(value)
