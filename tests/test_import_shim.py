"""A release is loaded without most of what it wants: it alone meets stubs, and afterwards nothing is left of it."""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from hicache_checks.simulation.patching import simulated
from hicache_checks.targets.sglang.imports import Imports, importing
from hicache_checks.targets.sglang.stubs import Stub, StubModule

KEPT = ("release.core",)
ASK = """
import importlib, importlib.util, sys

def answers():
    yield importlib.util.find_spec("none_such") is None
    yield "none_such" not in sys.modules
    try:
        importlib.import_module("none_such")
    except ModuleNotFoundError:
        yield True
    else:
        yield False

def get():
    import none_such
"""


class Loaded:
    """A release of a few modules, and who was told that it loads."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        self.told: list[str] = []
        self.imports = Imports("release", KEPT, lambda module: self.told.append(module.__name__))

    def load(self, name: str = "release") -> ModuleType:
        return importlib.import_module(name)


@contextmanager
def release(tmp_path: Path, modules: Mapping[str, str]) -> Iterator[Loaded]:
    """`modules`: text by file name."""
    for name, text in {"release/__init__.py": "", **modules}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    importlib.invalidate_caches()
    loaded = Loaded(tmp_path)
    with importing(tmp_path, loaded.imports):
        yield loaded


# ---- what is stubbed


def test_what_is_missing_is_stubbed_and_said(tmp_path: Path) -> None:
    text = """
import json
import none_such
import none_such.deep.er
import none_such.other as other
from none_such import thing
from none_such.deep import er
from .near import NEAR
"""
    with release(tmp_path, {"release/core.py": text, "release/near.py": "NEAR = 1\n"}) as it:
        core = it.load("release.core")
    assert isinstance(core.none_such, StubModule)
    assert core.none_such.deep.er is core.er
    assert isinstance(core.er, StubModule)
    assert core.none_such.other is core.other
    assert isinstance(core.thing, Stub)
    assert core.NEAR == 1
    assert core.json.__name__ == "json"
    assert it.imports.stubbed == dict.fromkeys(
        ("none_such", "none_such.deep.er", "none_such.other", "none_such.deep"), "release.core"
    )
    assert (it.imports.missing, it.imports.broken) == ({}, {})
    assert it.told == ["release", "release.near", "release.core"]


def test_an_import_within_a_function_is_one_of_the_release(tmp_path: Path) -> None:
    with release(tmp_path, {"release/core.py": "def late():\n    import none_such.deep\n    return none_such\n"}) as it:
        assert isinstance(it.load("release.core").late().deep, StubModule)
    assert it.imports.stubbed == {"none_such.deep": "release.core"}


@pytest.mark.parametrize("name", ["torch", "hicache_checks", "hicache_spec", "hicache_impl"])
def test_nothing_of_torch_and_of_ours_is_stubbed(name: str, tmp_path: Path) -> None:
    with (
        release(tmp_path, {"release/core.py": f"from {name}.none_such import thing\n"}) as it,
        pytest.raises(ModuleNotFoundError) as error,
    ):
        it.load("release.core")
    assert error.value.name == f"{name}.none_such"
    assert not it.imports.stubbed


def test_the_release_has_no_stubs_for_modules_of_its_own(tmp_path: Path) -> None:
    with (
        release(tmp_path, {"release/core.py": "from release.none_such import thing\n"}) as it,
        pytest.raises(ModuleNotFoundError, match=r"release\.none_such"),
    ):
        it.load("release.core")
    assert not it.imports.stubbed


def test_a_module_of_its_own_may_be_called_like_a_package(tmp_path: Path) -> None:
    modules = {
        "release/core/__init__.py": "from .none_such import thing\n",
        "release/core/none_such.py": "try:\n    import none_such\nexcept ImportError:\n    raise\n",
    }
    with release(tmp_path, modules) as it, pytest.raises(ModuleNotFoundError):
        it.load("release.core")
    assert it.imports.missing == {"none_such": "release.core.none_such"}
    assert not it.imports.stubbed


def test_the_first_to_ask_is_named(tmp_path: Path) -> None:
    modules = {"release/core.py": "import none_such\nimport release.other\n", "release/other.py": ASK}
    with release(tmp_path, modules) as it:
        it.load("release.core")
        it.load("release.other").get()
    assert it.imports.stubbed == {"none_such": "release.core"}


def test_a_part_that_a_real_package_lacks_is_stubbed_apart_from_it(tmp_path: Path) -> None:
    text = "from json.none_such import thing\nimport json\n"
    with release(tmp_path, {"release/core.py": text, "release/other.py": "import json.none_such\n"}) as it:
        core, other = it.load("release.core"), it.load("release.other")
        assert isinstance(core.thing, Stub)
        assert not hasattr(core.json, "none_such")
        assert it.imports.stubbed == {"json.none_such": "release.core"}
        assert isinstance(other, StubModule), "there is no place where it could find it"
        assert it.imports.broken == {"release.other": "ModuleNotFoundError: No module named 'json.none_such'"}


def test_what_an_installed_package_lacks_is_its_own_affair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "installed.py").write_text("import none_such\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    with (
        release(tmp_path / "tree", {"release/core.py": "import installed\n"}) as it,
        pytest.raises(ModuleNotFoundError, match="none_such"),
    ):
        it.load("release.core")
    assert not it.imports.stubbed


def test_nothing_else_in_its_directory_can_be_imported(tmp_path: Path) -> None:
    with release(tmp_path, {"release/core.py": "import beside\n", "beside.py": "ONE = 1\n"}) as it:
        assert isinstance(it.load("release.core").beside, StubModule)
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("beside")


# ---- who does not meet stubs


def test_nobody_else_meets_a_stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "bystander.py").write_text(ASK)
    monkeypatch.syspath_prepend(tmp_path / "site")
    text = "import none_such\nimport bystander\nfrom none_such import deep\n"
    with release(tmp_path / "tree", {"release/core.py": text}) as it:
        core = it.load("release.core")
        assert isinstance(core.none_such, StubModule)
        assert list(core.bystander.answers()) == [True] * 3
        with pytest.raises(ModuleNotFoundError, match="none_such"):
            core.bystander.get()
    monkeypatch.delitem(sys.modules, "bystander")


def test_a_probe_of_the_release_finds_missing_what_is_missing(tmp_path: Path) -> None:
    with release(tmp_path, {"release/core.py": "import none_such\n" + ASK}) as it:
        assert list(it.load("release.core").answers()) == [True] * 3
    assert it.imports.stubbed == {"none_such": "release.core"}


# ---- guards


GUARDED = {
    "an import": """
