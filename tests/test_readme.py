"""README.md against the product: its picture, commands, options, files, sections, exit codes and counterexample."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

import spec_tables
from hicache_checks import cli
from hicache_checks.reporting import Verdict
from hicache_spec import language, lifecycle
from test_spec_page import SECTION, known_sections

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SPANS = re.findall(r"(?<!`)`([^`\n]+)`(?!`)", README)
# What a reader is told to type; output of a program is in a marked block.
CODE = [*spec_tables.fenced(re.sub(r"<!-- .*?<!-- end -->", "", README, flags=re.DOTALL), "text"), *SPANS]
MARKERS = (
    *("target output", "verify output", "test output", "bench output", "decode output", "pipeline output"),
    "counterexample",
)
# The counterexample of `--bounds tiny` is found in its configuration `again`; these are its sizes.
AGAIN = ("--requests", "1", "--attempts", "2", "--pages", "1", "--host-pages", "1")
LEFT_OUT = "..."


def between(marker: str) -> str:
    """The fenced block between a marker and its end."""
    found = re.findall(rf"<!-- {marker} -->\n```text\n(.*?)```\n<!-- end -->", README, re.DOTALL)
    assert len(found) == 1, f"the README has {len(found)} blocks marked {marker!r}"
    return str(found[0])


def command_lines() -> list[list[str]]:
    """Every command line of hicheck in the code of the page, without the name and without a shell's comment."""
    lines = [line.removeprefix("$ ") for code in CODE for line in code.splitlines()]
    return [line.split("#")[0].split()[1:] for line in lines if line.startswith("hicheck ")]


def test_the_picture_is_the_life_cycle() -> None:
    assert spec_tables.fenced(README, "mermaid") == [lifecycle.mermaid()]


def test_a_command_on_the_page_exists_with_its_options() -> None:
    group = typer.main.get_command(cli.app)
    assert isinstance(group, TyperGroup)
    options = {
        name: {option for parameter in command.params for option in parameter.opts}
        for name, command in group.commands.items()
    }
    named = command_lines()
    assert {"spec", "explore", "workload", "verify"} <= {line[0] for line in named}
    for name, *arguments in named:
        assert name in options, f"hicheck has no command {name}"
        unknown = {a for a in arguments if a.startswith("--")} - options[name]
        assert not unknown, f"hicheck {name} has no {', '.join(sorted(unknown))}"
    every = {option for of_command in options.values() for option in of_command}
    assert set(re.findall(r"`(--[\w-]+)", README)) <= every


def test_a_target_of_make_on_the_page_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))
    calls = [re.findall(r"\bmake((?: [\w.=-]+)+)", code) for code in CODE]
    named = {word for found in calls for words in found for word in words.split() if "=" not in word}
    assert {"verify", "test", "check"} <= named <= targets


def test_a_file_on_the_page_exists() -> None:
    named = [span for span in SPANS if re.fullmatch(r"[\w.-]+(?:/[\w.-]*)+", span)]
    linked = re.findall(r"\]\(([^)#]+)\)", README)
    assert len(named) > 10
    assert linked
    assert not [path for path in (*named, *linked) if not (ROOT / path).exists()]


def test_a_section_on_the_page_is_one_of_the_specification() -> None:
    used = set(re.findall(SECTION, README))
    assert used
    assert used <= known_sections()


def test_the_exit_codes_are_those_of_the_verdicts() -> None:
    rows = re.findall(r"^\| (\d) \| `(\w+)` \|", README, re.MULTILINE)
    assert rows == [(str(v.exit_code), v.value) for v in Verdict]


def test_the_counterexample_is_a_real_one(capsys: pytest.CaptureFixture[str]) -> None:
    """Its lines, in their order, are lines of what the command prints; some are left out."""
    with pytest.raises(SystemExit) as stop:
        cli.main(["explore", "--design", "decide_at_drain_by_rid", "--jobs", "1", *AGAIN])
    assert stop.value.code == Verdict.FAIL.exit_code
    printed = iter(capsys.readouterr().out.replace("in custom:", "in again:").splitlines())
    shown = [line for line in between("counterexample").splitlines() if line != LEFT_OUT]
    assert len(shown) > 10
    assert not [line for line in shown if line not in printed]  # `in` an iterator goes on from the last hit


def test_the_marked_blocks_hold_output() -> None:
    assert all(between(marker).strip() for marker in MARKERS)
    assert "$ hicheck verify --target sglang==" in between("target output")
    assert re.search(r"^target +sglang==.* findings$", between("target output"), re.MULTILINE)
    assert between("decode output").startswith("$ python examples/decode.py\n")
    assert between("decode output").endswith(" computed; exact\n")
    assert "$ make verify\n" in between("verify output")
    assert "\nverdict: pass\n" in between("verify output")
    assert re.search(r"^\d+ passed in .*s \(.*\)$", between("test output"), re.MULTILINE)


def test_the_prose_about_speed_is_what_the_bench_said() -> None:
    bench = between("bench output")
    (factor,) = re.findall(r"^trio_timeout: native on one core to fastest spin: ([\d.]+)$", bench, re.MULTILINE)
    rows = re.findall(r"^(hicheck native.*?) 0\.\S+ +([12]) .*exploration alone ([\d.]+) s", bench, re.MULTILINE)
    of_one, of_two = ([(name, float(s)) for name, cores, s in rows if cores == wanted] for wanted in "12")
    gains = [
        one / two for (_, one), (_, two) in zip(of_one, [r for r in of_two if "symmetry" not in r[0]], strict=True)
    ]
    prose = " ".join(README.split())
    assert len(gains) > 2
    assert f"`native` finds {float(factor):.1f} times as many states a second as Spin" in prose
    assert f"on both it is {min(gains):.1f} to {max(gains):.1f} times as fast as on one" in prose


def test_a_decorator_on_the_page_is_one_of_the_language() -> None:
    used = {span[1:] for span in SPANS if span.startswith("@")}
    assert {"invariant", "step_property", "leads_to"} <= used <= vars(language).keys()


def test_the_page_names_no_machine_and_no_registry() -> None:
    assert not re.findall(r"(?<![\w.])/(?:home|root|tmp|work|usr|mnt)\b|https?://", README)


def test_lines_are_short_outside_tables_and_output() -> None:
    prose = re.sub(r"^```.*?^```", "", README, flags=re.MULTILINE | re.DOTALL)
    assert not [line for line in prose.splitlines() if len(line) > 120 and not line.startswith("|")]
