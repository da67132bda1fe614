"""The house rules: which package may import which, and what a module may not be called."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {
    "hicache_spec": ROOT / "spec" / "hicache_spec",
    "hicache_impl": ROOT / "impl" / "hicache_impl",
    "hicache_checks": ROOT / "model_checks" / "hicache_checks",
}
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))
# What a package may import of the other two.
MAY_IMPORT = {"hicache_spec": set(), "hicache_impl": set(), "hicache_checks": {"hicache_spec"}}
# The specification reads anywhere: the standard library, and `transitions` where the table becomes a machine.
SPEC_THIRD_PARTY = {"lifecycle.py": {"transitions"}}
FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "common", "misc"}
# Beyond this no file is one topic; a review asks long before.
LINES_MAX = 700


def modules(package: str) -> list[Path]:
    return sorted(PACKAGES[package].rglob("*.py"))


def imported(path: Path) -> set[str]:
    """Every absolute module name that a file imports, function-level imports and `import_module("...")` included."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # A relative import is of the file's own package: its name is enough to find a mutant by.
            module = "." * node.level + (node.module or "")
            names.add(module)
            names.update(f"{module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call):
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            first = node.args[0] if node.args else None
            if (
                name in {"import_module", "__import__"}
                and isinstance(first, ast.Constant)
                and isinstance(first.value, str)
            ):
                names.add(first.value)
    return names


def roots(path: Path) -> set[str]:
    return {name.partition(".")[0] for name in imported(path) if not name.startswith(".")}


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_point_one_way(package: str) -> None:
    forbidden = PACKAGES.keys() - MAY_IMPORT[package] - {package}
    assert modules(package), f"{package} has no modules: nothing was checked"
    wrong = {str(path.relative_to(ROOT)): sorted(roots(path) & forbidden) for path in modules(package)}
    assert not {path: names for path, names in wrong.items() if names}


def test_examples_show_the_implementation_alone() -> None:
    assert EXAMPLES
    forbidden = PACKAGES.keys() - {"hicache_impl"}
    wrong = {path.name: roots(path) & forbidden for path in EXAMPLES}
    assert not {name: names for name, names in wrong.items() if names}


def test_the_specification_needs_only_the_standard_library() -> None:
    wrong = {}
    for path in modules("hicache_spec"):
        allowed = sys.stdlib_module_names | {"hicache_spec"} | SPEC_THIRD_PARTY.get(path.name, set())
        if extra := roots(path) - allowed:
            wrong[str(path.relative_to(ROOT))] = sorted(extra)
    assert not wrong


def test_nothing_in_the_product_imports_a_mutant() -> None:
    wrong = {}
    for package in PACKAGES:
        for path in modules(package):
            if "mutants" in path.relative_to(PACKAGES[package]).parts:
                continue
            if mutants := {name for name in imported(path) if "mutants" in name.split(".")}:
                wrong[str(path.relative_to(ROOT))] = sorted(mutants)
    assert not wrong


def test_no_module_is_a_drawer() -> None:
    names = [path for package in PACKAGES for path in PACKAGES[package].rglob("*")]
    names += [*(ROOT / "tests").rglob("*"), *EXAMPLES]
    assert not [str(path.relative_to(ROOT)) for path in names if path.stem in FORBIDDEN_NAMES]


def test_files_stay_small() -> None:
    files = (
        [path for package in PACKAGES for path in modules(package)] + sorted((ROOT / "tests").rglob("*.py")) + EXAMPLES
    )
    lengths = {str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    assert not {path: lines for path, lines in lengths.items() if lines > LINES_MAX}


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_are_typed(package: str) -> None:
    assert (PACKAGES[package] / "py.typed").exists()


def test_the_walk_sees_every_way_to_import(tmp_path: Path) -> None:
    path = tmp_path / "sample.py"
    path.write_text(
        "import hicache_impl.cache\n"
        "from hicache_spec import events\n"
        "def late():\n"
        "    from hicache_checks.mutants import one\n"
        "    import_module('torch')\n"
        "    importlib.import_module('numpy.linalg')\n"
        "    from .. import mutants\n"
        "    from .mutants import other\n"
    )
    assert {"...mutants", ".mutants.other"} <= imported(path)
    assert roots(path) == {"hicache_impl", "hicache_spec", "hicache_checks", "torch", "numpy"}
    assert "hicache_checks.mutants.one" in imported(path)
