"""SPEC.md against the registries, in both directions; a table that is wrong is shown as it should be."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import spec_tables
from hicache_checks.mutants.design_mutants import DESIGN_MUTANTS, STARVING_DESIGNS
from hicache_checks.mutants.faulty_liveness import LIVENESS_MUTANTS
from hicache_checks.mutants.part_mutants import PART_MUTANTS, STARVING_PARTS
from hicache_checks.mutants.spec_mutants import SPEC_MUTANTS
from hicache_spec import BOUNDS, DESIGNS, events, language, lifecycle, state
from hicache_spec.language import Field
from hicache_spec.parts import ALL_BOUNDS, OWN_DESIGNS, PART_BOUNDS, PARTS, design_named, design_of
from spec_tables import CANONICAL, NOTHING, P_NUMBERS, SECTION_OF_KIND, Table
from test_explore import COUNTS
from test_spec_mutants import BASES, CAUGHT_ALONE, CAUGHT_ALONE_OF_DESIGNS

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "spec" / "SPEC.md").read_text(encoding="utf-8")
TABLES = spec_tables.page_tables(PAGE)
SECTION = r"§([0-9A-Z](?:[0-9.]*[0-9])?)"
NAMES = r"\b(?:sched|query|io|backup|env|inv|step|live|sometimes)_\w+"


def order_of(section: str) -> tuple[tuple[int, str], ...]:
    """Sections in the order of the page: numbers by value, letters after them."""
    return tuple((int(part), "") if part.isdigit() else (1000, part) for part in section.split("."))


def table_of(section: str, headers: tuple[str, ...]) -> Table:
    """The section's table that has these columns."""
    found = [table for table in TABLES[section] if set(headers) <= set(table.headers)]
    assert len(found) == 1, f"§{section} has {len(found)} tables with the columns {', '.join(headers)}"
    return found[0]


def known_sections() -> set[str]:
    """The sections of headings and rules, and the groups of the latter: with §3.7.1 there is §3.7."""
    of_rules = {r.section for d in (CANONICAL, *OWN_DESIGNS.values()) for r in d.rules()}
    return set(spec_tables.headings(PAGE)) | of_rules | {section.rpartition(".")[0] for section in of_rules}


def own_rules(design: str, *kinds: str) -> list[language.Rule]:
    """The rules of these kinds that a design brings or restates."""
    known = {r.function for r in DESIGNS[BASES[design]].rules()}
    return [r for kind in kinds for r in spec_tables.rules(kind, DESIGNS[design]) if r.function not in known]


def own_properties(design: str) -> Table:
    """§8.9, §8.11: the properties that a design brings or restates, each with the first faulty rule that it catches."""
    first = spec_tables.catches(DESIGN_MUTANTS[design], STARVING_DESIGNS[design], CAUGHT_ALONE_OF_DESIGNS[design])
    return spec_tables.properties(own_rules(design, "invariant", "step", "live"), first)


def own_outcomes(design: str) -> Table:
    """§8.9, §8.11: the outcomes that a design brings."""
    return spec_tables.outcomes(own_rules(design, "sometimes")).select(("outcome", "what happens"))


def canonical_properties(kind: str) -> Table:
    """§4, §5: invariants or step properties, each with the first faulty rule that it catches."""
    return spec_tables.properties(spec_tables.rules(kind), spec_tables.catches(SPEC_MUTANTS, (), CAUGHT_ALONE))


def assert_stands(section: str, expected: Table) -> None:
    """The table of a section has exactly these rows; columns that no registry knows are filled in."""
    page = table_of(section, expected.headers)
    known = page.select(expected.headers)
    paste = expected.merged_into(page).markdown()
    assert known.rows == expected.rows, f"the table of §{section} should be:\n\n{paste}\n"
    empty = [row[0] for row in page.rows if not all(row) or "?" in row]
    assert not empty, f"cells are left empty in the table of §{section}, in the rows {', '.join(empty)}"


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ("1.3", lambda: spec_tables.configurations(COUNTS)),
        ("2", spec_tables.life_cycle),
        ("3.0", lambda: spec_tables.variables(CANONICAL)),
        ("3.1", lambda: spec_tables.actions(spec_tables.rules("action"))),
        ("3.14", spec_tables.vocabulary),
        ("3.15", spec_tables.log),
        ("4", lambda: canonical_properties("invariant")),
        ("4", spec_tables.checks),
        ("5", lambda: canonical_properties("step")),
        ("6", lambda: spec_tables.outcomes(spec_tables.rules("sometimes"))),
        ("7", spec_tables.liveness),
        ("8", spec_tables.designs),
        ("8.2", spec_tables.counterexample),
        ("8.2", lambda: spec_tables.findings("decide_at_drain_by_rid")),
        ("8.4", lambda: spec_tables.findings("revoke_queue_by_rid")),
        ("8.6", lambda: spec_tables.findings("alloc_first")),
        ("8.6", lambda: spec_tables.unreached("alloc_first")),
        ("8.7", lambda: spec_tables.findings("alloc_first_by_rid")),
        ("8.9", lambda: own_properties("progress_ack")),
        ("8.9", lambda: own_outcomes("progress_ack")),
        ("8.9", lambda: spec_tables.unreached("progress_ack")),
        ("8.10", lambda: spec_tables.findings("progress_ack_by_rid")),
        ("8.11", lambda: own_properties("attempts")),
        ("8.11", lambda: own_outcomes("attempts")),
        ("8.12", lambda: spec_tables.findings("attempts_by_handle")),
        ("9", spec_tables.implemented),
    ],
    ids=lambda value: f"section {value}" if isinstance(value, str) else "",
)
def test_a_table_says_what_the_code_says(section: str, expected: object) -> None:
    assert callable(expected)
    table = expected()
    assert table.rows, "nothing was compared"
    assert_stands(section, table)


