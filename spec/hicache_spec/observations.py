"""§8 What an observer of the pipeline sees: the words in which two designs are compared.

A run shows an observer a *word*: the visible inputs and events in order; and, where the system is at rest, the outcome
of every operation. LEFT refines RIGHT if RIGHT can show whatever LEFT can. EQUIVALENCE.md says what comes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .binding import BoundSpec
from .bounds import WAIT_COMPLETE, Bounds
from .events import (
    ON_ALLOCATED,
    ON_DECLINED,
    ON_EVICTED,
    ON_FETCHED,
    ON_IO_FAILED,
    ON_QUERY_AGREED,
    ON_REVOKED,
    ON_STOPPED,
    ON_SUBMITTED,
    ON_WRITTEN,
)
from .language import EventKind, State
from .state import PHASE, REASON

Letter = tuple[Any, ...]
Word = tuple[Letter, ...]


@dataclass(frozen=True)
class Observation:
    """What is seen of a run.

    `inputs`: the actions whose steps are seen, with their arguments. `events`: the kinds of events that are seen, each
    with the fields that are. Of a step of one of the `ticks` the events are one letter, a set; other steps then show no
    events. Without `ticks`, events are letters of their own, in order.
    """

    name: str
    summary: str
    inputs: tuple[str, ...] = ()
    events: Mapping[EventKind, tuple[str, ...]] = field(default_factory=dict)
    ticks: tuple[str, ...] = ()

    def bind(self, spec: BoundSpec) -> Callable[[int, Sequence[tuple[Any, ...]]], Word]:
        """The word that a step (its index, and the events that it emitted) shows."""
        letters: list[Word] = [
            (((step.rule.name, *step.arguments.values()),) if step.rule.name in self.inputs else ())
            for step in spec.steps
        ]
        places = {k.name: [(k.fields.index(f) + 1, f == "reason") for f in fields] for k, fields in self.events.items()}
        is_tick = [step.rule.name in self.ticks for step in spec.steps]

        def word(number: int, events: Sequence[tuple[Any, ...]]) -> Word:
            if not events or not places or (self.ticks and not is_tick[number]):
                return letters[number]
            seen = tuple(
                (e[0], *(REASON.members[e[i]] if is_reason else e[i] for i, is_reason in places[e[0]]))
                for e in events
                if e[0] in places
            )
            if self.ticks:
                return letters[number] + ((("tick", *sorted(seen)),) if seen else ())
            return letters[number] + seen

        return word


POLLS = ("visible", "hidden")
CALLS = ("sched_submit", "sched_abort", "sched_stop")
ENVIRONMENT = ("sched_write_through",)
CHURNING = ("query_ask_storage", "io_fail_page")
POLLING = ("sched_poll", "env_advance_clock")
DRAINS = ("sched_drain",)

OUTCOMES = Observation(
    "outcomes", "the inputs of the caller and of the environment in order; at rest, how each operation ended"
)
TICKS = Observation(
    "ticks",
    "as outcomes, and what each tick of the scheduler decides: the decisions of one drain are seen together",
    events={ON_REVOKED: ("op",), ON_ALLOCATED: ("op", "pages")},
    ticks=DRAINS,
)
EVENTS = Observation(
    "events",
    "as outcomes, and every event of the life cycle, in order",
    events={
        ON_SUBMITTED: ("op", "span"),
        ON_DECLINED: ("request", "reason"),
        ON_QUERY_AGREED: ("op", "hit"),
        ON_ALLOCATED: ("op", "pages"),
        ON_STOPPED: ("op",),
        ON_IO_FAILED: ("op",),
        ON_REVOKED: ("op", "reason"),
        ON_FETCHED: ("op", "pages"),
    },
)
OBSERVATIONS = {o.name: o for o in (OUTCOMES, TICKS, EVENTS)}


def default_polls(bounds: Bounds) -> str:
    """`hidden` where a poll has no say (it ends what is complete or terminated), else `visible`: where the moment of
    the poll decides, hiding it would let every outcome be explained by a poll at another moment."""
    return "hidden" if bounds.policy == WAIT_COMPLETE else "visible"


def observation(name: str, bounds: Bounds, polls: str) -> Observation:
    """The observation under these bounds: storage is an input only where it churns, polls and time if they are to be
    visible."""
    inputs = CALLS + ENVIRONMENT + (CHURNING if bounds.churn else ()) + (POLLING if polls == "visible" else ())
    return replace(OBSERVATIONS[name], inputs=inputs)


def outcome(s: State) -> tuple[tuple[str, int], ...]:
    """What is seen of a watched state at rest: for each operation its final state and the pages that it published."""
    return tuple((PHASE.members[phase], pages) for phase, pages in zip(s.phase, s.published, strict=True))


def say_letter(letter: Letter) -> str:
    """A letter as text, such as `sched_abort(1)`, `allocated(0, 2)` or `tick{allocated(0, 2), revoked(1)}`."""
    name, *values = letter
    if name == "tick":
        return f"tick{{{', '.join(map(say_letter, values))}}}"
    return f"{name}({', '.join(map(str, values))})"


def say_event(event: tuple[Any, ...]) -> str:
    """An event of the life cycle with its arguments' names and, for a reason, its word."""
    kind = next(k for k in (*EVENTS.events, ON_EVICTED, ON_WRITTEN) if k.name == event[0])
    shown = ((f, REASON.members[v] if f == "reason" else v) for f, v in zip(kind.fields, event[1:], strict=True))
    return f"{kind.name}({', '.join(f'{f}={v}' for f, v in shown if f != 'room')})"


TOLD = frozenset(k.name for k in (*EVENTS.events, ON_EVICTED, ON_WRITTEN))
"""The events that a told run mentions, beside the steps."""
