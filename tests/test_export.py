"""hicheck export: the texts of the models, the files, and what is refused."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from hicache_checks import cli
from hicache_checks.bench_command import CONFIGURATIONS
from hicache_checks.export import ExportError, Promela, Tla
from hicache_checks.export.actions import possible
from hicache_checks.export.kinds import Kind, Kinds
from hicache_checks.export.program import Program
from hicache_checks.export.terms import Names
from hicache_checks.export.tla_layout import folded
from hicache_spec import DESIGNS, BoundSpec
from hicache_spec.bounds import AGAIN, PRESSURE, TINY
from hicache_spec.language import Design
from quick import one_quick
from test_explore import COUNTS
from toy_idioms import IDIOMS, IdiomBounds

CANONICAL = DESIGNS["decide_at_drain"]


@pytest.fixture(scope="module")
def spec() -> BoundSpec:
    return BoundSpec(CANONICAL, PRESSURE)


@pytest.fixture(scope="module")
def promela(spec: BoundSpec) -> str:
    return Promela(spec, "pressure").text()


@pytest.fixture(scope="module")
def tla(spec: BoundSpec) -> str:
    return Tla(spec, "pressure").text()


def hicheck(arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments.split())
    captured = capsys.readouterr()
    assert isinstance(stop.value.code, int)
    return stop.value.code, captured.out, captured.err


def block(text: str, first: str) -> str:
    """The lines from the one that begins so to the next empty one."""
    start = text.index(first)
    return text[start : text.index("\n\n", start)]


# ---- what a reader sees


def test_a_rule_in_tla_is_the_rule(tla: str) -> None:
    assert block(tla, "\\* §3.7.1") == (
        "\\* §3.7.1 The IO thread begins to read the next page into its host page.\n"
        "can_io_start_page(s, rank) ==\n"
        "    /\\ has_work(s, rank)                        \\* an operation waits for its pages\n"
        "    /\\ ~s.writing[rank]                         \\* no page is being read\n"
        "    /\\ ~s.stopped[rank][Head(s.buffer[rank])]   \\* the operation is not terminated\n"
        "io_start_page(rank) ==\n"
        "    LET s == state\n"
        "    IN  /\\ can_io_start_page(s, rank)\n"
        "        /\\ state' = [s EXCEPT !.writing[rank] = TRUE]"
    )


def test_a_rule_in_promela_is_the_rule(promela: str) -> None:
    assert block(promela, "/* §3.7.1") == (
        "/* §3.7.1 The IO thread begins to read the next page into its host page. */\n"
        "#define can_io_start_page(rank) ( \\\n"
        "       has_work(rank)                        /* an operation waits for its pages */ \\\n"
        "    && !writing[rank]                        /* no page is being read */ \\\n"
        "    && !stopped[rank].at[buffer[rank].at[0]] /* the operation is not terminated */ )\n"
        "inline io_start_page(rank) {\n"
        "    d_step {\n"
        "        can_io_start_page(rank) ->\n"
        '        printf("io_start_page(%d)\\n", rank);\n'
        "        writing[rank] = 1;\n"
        "        forget()\n"
        "    }\n"
        "}"
    )


def test_a_function_with_effect_takes_a_state_and_returns_one(tla: str) -> None:
    assert block(tla, "terminate(s, op) ==") == (
        "terminate(s, op) ==\n"
        "    LET s1 == IF s.phase[op] /= TERMINATED THEN advance(s, op, TERMINATE) ELSE s\n"
        "    IN  mark(s1, op)"
    )


def test_every_rule_is_there_with_its_section(promela: str, tla: str) -> None:
    rules = [r for r in CANONICAL.rules() if r.kind in ("action", "invariant")]
    assert len(rules) > 25
    for rule in rules:
        assert re.search(rf"^(inline|#define) {rule.name}\(", promela, re.MULTILINE), rule.name
        assert re.search(rf"^{rule.name}(\(.*\))? ==", tla, re.MULTILINE), rule.name
        assert f"/* §{rule.section} " in promela
        assert f"\\* §{rule.section} " in tla


def test_the_bounds_are_named_constants(spec: BoundSpec, promela: str) -> None:
    assert "#define HOST_PAGES 2\n" in promela
    cfg = Tla(spec, "pressure").cfg()
    assert "    HOST_PAGES = 2\n" in cfg
    assert "    RANKS = {0}\n" in cfg
    assert "    inv_pages_conserved_holds\n" in cfg
    assert "inv_" not in Tla(spec, "pressure").cfg(checked=False)


def test_fairness_is_for_each_value_but_the_chosen(tla: str) -> None:
    assert "    /\\ \\A rank \\in RANKS : WF_state(\\E hit \\in DEPTHS : query_ask_storage(rank, hit))\n" in tla
    assert "    /\\ WF_state(\\E hits \\in HITS, pages \\in PAGES : sched_drain(hits, pages))\n" in tla
    assert "sched_abort" not in block(tla, "Fairness ==").replace("FairSpec", "")


def test_what_is_left_out_is_said(spec: BoundSpec, tla: str) -> None:
    named = [r.name for r in Program(spec).left_out]
    assert "step_drain_decides_its_own_attempt" in named
    head = " ".join(block(tla, "\\* Events are").replace("\\*", "").split())
    assert all(name in head for name in named)
    assert "step_ended_stays_ended_holds == [][step_ended_stays_ended(state, state')]_state" in tla


def test_an_action_that_the_bounds_rule_out_is_no_option(spec: BoundSpec, promela: str) -> None:
    by_name = {a.rule.name: len(possible(a)) for a in Program(spec).actions}
    assert by_name["io_fail_page"] == by_name["sched_stop"] == 0
    assert by_name["sched_drain"] == 3 * 3 - 1
    assert "/* io_fail_page: never possible in this configuration */" in promela
    assert ":: io_fail_page" not in promela


def test_a_variant_exports_what_replaces_a_function() -> None:
    text = Promela(BoundSpec(DESIGNS["decide_at_drain_by_rid"], AGAIN), "again").text()
    assert "#define find_record_by_request_id(op) (opt(record[REQUEST_OF(op)]))" in text
    assert "decide_found = find_record_by_request_id(op);" in text
    assert "find_record(op)" not in text


@pytest.mark.parametrize("design", one_quick(DESIGNS.values()), ids=lambda d: d.name)
def test_every_design_can_be_written_down(design: Design) -> None:
    for bounds in (AGAIN, PRESSURE):  # the others: test_peers.py
        spec = BoundSpec(design, bounds)
        text = Promela(spec, bounds.name).text()
        assert not [line for line in text.splitlines() if len(line) > 170]
        assert Tla(spec, bounds.name).text().endswith("=\n")


# ---- the machinery


def test_kinds_follow_from_the_calls() -> None:
    program = Program(BoundSpec(IDIOMS, IdiomBounds()))
    kinds = Kinds(program)
    by_name = {f.name: f for f in program.functions}
    assert kinds.result(by_name["fits"]) is Kind.CONDITION
    assert kinds.result(by_name["take_next"]) is Kind.NUMBER
    assert kinds.name(by_name["carry"], "parcel") is Kind.NUMBER
    both = ast.parse("(s.tired[0]) + 1", mode="eval").body
    assert kinds.of(both, by_name["fits"]) is Kind.NUMBER


def test_names_stay_free() -> None:
    names = Names({"if"})
    assert names.name("if") == "if_"
    assert names.name("if") == "if_"
    assert names.parameter("if") == "if__"
    assert names.name("_") == "unused"
    inner = names.inner()
    assert (inner.fresh("s"), inner.fresh("s"), names.fresh("s")) == ("s", "s1", "s")


def test_a_long_condition_is_a_list() -> None:
    parts = [f"a_rather_long_name_{i} = b_rather_long_name_{i}" for i in range(3)]
    assert folded(" /\\ ".join(parts)) == [f"/\\ {part}" for part in parts]
    quantified = folded("\\A r \\in RANKS : " + " \\/ ".join(f"({p})" for p in parts))
    assert quantified == ["\\A r \\in RANKS :", *(f"    \\/ {part}" for part in parts)]


def test_what_cannot_be_said_is_refused_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    import toy_idioms

    def nested(s, carrier, parcel):
        """A change of the state in the middle of an expression."""
        s.load[carrier] = s.shelf.pop(0) + parcel

    nested.__module__ = toy_idioms.__name__
    spec = BoundSpec(IDIOMS.variant("odd", "", {"carry": nested}), IdiomBounds())
    for write in (lambda: Promela(spec, "x").text(), lambda: Tla(spec, "x").text()):
        with pytest.raises(ExportError, match=r"test_export\.py:\d+: nested: ") as refusal:
            write()
        assert "\n" not in str(refusal.value)


# ---- the command


def test_one_model_goes_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = hicheck("export --promela --configuration again", capsys)
    assert (code, err) == (0, "")
    assert out == Promela(BoundSpec(CANONICAL, AGAIN), "again").text() + "\n"


def test_many_models_go_into_a_directory(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = tmp_path / "models"
    code, out, _ = hicheck(f"export --tla --bounds tiny -o {folder}/", capsys)
    assert code == 0
    names = {p.name for p in folder.iterdir()}
    assert names == {f"decide_at_drain_{b.name}.{end}" for b in TINY for end in ("tla", "cfg")}
    assert out.splitlines()[-1].startswith("to run it: java -cp tla2tools.jar tlc2.TLC -deadlock -config ")


def test_a_module_is_named_like_its_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "Again.tla"
    code, out, _ = hicheck(f"export --tla --configuration again -o {file} --json {tmp_path / 'x.json'}", capsys)
    assert code == 0
    assert file.read_text(encoding="utf-8").splitlines()[0] == "---------- MODULE Again ----------"
    assert (tmp_path / "Again.cfg").exists()
    assert out.splitlines()[-1].endswith("-config Again.cfg Again.tla")
    document = json.loads((tmp_path / "x.json").read_text(encoding="utf-8"))
    assert document["models"] == [{"configuration": "again", "files": [str(file), str(tmp_path / "Again.cfg")]}]


def test_sizes_make_a_configuration_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = hicheck("export --promela --requests 3 --ranks 1 --json -", capsys)
    assert code == 0
    (model,) = json.loads(out)["models"]
    assert model["configuration"] == "custom"
    assert "byte record[3];" in model["texts"]["decide_at_drain_custom.pml"]


@pytest.mark.heavy
def test_the_commands_of_the_page_do_what_it_says(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[1] / "docs" / "export.md").read_text(encoding="utf-8")
    lines = re.findall(r"^hicheck (export [^#\n]+)", page, re.MULTILINE)
    assert len(lines) == 4
    monkeypatch.chdir(tmp_path)
    for line in lines:
        assert hicheck(line, capsys)[0] == 0, line
    assert {"Churn.tla", "Churn.cfg", "models", "trio.pml", "by_rid.pml"} == {p.name for p in tmp_path.iterdir()}
    files = set(re.findall(r"\b(?:Churn\.\w+|\w+\.pml)\b", page)) - {"x.pml"}
    assert files == {"Churn.tla", "Churn.cfg", "trio.pml", "by_rid.pml"}
    assert f"{COUNTS['pressure_churn'][0]} distinct states found" in page
    (states,) = {c.states for c in CONFIGURATIONS if c.name == "trio"}
    assert f"the {states:,} states of `trio.pml`" in " ".join(page.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "give --tla or --promela, one of them"),
        ("--tla --promela", "give --tla or --promela, one of them"),
        ("--tla --design nothing", "no design 'nothing'; the designs are decide_at_drain, "),
        ("--tla", "several configurations: name a directory with -o, or one of solo_churn, "),
        ("--tla --configuration nothing", "no configuration 'nothing'; there are solo_churn, "),
        ("--tla --bounds tiny --configuration pair_again", "no configuration 'pair_again'; there are solo_churn, "),
        ("--promela -o nowhere/x.pml --configuration again", "no such directory: nowhere"),
        ("--promela -o x.pml", "several configurations need a directory"),
        ("--tla --configuration again -o 1.tla", "a TLA+ module is named like its file"),
    ],
)
def test_bad_input_is_one_line(arguments: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = hicheck(f"export {arguments}", capsys)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
