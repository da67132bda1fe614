"""Single functions of a module that cannot be loaded whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from hicache_checks.targets.sglang.own_code import OwnCode

MODULE = """
from __future__ import annotations
import no_such_module
from math import floor as rounded
import os.path
from nowhere_at_all import Nothing

MORE = rounded(3.9)

def doubled(number):
    return 2 * number

class Scheduler(Nothing):
    @no_such_module.decorated
    def decide(self, pages: Nothing, factor: int = 2) -> Nothing:
        return rounded(pages) * factor + self.more

    def place(self) -> str:
        return os.path.basename("a/b")

    def fail(self):
        return Nothing

    def limit(self):
        return doubled(MORE) + self.more

    @property
    def room(self):
        return self.limit() - 1

def decide(self):
    raise AssertionError
"""


@pytest.fixture
def code(tmp_path: Path) -> OwnCode:
    file = tmp_path / "scheduler.py"
    file.write_text(MODULE)
    return OwnCode("a.scheduler", file)


class Self:
    more = 1


def test_a_method_is_taken_out_with_the_names_that_it_uses(code: OwnCode) -> None:
    assert code.method("Scheduler.decide")(Self(), 3.7) == 7
    assert code.method("Scheduler.place")(Self()) == "b"
    assert code.method("Scheduler.decide") is code.method("Scheduler.decide")


def test_what_is_missing_fails_only_when_it_is_used(code: OwnCode) -> None:
    with pytest.raises(ModuleNotFoundError, match="nowhere_at_all"):
        code.method("Scheduler.fail")(Self())


def test_it_says_what_there_is(code: OwnCode) -> None:
    assert code.has("Scheduler.decide")
    assert not code.has("Scheduler.nothing")
    with pytest.raises(KeyError):
        code.method("Scheduler.nothing")


def test_what_the_module_sets_and_defines_is_there(code: OwnCode) -> None:
    assert code.method("Scheduler.limit")(Self()) == 7
    assert code.imported("rounded")(2.5) == 2
    assert [code.is_property(f"Scheduler.{name}") for name in ("room", "limit", "nothing")] == [True, False, False]