try:
    import none_such
except ImportError:
    none_such = None
""",
    "on several lines": """
try:
    import json
    from none_such.deep import (
        none_such,
        other,
    )
except ModuleNotFoundError as error:
    none_such = None
""",
    "by a tuple": """
try:
    import none_such
except (OSError, ImportError):
    none_such = None
""",
    "by whatever comes": """
try:
    import none_such
except:
    none_such = None
""",
    "by any exception": """
import builtins
try:
    import none_such
except builtins.Exception:
    none_such = None
""",
    "suppressed": """
import contextlib
none_such = None
with open(__file__), contextlib.suppress(OSError, ImportError):
    import none_such
""",
    "in a condition": """
try:
    if True:
        import none_such
except ImportError:
    none_such = None
""",
    "in another handler": """
try:
    try:
        1 / 0
    except ZeroDivisionError:
        import none_such
except ImportError:
    none_such = None
""",
    "in a class": """
try:
    class A:
        import none_such
except ImportError:
    none_such = None
""",
    "in a function": """
def late():
    try:
        import none_such
    except ImportError:
        return None
none_such = late()
""",
}
UNGUARDED = {
    "against something else": """
try:
    import none_such
except OSError:
    none_such = None
""",
    "in the handler": """
try:
    1 / 0
except Exception:
    import none_such
""",
    "otherwise": """
try:
    pass
except ImportError:
    none_such = None
else:
    import none_such
