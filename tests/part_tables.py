"""The tables of SPEC.md on a part of the system: what it adds to the canonical design, as the code says it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

import spec_tables
from hicache_checks.rule_effects import Function, emitted, written
from hicache_checks.spec_diff import named
from hicache_spec import Bounds
from hicache_spec.events import EVENTS
from hicache_spec.language import Design, EventKind, Field, Part, Rule
from hicache_spec.rule_source import helper_called, source
from spec_tables import CANONICAL, NOTHING, Table, code, codes, listed, p_numbers, sentence


def own_rules(part: Part, *kinds: str, beneath: Design = CANONICAL) -> list[Rule]:
    """The rules of these kinds that a part brings or restates where it is joined, in the order of the text."""
    known = {r.function for r in beneath.rules()}
    return [r for r in beneath.joined(part).rules() if r.kind in kinds and r.function not in known]


def own_variables(part: Part) -> dict[str, Field]:
    """The state variables that a part brings."""
    return {n: f for n, f in CANONICAL.joined(part).fields().items() if n not in CANONICAL.fields()}


def actions_of(part: Part) -> list[Rule]:
    """The actions of the canonical design with the part, those that the part leaves as they are too."""
    return [r for r in CANONICAL.joined(part).rules() if r.kind == "action"]


def reached(function: Function, part: Part, seen: set[Function]) -> Iterator[Function]:
    """A rule and the helper functions that it reaches where the part is joined, each once."""
    seen.add(function)
    yield function
    for node in ast.walk(source(function)):
        helper = helper_called(function, CANONICAL.joined(part), node)
        if helper is not None and helper not in seen and helper.__name__ not in spec_tables.NOT_A_STEP:
            yield from reached(helper, part, seen)


def variables(part: Part) -> Table:
    """The state variables of a part, and the actors whose actions write them."""
    writers: dict[str, list[str]] = {}
    for rule in actions_of(part):
        for name in sorted({n for f in reached(rule.function, part, set()) for n in written(f)}):
            if rule.actor not in writers.setdefault(name, []):
                writers[name].append(rule.actor)
    return Table(
        ("variable", "one for each", "values", "written by"),
        tuple(
            (
                code(name),
                ", ".join(map(named, f.dims)) or "server",
                spec_tables.values(f.type),
                listed(tuple(writers.get(name, ()))),
            )
            for name, f in own_variables(part).items()
        ),
    )


def actions(part: Part) -> Table:
    """The actions of a part."""
    return Table(
        ("action", "actor", "for each", "what", "fairness"),
        tuple(
            (code(r.name), r.actor, ", ".join(r.params) or NOTHING, sentence(r), r.fairness or "none")
            for r in own_rules(part, "action")
        ),
    )


def replaced(part: Part) -> Table:
    """What a part replaces of the canonical text, and by what."""
    return Table(
        ("what it replaces", "by"),
        tuple((code(name), code(function.__name__)) for name, function in part.replaces.items()),
    )


def events(part: Part) -> Table:
    """The events of a part, and the actions that emit them."""
    kinds = [v for m in part.modules for v in vars(m).values() if isinstance(v, EventKind)]
    own = {kind.name: kind for kind in kinds if kind.name not in EVENTS}
    return Table(
        ("event", "arguments", "emitted by"),
        tuple(
            (code(name), ", ".join(kind.fields) or NOTHING, codes(_emitters(part, name))) for name, kind in own.items()
        ),
    )


def _emitters(part: Part, event: str) -> Iterator[str]:
    for rule in actions_of(part):
        if any(event in emitted(function) for function in reached(rule.function, part, set())):
            yield rule.name


def properties(part: Part, kind: str, first: Mapping[str, str], beneath: Design = CANONICAL) -> Table:
    """The properties of a kind that a part brings or restates, each with the first faulty rule that it catches."""
    return Table(
        ("property", "section", "P", "what holds", "a fault that it catches"),
        tuple(
            (code(r.name), f"§{r.section}", listed(p_numbers(r)), sentence(r), code(first[r.name]))
            for r in own_rules(part, kind, beneath=beneath)
        ),
    )


def outcomes(part: Part, beneath: Design = CANONICAL) -> Table:
    """The outcomes of a part."""
    own = own_rules(part, "sometimes", beneath=beneath)
    return Table(("outcome", "what happens"), tuple((code(r.name), sentence(r)) for r in own))


def together(tables: Sequence[Table]) -> Table:
    """The rows of several tables with the same columns."""
    return Table(tables[0].headers, tuple(row for table in tables for row in table.rows))


def configurations(
    bounds: Sequence[Bounds], switches: Sequence[str], counts: Mapping[str, tuple[int, int, int]]
) -> Table:
    """The configurations of a part and their pinned sizes; `switches`: the fields of the bounds that may be on."""
    return Table(
        (
            *("configuration", "requests x attempts", "ranks", "host pages", "chains", "may happen"),
            *("states", "transitions", "depth"),
        ),
        tuple((code(b.name), *_setting(b, switches), *(f"{n:,}" for n in counts[b.name])) for b in bounds),
    )


def _setting(b: Bounds, switches: Sequence[str]) -> tuple[str, ...]:
    sizes = spec_tables.setting(b)
    return (*sizes[:4], ", ".join(name for name in switches if getattr(b, name)))
