"""The tables of SPEC.md: as they stand on the page, and as the registries say they should be.

A table is found by the section that it stands in and the columns that it has. The columns that a registry knows are
compared; what else a table has, such as a column of reasons, is the author's.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hicache_checks.engine.counterexample import tell
from hicache_checks.engine.explore import DEADLOCK, STATE_IN_BOUNDS, explore
from hicache_checks.mutants.faulty_liveness import LivenessMutant
from hicache_checks.mutants.spec_mutants import SpecMutant
from hicache_checks.rule_effects import Function, emitted, written
from hicache_checks.spec_diff import named
from hicache_spec import BOUNDS, DESIGNS, Bounds, BoundSpec, Design, events, lifecycle
from hicache_spec.bounds import AGAIN, POLICY
from hicache_spec.designs import DECIDE_AT_DRAIN, DECIDE_AT_DRAIN_BY_RID
from hicache_spec.designs.findings import UNREACHED, findings_of
from hicache_spec.language import Field, Rule, Type
from hicache_spec.parts import PART_BOUNDS, design_named, design_of
from hicache_spec.rule_source import helper_called, source

CANONICAL = DECIDE_AT_DRAIN
SECTION_OF_KIND = {"action": "3.1", "invariant": "4", "step": "5", "sometimes": "6", "live": "7"}
P_NUMBERS = tuple(f"P{n}" for n in range(1, 33))
JUDGING = ("invariant", "step", "live")
NOTHING = "none"

# Variables of ended operations are reset: an abstraction (§1.2), so it makes nobody a writer.
NOT_A_STEP = {"retire"}


@dataclass(frozen=True)
class Table:
    """Rows of cells under named columns; the cells of the first column name the rows."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def select(self, headers: Sequence[str]) -> Table:
        """The table with these columns only. KeyError for a column that it does not have."""
        missing = [h for h in headers if h not in self.headers]
        if missing:
            raise KeyError(f"no column {', '.join(missing)} among {', '.join(self.headers)}")
        places = [self.headers.index(h) for h in headers]
        return Table(tuple(headers), tuple(tuple(row[i] for i in places) for row in self.rows))

    def merged_into(self, page: Table) -> Table:
        """The page's columns with this table's cells; the author's cells stay with the rows that they were in."""
        prose = {row[0]: row for row in page.select((self.headers[0], *page.headers)).rows}
        rows = []
        for row in self.rows:
            old = prose.get(row[0], ("", *(["?"] * len(page.headers))))[1:]
            known = dict(zip(self.headers, row, strict=True))
            rows.append(tuple(known.get(h, old[i]) for i, h in enumerate(page.headers)))
        return Table(page.headers, tuple(rows))

    def markdown(self) -> str:
        """The table as Markdown, to paste."""
        lines = [self.headers, tuple("---" for _ in self.headers), *self.rows]
        return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


# ---- the page


def headings(text: str) -> list[str]:
    """The section numbers of the page's headings, in order: '1', '1.1', ..., 'A', 'A.2'."""
    return re.findall(r"^#+ §([0-9A-Z.]*[0-9A-Z])\b", text, re.MULTILINE)


def page_tables(text: str) -> dict[str, list[Table]]:
    """The tables of every section that has some, in order."""
    found: dict[str, list[Table]] = {}
    section = ""
    rows: list[tuple[str, ...]] = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            rows.append(tuple(cell.strip() for cell in line.strip()[1:-1].split("|")))
            continue
        if rows:
            found.setdefault(section, []).append(Table(rows[0], tuple(rows[2:])))
            rows = []
        if heading := headings(line):
            section = heading[0]
    return found


def fenced(text: str, language: str) -> list[str]:
    """The contents of the page's code blocks in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


# ---- what it should say


def rules(kind: str, design: Design = CANONICAL) -> list[Rule]:
    """A design's rules of a kind, in the order of the text."""
    return [r for r in design.rules() if r.kind == kind]


def p_numbers(rule: Rule) -> tuple[str, ...]:
    """The P-numbers at the head of a property's docstring."""
    head = re.match(r"(?:P\d+(?:, )?)+\.", rule.title)
    return tuple(re.findall(r"P\d+", head.group())) if head else ()


def sentence(rule: Rule) -> str:
    """The docstring's first paragraph without its P-numbers."""
    return re.sub(r"^(?:P\d+(?:, )?)+\.\s*", "", rule.title)


def actions(found: Sequence[Rule]) -> Table:
    """Actions."""
    return Table(
        ("action", "section", "actor", "for each", "what", "fairness"),
        tuple(
            (code(r.name), f"§{r.section}", r.actor, ", ".join(r.params) or NOTHING, sentence(r), r.fairness or "none")
            for r in found
        ),
    )


