"""A run told step by step, as plain data: what tables, diagrams and pages are made of."""

from __future__ import annotations

import msgspec

CALLER = "caller"
CALL = "call"
EVENT = "event"
FINDING = "finding"


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One step. `kind`: a call by the caller, what a thread did, or what is wrong with the step before.

    `ranks`: those that did the same at this point; none: the caller, or nobody in particular. `to`: the thread of the
    same rank that is handed something; empty: none. `what`: one text an event. `changes`: what became different in the
    specification's state.
    """

    kind: str
    ranks: list[int]
    thread: str
    to: str
    what: list[str]
    changes: list[str]

    @property
    def rank(self) -> str:
        """The ranks as text."""
        return ", ".join(map(str, self.ranks))


class Story(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole run. `system`: what it ran on. `about`: numbers of rows, from 1 on, that the finding is also about.

    `allowed`: what the specification would have allowed instead of the last step, one line each; empty if the finding
    is not about a step.
    """

    system: str
    rows: list[Row]
    about: list[int]
    allowed: list[str]


def printable(text: str) -> str:
    """Text from outside, safe to show on one line: what is not printable is written as an escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
