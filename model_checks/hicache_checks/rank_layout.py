"""Where the ranks of a run are: what a runner is told, and how it is printed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass


@dataclass(frozen=True, kw_only=True)
class RankLayout:
    """Ranks along each axis: tensor parallel, context parallel, pipeline stages; and replicas of the whole."""

    tp: int = 1
    cp: int = 1
    pp: int = 1
    dp: int = 1

    @property
    def ranks(self) -> int:
        """Of one replica."""
        return self.tp * self.cp * self.pp

    @property
    def world(self) -> int:
        """Of all replicas."""
        return self.ranks * self.dp


def described(sizes: Mapping[str, int]) -> str:
    """The sizes of a RankLayout, such as `4 gloo ranks, tp 2 x pp 2`."""
    layout = RankLayout(**sizes)
    if layout.world == 1:
        return "1 rank"
    more = {name: size for name, size in asdict(layout).items() if size > 1}
    axes = "" if more.keys() == {"tp"} else ", " + " x ".join(f"{name} {size}" for name, size in more.items())
    return f"{layout.world} ranks{axes}"
