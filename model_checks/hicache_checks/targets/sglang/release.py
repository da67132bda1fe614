"""A release that is loaded in this process: what its ranks are built from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hicache_checks.conformance.explainer import FOLLOWED
from hicache_checks.targets.sglang import building, counters
from hicache_checks.targets.sglang.event_scheduler import can_be_followed
from hicache_checks.targets.sglang.grid import Groups, grid_of, groups_of
from hicache_checks.targets.sglang.imports import Imports
from hicache_checks.targets.sglang.own_code import OwnCode
from hicache_checks.targets.sglang.surroundings import Surroundings

CONTEXTS_ARE_NAMED = "attn_cp_group"
"""In every scheduler that has them."""


@dataclass(frozen=True)
class Release:
    """`kind`: of tree, see `building.TREES`; `profile`: the design that it has; `scheduler`, `bootstrap`: functions of
    its scheduler, and of its queue of requests whose servers look for each other; `sources`: its files that are under
    test; `imports`: what became of what it imports.
    """

    kind: str
    profile: str
    surroundings: Surroundings
    scheduler: OwnCode
    bootstrap: OwnCode
    sources: tuple[tuple[str, Path], ...]
    imports: Imports

    def has_events(self) -> bool:
        """Can what its ranks do be told, event by event?"""
        if self.profile not in FOLLOWED or self.kind != building.HIRADIX:
            return False
        module, name = building.TREES[self.kind]
        cache = getattr(building.needed(module), name)
        return can_be_followed(cache, building.needed("managers.cache_controller").HiCacheController)

    def prepare(self, config: Mapping[str, Any]) -> None:
        """From now on the release finds this configuration around it."""
        self.surroundings.settings = building.settings_for(config, self.kind)
        self.surroundings.grid = grid_of(config)
        self.surroundings.groups.clear()
        self._check_grid()
        counters.begin_again()

    def groups(self, number: int) -> Groups:
        """The process groups of a rank, made with all others."""
        groups = self.surroundings.groups[number] = groups_of(self.surroundings.grid, number)
        return groups

    def _check_grid(self) -> None:
        """ValueError: the scheduler knows nothing of contexts."""
        if self.surroundings.grid.cp > 1 and not self.scheduler.mentions(CONTEXTS_ARE_NAMED):
            raise ValueError("this release has no ranks that share a context")