# ---- the registries themselves are whole: nothing is compared with an empty list


def test_the_expected_tables_leave_nothing_out() -> None:
    kinds = {"action": spec_tables.actions(spec_tables.rules("action")), "live": spec_tables.liveness()}
    kinds |= {"sometimes": spec_tables.outcomes(spec_tables.rules("sometimes"))}
    kinds |= {kind: canonical_properties(kind) for kind in ("invariant", "step")}
    for kind, table in kinds.items():
        assert [row[0] for row in table.rows] == [f"`{r.name}`" for r in CANONICAL.rules() if r.kind == kind]
    variables = spec_tables.variables(CANONICAL).rows
    assert [row[0] for row in variables] == [f"`{n}`" for n, f in vars(state.Pipeline).items() if isinstance(f, Field)]
    assert all(row[-1] != NOTHING for row in variables), "a variable that no action writes"
    assert [row[0] for row in spec_tables.vocabulary().rows] == [f"`{name}`" for name in events.EVENTS]
    assert [row[0] for row in spec_tables.designs().rows] == [f"`{name}`" for name in DESIGNS]
    assert {row[0] for row in spec_tables.configurations(COUNTS).rows} == {f"`{name}`" for name in COUNTS}
    assert {b.name for members in BOUNDS.values() for b in members} == COUNTS.keys()


def test_every_event_is_emitted() -> None:
    assert not [row[0] for row in spec_tables.vocabulary().rows if row[-1] == NOTHING]


def test_the_checks_without_a_rule_catch_what_the_page_says() -> None:
    mutants = {m.name: m for m in SPEC_MUTANTS}
    for check, fault in spec_tables.checks().rows:
        assert f"`{mutants[fault.strip('`')].caught_by}`" == check
    told = mutants["sched_needs_termination_everywhere"]
    assert f"is found in `{told.bounds.name}` in {told.steps} steps" in PAGE


def test_the_sizes_that_the_mutants_need_are_those_on_the_page() -> None:
    sizes = ("requests", "ranks", "attempts", "chain_pages", "host_pages")
    words = ("two requests", "two ranks", "two attempts", "three pages a chain", "four host pages")
    largest = [max(getattr(m.bounds, size) for m in SPEC_MUTANTS) for size in sizes]
    numbers = {"two": 2, "three": 3, "four": 4}
    assert [numbers[word.split()[0]] for word in words] == largest
    assert f"at most {', '.join(words[:-1])} and {words[-1]}" in PAGE


# ---- sections


def test_sections_of_rules_are_unique_and_increase() -> None:
    seen: list[str] = []
    for kind, first in SECTION_OF_KIND.items():
        sections = [r.section for r in CANONICAL.rules() if r.kind == kind]
        assert all(s.split(".")[0] == first.split(".")[0] for s in sections), (
            f"a section of another chapter: {sections}"
        )
        assert sections == sorted(sections, key=order_of), f"{kind} rules are not in the order of their sections"
        seen += sections
    assert "" not in seen, "a rule without a section"
    twice = {s for s in seen if seen.count(s) > 1}
    assert not twice, f"sections of more than one rule: {', '.join(sorted(twice))}"


def test_headings_are_unique_and_increase() -> None:
    sections = spec_tables.headings(PAGE)
    assert sections[0] == "1", "assumptions come first"
    assert sections == sorted(set(sections), key=order_of)
    assert {"1.3", "2", "3", "4", "5", "6", "7", "8", "A", "B"} <= set(sections)


def test_a_section_that_the_page_refers_to_exists() -> None:
    assert set(re.findall(SECTION, PAGE)) <= known_sections()


def test_a_section_that_a_docstring_refers_to_exists() -> None:
    known = known_sections()
    for path in sorted((ROOT / "spec" / "hicache_spec").rglob("*.py")):
        used = set(re.findall(SECTION, path.read_text(encoding="utf-8")))
        assert used <= known, f"{path.name}: {', '.join(sorted(used - known))}"


# ---- names and files


