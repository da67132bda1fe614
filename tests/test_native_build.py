"""Compiling kernels: the cache, compilers that are missing or fail, and what is done without one."""

from __future__ import annotations

from pathlib import Path

import pytest

import toy_spec
from hicache_checks.engine.compile.kernels import Compiled
from hicache_checks.engine.engines import EngineOptions, explore
from hicache_checks.engine.native import build
from hicache_checks.engine.native.build import NoCompiler, compiler, load
from hicache_checks.engine.native.emit_c import kernels_header
from hicache_spec import BoundSpec
from hicache_spec.language import Design
from quick import one_quick

TOY = Design("toy", "a toy", toy_spec.Toy, (toy_spec,), {})
needs_compiler = pytest.mark.skipif(compiler() is None, reason="there is no C compiler")


def toy() -> BoundSpec:
    return BoundSpec(TOY, toy_spec.ToyBounds())


@pytest.fixture
def kernels() -> str:
    return kernels_header(Compiled(toy()))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own; the folder in it where kernels are kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "hicheck"


@needs_compiler
def test_kernels_are_compiled_once(kernels: str, cache: Path) -> None:
    assert load(kernels)[1] > 0
    assert load(kernels)[1] == 0.0
    assert len(list(cache.iterdir())) == 1, "what was needed only for building is gone"
    assert load(kernels + "/* other */")[1] > 0
    assert len(list(cache.iterdir())) == 2


@pytest.mark.heavy
@needs_compiler
def test_only_so_many_libraries_are_kept(kernels: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "KEPT_LIBRARIES", 2)
    for number in range(4):
        load(f"{kernels}/* {number} */")
    assert len(list(cache.glob("*.so"))) == 3


@pytest.mark.heavy
@needs_compiler
def test_a_library_that_cannot_be_loaded_is_built_again(
    kernels: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(kernels)
    (library,) = cache.iterdir()
    other = tmp_path / "other" / "hicheck"
    other.mkdir(parents=True)
    (other / library.name).write_bytes(b"not a library")
    monkeypatch.setenv("XDG_CACHE_HOME", str(other.parent))
    assert load(kernels)[1] > 0
    assert load(kernels)[1] > 0, "the broken one was thrown away, so this one is kept"
    assert load(kernels)[1] == 0.0


@needs_compiler
@pytest.mark.parametrize("where", one_quick(["file", "file/below", "/proc/nowhere"]))
def test_a_cache_that_cannot_be_written_is_done_without(
    where: str, kernels: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / where))
    assert load(kernels)[1] > 0
    assert load(kernels)[1] > 0


@needs_compiler
def test_the_compiler_that_is_named_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = tmp_path / "mine"
    mine.symlink_to(str(compiler()))
    monkeypatch.setenv("CC", str(mine))
    assert compiler() == str(mine)


def without_compiler(patch: pytest.MonkeyPatch) -> None:
    patch.setenv("PATH", "")
    patch.delenv("CC", raising=False)


def test_without_a_compiler_auto_takes_arrays_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    without_compiler(monkeypatch)
    result = explore(toy(), EngineOptions("auto"))
    assert result.engine == "array"
    assert result.note == "no C compiler found (cc, gcc or $CC): array engine"
    assert result.complete


def test_without_a_compiler_native_by_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    without_compiler(monkeypatch)
    with pytest.raises(NoCompiler, match=r"^no C compiler found \(cc, gcc or \$CC\)$"):
        explore(toy(), EngineOptions("native"))


@needs_compiler
def test_with_a_compiler_auto_takes_it() -> None:
    result = explore(toy(), EngineOptions("auto"))
    assert (result.engine, result.note) == ("native", "")
    assert result.build_seconds > 0


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (
            "echo 'in kernels.h:' >&2; echo 'kernels.h:3: error: no such word' >&2; exit 1",
            "kernels.h:3: error: no such word",
        ),
        ("echo >&2; echo 'out of paper' >&2; echo 'really' >&2; exit 2", "out of paper"),
        ("exit 3", "it ended with 3"),
    ],
)
def test_a_compiler_that_fails_says_why_in_one_line(
    script: str, why: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken"
    broken.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    with pytest.raises(NoCompiler) as failure:
        explore(toy(), EngineOptions("native"))
    assert str(failure.value) == f"{broken} cannot compile the kernels: {why}"
    assert not list(cache.iterdir()), "nothing half-built is left"
    assert explore(toy(), EngineOptions("auto")).note == f"{failure.value}: array engine"
