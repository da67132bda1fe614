"""What cannot be compiled is refused, with the rule and the line; what is only extreme is compiled like the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine_comparison import explore_alike
from hicache_checks.engine.compile.kernels import Compiled
from hicache_checks.engine.compile.layout import DoesNotFit
from hicache_checks.engine.engines import EngineOptions
from hicache_checks.engine.native.build import compiler
from random_specs import HEAD, load

NATIVE = pytest.param("native", marks=pytest.mark.skipif(compiler() is None, reason="there is no C compiler"))
RULES = '''

def helper(s: State) -> int:
{helper}


@action(fairness="weak", p=A)
def act(s: State, p: int) -> None:
    """§2.1 Act."""
{act}


@invariant
def inv(s: State) -> bool:
    """§3.1 So it is."""
    return {inv}
'''


def text(variables: str, act: str, inv: str = "True", helper: str = "    return 0") -> str:
    """A specification of a few lines."""
    head = HEAD.format(a=2, b=2, k=2, on=True, costs=(1, 2), grid=((0, 1), (2, 3)))
    lines = ["    " + line for line in variables.split("; ")]
    return head + "\n".join(lines) + RULES.format(act=_indented(act), inv=inv, helper=helper)


def _indented(act: str) -> str:
    return "\n".join("    " + line for line in act.split("\n"))


REFUSED = {
    "the least of a choice": (
        "x = field(upto(3), A)",
        "s.x[p] = min(s.x[a] for a in A if s.x[a] > 0)",
        "'min' over a choice",
    ),
    "a loop without bounds": ("x = field(upto(300))", "for _ in range(s.x):\n    s.x = 0", "not bounded by the types"),
    "a loop that starts anywhere": (
        "x = field(upto(3))",
        "for _ in range(s.x, 3):\n    s.x = 0",
        "not bounded by the types",
    ),
    "a condition that writes": (
        "x = field(fifo(A)); y = field(flag())",
        "if s.y and s.x.pop(0) == 0:\n    s.y = False",
        "a condition that writes",
    ),
    "a chain that writes": (
        "x = field(fifo(A)); y = field(upto(1))",
        "s.y = 1 if 0 < s.y < s.x.pop(0) else 0",
        "a condition that writes",
    ),
    "a choice of elements that writes": (
        "x = field(fifo(A)); y = field(upto(3))",
        "s.y = sum(s.x.pop(0) for a in A if a == s.y)",
        "a condition that writes",
    ),
    "a place that writes": (
        "x = field(fifo(A)); y = field(upto(3), A)",
        "s.y[s.x.pop(0)] += 1",
        "a condition that writes",
    ),
    "huge numbers": ("x = field(upto(1000000))", "y = s.x * s.x\ny = y * y * y\ns.x = 0 if y > 1 else 1", "63 bits"),
    "one of two numbers": ("x = field(upto(3))", "s.x = s.x or 2", "a number in 'and' or 'or'"),
    "a row that is chosen": ("x = field(upto(1))", "s.x = 1 if 2 in GRID[s.x] else 0", "membership in a row"),
}


@pytest.mark.parametrize(("variables", "act", "why"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_refused_with_rule_and_line(variables: str, act: str, why: str, tmp_path: Path) -> None:
    written = text(variables, act)
    with pytest.raises(DoesNotFit) as refusal:
        Compiled(load(written, tmp_path))
    message = str(refusal.value)
    first = written[: written.index(_indented(act))].count("\n") + 1
    lines = range(first, first + act.count("\n") + 1)
    assert why in message
    assert "\n" not in message
    assert any(message.startswith(f"act ({tmp_path / 'spec_0.py'}:{line}): ") for line in lines)


def test_a_helper_that_returns_a_value_only_sometimes_is_refused_by_name(tmp_path: Path) -> None:
    helper = "    if s.x > 0:\n        return 1"
    with pytest.raises(DoesNotFit, match=r"helper \(.*spec_0.py:\d+\): a function that returns a value only sometimes"):
        Compiled(load(text("x = field(upto(1))", "s.x = 1 if helper(s) else 0", helper=helper), tmp_path))


def test_a_table_whose_rows_differ_in_length_is_refused(tmp_path: Path) -> None:
    written = text("x = field(upto(1))", "s.x = 1 if GRID[s.x][p] == 2 else 0").replace("(2, 3)", "(2,)")
    with pytest.raises(DoesNotFit, match="a table whose rows differ in length"):
        Compiled(load(written, tmp_path))


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ("x = field(fifo(A, 16))", "x: 32 bits in one variable, more than 31"),
        ("y = field(flag()); x = field(upto(1 << 31), A)", "x: 32 bits in one variable, more than 31"),
    ],
)
def test_a_variable_that_is_too_wide_is_refused_by_name(variables: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DoesNotFit) as refusal:
        Compiled(load(text(variables, "p = p"), tmp_path))
    assert str(refusal.value) == message


def test_more_properties_than_there_are_bits_are_refused(tmp_path: Path) -> None:
    rule = text("x = field(flag())", "s.x = not s.x").split("@invariant")[1]
    more = "".join("\n\n@invariant" + rule.replace("def inv(", f"def inv_{i}(") for i in range(64))
    with pytest.raises(DoesNotFit, match="65 invariants, more than 64"):
        Compiled(load(text("x = field(flag())", "s.x = not s.x") + more, tmp_path))


EXTREME = {
    "one variable": ("x = field(flag())", "s.x = not s.x", "s.x == s.x"),
    "every bit of every word is set": (
        "x = field(flag(), A, A, A, A, A, A)",
        "for a in A:\n    for b in A:\n        for c in A:\n            for d in A:\n                for e in A:\n"
        "                    for f in A:\n                        s.x[a][b][c][d][e][f] = True",
        "not s.x[1][1][1][1][1][1]",
    ),
    "numbers beyond 31 bits": (
        "x = field(upto(1 << 30)); y = field(upto(3))",
        "s.y = 1 if s.x * s.x + 2 * s.x > 4000000000 else 0\ns.x = 10000000 + s.x if s.x < 1000000000 else 7",
        "not (s.y == 1 and 3 * s.x * s.x - 30000000000 < s.x - 1)",
    ),
    "a full queue of 30 bits, turned": (
        "x = field(fifo(A, 15)); y = field(upto(15))",
        "if len(s.x) < 15:\n    s.x.append(p)\nelse:\n    s.x.append(0)\n    s.x.append(1)\n"
        "    s.x.pop(0)\n    s.x.pop(0)\n    s.y = sum(s.x[i] for i in range(15))",
        "s.y < 3",
    ),
    "a set of 31 members": (
        "x = field(subset(range(31))); y = field(upto(3))",
        "insert(s.x, 30 - p)\ndiscard(s.x, 32)\ndiscard(s.x, -1)\ns.y = min(len(s.x), 3)",
        "not (30 in s.x and 29 in s.x)",
    ),
    "a member that there is not": (
        "x = field(subset(A)); y = field(upto(99))",
        "insert(s.x, 40 - s.y)\ns.y = 39 + p",
        "True",
    ),
    "nothing to run over": (
        "x = field(upto(3))",
        "for _ in range(2, 1):\n    s.x = 3\n"
        "s.x = sum(1 for i in range(0)) + (1 if any(i for i in range(1, 1)) else 0)",
        "all(False for i in range(0))",
    ),
    "places that there are not": (
        "x = field(upto(3), A); y = field(upto(3))",
        "s.y = COSTS[s.y] if s.y < 2 else 0\nif p > 0:\n    s.x[p - 2] = COSTS[p - 1] if p < 1 else s.x[p - 2] + 1",
        "s.x[-1] < 3",
    ),
}


@pytest.mark.parametrize("engine", ["array", NATIVE])
@pytest.mark.parametrize(("variables", "act", "inv"), EXTREME.values(), ids=EXTREME)
def test_what_is_only_extreme_is_compiled(variables: str, act: str, inv: str, engine: str, tmp_path: Path) -> None:
    explore_alike(load(text(variables, act, inv), tmp_path), EngineOptions(engine), states_max=2000)
