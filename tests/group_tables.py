"""The tables of SPEC.md §14 that no other part has, as the registries say they should be."""

from __future__ import annotations

import spec_tables
from hicache_checks.mutants.group_mutants import GROUP_MUTANTS, STARVING_GROUPS
from hicache_checks.rule_effects import written
from hicache_checks.spec_diff import named
from hicache_spec.language import NONE, Rule, Symbol, Type
from hicache_spec.parts.grid import AXIS, AXIS_AT, AXIS_OF_SEAT, CALL, CALL_AT, HIT, Grid
from hicache_spec.parts.groups_design import GROUPS, GROUPS_BOUNDS
from spec_tables import NOTHING, Table, code, listed, values


def calls() -> Table:
    """§14.1: each call, and the groups that it is made in, in this order."""
    axes: dict[int, list[str]] = {call: [] for call in CALL}
    for call, axis in zip(CALL_AT, AXIS_AT, strict=True):
        if axis != NONE:
            axes[call].append(AXIS.members[axis].upper())
    axes[HIT] += [AXIS.members[axis].upper() for axis in AXIS_OF_SEAT if axis != NONE]
    return Table(("call", "groups"), tuple((CALL.members[call], ", ".join(found)) for call, found in axes.items()))


def configurations(counts: dict[str, tuple[int, int, int]]) -> Table:
    """§14.1: the configurations of the bounds `groups`, and their pinned sizes."""
    return Table(
        ("configuration", "TP x CP x PP", "requests", "may happen", "states", "transitions", "depth"),
        tuple(
            (
                code(g.name),
                f"{g.tp} x {g.cp} x {g.pp}",
                str(g.requests) if g.fetches else NOTHING,
                may_happen(g),
                *(f"{n:,}" for n in counts[g.name]),
            )
            for g in GROUPS_BOUNDS
        ),
    )


def may_happen(grid: Grid) -> str:
    """The switches that are on, and how many may die."""
    switches = ("misses", "failures", "aborts", "backup", "replicated")
    deaths = [f"{grid.deaths} death" + "s" * (grid.deaths > 1)] if grid.deaths else []
    return listed((*(name for name in switches if getattr(grid, name)), *deaths))


def variables() -> Table:
    """§14.2: the state variables, and who writes them; what the end of a process forgets is left out."""
    written_of = [
        (r, set(written(r.function)) if forgets(r) else spec_tables.written_by(r, GROUPS))
        for r in spec_tables.rules("action", GROUPS)
    ]
    return spec_tables.variable_table(GROUPS.fields(), in_words, written_of)


def in_words(t: Type) -> str:
    """The values of a type; an element of an index set by the name of the set."""
    is_element = t.kind == "int" and t.low == 0 and isinstance(t.high, Symbol) and t.high.is_index
    return named(t.high) if is_element else values(t)


def forgets(rule: Rule) -> bool:
    """Does the process end by this rule?"""
    return "forget" in rule.function.__code__.co_names


def faults() -> Table:
    """§14.12: the faulty rules, what they break first, where, and in how many steps."""
    return Table(
        ("fault", "looked for in", "breaks", "steps"),
        tuple(
            (code(name), code(bounds.name), code(caught_by), steps)
            for name, bounds, caught_by, steps in (
                *((m.name, m.bounds, m.caught_by, str(m.steps)) for m in GROUP_MUTANTS),
                *((m.name, m.bounds, m.caught_by, f"{m.stem} + {m.loop}") for m in STARVING_GROUPS),
            )
        ),
    )
