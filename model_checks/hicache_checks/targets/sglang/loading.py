"""A release is loaded from its directory, once in a process."""

from __future__ import annotations

import importlib
import logging
import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from hicache_checks.reporting import InputError
from hicache_checks.targets.sglang import building
from hicache_checks.targets.sglang.counters import counted_by_rank
from hicache_checks.targets.sglang.grid import rank
from hicache_checks.targets.sglang.imports import Imports, importing
from hicache_checks.targets.sglang.own_code import OwnCode
from hicache_checks.targets.sglang.release import Release
from hicache_checks.targets.sglang.surroundings import Surroundings

CACHE_OF_RELEASES = "SGLANG_CACHE_DIR"
KEPT = ("sglang.srt.mem_cache", "sglang.srt.managers.cache_controller")
SOURCES = ("managers/cache_controller.py", "managers/scheduler.py", "mem_cache")
"""What of a release is under test."""
EARLY = (
    *("managers.cache_controller", "mem_cache.memory_pool_host", "mem_cache.storage"),
    *("mem_cache.hybrid_cache.hybrid_pool_assembler", "distributed.parallel_state"),
)
"""What ranks import while they are built: done before, once."""


@contextmanager
def loaded(tree: Path, kind: str | None = None) -> Iterator[Release]:
    """The release in a directory. `kind`: of tree, see `building.TREES`; None: the release's own choice.

    Raises InputError.
    """
    # Its tensors are small, and many threads of a machine for one of them only wait for each other.
    torch.set_num_threads(1)
    surroundings = Surroundings()
    imports = Imports("sglang", KEPT, surroundings.put_into)
    logging.getLogger("sglang").setLevel(logging.CRITICAL)
    with warnings.catch_warnings(), _scratch(), importing(tree, imports), counted_by_rank("sglang", rank):
        warnings.simplefilter("ignore")
        for name in EARLY:
            building.module(name)
        importlib.import_module(building.STORE_MODULE)
        scheduler, bootstrap = (_own_code(tree, name) for name in ("managers.scheduler", "disaggregation.prefill"))
        chosen = kind or building.default_kind()
        if chosen not in building.TREES or building.module(building.TREES[chosen][0]) is None:
            raise InputError(f"this release has no tree of the kind {chosen!r}")
        yield Release(chosen, building.design(), surroundings, scheduler, bootstrap, tuple(_sources(tree)), imports)


def _own_code(tree: Path, name: str) -> OwnCode:
    root = tree / "sglang" / "srt"
    return OwnCode(f"sglang.srt.{name}", root.joinpath(*name.split(".")).with_suffix(".py"))


@contextmanager
def _scratch() -> Iterator[None]:
    """What a release keeps on disk for itself while it is loaded goes to a directory that does not stay."""
    before = os.environ.get(CACHE_OF_RELEASES)
    with tempfile.TemporaryDirectory(prefix="hicheck-release-") as directory:
        os.environ[CACHE_OF_RELEASES] = directory
        try:
            yield
        finally:
            os.environ.pop(CACHE_OF_RELEASES)
            if before is not None:
                os.environ[CACHE_OF_RELEASES] = before


def _sources(tree: Path) -> Iterator[tuple[str, Path]]:
    root = tree / "sglang" / "srt"
    for name in SOURCES:
        files = [root / name] if name.endswith(".py") else (root / name).rglob("*.py")
        yield from ((file.relative_to(root).as_posix(), file) for file in files if file.is_file())
