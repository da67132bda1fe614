"""How many ranks there are along each axis, where each is, and which of them hold the same bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Axis = Literal["cp", "tp", "pp"]
AXES: tuple[Axis, ...] = ("cp", "tp", "pp")
"""The order in which a call is made in the groups of a rank, on every rank."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Sizes of the grid: tensor parallel, context parallel, pipeline stages, replicas. ValueError names the size.

    World ranks are numbered with tp fastest, then cp, pp and dp.
    """

    tp: int = 1
    cp: int = 1
    pp: int = 1
    dp: int = 1

    def __post_init__(self) -> None:
        for name in (*AXES, "dp"):
            size = getattr(self, name)
            if not isinstance(size, int) or isinstance(size, bool) or size < 1:
                raise ValueError(f"{name} must be an integer >= 1, not {size!r}")

    @property
    def ranks(self) -> int:
        """Ranks of one replica."""
        return self.tp * self.cp * self.pp

    @property
    def world(self) -> int:
        """Ranks of all replicas."""
        return self.ranks * self.dp

    def coordinates(self, rank: int) -> dict[str, int]:
        """Where a world rank is: its tp, cp, pp and dp. ValueError: there is no such rank."""
        if not 0 <= rank < self.world:
            raise ValueError(f"rank must lie in 0 .. {self.world - 1}, not {rank}")
        found = {}
        for name in ("tp", "cp", "pp"):
            rank, found[name] = divmod(rank, getattr(self, name))
        return {**found, "dp": rank}

    def lines(self, axis: Axis) -> list[tuple[int, ...]]:
        """The groups along an axis: world ranks that differ in nothing else, the groups in the order of their first.

        Every process makes all of them, its own or not, in this order.
        """
        found: dict[tuple[int, ...], list[int]] = {}
        for rank in range(self.world):
            at = self.coordinates(rank)
            found.setdefault(tuple(at[name] for name in at if name != axis), []).append(rank)
        return [tuple(members) for members in found.values()]

    def shard(self, rank: int, replicated: bool = False) -> str:
        """The name of the bytes that a rank holds of each page, to be a part of storage keys: place and size along pp,
        cp and tp, in hexadecimal. Ranks with the same bytes have the same name, and so replicas share what is stored.
        `replicated`: the KV does not differ between tensor-parallel ranks."""
        at = self.coordinates(rank)
        axes = [name for name in ("pp", "cp", "tp") if not (replicated and name == "tp")]
        return "_".join(f"{at[name]:x}_{getattr(self, name):x}" for name in axes)

    def is_writer(self, rank: int, replicated: bool = False) -> bool:
        """Whether this rank stores its shard: of those in its replica that hold the same bytes, the first does."""
        return not replicated or self.coordinates(rank)["tp"] == 0


ONE_RANK = Layout()


def checked_layout(layout: Layout | Mapping[str, Any]) -> Layout:
    """A layout that is given as such or as its fields. ValueError: it is neither."""
    if isinstance(layout, Layout):
        return layout
    try:
        return Layout(**layout)
    except TypeError:
        raise ValueError(f"layout must have sizes of tp, cp, pp and dp, not {layout!r}") from None
