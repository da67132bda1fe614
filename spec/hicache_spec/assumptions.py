"""§8 Named assumptions under which two designs are compared: about the sizes, or about the drains of a run.

An assumption about sizes changes the bounds of both designs and says what must then not happen. One about drains leaves
out those of which it does not hold: of LEFT, so that only runs that keep it have to be matched; or of both designs,
where it says how a tick is modelled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from .bounds import Bounds
from .events import ON_ALLOCATED, ON_EVICTED, ON_REVOKED
from .language import State, emitted
from .state import CHAINS, DEPTHS, NO_MEMORY, OPS, RANKS, is_pending
from .tree import protected_depth


@dataclass(frozen=True)
class Assumption:
    """A named assumption. `step`: the name of a function of this module, of the states before and after a drain.

    `bounds`: the sizes under it. `refutes`: does an event show that the sizes do not do what they are to do?
    """

    name: str
    summary: str
    step: str = ""
    of_both: bool = False
    bounds: Callable[[Bounds], Bounds] | None = None
    refutes: Callable[[tuple[Any, ...]], bool] | None = None


# ---- sizes


def ample(bounds: Bounds) -> Bounds:
    """Host pages for everything that is resident and every span that can be asked for, at once."""
    spans = bounds.requests * bounds.attempts * bounds.chain_pages
    return replace(bounds, host_pages=sum(bounds.resident_pages) + spans)


def shows_pressure(event: tuple[Any, ...]) -> bool:
    """Something is evicted, granted short of the hit, or refused."""
    kind, *values = event
    if kind == ON_ALLOCATED.name:
        return bool(values[ON_ALLOCATED.fields.index("pages")] < values[ON_ALLOCATED.fields.index("hit")])
    if kind == ON_REVOKED.name:
        return bool(values[ON_REVOKED.fields.index("reason")] == NO_MEMORY)
    return bool(kind == ON_EVICTED.name)


# ---- drains: what a tick takes


def takes_all_that_waits(s: State, t: State) -> bool:
    """A drain leaves nothing that every rank has."""
    return nothing_waits(t)


def nothing_waits(s: State) -> bool:
    """Some rank has no answered operation, and some rank no released page."""
    return min(len(s.hit_queue[r]) for r in RANKS) == 0 and min(s.releasing[r] for r in RANKS) == 0


def nothing_waits_in_either_queue(s: State) -> bool:
    """Nothing waits, in the revoke queue neither."""
    return min(len(s.revoke_queue[r]) for r in RANKS) == 0 and nothing_waits(s)


# ---- drains: what a tick does to the tree. Operations are numbered in the order in which they came (one attempt each).


def evicts_nothing_from_behind(s: State, t: State) -> bool:
    """No drain evicts a page that an operation behind one of its grants protected when it began."""
    return all(
        not gives_up(s, t, behind)
        or t.resident[s.chain[behind]] >= s.base[behind]
        or all(not emitted(t, ON_ALLOCATED, op=op) for op in OPS if op < behind)
        for behind in OPS
    )


def nothing_falls_short_ahead(s: State, t: State) -> bool:
    """No drain gives an operation less than its hit if one behind it, in the same drain, unprotects a page."""
    return all(
        not gives_up(s, t, behind)
        or protected_depth(t, s.chain[behind]) >= s.base[behind]
        or all(not falls_short(s, t, op) for op in OPS if op < behind)
        for behind in OPS
    )


def nothing_else_is_evicted(s: State, t: State) -> bool:
    """No drain evicts from a chain that comes, in the order of eviction, after one that an operation behind one of its
    grants unprotects."""
    return all(
        not gives_up(s, t, behind)
        or protected_depth(t, s.chain[behind]) >= s.base[behind]
        or all(t.resident[c] == s.resident[c] for c in CHAINS if c > s.chain[behind])
        or all(not emitted(t, ON_ALLOCATED, op=op) for op in OPS if op < behind)
        for behind in OPS
    )


def overtakes_no_revoke(s: State, t: State) -> bool:
    """No drain grants or refuses pages while the revoke of an operation that came before still waits."""
    return all(
        not (emitted(t, ON_ALLOCATED, op=op) or emitted(t, ON_REVOKED, op=op, reason=NO_MEMORY))
        or all(not waits_to_be_revoked(t, ahead) for ahead in OPS if ahead < op)
        for op in OPS
    )


def waits_to_be_revoked(s: State, op: int) -> bool:
    """The operation stands in the revoke queue; never, in a design that has none."""
    return False


def stands_in_the_revoke_queue(s: State, op: int) -> bool:
    """The operation stands in the revoke queue."""
    return op in s.revoke_queue[0]


def gives_up(s: State, t: State, op: int) -> bool:
    """The operation is revoked in this step."""
    return is_pending(s, op) and emitted(t, ON_REVOKED, op=op)


def falls_short(s: State, t: State, op: int) -> bool:
    """The operation is granted less than its hit, or refused for want of memory."""
    return emitted(t, ON_REVOKED, op=op, reason=NO_MEMORY) or any(
        emitted(t, ON_ALLOCATED, op=op, pages=n) and n < s.hit[0][op] for n in DEPTHS
    )


ASSUMPTIONS = {
    a.name: a
    for a in (
        Assumption(
            "no_host_pressure",
            "host pages cover what is resident and every span",
            bounds=ample,
            refutes=shows_pressure,
        ),
        Assumption(
            "whole_ticks",
            "a tick takes everything that it can take, in both designs: the lengths of all queues are read at once",
            step="takes_all_that_waits",
            of_both=True,
        ),
        Assumption(
            "nothing_from_behind",
            "no tick of LEFT evicts a page that an operation behind one of its grants protected when the tick began",
            step="evicts_nothing_from_behind",
        ),
        Assumption(
            "nothing_short_ahead",
            "no tick of LEFT gives an operation less than its hit if one behind it unprotects a page in the same tick",
            step="nothing_falls_short_ahead",
        ),
        Assumption(
            "nothing_else_evicted",
            "no tick of LEFT evicts from a chain after, in the order of eviction, one that an operation behind one of "
            "its grants unprotects",
            step="nothing_else_is_evicted",
        ),
        Assumption(
            "no_revoke_overtaken",
            "no tick of LEFT grants or refuses pages while the revoke of an operation that came before still waits",
            step="overtakes_no_revoke",
        ),
    )
}
