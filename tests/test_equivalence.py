"""spec/EQUIVALENCE.md against `hicheck refine`: every marked block is computed anew and compared."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hicache_checks import equivalence
from hicache_checks.equivalence import BLOCK, BLOCKS, SLOW
from hicache_spec import DESIGNS
from hicache_spec.assumptions import ASSUMPTIONS
from hicache_spec.claim import COMPARED
from hicache_spec.observations import OBSERVATIONS

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
        r"§\d+|^#+ \d+|^\d\. |0\.5\.1[5678]|S7|chain [01]|answers 0|exit code 3", "", prose, flags=re.M | re.I
    )
    assert not re.findall(r"[^\n]*\d[^\n]*", prose)


def test_names_on_the_page_exist() -> None:
    known = DESIGNS.keys() | ASSUMPTIONS.keys() | OBSERVATIONS.keys() | COMPARED.keys()
    used = set(re.findall(r"`((?:claim|nothing|no|revoke|alloc|decide|whole)_\w+)`", PAGE))
    assert used
    assert used <= known


def test_every_assumption_and_configuration_is_used() -> None:
    for name in (*ASSUMPTIONS, *COMPARED):
        assert f"`{name}`" in PAGE, name
