"""Each mutant as a system under test: `reference+NAME`, registered as `reference.faulty` under `hicheck.targets`."""

from __future__ import annotations

from collections.abc import Callable

from hicache_impl.adapter import Reference
from hicache_impl.mutants import CONTROL, MUTANTS, POOLS
from hicache_impl.runtime import ThreadRuntime


def faulty(name: str) -> Callable[[], Reference]:
    """The factory of the reference with this mutant, on plain threads. ValueError: there is no such mutant."""
    builds = {mutant.name: mutant.builds for mutant in (*MUTANTS, *CONTROL, *POOLS)}
    if name not in builds:
        raise ValueError(f"no mutant {name!r}")

    def build() -> Reference:
        return Reference(runtime=ThreadRuntime(), **builds[name])

    return build
