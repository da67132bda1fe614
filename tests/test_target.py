"""A target by name: what it consists of, and whether it has changed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hicache_checks.conformance.target import Target, opened


@pytest.fixture
def fork(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package of two modules, the second imported when it is needed, and a module beside it."""
    package = tmp_path / "a_fork"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text("def build():\n    import a_fork.inner.late\n    return a_fork.inner.late\n")
    (package / "inner" / "late.py").write_text("LATE = 1\n")
    (package / "notes.txt").write_text("nothing that runs\n")
    (tmp_path / "alone.py").write_text("def build():\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "a_fork"]:
        del sys.modules[name]


def test_the_fingerprint_is_that_of_the_source_files(fork: Path) -> None:
    """Whatever of them was imported."""
    with opened("a_fork:build", simulate=True) as target:
        before = target.fingerprint()
        target.build()
        assert target.fingerprint() == before
        (fork / "a_fork" / "notes.txt").write_text("other notes\n")
        assert target.fingerprint() == before
    with opened("a_fork:build", simulate=False) as target:
        assert target.fingerprint() == before, "nor how it runs"


@pytest.mark.parametrize(
    "change",
    [
        lambda fork: (fork / "inner" / "late.py").write_text("LATE = 2\n"),
        lambda fork: (fork / "inner" / "late.py").rename(fork / "inner" / "later.py"),
        lambda fork: (fork / "new.py").write_text(""),
        lambda fork: (fork / "inner" / "late.py").unlink(),
    ],
    ids=["a line", "a name", "a file more", "a file less"],
)
def test_any_change_of_a_source_file_changes_it(fork: Path, change: Callable[[Path], object]) -> None:
    target = Target("a_fork:build", lambda: None, ("a_fork",))
    before = target.fingerprint()
    change(fork / "a_fork")
    assert target.fingerprint() != before


def test_a_module_that_is_no_package_is_one_file(fork: Path) -> None:
    alone, both = Target("", lambda: None, ("alone",)), Target("", lambda: None, ("alone", "a_fork"))
    before = alone.fingerprint(), both.fingerprint()
    assert before[0] != before[1]
    (fork / "alone.py").write_text("")
    assert before[0] != alone.fingerprint()
    assert before[1] != both.fingerprint()