""",
    "at last": """
try:
    pass
except ImportError:
    none_such = None
finally:
    import none_such
""",
    "where the function is made, not called": """
try:
    def late():
        import none_such
        return none_such
except ImportError:
    none_such = None
none_such = late()
""",
    "by a context that lets it pass": """
import contextlib
with contextlib.nullcontext(ImportError), contextlib.suppress(OSError):
    import none_such
""",
    "where there is no text": """
names = {"__name__": __name__}
exec("import none_such", names)
none_such = names["none_such"]
""",
}


@pytest.mark.parametrize("text", GUARDED.values(), ids=GUARDED)
@pytest.mark.parametrize("is_stubbed_before", [False, True])
def test_a_guarded_import_stays_missing(text: str, is_stubbed_before: bool, tmp_path: Path) -> None:
    with release(tmp_path, {"release/core.py": text, "release/other.py": "import none_such.deep\n"}) as it:
        if is_stubbed_before:
            it.load("release.other")
        assert it.load("release.core").none_such is None
    (name,) = it.imports.missing
    assert name.startswith("none_such")
    assert it.imports.missing[name] == "release.core"
    assert set(it.imports.stubbed.values()) <= {"release.other"}


@pytest.mark.parametrize("text", UNGUARDED.values(), ids=UNGUARDED)
def test_what_does_not_guard_the_import_is_no_guard(text: str, tmp_path: Path) -> None:
    with release(tmp_path, {"release/core.py": text}) as it:
        assert isinstance(it.load("release.core").none_such, StubModule)
    assert it.imports.stubbed == {"none_such": "release.core"}
    assert not it.imports.missing


# ---- modules of the release that break


def test_a_module_that_breaks_is_what_it_had_defined_and_stubs(tmp_path: Path) -> None:
    modules = {
        "release/core.py": "from release.weak import before, after\nimport release.weak as weak\n",
        "release/weak.py": "before = 1\nraise ValueError('it is so\\nand so')\nafter = 2\n",
    }
    with release(tmp_path, modules) as it:
        core = it.load("release.core")
    assert core.before == 1
    assert isinstance(core.after, Stub)
    assert isinstance(core.weak, StubModule)
    assert it.imports.broken == {"release.weak": "ValueError: it is so"}
    assert it.told == ["release", "release.weak", "release.core"]


@pytest.mark.parametrize("name", ["release/core.py", "release/core/__init__.py", "release/core/inner.py"])
def test_a_module_that_is_tested_must_load(name: str, tmp_path: Path) -> None:
    broken = {name: "raise ValueError('it is so')\n"}
    with release(tmp_path, broken) as it, pytest.raises(ValueError, match="it is so"):
        it.load(name.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
    assert not it.imports.broken


def test_a_name_that_begins_like_a_tested_one_is_another(tmp_path: Path) -> None:
    with release(tmp_path, {"release/core_of_it.py": "raise ValueError\n"}) as it:
        it.load("release.core_of_it")
    assert it.imports.broken == {"release.core_of_it": "ValueError: "}


def test_the_modules_in_a_package_that_broke_are_themselves(tmp_path: Path) -> None:
    modules = {
        "release/core.py": "from release.weak import whole, none\n",
        "release/weak/__init__.py": "1 / 0\n",
        "release/weak/whole.py": "ONE = 1\n",
    }
    with release(tmp_path, modules) as it:
        core = it.load("release.core")
        assert core.whole.ONE == 1
        assert isinstance(core.none, Stub)


def test_an_import_that_is_guarded_fails_as_its_module_does(tmp_path: Path) -> None:
    modules = {
        "release/core.py": "try:\n    from release.weak import ONE\nexcept ImportError:\n    ONE = None\n",
        "release/weak.py": "ONE = 1\nfrom torch import none_such\n",
    }
    with release(tmp_path, modules) as it:
        assert it.load("release.core").ONE is None
    assert not it.imports.broken


def test_a_module_that_breaks_otherwise_is_not_what_is_guarded_against(tmp_path: Path) -> None:
    modules = {
        "release/core.py": "try:\n    from release.weak import ONE\nexcept ImportError:\n    ONE = None\n",
        "release/weak.py": "ONE = 1\nraise ValueError\n",
    }
    with release(tmp_path, modules) as it:
        one = it.load("release.core").ONE
    assert one == 1
    assert it.imports.broken == {"release.weak": "ValueError: "}


# ---- afterwards


def state() -> tuple[Any, ...]:
    return set(sys.modules), list(sys.meta_path), list(sys.path), builtins.__import__, dict(os.environ)


def test_nothing_is_left(tmp_path: Path) -> None:
    before = state()
    modules = {
        "release/core.py": "import os, none_such, release.weak\nos.environ['A_RELEASE'] = 'was here'\n",
        "release/weak.py": "1 / 0\n",
    }
    with release(tmp_path, modules) as it:
        it.load("release.core")
        assert state() != before
    assert state() == before
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("release")


def test_nothing_is_left_of_a_failure(tmp_path: Path) -> None:
    before = state()
    with pytest.raises(ZeroDivisionError), release(tmp_path, {"release/core.py": "1 / 0\n"}) as it:
        it.load("release.core")
    assert state() == before


def test_another_release_can_be_loaded_afterwards(tmp_path: Path) -> None:
    text = """
