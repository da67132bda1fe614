"""What was seen of each finding from release to release: a regression history.

Releases are in the order in which they are given. A finding that was not seen on one need not be absent there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hicache_checks.conformance.findings import Finding
from hicache_checks.conformance.looking import Looked
from hicache_checks.conformance.properties import PROPERTIES, properties_of
from hicache_checks.targets.trees import PINNED

PROPERTY_ORDER = {name: place for place, name in enumerate(PROPERTIES)}
VERSION = re.compile(rf"{PINNED}[^@]*")


@dataclass(frozen=True)
class History:
    """A finding on the releases of one distribution. `finding`: as the first one shows it; `seen_on`: those that do.

    `searched`: so many were searched from the first to the last of `seen_on`; `later`: so many after it. `schedules`:
    all that show it.
    """

    id: str
    finding: Finding
    seen_on: tuple[str, ...]
    searched: int
    later: int
    schedules: int

    @property
    def first(self) -> str:
        """The first affected release."""
        return self.seen_on[0]

    @property
    def last(self) -> str:
        """The last one."""
        return self.seen_on[-1]


def histories(looked: Sequence[Looked]) -> list[History]:
    """One for each cause and distribution, by property, and then in the order in which they come."""
    lines: dict[str, list[Looked]] = {}
    for of_one in looked:
        if of_one.campaign is not None:
            lines.setdefault(line_of(of_one.target), []).append(of_one)
    found = [history for searched in lines.values() for history in _of_line(searched)]
    return sorted(found, key=lambda history: min(map(_place, properties_of(history.finding))))


def line_of(target: str) -> str:
    """The name of a target without its version: targets with equal ones are releases of one thing."""
    return VERSION.sub("", target)


def in_order(properties: Sequence[str]) -> list[str]:
    """As they are listed; what is about none of the list comes last."""
    return sorted(properties, key=_place)


def _of_line(searched: Sequence[Looked]) -> list[History]:
    names = dict.fromkeys(name for of_one in searched for name in of_one.found)
    return [_history(name, searched) for name in names]


def _history(name: str, searched: Sequence[Looked]) -> History:
    places = [place for place, of_one in enumerate(searched) if name in of_one.found]
    reported = [searched[place].found[name] for place in places]
    return History(
        name,
        reported[0].finding,
        tuple(searched[place].target for place in places),
        places[-1] - places[0] + 1,
        len(searched) - places[-1] - 1,
        sum(r.schedules for r in reported),
    )


def _place(property_: str) -> int:
    return PROPERTY_ORDER.get(property_, len(PROPERTY_ORDER))
