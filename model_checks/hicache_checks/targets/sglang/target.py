"""A release as a target: in a simulation, or with real ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hicache_checks.reporting import InputError
from hicache_checks.targets.sglang.loading import loaded


@dataclass(frozen=True)
class Opened:
    """A factory of adapters, the design that the release has, and its source files."""

    build: Callable[[], Any]
    profile: str
    sources: tuple[tuple[str, Path], ...]


@contextmanager
def release_opened(tree: Path, simulate: bool, kind: str | None = None, has_events: bool = False) -> Iterator[Opened]:
    """The release in a directory; with `simulate`, the stand-ins are in place. Without, each rank is a process, kept
    from one adapter to the next. `kind`: see `loaded`; `has_events`: its ranks log what they do. Raises InputError.
    """
    with loaded(tree, kind) as release:
        # They import what only a loaded release has.
        from hicache_checks.targets.sglang.adapter import SglangAdapter
        from hicache_checks.targets.sglang.crews import Processes, Tasks

        if has_events and not release.has_events():
            raise InputError("the events of this release cannot be told from its methods and queues")
        if simulate:
            yield Opened(
                lambda: SglangAdapter(Tasks(release), release.kind, has_events), release.profile, release.sources
            )
            return
        processes = Processes(tree, release.kind)
        try:
            yield Opened(lambda: SglangAdapter(processes, release.kind, has_events), release.profile, release.sources)
        finally:
            processes.stop()
