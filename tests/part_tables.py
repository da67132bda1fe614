"""The tables of SPEC.md on a part of the system: what a joined design has, and the one beneath it has not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import spec_tables
from hicache_checks.mutants.part_mutants import PART_MUTANTS, STARVING_PARTS
from hicache_spec import Bounds
from hicache_spec.bounds import POOL_KIND, WRITE_POLICY, ExtraPool
from hicache_spec.events import EVENTS
from hicache_spec.language import Design, EventKind, Rule
from hicache_spec.parts import PARTS, design_named
from spec_tables import NOTHING, Table, code, codes, emitted_by, listed

Sizes = Mapping[str, tuple[int, int, int]]
Cells = Mapping[str, Callable[[Bounds], str]]

CAUGHT_ALONE: Mapping[str, Mapping[str, str]] = {
    "decide_at_drain+control": {"inv_rest_restores_the_pool": "sched_drops_the_released_pages"},
    "decide_at_drain+copying+control+resetting": {"inv_pages_conserved": "sched_begins_again_without_the_host"},
    "decide_at_drain+pools": {"inv_rest_restores_every_pool": "io_drops_a_slot"},
    "decide_at_drain+control+pools+turnover": {
        "inv_stopped_ranks_hold_the_same_slots": "sched_reclaims_slots_by_its_own_count_before_a_detach",
        "inv_rest_restores_every_pool": "sched_drops_the_slots_that_are_left",
    },
}
"""Of each design: properties that are never the first to break, each with a mutant that it catches by itself."""


def beneath(design: str) -> Design | None:
    """The design to which the last part of this one is joined; None: it is no joined one."""
    name = design.rpartition("+")[0]
    return design_named(name) if name else None


def own_rules(design: str, *kinds: str) -> list[Rule]:
    """The rules of these kinds that a design has and the one beneath it has not, or not in these words."""
    under = beneath(design)
    known = set() if under is None else {r.function for r in under.rules()}
    return [r for kind in kinds for r in design_named(design).rules() if r.kind == kind and r.function not in known]


def own(design: str, *kinds: str) -> set[str]:
    """Their names."""
    return {r.name for r in own_rules(design, *kinds)}


def variables(design: str) -> Table:
    """The state variables that a part brings."""
    return spec_tables.variables(design_named(design), beneath(design))


def actions(design: str, with_sections: bool = False) -> Table:
    """The actions that a part brings or restates."""
    table = spec_tables.actions(own_rules(design, "action"))
    return table if with_sections else table.select(("action", "actor", "for each", "what", "fairness"))


def properties(design: str, *kinds: str) -> Table:
    """The properties of these kinds that a part brings or restates."""
    first = spec_tables.catches(PART_MUTANTS[design], STARVING_PARTS.get(design, ()), CAUGHT_ALONE.get(design, {}))
    return spec_tables.properties(own_rules(design, *kinds), first)


def outcomes(design: str) -> Table:
    """The outcomes that a part brings."""
    return spec_tables.outcomes(own_rules(design, "sometimes")).select(("outcome", "what happens"))


def replaced(part: str) -> Table:
    """What a part replaces of other texts, and by what."""
    return Table(
        ("what it replaces", "by"),
        tuple((code(name), code(function.__name__)) for name, function in PARTS[part].replaces.items()),
    )


def events(design: str) -> Table:
    """The events of the last part, and the actions that emit them."""
    modules = PARTS[design.rpartition("+")[2]].modules
    kinds = {v.name: v for m in modules for v in vars(m).values() if isinstance(v, EventKind) and v.name not in EVENTS}
    joined = design_named(design)
    emitted = {r.name: emitted_by(r, joined) for r in spec_tables.rules("action", joined)}
    return Table(
        ("event", "arguments", "emitted by"),
        tuple(
            (code(name), ", ".join(kind.fields) or NOTHING, codes(rule for rule in emitted if name in emitted[rule]))
            for name, kind in kinds.items()
        ),
    )


# ---- configurations


def configurations(members: Sequence[Bounds], sizes: Sizes, cells: Cells) -> Table:
    """The configurations of a part, and their pinned sizes; `cells`: what is said of each, by column."""
    return Table(
        ("configuration", *cells, "states", "transitions", "depth"),
        tuple(
            (code(b.name), *(said(b) for said in cells.values()), *(f"{n:,}" for n in sizes[b.name])) for b in members
        ),
    )


def may_happen(*switches: str) -> Callable[[Bounds], str]:
    """Those of the switches that are on."""
    return lambda b: listed([name for name in switches if getattr(b, name)])


_SIZES: Cells = {
    "requests x attempts": lambda b: spec_tables.setting(b)[0],
    "ranks": lambda b: str(b.ranks),
    "host pages": lambda b: str(b.host_pages),
    "chains": lambda b: spec_tables.setting(b)[3],
}
_SWITCHES = ("aborts", "stops", "churn", "writes", "detaches", "resets")
CONTROL_CELLS: Cells = {**_SIZES, "may happen": may_happen(*_SWITCHES, "control_fails")}
_POOLS: Cells = {"pools": lambda b: "; ".join(_said(pool, b.churn) for pool in b.pools)}
POOL_CELLS: Cells = {
    **_SIZES,
    **_POOLS,
    "policy": lambda b: spec_tables.setting(b)[6],
    "may happen": may_happen(*_SWITCHES),
}
TIER_CELLS: Cells = {
    **{name: said for name, said in _SIZES.items() if name != "requests x attempts"},
    "device pages": lambda b: str(b.device_pages),
    "quota": lambda b: str(b.load_quota),
    "write policy": lambda b: WRITE_POLICY.members[b.write_policy],
    "may happen": may_happen(
        "aborts", "churn", "replicated", "put_fails", "forgets", "detaches", "resets", "control_fails"
    ),
}

TIER_POOL_CELLS: Cells = {**TIER_CELLS, **_POOLS}


def _said(pool: ExtraPool, churn: bool) -> str:
    """The kind of a pool, its slots and, where storage is steady, the depths of each chain that storage has."""
    kind = f"{POOL_KIND.members[pool.kind]} x {pool.slots}{', replicated' if pool.replicated else ''}"
    if churn or not any(pool.stored):
        return kind
    return f"{kind} ({' / '.join(' '.join(map(str, depths)) for depths in pool.stored)})"