def properties(found: Sequence[Rule], first: Mapping[str, str]) -> Table:
    """Properties, each with the first faulty rule that it catches."""
    return Table(
        ("property", "section", "P", "what holds", "a fault that it catches"),
        tuple((code(r.name), f"§{r.section}", listed(p_numbers(r)), sentence(r), code(first[r.name])) for r in found),
    )


def catches(
    mutants: Sequence[SpecMutant], starving: Sequence[LivenessMutant], alone: Mapping[str, str]
) -> dict[str, str]:
    """For each property the first of these that it catches; `alone`: of those that are never the first to break."""
    safe = {m.caught_by: m.name for m in reversed(mutants)}
    return safe | {m.caught_by: m.name for m in reversed(starving)} | dict(alone)


def checks() -> Table:
    """§4: the checks of every exploration that are no rules, each with the faulty rule that the page tells of."""
    return Table(
        ("check", "a fault that it catches"),
        (
            (code(STATE_IN_BOUNDS), code("sched_unprotects_the_root")),
            (code(DEADLOCK), code("sched_needs_termination_everywhere")),
        ),
    )


def outcomes(found: Sequence[Rule]) -> Table:
    """What must be reachable."""
    return Table(
        ("outcome", "section", "what happens"),
        tuple((code(r.name), f"§{r.section}", sentence(r)) for r in found),
    )


def liveness() -> Table:
    """§7: what must happen in the end."""
    return Table(
        ("property", "section", "P", "what happens in the end"),
        tuple((code(r.name), f"§{r.section}", listed(p_numbers(r)), sentence(r)) for r in rules("live")),
    )


def variables(design: Design, beneath: Design | None = None) -> Table:
    """The state variables that a design has and the one beneath it has not, and the actors whose actions write them."""
    known = {} if beneath is None else beneath.fields()
    own = {name: f for name, f in design.fields().items() if name not in known}
    return variable_table(own, values, [(r, written_by(r, design)) for r in rules("action", design)])


def variable_table(
    fields: Mapping[str, Field], said: Callable[[Type], str], written_of: Sequence[tuple[Rule, Collection[str]]]
) -> Table:
    """State variables; `said`: their values, in words; `written_of`: what each action writes."""
    writers = {name: dict.fromkeys(r.actor for r, names in written_of if name in names) for name in fields}
    return Table(
        ("variable", "one for each", "values", "written by"),
        tuple(
            (code(name), ", ".join(map(named, f.dims)) or "server", said(f.type), listed(tuple(writers[name])))
            for name, f in fields.items()
        ),
    )


def life_cycle() -> Table:
    """§2: the edges of the life cycle."""
    return Table(
        ("trigger", "from", "to", "when"),
        tuple((e.trigger, ", ".join(e.sources), e.target, e.when) for e in lifecycle.TABLE),
    )


def vocabulary() -> Table:
    """§3.14: the observable events and the actions that emit them."""
    emitters: dict[str, list[str]] = {}
    for rule in rules("action"):
        for kind in sorted(emitted_by(rule)):
            emitters.setdefault(kind, []).append(code(rule.name))
    return Table(
        ("event", "arguments", "kind", "emitted by"),
        tuple(
            (
                code(name),
                ", ".join(kind.fields),
                "lockstep" if kind in events.LOCKSTEP else "thread",
                listed(tuple(emitters.get(name, ()))),
            )
            for name, kind in events.EVENTS.items()
        ),
    )


def log() -> Table:
    """§3.15: the lines of an implementation's log and their fields."""
    logged = {"lockstep": events.LOGGED_LOCKSTEP, "thread": events.LOGGED_THREAD}
    return Table(
        ("line", "fields", "kind"),
        tuple((code(name), listed(names), kind) for kind, lines in logged.items() for name, names in lines.items()),
    )


def configurations(counts: dict[str, tuple[int, int, int]]) -> Table:
    """§1.3: the configurations of the named bounds, and their pinned sizes."""
    named_in: dict[str, list[str]] = {}
    for name, members in BOUNDS.items():
        for b in members:
            named_in.setdefault(b.name, []).append(name)
    every = {b.name: b for members in BOUNDS.values() for b in members}
    return Table(
        (
            *("configuration", "in", "requests x attempts", "ranks", "host pages", "chains", "threshold", "limit"),
            *("policy", "may happen", "states", "transitions", "depth"),
        ),
        tuple(
            (code(name), ", ".join(named_in[name]), *setting(b), *(f"{n:,}" for n in counts[name]))
            for name, b in every.items()
        ),
    )