def test_a_name_on_the_page_exists() -> None:
    designs = (*DESIGNS.values(), *(design_named(design_of(name)) for name in PART_BOUNDS))
    known = {r.name for d in designs for r in d.rules()} | {m.name for m in SPEC_MUTANTS}
    known |= {function.__name__ for part in PARTS.values() for function in part.replaces.values()}
    known |= events.EVENTS.keys() | {m.name for m in LIVENESS_MUTANTS}
    known |= {
        m.name
        for registry in (DESIGN_MUTANTS, STARVING_DESIGNS, PART_MUTANTS, STARVING_PARTS)
        for mutants in registry.values()
        for m in mutants
    }
    known |= (
        vars(language).keys()
        | {name for d in designs for name in d.fields()}
        | {name for d in designs for name in d.replaces}
    )
    assert not set(re.findall(NAMES, PAGE)) - known


def test_a_file_on_the_page_exists() -> None:
    linked = [ROOT / "spec" / target for target in re.findall(r"\]\(([^)#]+)\)", PAGE)]
    named = [ROOT / path for path in re.findall(r"`((?:spec|impl|model_checks|tests)/[\w/.]+)`", PAGE)]
    assert linked
    assert named
    assert not [str(path) for path in (*linked, *named) if not path.exists()]


def test_a_command_on_the_page_names_a_design_and_bounds() -> None:
    commands = re.findall(r"hicheck explore[^`\n]*", PAGE)
    assert commands
    for command in commands:
        assert all(design_named(name) for name in re.findall(r"--design ([\w+]+)", command))
        assert set(re.findall(r"--bounds ([\w+]+)", command)) <= ALL_BOUNDS.keys()
    compared = re.findall(r"hicheck spec --diff (\w+) (\w+)", PAGE)
    assert compared
    assert {name for pair in compared for name in pair} <= DESIGNS.keys()


@pytest.mark.parametrize("name", ["SPEC.md", "EQUIVALENCE.md"])
def test_lines_are_short_outside_tables_and_output(name: str) -> None:
    text = (ROOT / "spec" / name).read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    assert not [line for line in prose.splitlines() if len(line) > 120 and not line.startswith("|")]


# ---- the picture, the states, the list of properties


def test_the_picture_is_the_generated_one() -> None:
    assert spec_tables.fenced(PAGE, "mermaid") == [lifecycle.mermaid()]


def test_the_states_are_those_of_the_life_cycle() -> None:
    table = table_of("2", ("state", "final")).select(("state", "final"))
    assert {row[0] for row in table.rows} == set(lifecycle.STATES)
    assert {name for name, final in table.rows if final == "yes"} == set(lifecycle.FINAL)


def test_what_is_not_held_says_why() -> None:
    headers = ("P", "held here by", "how far")
    table = table_of("9", headers).select(headers)
    assert tuple(row[0] for row in table.rows) == P_NUMBERS
    reasons = ("Not in this version: ", "Not a property: by construction")
    silent = [p for p, held, how_far in table.rows if held == NOTHING and not how_far.startswith(reasons)]
    assert not silent, f"neither held nor explained: {', '.join(silent)}"


def test_p_numbers_are_on_the_list() -> None:
    named = {p for r in CANONICAL.rules() for p in spec_tables.p_numbers(r)}
    assert named <= set(P_NUMBERS)
    judged = [r for r in CANONICAL.rules() if r.kind in ("invariant", "step", "live")]
    assert not [r.name for r in judged if not spec_tables.p_numbers(r)], "a property that implements nothing"
    loose = [r.name for r in CANONICAL.rules() if re.search(r"\bP\d", spec_tables.sentence(r))]
    assert not loose, "a P-number stands at the head of a docstring"


# ---- the comparison itself can fail


def test_a_table_that_lags_behind_is_shown_as_it_should_be() -> None:
    page = Table(("event", "arguments", "meaning"), (("`old`", "op", "an old one"),))
    expected = Table(("event", "arguments"), (("`old`", "op, pages"), ("`new`", "op")))
    assert page.select(expected.headers) != expected
    assert expected.merged_into(page).markdown().splitlines() == [
        "| event | arguments | meaning |",
        "| --- | --- | --- |",
        "| `old` | op, pages | an old one |",
        "| `new` | op | ? |",
    ]


def test_a_missing_column_is_named() -> None:
    with pytest.raises(KeyError, match="no column pages among event"):
        Table(("event",), (("`old`",),)).select(("pages",))


def test_tables_and_headings_are_found() -> None:
    text = "## §1 One\n| a | b |\n|---|---|\n| 1 | 2 |\n\n### §1.2 Two\nprose §9\n\n| c |\n|---|\n| 3 |\n"
    assert spec_tables.headings(text) == ["1", "1.2"]
    assert spec_tables.page_tables(text) == {"1": [Table(("a", "b"), (("1", "2"),))], "1.2": [Table(("c",), (("3",),))]}
