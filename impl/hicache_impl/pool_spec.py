"""What a configuration says of an extra pool: something that a model keeps beside its pages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from hicache_impl.trees import TREES
from hicache_impl.trees.components import Component, Sidecar, State, Window

Kind = Literal["sidecar", "window", "state"]
KINDS: tuple[str, ...] = get_args(Kind)
Place = Literal["separate", "packed"]
PLACES: tuple[str, ...] = get_args(Place)
_NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")


@dataclass(frozen=True, kw_only=True)
class PoolSpec:
    """`kind`: see `trees.components`. `layers` and `layer_bytes` are the shape of one slot.

    A sidecar may be `packed`: its layers lie behind those of the page, in the same memory and under the same name in
    storage, and have as many bytes as those; then it has no pool. Otherwise it has as many slots as there are pages.
    `replicated`: tensor-parallel ranks have the same in it, and the first of them alone stores it; a packed one is as
    the page is. Windows and states have `host_slots` and `device_slots`; `window_pages` is how many pages a window
    needs.
    Raises ValueError with one line that names the field.
    """

    name: str
    kind: Kind
    place: Place = "separate"
    host_slots: int = 0
    device_slots: int = 0
    layers: int = 1
    layer_bytes: int = 16
    window_pages: int = 0
    replicated: bool = False

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"name must be lower-case letters, digits and underscores, not {self.name!r}")
        if self.kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, not {self.kind!r}")
        if self.place not in PLACES:
            raise ValueError(f"place must be one of {', '.join(PLACES)}, not {self.place!r}")
        for field in ("host_slots", "device_slots", "layers", "layer_bytes", "window_pages"):
            least = 1 if field.startswith("layer") else 0
            value = getattr(self, field)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(f"{field} of {self.name} must be an integer >= {least}, not {value!r}")
        if not isinstance(self.replicated, bool):
            raise ValueError(f"replicated of {self.name} must be true or false, not {self.replicated!r}")
        if (self.kind == "window") != (self.window_pages > 0):
            raise ValueError(f"window_pages of {self.name} must be > 0 for a window, and only for a window")
        if self.kind == "sidecar" and (self.host_slots or self.device_slots):
            raise ValueError(
                f"host_slots and device_slots of {self.name} are those of the pages, because it is a sidecar"
            )
        if self.kind != "sidecar" and self.place == "packed":
            raise ValueError(f"place of {self.name} must be separate, because it is no sidecar")
        least = max(1, self.window_pages)
        if self.kind != "sidecar" and min(self.host_slots, self.device_slots) < least:
            raise ValueError(f"host_slots and device_slots of {self.name} must be >= {least}")

    @property
    def slot_bytes(self) -> int:
        """Bytes of one slot."""
        return self.layers * self.layer_bytes

    def component(self) -> Component:
        """What a tree is told of it."""
        if self.kind == "window":
            return Window(self.name, self.window_pages)
        return State(self.name) if self.kind == "state" else Sidecar(self.name)


def checked_pools(tree: str, pools: object) -> tuple[PoolSpec, ...]:
    """The pools of a configuration, each given as a PoolSpec or as its fields.

    ValueError: they are not, two share a name, or the tree has no place for one.
    """
    if tree not in TREES:
        raise ValueError(f"tree must be one of {', '.join(TREES)}, not {tree!r}")
    if not isinstance(pools, list | tuple):
        raise ValueError(f"pools must be a list, not {pools!r}")
    specs = tuple(_spec(pool) for pool in pools)
    # Also the packed ones, so that no tree gets what it has no place for.
    TREES[tree](components=[spec.component() for spec in specs])
    return specs


def _spec(pool: PoolSpec | Mapping[str, Any]) -> PoolSpec:
    try:
        return pool if isinstance(pool, PoolSpec) else PoolSpec(**pool)
    except TypeError as error:
        raise ValueError(f"pools: {pool!r} is no pool: {error}") from None