import torch
library = alias = torch.library.Library("release_ops", "FRAGMENT")
library.define("double(Tensor x) -> Tensor")
library.impl("double", lambda x: x * {factor}, "CPU")
from release.inner import scale
"""
    for factor in (2, 3):
        modules = {"release/core.py": text.format(factor=factor), "release/inner.py": f"scale = {factor}\n"}
        with release(tmp_path / str(factor), modules) as it:
            core = it.load("release.core")
            assert core.scale == factor
            assert torch.ops.release_ops.double(torch.ones(1)).item() == factor
        assert not hasattr(torch.ops.release_ops, "double")


def test_what_went_by_its_name_before_does_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = ModuleType("release")
    monkeypatch.setitem(sys.modules, "release", installed)
    with release(tmp_path, {"release/core.py": ""}) as it:
        assert it.load("release") is not installed
        it.load("release.core")
    assert sys.modules["release"] is installed
    assert "release.core" not in sys.modules


def test_two_may_be_open(tmp_path: Path) -> None:
    """Each is told of its own, also of what it imports when both are open, and its modules are in place."""
    modules = {"release/core.py": "import none_such\n", "release/late.py": "import none_such.late\n"}
    with release(tmp_path / "18", modules) as left:
        left.load("release.core")
        of_left = {name: module for name, module in sys.modules.items() if left.imports.is_own(name)}
        with release(tmp_path / "1", modules) as right:
            right.load("release.core")
            of_right = {name: module for name, module in sys.modules.items() if right.imports.is_own(name)}
            sys.modules.update(of_left)
            left.load("release.late")
            del sys.modules["release.late"]
            sys.modules.update(of_right)
            right.load("release.late")
    assert of_left["release.core"] is not of_right["release.core"]
    for each in (left, right):
        assert each.told == ["release", "release.core", "release.late"]
        assert each.imports.stubbed == {"none_such": "release.core", "none_such.late": "release.late"}


@pytest.mark.parametrize("inner", ["the stand-ins", "the release"])
def test_stand_ins_and_stubs_go_together(inner: str, tmp_path: Path) -> None:
    text = "import time\nimport none_such\ntry:\n    import other_such\nexcept ImportError:\n    other_such = None\n"
    if inner == "the release":
        with simulated(["release"]), release(tmp_path, {"release/core.py": text}) as it:
            core = it.load("release.core")
            assert core.time is not sys.modules["time"]
    else:
        with release(tmp_path, {"release/core.py": text}) as it, simulated(["release"]):
            core = it.load("release.core")
            assert core.time is not sys.modules["time"]
    assert isinstance(core.none_such, StubModule)
    assert core.other_such is None
    assert it.imports.stubbed == {"none_such": "release.core"}
    assert it.imports.missing == {"other_such": "release.core"}
