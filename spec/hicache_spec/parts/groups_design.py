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
STAGES_LINE = Grid("stages_line", tp=1, pp=3, failures=True, misses=True, aborts=True, deaths=1)
SQUARE_BACKUP = Grid("square_backup", cp=2, fetches=False, backup=True, replicated=True)
STAGES_BACKUP = Grid("stages_backup", pp=2, fetches=False, backup=True, replicated=True, deaths=1)
PAIR_BACKUP = Grid("pair_backup", backup=True, deaths=1)

GROUPS_BOUNDS = (
    *(PAIR, PAIR_TWO, TRIO_DEATHS, SQUARE, SQUARE_DEATH),
    *(STAGES, STAGES_LINE, SQUARE_BACKUP, STAGES_BACKUP, PAIR_BACKUP),
)
"""Up to four ranks: one axis, two axes, one axis and stages."""
