"""The project's list of properties (SPEC.md §9): what each finding is about, and what of a target can show it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import cache

from hicache_checks.conformance.explainer import FOLLOWED
from hicache_checks.conformance.findings import Finding
from hicache_spec import DESIGNS

PROPERTIES: Mapping[str, str] = {
    "P1": "no policy completes an operation before its query verdict",
    "P2": "every queued operation reaches exactly one terminal state",
    "P3": "control queues drain",
    "P4": "host pages are conserved",
    "P5": "the wait is bounded by the policy",
    "P6": "no unset page is read or published",
    "P7": "ranks take the same decision and make the same collectives in the same order",
    "P8": "occupied is the sum of pending spans",
    "P9": "there is no needless eviction or refusal",
    "P10": "a refused operation leaves no state",
    "P11": "state belongs to one attempt",
    "P12": "an agreed hit is restorable on every pool and rank",
    "P13": "no page is freed twice",
    "P14": "the anchor stays alive and its reference count returns to zero",
    "P15": "reset and detach give the initial state",
    "P16": "a queue has one consumer",
    "P17": "the plan's length times a page is what is owned",
    "P18": "no page is freed under a writer",
    "P19": "a span is keyed by the request's namespace",
    "P20": "what is published is covered by every required pool",
    "P21": "the hash chain is the key's chain",
    "P22": "calls and steps make progress",
    "P23": "backed-up nodes are contiguous from the root",
    "P24": "the set of host leaves is exact",
    "P25": "a non-empty pool admits one operation",
    "P26": "a refused waiting request is retried, boundedly",
    "P27": "a declined submission leaves no promise",
    "P28": "a stored page has stored ancestors",
    "P29": "there is one event per store",
    "P30": "a page write is atomic, and what is read is what was written",
    "P31": "a failing store ends the operation, never a thread or the process",
    "P32": "what is acknowledged as stored is stored",
}
HANG = "hang"
"""Where a finding is that is a call that does not return."""
HANGING = {"P2", "P7", "P22"}
STEPS = "steps"
"""What is about no property of the list: an event that is no possible step, a call that raises."""
CALLS = "calls"
SHOWN_BY: Mapping[str, tuple[str, ...]] = {
    CALLS: ("P1", "P2", "P4", "P5", "P7", "P8", "P11", "P22", "P25", "P31"),
    "events": (
        *("P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8", "P9", "P10", "P11", "P12", "P13", "P14", "P15"),
        *("P17", "P18", "P20", "P25", "P27", "P31", "P32"),
    ),
    "audit": (*("P2", "P4", "P6", "P8", "P13", "P14", "P18", "P21", "P23", "P24", "P30", "P31", "P32"),),
    "tiers": ("P6",),
    "flush": ("P15",),
    "attach": ("P15",),
}
"""By capability of a target; what its required calls show, every target shows."""


def properties_of(finding: Finding) -> tuple[str, ...]:
    """The properties that a finding is about; STEPS if it is about none of the list."""
    named = re.match(r"P\d+\b", finding.property)
    if named:
        return (named.group(),)
    numbers = re.findall(r"\bP\d+\b", _titles().get(finding.property, "").partition(".")[0])
    return tuple(numbers) or (STEPS,)


def shows_the_same(real: Finding, simulated: Finding) -> bool:
    """Is what is found with real threads what the simulation found? There, a call that does not return is all that can
    be seen of ranks that wait for each other in vain."""
    found = set(properties_of(simulated))
    return bool(found & set(properties_of(real)) or (real.place == HANG and found & HANGING))


@cache
def _titles() -> dict[str, str]:
    """Of the rules of every design that a target can be held to; one name is about the same in all of them."""
    return {rule.name: rule.title for design in FOLLOWED for rule in DESIGNS[design].rules()}


def why_hidden(property_: str, capabilities: Collection[str]) -> str:
    """Why a target with these capabilities cannot show a property; empty: it can."""
    if property_ == STEPS:
        return ""
    shown_by = [name for name, shown in SHOWN_BY.items() if property_ in shown]
    if CALLS in shown_by or set(shown_by) & set(capabilities):
        return ""
    return f"only a target with {' or '.join(shown_by)} can show it" if shown_by else "nothing shows it yet"
