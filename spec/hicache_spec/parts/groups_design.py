"""§14 The design of groups, and its named bounds."""

from __future__ import annotations

from dataclasses import replace

from ..language import Design
from . import groups, groups_outcomes, groups_properties
from .grid import Grid

GROUPS = Design(
    "groups",
    "ranks in a grid of tensor, context and pipeline parallel groups, each scheduler and each query thread by itself",
    groups.Ranks,
    (groups, groups_properties, groups_outcomes),
    {},
)

PAIR = Grid("pair", misses=True, failures=True, aborts=True)
PAIR_TWO = replace(PAIR, name="pair_two", requests=2)
TRIO_DEATHS = Grid("trio_deaths", tp=3, deaths=2)
SQUARE = Grid("square", cp=2, misses=True)
SQUARE_DEATH = Grid("square_death", cp=2, deaths=1)
STAGES = Grid("stages", pp=2, failures=True)
STAGES_LINE = Grid("stages_line", tp=1, pp=3, failures=True, misses=True, aborts=True)
STAGES_DEATH = Grid("stages_death", pp=2, deaths=1)
BACKUP_SQUARE = Grid("backup_square", cp=2, fetches=False, backup=True, replicated=True)
BACKUP_STAGES = Grid("backup_stages", pp=2, fetches=False, backup=True, replicated=True, deaths=1)
BACKUP_SHARDS = Grid("backup_shards", backup=True, deaths=1)

GROUPS_BOUNDS = (
    *(PAIR, PAIR_TWO, TRIO_DEATHS, SQUARE, SQUARE_DEATH),
    *(STAGES, STAGES_LINE, STAGES_DEATH, BACKUP_SQUARE, BACKUP_STAGES, BACKUP_SHARDS),
)
"""Up to four ranks: one axis, two axes, one axis and stages."""
