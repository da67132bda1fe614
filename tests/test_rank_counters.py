"""Classes of a release count by rank: ranks that share a process are told apart as processes are."""

from __future__ import annotations

import subprocess
import sys
import types
from collections.abc import Iterator

import pytest

from hicache_checks.targets.sglang import counters

TEXT = """
class Node:
    counter = 0

    def __init__(self):
        self.id = Node.counter
        Node.counter += 1


class Leaf(Node):
    pass


class Counts:
    counter = 5
"""
MADE = "[Node().id, Leaf().id, Node().id, Counts.counter]"


class Ranks:
    """Who calls."""

    now = 0


@pytest.fixture
def names() -> Iterator[dict[str, object]]:
    module = types.ModuleType("package.module")
    with counters.counted_by_rank("package", lambda: Ranks.now):
        exec(TEXT, vars(module))
    yield vars(module)
    counters.begin_again()
    Ranks.now = 0


def test_two_ranks_count_as_two_processes_do(names: dict[str, object]) -> None:
    process = subprocess.run([sys.executable, "-c", f"{TEXT}\nprint({MADE})"], capture_output=True, text=True)
    for rank in (0, 1):
        Ranks.now = rank
        assert str(eval(MADE, names)) == process.stdout.strip() == "[0, 1, 2, 5]"


def test_they_count_on_until_they_begin_again(names: dict[str, object]) -> None:
    assert eval(MADE, names) == [0, 1, 2, 5]
    Ranks.now = 1
    assert eval("Node().id", names) == 0
    Ranks.now = 0
    assert eval("Node().id", names) == 3
    counters.begin_again()
    assert eval("Node().id", names) == 0


def test_nobody_elses_classes_are_touched() -> None:
    module = types.ModuleType("packages.module")
    with counters.counted_by_rank("package", lambda: Ranks.now):
        exec(TEXT, vars(module))
    assert type(vars(module)["Node"]) is type
