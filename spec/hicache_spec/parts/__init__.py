"""Parts of the system that are joined to a design, designs of their own beside it, and the configurations of each."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

from ..bounds import BOUNDS
from ..designs import DECIDE_AT_DRAIN, DESIGNS
from ..language import Design, Part, Rule, SpecError
from . import control, pool_bounds, pools, turnover
from .carrying import CARRYING, CARRYING_BOUNDS
from .copying import COPYING, COPYING_BOUNDS
from .depositing import DEPOSITING, DEPOSITING_BOUNDS
from .detaching import DETACHING, DETACHING_BOUNDS
from .groups_design import GROUPS, GROUPS_BOUNDS
from .resetting import RESETTING, RESETTING_BOUNDS
from .storing import STORING, STORING_BOUNDS

PARTS: dict[str, Part] = {
    p.name: p
    for p in [
        COPYING,
        STORING,
        control.CONTROL,
        RESETTING,
        DETACHING,
        pools.POOLS,
        turnover.TURNOVER,
        CARRYING,
        DEPOSITING,
    ]
}

OWN_DESIGNS: dict[str, Design] = {GROUPS.name: GROUPS}
"""Parts that are not joined to a design: they have a small state of their own."""

PART_BOUNDS: dict[str, tuple[Any, ...]] = {
    COPYING.name: COPYING_BOUNDS,
    f"{COPYING.name}+{STORING.name}": STORING_BOUNDS,
    control.CONTROL.name: control.BOUNDS,
    f"{COPYING.name}+{control.CONTROL.name}+{RESETTING.name}": RESETTING_BOUNDS,
    f"{COPYING.name}+{STORING.name}+{control.CONTROL.name}+{RESETTING.name}+{DETACHING.name}": DETACHING_BOUNDS,
    pools.POOLS.name: pool_bounds.BOUNDS,
    f"{control.CONTROL.name}+{pools.POOLS.name}+{turnover.TURNOVER.name}": turnover.BOUNDS,
    f"{COPYING.name}+{pools.POOLS.name}+{CARRYING.name}": CARRYING_BOUNDS,
    f"{COPYING.name}+{STORING.name}+{pools.POOLS.name}+{CARRYING.name}+{DEPOSITING.name}": DEPOSITING_BOUNDS,
    GROUPS.name: GROUPS_BOUNDS,
}
"""The named bounds of each part."""

ALL_BOUNDS: dict[str, tuple[Any, ...]] = {**BOUNDS, **PART_BOUNDS}


def design_of(bounds: str) -> str:
    """The design that these bounds of a part, or of several such as `pools+control`, are for."""
    return bounds if bounds in OWN_DESIGNS else f"{DECIDE_AT_DRAIN.name}+{bounds}"


def design_named(name: str) -> Design:
    """The design of this name, such as `decide_at_drain+control`: a design and the parts that are joined to it, in this
    order. SpecError, in one line, for a name that is not known."""
    base, *parts = name.split("+")
    if base not in DESIGNS and name not in OWN_DESIGNS:
        raise SpecError(f"no design {base!r}; the designs are {', '.join([*DESIGNS, *OWN_DESIGNS])}")
    for part in parts:
        if part not in PARTS:
            raise SpecError(f"no part {part!r}; the parts are {', '.join(PARTS)}")
    return OWN_DESIGNS[name] if name in OWN_DESIGNS else DESIGNS[base].joined(*(PARTS[part] for part in parts))


def must_reach(design: Design, bounds: str) -> list[str]:
    """The outcomes that a design must reach in named bounds: in a part's, those of the part, and in those of several
    parts, those of the last one; else those that no part brings."""
    last = bounds.rpartition("+")[2]
    if last in PARTS:
        modules = [m for m in design.modules if m in PARTS[last].modules]
    else:
        modules = [m for m in design.modules if not any(m in part.modules for part in PARTS.values())]
    return [rule.name for module in modules for rule in _rules_in(module) if rule.kind == "sometimes"]


def _rules_in(module: ModuleType) -> Iterator[Rule]:
    for value in vars(module).values():
        rule = getattr(value, "__rule__", None)
        if isinstance(rule, Rule) and value.__module__ == module.__name__:
            yield rule


__all__ = ["ALL_BOUNDS", "OWN_DESIGNS", "PARTS", "PART_BOUNDS", "design_named", "design_of", "must_reach"]
