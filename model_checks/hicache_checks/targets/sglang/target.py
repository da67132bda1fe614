"""A release as a target: loaded once in a process, from its directory."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from hicache_checks.reporting import InputError
from hicache_checks.simulation.patching import simulated
from hicache_checks.targets.sglang.imports import Imports, importing
from hicache_checks.targets.sglang.own_code import OwnCode
from hicache_checks.targets.sglang.surroundings import Surroundings

PACKAGES = ("sglang", *(f"hicache_checks.targets.sglang.{name}" for name in ("adapter", "rank", "store")))
"""Whose threads, queues and clocks are simulated."""
KEPT = ("sglang.srt.mem_cache", "sglang.srt.managers.cache_controller")
SOURCES = ("managers/cache_controller.py", "managers/scheduler.py", "mem_cache")
"""What of a release is under test."""
EARLY = (
    *("managers.cache_controller", "mem_cache.memory_pool_host", "mem_cache.storage"),
    *("mem_cache.hybrid_cache.hybrid_pool_assembler", "distributed.parallel_state"),
)
"""What ranks import while they are built: done before, once."""


@dataclass(frozen=True)
class Loaded:
    """A release in this process: a factory of adapters, the design that it has, its source files, and what became of
    its imports."""

    build: Callable[[], Any]
    profile: str
    sources: tuple[tuple[str, Path], ...]
    imports: Imports


@contextmanager
def release_opened(tree: Path, simulate: bool, kind: str | None = None) -> Iterator[Loaded]:
    """The release in a directory; with `simulate`, its modules see the stand-ins from their first line on.

    `kind`: of tree, see `building.TREES`; None: the release's own choice. Raises InputError.
    """
    with simulated(PACKAGES) if simulate else nullcontext(), loaded(tree, kind) as release:
        yield release


@contextmanager
def loaded(tree: Path, kind: str | None = None) -> Iterator[Loaded]:
    """The release in a directory, with the threads that there are. Raises InputError."""
    # Its tensors are small, and many threads of a machine for one of them only wait for each other.
    torch.set_num_threads(1)
    surroundings = Surroundings()
    imports = Imports("sglang", KEPT, surroundings.put_into)
    logging.getLogger("sglang").setLevel(logging.CRITICAL)
    with warnings.catch_warnings(), importing(tree, imports):
        warnings.simplefilter("ignore")
        from hicache_checks.targets.sglang import building
        from hicache_checks.targets.sglang.adapter import SglangAdapter

        for name in EARLY:
            building.module(name)
        scheduler = OwnCode("sglang.srt.managers.scheduler", tree / "sglang" / "srt" / "managers" / "scheduler.py")
        chosen = kind or building.default_kind()
        if chosen not in building.TREES or building.module(building.TREES[chosen][0]) is None:
            raise InputError(f"this release has no tree of the kind {chosen!r}")
        build = partial(SglangAdapter, surroundings, chosen, scheduler)
        yield Loaded(build, building.design(), tuple(_sources(tree)), imports)


def _sources(tree: Path) -> Iterator[tuple[str, Path]]:
    root = tree / "sglang" / "srt"
    for name in SOURCES:
        files = [root / name] if name.endswith(".py") else (root / name).rglob("*.py")
        yield from ((file.relative_to(root).as_posix(), file) for file in files if file.is_file())
