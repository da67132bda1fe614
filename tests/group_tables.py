"""The tables of SPEC.md §14, as the registries say they should be."""

from __future__ import annotations

from hicache_checks.mutants.group_mutants import GROUP_MUTANTS, STARVING_GROUPS
from hicache_checks.rule_effects import written
from hicache_checks.spec_diff import named
from hicache_spec.language import NONE, Field, Rule, Symbol, Type
from hicache_spec.parts import groups
from hicache_spec.parts.grid import AXIS, AXIS_AT, AXIS_OF_SEAT, CALL, CALL_AT, HIT, Grid
from hicache_spec.parts.groups_design import GROUPS, GROUPS_BOUNDS
from spec_tables import NOTHING, Table, code, listed, p_numbers, sentence, values, written_by


def rules(kind: str) -> list[Rule]:
    """The rules of a kind, in the order of the text."""
    return [r for r in GROUPS.rules() if r.kind == kind]


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
    writers: dict[str, list[str]] = {}
    for rule in rules("action"):
        for name in sorted(written(rule.function) if forgets(rule) else written_by(rule)):
            writers.setdefault(name, [])
            if rule.actor not in writers[name]:
                writers[name].append(rule.actor)
    fields = [(name, value) for name, value in vars(groups.Ranks).items() if isinstance(value, Field)]
    return Table(
        ("variable", "one for each", "values", "written by"),
        tuple(
            (code(name), ", ".join(map(named, f.dims)), in_words(f.type), listed(tuple(writers.get(name, ()))))
            for name, f in fields
        ),
    )


def in_words(t: Type) -> str:
    """The values of a type; an element of an index set by the name of the set."""
    is_element = t.kind == "int" and t.low == 0 and isinstance(t.high, Symbol) and t.high.is_index
    return named(t.high) if is_element else values(t)


def forgets(rule: Rule) -> bool:
    """Does the process end by this rule?"""
    return "forget" in rule.function.__code__.co_names


def actions() -> Table:
    """§14.3: the actions."""
    return Table(
        ("action", "section", "for each", "what", "fairness"),
        tuple(
            (code(r.name), f"§{r.section}", ", ".join(r.params), sentence(r), r.fairness or "none")
            for r in rules("action")
        ),
    )


def properties(kind: str) -> Table:
    """§14.8, §14.9, §14.11: properties, each with the first faulty rule that it catches."""
    first = {m.caught_by: m.name for m in reversed((*GROUP_MUTANTS, *STARVING_GROUPS))}
    return Table(
        ("property", "section", "P", "what holds", "a fault that it catches"),
        tuple(
            (code(r.name), f"§{r.section}", listed(p_numbers(r)), sentence(r), code(first[r.name])) for r in rules(kind)
        ),
    )


def outcomes() -> Table:
    """§14.10: what must be reachable."""
    return Table(
        ("outcome", "section", "what happens"),
        tuple((code(r.name), f"§{r.section}", sentence(r)) for r in rules("sometimes")),
    )


def faults() -> Table:
    """§14.12: the faulty rules, what they break first, where, and in how many steps."""
    return Table(
        ("fault", "looked for in", "breaks", "steps"),
        tuple(
            (code(m.name), code(m.grid.name), code(m.caught_by), f"{m.steps} + {m.loop}" if m.loop else str(m.steps))
            for m in (*GROUP_MUTANTS, *STARVING_GROUPS)
        ),
    )