def setting(b: Bounds) -> tuple[str, ...]:
    """The sizes and switches of a configuration. A chain is its pages in the tree / in storage / in all."""
    chains = zip(b.resident_pages, b.stored_pages, strict=True)
    switches = ("aborts", "stops", "churn", "writes")
    return (
        f"{b.requests} x {b.attempts}",
        str(b.ranks),
        str(b.host_pages),
        ", ".join(f"{resident}/{stored}/{b.chain_pages}" for resident, stored in chains),
        str(b.threshold_pages),
        str(b.limit_pages),
        POLICY.members[b.policy],
        ", ".join(name for name in switches if getattr(b, name)),
    )


def designs() -> Table:
    """§8: the designs, what they replace and add, and what they are pinned to violate."""
    return Table(
        ("design", "in short", "replaces", "adds", "violates"),
        tuple((code(d.name), d.summary, *map(codes, (d.replaces, added(d), d.violates))) for d in DESIGNS.values()),
    )


def added(design: Design) -> list[str]:
    """The state variables and the rules that the canonical design does not have."""
    variables = [name for name in design.fields() if name not in CANONICAL.fields()]
    known = {r.name for r in CANONICAL.rules()}
    return [*variables, *(r.name for r in design.rules() if r.name not in known)]


def findings(design: str) -> Table:
    """§8: what a design violates, in how many steps, and what follows from what."""
    return Table(
        ("property", "in", "steps", "because of"),
        tuple(
            (code(f.property), code(f.bounds.name), str(f.steps), code(f.because_of) if f.because_of else "itself")
            for f in findings_of(design)
        ),
    )


def unreached(design: str) -> Table:
    """§8: the outcomes that a design cannot have."""
    return Table(
        ("outcome that it cannot have", "why"), tuple((code(name), why) for name, why in UNREACHED[design].items())
    )


def counterexample() -> Table:
    """§8.2: the shortest run by which the design of 0.5.18 mixes up two attempts."""
    spec = BoundSpec(DECIDE_AT_DRAIN_BY_RID, AGAIN)
    violation = explore(spec).violation
    assert violation is not None
    return Table(
        ("step", "actor", "action", "what changed"),
        tuple((str(t.number), t.actor, code(t.action), "<br>".join(t.changes)) for t in tell(spec, violation.run)),
    )


def implemented() -> Table:
    """§9: for each P-number, the properties whose docstrings name it: the canonical ones, then those of the parts."""
    judged = [r for kind in JUDGING for r in rules(kind)]
    known = {r.name for r in judged}
    for design in (design_named(design_of(name)) for name in PART_BOUNDS):
        new = [r for kind in JUDGING for r in design.rules() if r.kind == kind and r.name not in known]
        judged += new
        known |= {r.name for r in new}
    return Table(
        ("P", "held here by"),
        tuple((p, listed(tuple(code(r.name) for r in judged if p in p_numbers(r)))) for p in P_NUMBERS),
    )


# ---- cells


def code(name: str) -> str:
    """A name, set as code."""
    return f"`{name}`"


def codes(names: Iterable[str]) -> str:
    """Names in one cell, each set as code."""
    return listed(tuple(map(code, names)))


def listed(names: Sequence[str]) -> str:
    """Names in one cell; `none` for none."""
    return ", ".join(names) or NOTHING


def values(t: Type) -> str:
    """The values of a bounded type, in words."""
    if t.kind in ("queue", "set"):
        return f"{t.kind} of {named(t.high)}"
    if t.kind == "flag":
        return "yes, no"
    if t.names:
        return ", ".join(t.names)
    return f"{named(t.high)} or none" if t.low < 0 else f"0 .. {named(t.high)}"


# ---- what a rule does


def reached(function: Function, design: Design, seen: set[Function]) -> Iterator[Function]:
    """A rule and the helper functions that it reaches in a design, each once."""
    seen.add(function)
    yield function
    for node in ast.walk(source(function)):
        helper = helper_called(function, design, node)
        if helper is not None and helper not in seen and helper.__name__ not in NOT_A_STEP:
            yield from reached(helper, design, seen)


def written_by(rule: Rule, design: Design = CANONICAL) -> set[str]:
    """The state variables that a rule writes, itself or through helper functions."""
    return {name for function in reached(rule.function, design, set()) for name in written(function)}


def emitted_by(rule: Rule, design: Design = CANONICAL) -> set[str]:
    """The names of the events that a rule emits, itself or through helper functions."""
    return {name for function in reached(rule.function, design, set()) for name in emitted(function)}
