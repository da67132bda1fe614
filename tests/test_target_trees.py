"""Which directory the package of a release is in, by the target's name."""

from __future__ import annotations

from pathlib import Path

import pytest

from hicache_checks.reporting import InputError
from hicache_checks.targets.releases import CACHE_VARIABLE
from hicache_checks.targets.trees import is_release, tree_of
from tiny_wheels import FILES, wheel

SGLANG = {
    "sglang/__init__.py": "",
    "sglang/srt/mem_cache/hiradix_cache.py": "",
    "sglang/srt/managers/cache_controller.py": "",
}
WITHOUT = {
    "sglang/srt/mem_cache": "sglang/srt/managers/cache_controller.py",
    "sglang/srt/managers/cache_controller.py": "sglang/srt/mem_cache/hiradix_cache.py",
}
"""What is lacking, and what is there."""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "cache"
    monkeypatch.setenv(CACHE_VARIABLE, str(place))
    return place


def write(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")
    return root


def refused(name: str, wheels: Path | None = None) -> str:
    with pytest.raises(InputError) as refusal:
        tree_of(name, wheels)
    line = str(refusal.value)
    assert "\n" not in line
    return line


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("sglang==0.5.18", True),
        ("sglang-kt==0.7.2", True),
        ("sglang==", True),
        ("path:/somewhere", True),
        ("path:", True),
        ("reference", False),
        ("reference:revoke_queue", False),
        ("a.module:factory", False),
        ("sglang", False),
    ],
)
def test_a_release_is_told_by_its_name(name: str, answer: bool) -> None:
    assert is_release(name) == answer


def test_a_checkout_an_unpacked_tree_or_the_package(tmp_path: Path) -> None:
    checkout = write(tmp_path / "sglang", *(f"python/{name}" for name in SGLANG), "sglang.md")
    tree = checkout / "python"
    for given in (checkout, tree, tree / "sglang"):
        assert tree_of(f"path:{given}") == tree


def test_a_directory_may_be_written_as_users_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = write(tmp_path / "home" / "tree", *SGLANG)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tree / "sglang" / "srt")
    assert [tree_of(name) for name in ("path:~/tree", "path:../..", "path:..")] == [tree] * 3
    (tmp_path / "link").symlink_to(tree / "sglang")
    assert tree_of(f"path:{tmp_path / 'link'}") == tree


def test_a_directory_that_is_no_tree(tmp_path: Path) -> None:
    missing, file = tmp_path / "missing", write(tmp_path, "file.whl") / "file.whl"
    assert refused(f"path:{missing}") == f"there is no directory '{missing}'"
    assert refused(f"path:{file}") == f"there is no directory '{file}'"
    assert refused("path:") == "there is no directory ''"
    assert refused(f"path:{tmp_path}") == f"{tmp_path} is no SGLang tree: it has no sglang/srt/mem_cache"


@pytest.mark.parametrize(("lacking", "there"), WITHOUT.items())
@pytest.mark.parametrize("inner", ["", "sglang", "python"])
def test_a_tree_that_lacks_what_is_tested(lacking: str, there: str, inner: str, tmp_path: Path) -> None:
    write(tmp_path / "python" if inner == "python" else tmp_path, there)
    given = tmp_path / inner if inner == "sglang" else tmp_path
    assert refused(f"path:{given}") == f"{given} is no SGLang tree: it has no {lacking}"


def test_a_directory_that_may_not_be_read(tmp_path: Path) -> None:
    name = "x" * 300
    assert refused(f"path:{tmp_path / name}") == f"{tmp_path / name} cannot be read: File name too long"


@pytest.mark.parametrize("name", ["sglang==", "sglang==newest", "==0.5.1", "sglang==0.5.*"])
def test_a_release_without_a_version(name: str) -> None:
    assert refused(name) == f"{name!r} is neither NAME==VERSION nor path:DIR"


@pytest.mark.heavy
def test_any_distribution_that_ships_the_modules(cache: Path, tmp_path: Path) -> None:
    wheels = wheel(tmp_path / "wheels", "a_fork", "1.5", SGLANG).parent
    told: list[str] = []
    assert tree_of("A-Fork==1.5", wheels, told.append) == cache / "a-fork-1.5"
    assert told == [f"fetching a-fork==1.5 from {wheels}"]
    assert tree_of("a_fork==1.5") == cache / "a-fork-1.5"
    assert tree_of(f"path:{cache / 'a-fork-1.5'}") == cache / "a-fork-1.5"


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("files", "lacking"),
    [(FILES, "sglang/srt/mem_cache"), *(({there: ""}, lacking) for lacking, there in WITHOUT.items())],
)
def test_a_distribution_without_them_is_not_kept(
    files: dict[str, str], lacking: str, cache: Path, tmp_path: Path
) -> None:
    wheels = wheel(tmp_path / "wheels", files=files).parent
    assert refused("tiny==1.0", wheels) == f"tiny==1.0 is no SGLang tree: it has no {lacking}"
    assert [path.name for path in cache.iterdir()] == ["lock"]


@pytest.mark.heavy
def test_a_published_release_is_fetched() -> None:
    told: list[str] = []
    try:
        tree = tree_of("sglang==0.5.18", tell=told.append)
    except InputError as error:
        if "there is no network" not in str(error):
            raise
        pytest.skip(str(error))
    assert told == ["fetching sglang==0.5.18"]
    assert (tree / "sglang" / "srt" / "mem_cache" / "hiradix_cache.py").is_file()
    assert (tree / "sglang-0.5.18.dist-info").is_dir()
