"""Where the files of a release are: `NAME==VERSION` in the cache, `path:DIR` where the user has them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hicache_checks.reporting import InputError
from hicache_checks.targets.releases import fetched, quiet, release_of

PATH = "path:"
PINNED = "=="
PACKAGE = "sglang"
NEEDED = (f"{PACKAGE}/srt/mem_cache", f"{PACKAGE}/srt/managers/cache_controller.py")


def is_release(name: str) -> bool:
    """Does a target's name say where the files of a release are?"""
    return name.startswith(PATH) or PINNED in name


def tree_of(name: str, wheels: Path | None = None, tell: Callable[[str], object] = quiet) -> Path:
    """The directory that holds the package `sglang` of `NAME==VERSION` or `path:DIR`.

    DIR is a checkout, the directory that the package is in, or the package itself. `wheels` and `tell`: see
    `releases.fetched`. Raises InputError.
    """
    if name.startswith(PATH):
        return _tree_at(name.removeprefix(PATH))
    release = release_of(name)
    if release is None:
        raise InputError(f"{name!r} is neither NAME==VERSION nor {PATH}DIR")
    return fetched(release, wheels, tell, lambda unpacked: _check(unpacked, str(release)))


def _tree_at(given: str) -> Path:
    directory = Path(given).expanduser().resolve()
    try:
        if not given or not directory.is_dir():
            raise InputError(f"there is no directory {given!r}")
        around = [directory.parent] if directory.name == PACKAGE else []
        trees = [tree for tree in (directory / "python", directory, *around) if (tree / PACKAGE / "srt").is_dir()]
        tree = trees[0] if trees else directory
        _check(tree, given)
    except OSError as error:
        raise InputError(f"{given} cannot be read: {error.strerror or error}") from error
    return tree


def _check(tree: Path, of: str) -> None:
    lacking = [needed for needed in NEEDED if not (tree / needed).exists()]
    if lacking:
        raise InputError(f"{of} is no SGLang tree: it has no {lacking[0]}")
