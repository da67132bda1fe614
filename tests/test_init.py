"""`hicheck init` writes what can be filled in, and `hicheck smoke` says how far it is."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from conform_run import Ran, ran
from hicache_checks import init_command, smoke_command
from hicache_checks.conformance.adapter import CALLS
from hicache_checks.conformance.smoke import STEPS
from hicache_checks.init_command import InitOptions
from hicache_checks.smoke_command import SmokeOptions

OF_REAL_THREADS = {"gates", "clock"}
"""Capabilities that no program uses: tests of the reference with real threads do."""


def init(name: str, directory: Path) -> Ran:
    return ran(lambda screen: init_command.run(InitOptions(name, directory), screen))


def smoke(target: str, stall_seconds: float = 60.0) -> Ran:
    return ran(lambda screen: smoke_command.run(SmokeOptions(target, stall_seconds), screen))


def steps(smoked: Ran) -> dict[str, str]:
    return {step["step"]: step["status"] for step in smoked.keys["steps"]}


# ---- init


def test_it_writes_an_adapter_and_a_test(tmp_path: Path) -> None:
    written = init("my_fork", tmp_path / "new")
    adapter, test = (tmp_path / "new" / name for name in ("my_fork_adapter.py", "test_my_fork_conforms.py"))
    assert written.code == 0
    assert written.keys == {"files": [str(adapter), str(test)], "target": "my_fork_adapter:MyForkAdapter"}
    assert "hicheck smoke my_fork_adapter:MyForkAdapter" in written.text
    (stub,) = [node for node in ast.parse(adapter.read_text()).body if isinstance(node, ast.ClassDef)]
    assert stub.name == "MyForkAdapter"
    assert all(ast.get_docstring(node) for node in stub.body if isinstance(node, ast.FunctionDef))
    (said,) = [ast.get_docstring(n) for n in stub.body if isinstance(n, ast.FunctionDef) and n.name == "capabilities"]
    assert set(re.findall(r'"(\w+)"', str(said))) == CALLS.keys() - OF_REAL_THREADS
    assert 'hicheck("my_fork_adapter:MyForkAdapter", policy=policy' in test.read_text()
    assert max(map(len, (adapter.read_text() + test.read_text()).splitlines())) <= 120


@pytest.mark.parametrize("existing", ["mine_adapter.py", "test_mine_conforms.py"])
def test_it_overwrites_nothing_and_leaves_nothing_half_done(existing: str, tmp_path: Path) -> None:
    (tmp_path / existing).write_text("precious")
    refused = init("mine", tmp_path)
    assert (refused.code, refused.text) == (2, f"{tmp_path / existing} exists already")
    assert [path.name for path in tmp_path.iterdir()] == [existing]
    assert (tmp_path / existing).read_text() == "precious"


@pytest.mark.parametrize("name", ["", "my-fork", "1st", "class", "a/b", "a.b"])
def test_a_name_must_be_one(name: str, tmp_path: Path) -> None:
    assert init(name, tmp_path).code == 2
    assert not list(tmp_path.iterdir())


def test_a_directory_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused = init("mine", tmp_path / "file")
    assert refused.code == 2
    assert str(tmp_path / "file") in refused.text


# ---- smoke


@pytest.mark.heavy
def test_the_stub_says_what_to_do_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    init("stub", tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    smoked = smoke("stub_adapter:StubAdapter")
    assert smoked.code == 2
    assert steps(smoked) == {
        **dict.fromkeys(("loads", "factory", "calls", "capabilities"), "ok"),
        "reset": "fail",
        **dict.fromkeys(STEPS["threads"][4:], "skip"),
        "simulation": "skip",
    }
    assert "NotImplementedError: build your system here, for config['ranks'] ranks" in smoked.text
    assert "stub_adapter:StubAdapter is not usable" in smoked.text


@pytest.mark.heavy
def test_a_usable_adapter_passes_every_step() -> None:
    smoked = smoke("toy_adapter:ToyAdapter")
    assert smoked.code == 0
    assert list(steps(smoked)) == ["loads", *STEPS["threads"], *STEPS["simulate"]]
    assert set(steps(smoked).values()) == {"ok"}
    assert "toy_adapter:ToyAdapter is usable" in smoked.text


@pytest.mark.heavy
def test_a_target_is_tried_as_it_will_be_judged() -> None:
    """By the design that it is held to."""
    smoked = smoke("reference:revoke_queue")
    assert (smoked.code, set(steps(smoked).values())) == (0, {"ok"})
    refused = smoke("reference@alloc_first")
    assert refused.code == 2
    assert {step for step, status in steps(refused).items() if status == "fail"} == {"simulation"}
    assert "only, not to alloc_first" in refused.text


CLUMSY = """
import os
from toy_adapter import ToyAdapter
from hicache_checks.conformance.observation import UNOBSERVED

class Clumsy(ToyAdapter):
    packages = ("clumsy", "toy_adapter", "toy_fork")

    def capabilities(self):
        return ("stop",)

    def poll(self, rids):
        return {rid: {"ready": False} for rid in rids}

    def abort(self, rid):
        return "aborted"

    def observe(self):
        return {**super().observe(), "resident_pages": UNOBSERVED}

    def close(self):
        del self.loop
"""


@pytest.mark.heavy
def test_each_step_has_a_reason_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "clumsy.py").write_text(CLUMSY)
    monkeypatch.syspath_prepend(tmp_path)
    smoked = smoke("clumsy:Clumsy")
    reasons = {step["step"]: f"{step['status']}: {step['reason']}" for step in smoked.keys["steps"]}
    assert smoked.code == 2
    assert reasons["capabilities"] == "ok: stop; without events, it is judged by what its callers see"
    assert reasons["observe"] == "ok: resident_pages cannot be seen"
    assert reasons["poll"].startswith("fail: a request that was never submitted is not ready")
    assert reasons["abort"] == "fail: the answer is 'aborted', True or False is expected"
    assert reasons["prefetch"] == "skip: without the capability store nothing can be fetched"
    assert reasons["close"] == "fail: it raises AttributeError: 'Clumsy' object has no attribute 'loop'"
    assert reasons["simulation"].startswith("fail: ")


@pytest.mark.heavy
def test_a_crash_belongs_to_the_step_that_it_happens_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "clumsy.py").write_text(CLUMSY.replace('return "aborted"', "os.abort()"))
    monkeypatch.syspath_prepend(tmp_path)
    smoked = smoke("clumsy:Clumsy")
    (abort,) = [step for step in smoked.keys["steps"] if step["step"] == "abort"]
    assert smoked.code == 2
    assert abort["status"] == "fail"
    assert abort["reason"].startswith("the process was killed by SIGABRT, saying 'Aborted', in abort (clumsy.py:")


@pytest.mark.heavy
def test_a_target_that_cannot_be_loaded_fails_the_first_step() -> None:
    smoked = smoke("no_such_module:x")
    assert (smoked.code, steps(smoked)) == (2, {"loads": "fail"})
    assert "cannot load no_such_module:x: ModuleNotFoundError: No module named 'no_such_module'" in smoked.text
