"""§14.1 The grid of ranks: which ranks are members of which group, and in which order a call is made in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..language import NONE, constant, enumeration, index, switch, table


@dataclass(frozen=True)
class Grid:
    """One configuration: `tp` x `cp` x `pp` ranks of one replica.

    `fetches`: the requests are submitted; `misses`, `failures`, `aborts`: what may happen to them. `backup`: a node is
    being stored by every rank or, `replicated`, by one of those that hold the same bytes. `deaths`: so many ranks may
    die, at any point.
    Raises ValueError, in one line, for a configuration that makes no sense.
    """

    name: str = "custom"
    tp: int = 2
    cp: int = 1
    pp: int = 1
    requests: int = 1
    fetches: bool = True
    misses: bool = False
    failures: bool = False
    aborts: bool = False
    backup: bool = False
    replicated: bool = False
    deaths: int = 0

    def __post_init__(self) -> None:
        for name in ("tp", "cp", "pp", "requests"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.replicated and not self.backup:
            raise ValueError("what is replicated is backed up: replicated without backup says nothing")

    @property
    def ranks(self) -> int:
        """Ranks of the replica."""
        return self.tp * self.cp * self.pp

    @property
    def attempts(self) -> int:
        """Each request is submitted once."""
        return 1

    def places(self) -> Iterator[tuple[int, int, int]]:
        """Stage, context-parallel and tensor-parallel coordinate of each rank, in the order of the ranks."""
        return ((p, c, t) for p in range(self.pp) for c in range(self.cp) for t in range(self.tp))

    def extent(self, axis: int) -> int:
        """Members of a group along an axis."""
        return (self.cp, self.tp, self.pp)[axis]

    def lines(self, axis: int) -> tuple[int, ...]:
        """The number of each rank's group along an axis: of the ranks that differ in nothing else."""
        return tuple((p * self.tp + t, p * self.cp + c, c * self.tp + t)[axis] for p, c, t in self.places())


AXIS = enumeration("axis", "cp tp pp")
CP, TP, PP = AXIS

POINT = enumeration(
    "point",
    "idle barrier_cp barrier_tp sampling drain_cp drain_tp taking polling "
    "flags_cp flags_tp flags_pp judging counts_cp counts_tp counts_pp publishing",
)
IDLE, BARRIER_CP, BARRIER_TP, SAMPLING, DRAIN_CP, DRAIN_TP, TAKING, POLLING, *_LATER = POINT
FLAGS_CP, FLAGS_TP, FLAGS_PP, JUDGING, COUNTS_CP, COUNTS_TP, COUNTS_PP, PUBLISHING = _LATER
SEAT = enumeration("seat", "free hit_cp hit_tp hit_pp agreed")
FREE, HIT_CP, HIT_TP, HIT_PP, AGREED = SEAT

CALL = enumeration("call", "barrier drain flags counts hit")
BARRIER, DRAIN, FLAGS, COUNTS, HIT = CALL


def _axis(name: str) -> int:
    axis = name.rpartition("_")[2]
    return AXIS.members.index(axis) if "_" in name else NONE


def _call(name: str) -> int:
    return CALL.members.index(name.rpartition("_")[0]) if "_" in name else NONE


AXIS_AT = tuple(map(_axis, POINT.members))
CALL_AT = tuple(map(_call, POINT.members))
AXIS_OF_SEAT = tuple(map(_axis, SEAT.members))
"""The axis and the call of a meeting at which a scheduler or a query thread may be; NONE where it is in none."""


def _after(axes: tuple[int, ...]) -> Callable[[Grid], tuple[int, ...]]:
    """Where one is after each point or seat: at the next one, without the meetings of groups of one."""

    def places(grid: Grid) -> tuple[int, ...]:
        found = []
        for at in range(len(axes)):
            after = (at + 1) % len(axes)
            while axes[after] != NONE and grid.extent(axes[after]) == 1:
                after += 1
            found.append(after)
        return tuple(found)

    return places


RANKS = index("rank", "ranks")
OPS = index("op", "requests")
HITS = index("hit", lambda grid: 2)
COUNTS_OF_OPS = index("count", lambda grid: grid.requests + 1)
TURNS = index("turn", lambda grid: 2)
AXES = index("axis", lambda grid: len(AXIS.members))
LINES = index("line", lambda grid: max([1, *(len(set(grid.lines(a))) for a in range(3) if grid.extent(a) > 1)]))
OPS_MAX = constant("requests")
DEATHS = constant("deaths")
FETCHES = switch("fetches")
MISSES = switch("misses")
FAILURES = switch("failures")
ABORTS = switch("aborts")
BACKUP = switch("backup")

LINE = table("line_of", lambda grid: tuple(grid.lines(axis) for axis in range(3)))
FIRST = table("first_of", lambda grid: tuple(_first_of(grid.lines(axis), grid.ranks) for axis in range(3)))
STAGE = table("stage_of", lambda grid: tuple(p for p, _, _ in grid.places()))
ABOVE = table("above", lambda grid: tuple(_moved(grid, rank, -1) for rank in range(grid.ranks)))
BELOW = table("below", lambda grid: tuple(_moved(grid, rank, 1) for rank in range(grid.ranks)))
SHARD = table("shard_of", lambda grid: tuple(_shard(grid, rank) for rank in range(grid.ranks)))
AFTER_POINT = table("after_point", _after(AXIS_AT))
AFTER_SEAT = table("after_seat", _after(AXIS_OF_SEAT))


def _first_of(lines: tuple[int, ...], ranks: int) -> tuple[int, ...]:
    return tuple(lines.index(line) if line in lines else 0 for line in range(ranks))


def _moved(grid: Grid, rank: int, stages: int) -> int:
    """The rank at the same place of an earlier or later stage; NONE beyond the ends."""
    moved = rank + stages * grid.tp * grid.cp
    return moved if 0 <= moved < grid.ranks else NONE


def _shard(grid: Grid, rank: int) -> int:
    """What a rank holds, named by the first rank that holds the same bytes."""
    return rank - rank % grid.tp if grid.replicated else rank
