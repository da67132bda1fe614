"""spec/EQUIVALENCE.md against `hicheck refine`: every marked block is computed anew and compared."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import spec_tables
from hicache_checks import cli, equivalence, refine_command
from hicache_checks.equivalence import BLOCK, BLOCKS, CANONICAL, REVOKING, SLOW, SUBMIT, WHOLE, answers, outcomes_after
from hicache_checks.refine_command import Compared, RefineOptions, shortest
from hicache_checks.reporting import Verdict
from hicache_spec import DESIGNS
from hicache_spec.assumptions import ASSUMPTIONS
from hicache_spec.claim import CLAIM_TOLD, CLAIM_TRIO, COMPARED
from hicache_spec.designs import PROGRESS_ACK
from hicache_spec.observations import OBSERVATIONS, OUTCOMES, say_letter

PAGE = (Path(__file__).resolve().parents[1] / "spec" / "EQUIVALENCE.md").read_text(encoding="utf-8")
FOUND = {name: text for _, name, text, _ in BLOCK.findall(PAGE)}


def assert_stands(name: str) -> None:
    expected = BLOCKS[name]()
    assert FOUND[name] == expected, f"the block {name} should be:\n\n{expected}"


def test_every_block_is_on_the_page_once() -> None:
    assert [name for _, name, _, _ in BLOCK.findall(PAGE)] == list(BLOCKS)
    assert set(SLOW) < BLOCKS.keys()


@pytest.mark.heavy
@pytest.mark.parametrize("name", [name for name in BLOCKS if name not in SLOW])
def test_a_block_says_what_the_checker_says(name: str) -> None:
    assert_stands(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_a_slow_block_says_what_the_checker_says(name: str) -> None:
    assert_stands(name)


def shown_commands() -> list[tuple[str, str]]:
    """The command lines of the page, each with the answer that the page gives."""
    lines = [line for code in spec_tables.fenced(PAGE, "text") for line in code.splitlines()]
    return [(c.strip(), a) for c, _, a in (line.partition("  # ") for line in lines if line.startswith("hicheck "))]


def answers_to(options: RefineOptions, progress: object) -> tuple[Compared, ...]:
    """What the blocks have decided already, in all configurations."""
    return answers(options.left, options.right, options.observe, options.assume, options.bounds, options.polls)


@pytest.mark.heavy
@pytest.mark.parametrize(("command", "answer"), shown_commands())
def test_a_command_on_the_page_gives_its_answer(
    command: str, answer: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if "--bounds" not in command:
        monkeypatch.setattr(refine_command, "compare_all", answers_to)
    with pytest.raises(SystemExit) as stop:
        cli.main(command.split()[1:])
    assert stop.value.code == (Verdict.PASS if answer == "holds" else Verdict.FAIL).exit_code
    assert capsys.readouterr().out.endswith(f": {answer}\n")


def test_the_page_suggests_something_that_holds_and_something_that_does_not() -> None:
    assert {answer == "holds" for _, answer in shown_commands()} == {True, False}


def test_the_outcomes_after_a_word_are_those_of_the_refinement() -> None:
    """What `told` is computed with, where the whole comparison is small."""
    (found,) = answers(REVOKING, CANONICAL, OUTCOMES.name, WHOLE, CLAIM_TRIO.name)
    assert found.run is not None
    word = ((SUBMIT, 0, 0), (SUBMIT, 1, 0), (SUBMIT, 2, 1))
    assert found.run.word == tuple(map(say_letter, word))
    assert found.run.left_outcome in outcomes_after(REVOKING, CLAIM_TRIO, word)
    possible = outcomes_after(CANONICAL, CLAIM_TRIO, word)
    assert found.run.left_outcome not in possible
    assert found.run.right_outcome in possible


def test_a_wrong_number_is_put_right() -> None:
    wrong = PAGE.replace("as outcomes, and every event", "as outcomes, and no event")
    part = re.search(r"<!-- observations -->.*?<!-- end -->", wrong, re.DOTALL)
    assert part is not None
    assert part[0] not in PAGE
    assert equivalence.rewrite(part[0]) in PAGE


def test_numbers_stand_in_blocks_only() -> None:
    """Prose quotes no result: its digits are those of releases, sections, chains and exit codes."""
    prose = BLOCK.sub("", PAGE)
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", prose, flags=re.DOTALL)
    prose = re.sub(
        r"§[\d.]*\d|^#+ \d+|^\d\. |0\.5\.1[5678]|S7|chain [01]|answers 0|exit code 3", "", prose, flags=re.M | re.I
    )
    assert not re.findall(r"[^\n]*\d[^\n]*", prose)


def test_names_on_the_page_exist() -> None:
    known = DESIGNS.keys() | ASSUMPTIONS.keys() | OBSERVATIONS.keys() | COMPARED.keys() | {CLAIM_TOLD.name}
    used = set(re.findall(r"`((?:claim|nothing|no|revoke|alloc|decide|whole)_\w+)`", PAGE))
    assert used
    assert used <= known


def test_every_assumption_and_configuration_is_used() -> None:
    for name in (*ASSUMPTIONS, *COMPARED):
        assert f"`{name}`" in PAGE, name


# ---- what SPEC.md says of acks


@pytest.mark.heavy
@pytest.mark.parametrize("observe", list(OBSERVATIONS))
def test_acks_show_nothing_that_polls_cannot_and_not_all_that_they_can(observe: str) -> None:
    """§8.9 By acks, what is complete ends in the order in which it is read."""
    assert all(found.holds for found in answers(PROGRESS_ACK.name, CANONICAL, observe))
    assert shortest(answers(CANONICAL, PROGRESS_ACK.name, observe)) is not None
