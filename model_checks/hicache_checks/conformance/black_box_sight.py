"""What can be observed of a system between two calls, as far as it can."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from hicache_checks.conformance.explainer import name_of
from hicache_checks.conformance.observation import UNOBSERVED

SHOWN = 8


@dataclass(frozen=True)
class Sight:
    """Any of these may be UNOBSERVED. `operations`: the pages granted to each pending operation; these may be, too."""

    free_pages: Any = UNOBSERVED
    resident_pages: Any = UNOBSERVED
    occupied_pages: Any = UNOBSERVED
    operations: Any = UNOBSERVED

    def unobserved(self) -> list[str]:
        """The names of what was not seen."""
        names = [field.name for field in fields(self) if getattr(self, field.name) is UNOBSERVED]
        grants = {} if self.operations is UNOBSERVED else self.operations
        return [*names, *("granted pages" for pages in grants.values() if pages is UNOBSERVED)]

    def fits(self, there: Sight) -> bool:
        """Is this what is seen where the other is what there is?"""
        return (
            _agree(self.operations, there.operations)
            and _agree(self.occupied_pages, there.occupied_pages)
            and _agree(self.resident_pages, there.resident_pages)
            and _agree(self.free_pages, there.free_pages)
        )

    def has_room(self, there: Sight, free_pages: int, resident_pages: int) -> bool:
        """Can so many pages come to what there is, and be no more than is seen?"""
        more = (
            (self.free_pages, there.free_pages + free_pages),
            (self.resident_pages, there.resident_pages + resident_pages),
        )
        return all(seen is UNOBSERVED or pages <= seen for seen, pages in more)

    def blame(self, expected: Sequence[Sight]) -> tuple[str, str]:
        """The property that is broken by seeing this where one of the others was expected, and what is wrong.

        One thing after the other: the first that is wrong, given that what comes before it is right.
        """
        for property_, name, part in PARTS:
            fitting = [there for there in expected if _agree(part(self), part(there))]
            if not fitting:
                if name == "resident_pages" and _pool(self) is not None and _pool(self) in map(_pool, expected):
                    property_ = "P9 step_eviction_is_needed"
                explained = _either(getattr(there, name) for there in expected)
                return property_, f"{name} is {_said(getattr(self, name))}, explained is {explained}"
            expected = fitting
        raise AssertionError("what is to blame fits")

    def __str__(self) -> str:
        return ", ".join(f"{field.name} {_said(getattr(self, field.name))}" for field in fields(self))


def _pool(sight: Sight) -> Any:
    """The pages that are free or in the tree."""
    parts = (sight.free_pages, sight.resident_pages)
    return None if UNOBSERVED in parts else sum(parts)


def _pending(sight: Sight) -> Any:
    return UNOBSERVED if sight.operations is UNOBSERVED else dict.fromkeys(sight.operations, True)


def _with_memory(sight: Sight) -> Any:
    if sight.operations is UNOBSERVED:
        return UNOBSERVED
    return {op: pages if pages is UNOBSERVED else pages > 0 for op, pages in sight.operations.items()}


# What is seen, in the order in which it is to be right, each with the property that says so.
PARTS: tuple[tuple[str, str, Callable[[Sight], Any]], ...] = (
    ("P11 inv_records_name_their_attempt", "operations", _pending),
    ("sched_drain (§3.6)", "operations", _with_memory),
    ("P17 inv_grant_is_worth_it", "operations", lambda sight: sight.operations),
    ("P8 inv_occupied_is_sum_of_spans", "occupied_pages", lambda sight: sight.occupied_pages),
    ("P4 inv_pages_conserved", "resident_pages", lambda sight: sight.resident_pages),
    ("P4 inv_pages_conserved", "free_pages", lambda sight: sight.free_pages),
)


def sight_of(seen: Mapping[str, Any]) -> Sight:
    """What an adapter's `observe` says; what it leaves out was not observed."""
    values = {field.name: seen.get(field.name, UNOBSERVED) for field in fields(Sight)}
    if values["operations"] is not UNOBSERVED:
        values["operations"] = {(op[0], op[1]): pages for op, pages in values["operations"].items()}
    return Sight(**values)


def disagreement(seen: Mapping[str, Any]) -> str | None:
    """What ranks that are shown by themselves see differently, though their schedulers are at the same point."""
    ranks = [sight_of(own) for own in seen.get("ranks", ())]
    differing = [rank for rank, sight in enumerate(ranks) if not sight.fits(ranks[0])]
    return f"rank 0: {ranks[0]}; rank {differing[0]}: {ranks[differing[0]]}" if differing else None


def _agree(seen: Any, there: Any) -> bool:
    if seen is UNOBSERVED or there is UNOBSERVED:
        return True
    if isinstance(seen, dict):
        return seen.keys() == there.keys() and all(_agree(pages, there[op]) for op, pages in seen.items())
    return bool(seen == there)


def _said(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name_of(op)}: {pages}" for op, pages in sorted(value.items())) or "none"
    return repr(value)


def _either(values: Iterable[Any]) -> str:
    said = sorted(set(map(_said, values)))
    return " or ".join(said[:SHOWN]) + (f" or {len(said) - SHOWN} more" if len(said) > SHOWN else "")
