"""Ranks that share a model in more ways than one: pipeline stages, contexts, tensors; and the process groups that the
start of a release makes of them.

Ranks are numbered as a release numbers them: stages first, then contexts, then tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist

from hicache_checks.simulation.world import current

STAGES, CONTEXTS, TENSORS = "pp", "cp", "tp"
AXES = (STAGES, CONTEXTS, TENSORS)


@dataclass(frozen=True)
class Grid:
    """How many there are of each; `ranks`: of all."""

    pp: int = 1
    cp: int = 1
    tp: int = 1

    @property
    def ranks(self) -> int:
        """As many as there are places."""
        return self.pp * self.cp * self.tp

    @property
    def is_plain(self) -> bool:
        """Are there tensors only?"""
        return self.pp == self.cp == 1

    def place(self, number: int) -> Place:
        """Where a rank stands."""
        return Place(number // (self.cp * self.tp), number // self.tp % self.cp, number % self.tp)

    def alike(self, number: int, *axes: str) -> list[int]:
        """The ranks that stand where this one does, but for these axes."""
        mine = vars(self.place(number))
        fixed = [axis for axis in AXES if axis not in axes]
        return [n for n in range(self.ranks) if all(vars(self.place(n))[axis] == mine[axis] for axis in fixed)]


@dataclass(frozen=True)
class Place:
    """Of a rank: its stage, its context, its tensor rank."""

    pp: int
    cp: int
    tp: int


@dataclass(frozen=True)
class Groups:
    """The process groups of one rank. `everybody`: of the harness; `stage`: of a stage, with all its contexts."""

    everybody: Any
    stage: Any
    tensors: Any
    contexts: Any
    stages: Any


def grid_of(config: Mapping[str, Any]) -> Grid:
    """What the configuration says. ValueError: it says something else."""
    asked: Mapping[str, int] = dict(config.get("grid", ()))
    if unknown := sorted(asked.keys() - set(AXES)):
        raise ValueError(f"a grid has {', '.join(AXES)}, and no {unknown[0]}")
    grid = Grid(**asked) if asked else Grid(tp=config["ranks"])
    if grid.ranks != config["ranks"]:
        raise ValueError(f"a grid of {grid.ranks} ranks is no place for {config['ranks']}")
    return grid


def groups_of(grid: Grid, number: int) -> Groups:
    """The groups of a rank, made with all others: every rank makes all groups in the same order."""
    everybody = dist.new_group(list(range(grid.ranks)))
    if grid.is_plain:
        return Groups(everybody, everybody, None, None, None)
    kinds = [(CONTEXTS, TENSORS), (CONTEXTS,), (TENSORS,), (STAGES,)]
    stage, contexts, tensors, stages = (_mine(grid, number, axes) for axes in kinds)
    return Groups(everybody, stage, tensors, contexts, stages)


def _mine(grid: Grid, number: int, axes: tuple[str, ...]) -> Any:
    """Of all groups along some axes, the one that a rank is in."""
    all_ = sorted({tuple(grid.alike(other, *axes)) for other in range(grid.ranks)})
    made = {ranks: dist.new_group(list(ranks)) for ranks in all_}
    return made[tuple(grid.alike(number, *axes))]


def rank() -> int:
    """Of the calling thread; 0 outside all ranks."""
    world = current()
    if world is not None and world.running is not None and world.running.rank is not None:
        return world.running.rank
    return dist.get_rank() if dist.is_initialized() else 0
