"""The tables of SPEC.md that speak of a part: what a joined design has and the one beneath it has not."""

from __future__ import annotations

from collections.abc import Mapping

from hicache_checks.mutants.part_mutants import PART_MUTANTS, STARVING_PARTS
from hicache_checks.rule_effects import written
from hicache_checks.spec_diff import named
from hicache_spec import Bounds
from hicache_spec.bounds import WRITE_POLICY
from hicache_spec.language import Rule
from hicache_spec.parts import design_named
from spec_tables import NOTHING, Table, code, listed, p_numbers, reached, sentence, setting, values

SWITCHES = ("aborts", "churn", "replicated", "put_fails", "forgets")
"""What may happen in a configuration of a part."""


def beneath(design: str) -> str:
    """The design to which the last part of this one is joined."""
    return design.rpartition("+")[0]


def own_rules(design: str, *kinds: str) -> list[Rule]:
    """The rules of these kinds that a joined design has and the one beneath it has not, or not in these words."""
    known = {r.function for r in design_named(beneath(design)).rules()}
    return [r for kind in kinds for r in design_named(design).rules() if r.kind == kind and r.function not in known]


def own(design: str, *kinds: str) -> set[str]:
    """Their names."""
    return {r.name for r in own_rules(design, *kinds)}


def part_variables(design: str) -> Table:
    """The state variables that the part brings, and the actors whose actions write them."""
    known = design_named(beneath(design)).fields()
    writers: dict[str, list[str]] = {}
    for rule in design_named(design).rules():
        for function in reached(rule.function, set()) if rule.kind == "action" else ():
            for name in written(function):
                writers.setdefault(name, [])
                if rule.actor not in writers[name]:
                    writers[name].append(rule.actor)
    return Table(
        ("variable", "one for each", "values", "written by"),
        tuple(
            (code(n), ", ".join(map(named, f.dims)) or "server", values(f.type), listed(tuple(writers.get(n, ()))))
            for n, f in design_named(design).fields().items()
            if n not in known
        ),
    )


def part_actions(design: str) -> Table:
    """The actions that the part brings or restates."""
    return Table(
        ("action", "section", "actor", "for each", "what", "fairness"),
        tuple(
            (code(r.name), f"§{r.section}", r.actor, ", ".join(r.params) or NOTHING, sentence(r), r.fairness or "none")
            for r in own_rules(design, "action")
        ),
    )


def part_properties(design: str, caught_alone: Mapping[str, str]) -> Table:
    """The properties that the part brings or restates, each with the first faulty rule that it catches."""
    first = {m.caught_by: m.name for m in STARVING_PARTS[design]} | dict(caught_alone)
    first |= {m.caught_by: m.name for m in reversed(PART_MUTANTS[design])}
    return Table(
        ("property", "section", "P", "what holds", "a fault that it catches"),
        tuple(
            (code(r.name), f"§{r.section}", listed(p_numbers(r)), sentence(r), code(first[r.name]))
            for r in own_rules(design, "invariant", "step", "live")
        ),
    )


def part_outcomes(design: str) -> Table:
    """The outcomes that the part brings."""
    return Table(
        ("outcome", "what happens"), tuple((code(r.name), sentence(r)) for r in own_rules(design, "sometimes"))
    )


def part_configurations(bounds: tuple[Bounds, ...], sizes: Mapping[str, tuple[int, int, int]]) -> Table:
    """The configurations of a part, and their pinned sizes."""
    columns = ("requests x attempts", "ranks", "host pages", "chains", "threshold", "limit", "policy", "may happen")
    shown = ("ranks", "host pages", "chains")
    return Table(
        (
            "configuration",
            *shown,
            "device pages",
            "quota",
            "write policy",
            "may happen",
            "states",
            "transitions",
            "depth",
        ),
        tuple(
            (
                code(b.name),
                *(cell for name, cell in zip(columns, setting(b), strict=True) if name in shown),
                *(str(b.device_pages), str(b.load_quota), WRITE_POLICY.members[b.write_policy]),
                listed([name for name in SWITCHES if getattr(b, name)]),
                *(f"{n:,}" for n in sizes[b.name]),
            )
            for b in bounds
        ),
    )
