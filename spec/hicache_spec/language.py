"""§A The specification language: bounded state, guarded actions, named properties.

A specification is written once, in restricted Python. It runs as it stands, on plain Python objects, and it is compiled
to kernels; so a rule may use only the subset of Python that `subset.py` documents and enforces.

    REQUESTS = index("request", "requests")         # an index set: its size comes from the bounds
    PAGES = constant("host_pages")                  # a number from the bounds

    class Pipeline(StateShape):
        phase = field(member(PHASE), REQUESTS)      # one value per request
        free = field(upto(PAGES))

    @action(request=REQUESTS)
    def sched_submit(s: State, request: int) -> None:
        '''§3.1 ...'''
        require(s.phase[request] == ABSENT, "the request is new")
        s.phase[request] = QUEUED

Every `require` stands before the first write of its action, so a refused action leaves the state untouched. A `Design`
names the modules whose rules it consists of; a variant (an older release, a mutant) is *what differs*: rules and helper
functions replaced by name. `BoundSpec` (binding.py) resolves index sets and constants for one set of bounds.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, cast

NONE = -1
"""The value of an `optional` field that points nowhere."""

F = TypeVar("F", bound=Callable[..., Any])


class Refused(Exception):
    """The action is not enabled here; the state is as it was. `str()` of it is the reason."""


class SpecError(Exception):
    """A specification that cannot be bound: says which rule and why."""


# -------------------------------------------------------------------------------- values from the bounds


@dataclass(frozen=True)
class Symbol:
    """A name whose value is known when the specification is bound: an index set, a constant, a switch or a table."""

    name: str
    source: str | Callable[[Any], Any]
    is_index: bool = False
    symmetric: bool = False
    blocks_of: Symbol | None = None
    is_truth: bool = False

    def resolve(self, bounds: Any) -> Any:
        """The value under these bounds: a `range` for an index set, else what the bounds say."""
        value = getattr(bounds, self.source) if isinstance(self.source, str) else self.source(bounds)
        return range(value) if self.is_index else value


def index(
    name: str, source: str | Callable[[Any], int], symmetric: bool = False, blocks_of: range | None = None
) -> range:
    """An index set `0 .. n-1`; `source` is the attribute of the bounds, or a function of them, that gives n.

    `symmetric`: its elements are interchangeable, a claim that symmetry reduction checks before it relies on it.
    `blocks_of`: the set has a block of n/m consecutive elements for each of the m elements of that set, and moves with
    it.
    """
    return cast(range, Symbol(name, source, True, symmetric, cast("Symbol | None", blocks_of)))


def constant(source: str | Callable[[Any], int], name: str = "") -> int:
    """A number that the bounds give."""
    return cast(int, Symbol(name or str(source), source))


def switch(source: str | Callable[[Any], bool], name: str = "") -> bool:
    """A condition that the bounds switch on or off."""
    return cast(bool, Symbol(name or str(source), source, is_truth=True))


def table(name: str, source: Callable[[Any], Sequence[Any]]) -> Sequence[Any]:
    """A constant table (nested tuples of integers) that the bounds give."""
    return cast(Sequence[Any], Symbol(name, source))


@dataclass(frozen=True)
class Enumeration:
    """A finite set of named values, numbered from 0."""

    name: str
    members: tuple[str, ...]

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.members)))


def enumeration(name: str, members: str) -> Enumeration:
    """An enumeration from a space-separated list of names; unpack it to get the values."""
    return Enumeration(name, tuple(members.split()))


# ---------------------------------------------------------------------------------------------------- bounded types


@dataclass(frozen=True)
class Type:
    """A bounded type: `kind` is int, flag, queue or set; values (or elements) lie in `low .. high`."""

    kind: str
    low: int
    high: Any
    capacity: Any = 0
    names: tuple[str, ...] = ()

    def initial(self) -> Any:
        """The value of a field that no `initial` rule sets: NONE for an optional, else zero, False or empty."""
        if self.kind in ("queue", "set"):
            return []
        return False if self.kind == "flag" else (self.low if self.low < 0 else 0)

    def admits(self, value: Any) -> bool:
        """Is this a value of the type? Booleans are not integers and the reverse."""
        if self.kind == "flag":
            return value is True or value is False
        if self.kind == "int":
            return type(value) is int and self.low <= value <= self.high
        if len(value) > self.capacity or not all(type(x) is int and self.low <= x <= self.high for x in value):
            return False
        return self.kind == "queue" or all(a < b for a, b in pairwise(value))

    def show(self, value: Any) -> str:
        """The value as a reader of a counterexample wants it."""
        if self.kind in ("queue", "set"):
            inner = ", ".join(map(str, value))
            return f"[{inner}]" if self.kind == "queue" else f"{{{inner}}}"
        if self.names:
            return self.names[value] if 0 <= value < len(self.names) else f"?{value}"
        if self.kind == "flag":
            return "yes" if value else "no"
        return "none" if self.low < 0 and value == NONE else str(value)


def flag() -> Type:
    """True or False."""
    return Type("flag", 0, 1)


def upto(highest: int) -> Type:
    """An integer `0 .. highest`."""
    return Type("int", 0, highest)


def member(values: Enumeration) -> Type:
    """One value of an enumeration."""
    return Type("int", 0, len(values.members) - 1, names=values.members)


def optional(members: range) -> Type:
    """An element of an index set, or NONE."""
    return Type("int", NONE, members)


def element(members: range) -> Type:
    """An element of an index set."""
    return Type("int", 0, members)


def fifo(members: range, capacity: int | None = None) -> Type:
    """A queue of elements of an index set; at most `capacity` long (default: as many as there are elements)."""
    return Type("queue", 0, members, members if capacity is None else capacity)


def subset(members: range) -> Type:
    """A set of elements of an index set; changed with `insert` and `discard`."""
    return Type("set", 0, members, members)


@dataclass(frozen=True)
class Field:
    """One state variable: a type, indexed by zero or more index sets."""

    type: Type
    dims: tuple[range, ...]


def field(type_: Type, *dims: range) -> Any:
    """Declare a state variable of this type, one value for each element of the product of `dims`."""
    return Field(type_, dims)


class StateShape:
    """Base of a class whose attributes are the state variables of a specification, in order."""


class State:
    """A state: one attribute a variable, nested lists along its index sets; `events` is what the last step emitted."""

    __slots__ = ("events",)
    events: list[tuple[Any, ...]]

    if TYPE_CHECKING:  # the variables are slots of the bound specification's own class

        def __getattr__(self, name: str) -> Any: ...

        def __setattr__(self, name: str, value: Any) -> None: ...


# -------------------------------------------------------------------------------- what a rule may call


def require(condition: bool, reason: str) -> None:
    """Guard of an action: without the condition the action is refused, for this reason."""
    if not condition:
        raise Refused(reason)


@dataclass(frozen=True)
class EventKind:
    """An observable event: its name and the names of its arguments."""

    name: str
    fields: tuple[str, ...]


def emit(s: State, kind: EventKind, *values: int) -> None:
    """The step shows this event to an observer."""
    s.events.append((kind.name, *values))


def emitted(s: State, kind: EventKind, **wanted: int) -> bool:
    """Did the step that led to this state emit such an event with these argument values?"""
    for e in s.events:
        if e[0] == kind.name and all(e[kind.fields.index(name) + 1] == value for name, value in wanted.items()):
            return True
    return False


def insert(members: list[int], value: int) -> None:
    """Put a value into a set variable."""
    if value not in members:
        members.append(value)
        members.sort()


def discard(members: list[int], value: int) -> None:
    """Take a value out of a set variable, if it is there."""
    if value in members:
        members.remove(value)


# ---------------------------------------------------------------------------------------------------- rules


@dataclass(frozen=True)
class Rule:
    """A named rule of a specification. `section` and `title` come from its docstring."""

    kind: str
    name: str
    function: Callable[..., Any]
    params: Mapping[str, range]
    fairness: str = ""
    chosen: tuple[str, ...] = ()
    waits_for: Callable[..., Any] | None = None

    @property
    def section(self) -> str:
        """The section number, such as '3.4'; empty if the docstring names none."""
        found = re.match(r"§([0-9A-Z.]+)", self.function.__doc__ or "")
        return found.group(1) if found else ""

    @property
    def title(self) -> str:
        """The first paragraph of the docstring, without the section number, on one line."""
        paragraph = (self.function.__doc__ or "").split("\n\n")[0]
        return re.sub(r"^§[0-9A-Z.]+\s*", "", " ".join(paragraph.split()))

    @property
    def actor(self) -> str:
        """Who acts: the part of the name before the first underscore (sched, query, io, backup, env)."""
        return self.name.split("_")[0]


def _tag(function: F, kind: str, params: Mapping[str, range] | None = None, **more: Any) -> F:
    setattr(function, "__rule__", Rule(kind, function.__name__, function, params or {}, **more))  # noqa: B010
    return function


def action(fairness: str = "", chosen: tuple[str, ...] = (), **params: range) -> Callable[[F], F]:
    """A guarded action with parameters from index sets.

    `fairness="weak"`: it does not stay enabled for ever untaken. This is promised for each value of its parameters by
    itself, except for the `chosen` ones: there, whichever value the environment chooses will do.
    """
    return lambda function: _tag(function, "action", params, fairness=fairness, chosen=chosen)


def initial(function: F) -> F:
    """The rule that sets up the initial state."""
    return _tag(function, "initial")


def quiescent(function: F) -> F:
    """The predicate of states in which it is right that nothing more happens."""
    return _tag(function, "quiescent")


def invariant(function: F) -> F:
    """`inv_...(s)`: holds in every reachable state."""
    return _tag(function, "invariant")


def step_property(function: F) -> F:
    """`step_...(s, t)`: holds for every step from s to t; `t.events` are the step's events."""
    return _tag(function, "step")


def sometimes(function: F) -> F:
    """`sometimes_...(s, t)`: holds for some reachable step; one that never does is a failure of the model."""
    return _tag(function, "sometimes")


def leads_to(goal: Callable[..., Any], **params: range) -> Callable[[F], F]:
    """`live_...(s, ...)`: whenever it holds, `goal` holds later, under the declared fairness of the actions."""
    return lambda function: _tag(function, "live", params, waits_for=goal)


# ---------------------------------------------------------------------------------------------------- designs


@dataclass(frozen=True)
class Part:
    """What a part of the system brings to a design: state variables (`shape`, which extends that of the canonical
    design), the modules that hold its rules, and what it replaces of the rules and helper functions of others."""

    name: str
    summary: str
    shape: type[StateShape]
    modules: tuple[ModuleType, ...]
    replaces: Mapping[str, Callable[..., Any]]


@dataclass(frozen=True)
class Design:
    """A specification: its state, the modules that hold its rules, and what differs from what those modules say.

    `replaces` maps the name of a rule or helper function to the function that takes its place, and `beneath` to those
    that took it before, the last first; within a replacement the replaced name means what was there before it, which is
    the original for the first. A replacement that is itself tagged as an action brings its own parameters and fairness.
    `violates` names the properties that the design is known to break. `shows`: the modules whose outcomes are to be
    reached, if not all.
    """

    name: str
    summary: str
    shape: type[StateShape]
    modules: tuple[ModuleType, ...]
    replaces: Mapping[str, Callable[..., Any]]
    violates: tuple[str, ...] = ()
    beneath: Mapping[str, tuple[Callable[..., Any], ...]] = dataclasses.field(default_factory=dict)
    shows: tuple[ModuleType, ...] = ()

    def variant(
        self,
        name: str,
        summary: str,
        replaces: Mapping[str, Callable[..., Any]],
        violates: tuple[str, ...] = (),
        shape: type[StateShape] | None = None,
        modules: tuple[ModuleType, ...] = (),
    ) -> Design:
        """The design with these rules or helper functions replaced; SpecError if a name is not one of its own.

        What the design itself has replaced under one of these names is gone. `shape`: a subclass of the design's shape,
        with more state variables. `modules`: further rules.
        """
        known = {n for m in (*self.modules, *modules) for n, v in vars(m).items() if isinstance(v, FunctionType)}
        for replaced in replaces:
            if replaced not in known:
                raise SpecError(f"{name}: the design {self.name} has no rule or helper named {replaced!r}")
        if shape is not None and not issubclass(shape, self.shape):
            raise SpecError(f"{name}: its state {shape.__name__} does not extend {self.shape.__name__}")
        modules = (*self.modules, *(m for m in modules if m not in self.modules))
        beneath = {n: before for n, before in self.beneath.items() if n not in replaces}
        replaced_by = {**self.replaces, **replaces}
        return Design(name, summary, shape or self.shape, modules, replaced_by, violates, beneath, self.shows)

    def joined(self, *parts: Part) -> Design:
        """The design with these parts of the system, the last one outermost; SpecError as from `variant`.

        Only the outcomes of the last part are to be reached: what is beneath it reaches its own where it is explored.
        """
        joined = self
        for part in parts:
            shape = part.shape
            if not issubclass(shape, joined.shape):
                shape = type(f"{joined.shape.__name__}{part.shape.__name__}", (part.shape, joined.shape), {})
            name, summary = f"{joined.name}+{part.name}", f"{joined.summary}; {part.summary}"
            above = joined.variant(name, summary, part.replaces, joined.violates, shape, part.modules)
            taken = {n: (joined.replaces[n], *joined.beneath.get(n, ())) for n in part.replaces if n in joined.replaces}
            shows = part.modules or joined.shows
            joined = dataclasses.replace(above, beneath={**joined.beneath, **taken}, shows=shows)
        return joined

    def meant(self, used: str, value: F, user: Callable[..., Any], judging: bool = False) -> F:
        """The function that a name means in the text of `user`; `value`: the one that its module has.

        `judging`: `user` judges, so it means the original, or what it replaced if it is a replacement itself.
        """
        taken = [self.replaces[used], *self.beneath.get(used, ()), value] if used in self.replaces else [value]
        within = (before for after, before in pairwise(taken) if user is after)
        return cast(F, next(within, value if judging else taken[0]))

    def fields(self) -> dict[str, Field]:
        """The state variables: first those of the original design, then those that variants add."""
        return {n: v for c in reversed(self.shape.__mro__) for n, v in vars(c).items() if isinstance(v, Field)}

    def rules(self) -> list[Rule]:
        """The rules in the order of the text, with replacements in place."""
        found: list[Rule] = []
        for module in self.modules:
            for name, value in vars(module).items():
                rule = getattr(value, "__rule__", None)
                if isinstance(rule, Rule) and value.__module__ == module.__name__ and self._shown(rule, module):
                    function = self.replaces.get(name, value)
                    found.append(replace(getattr(function, "__rule__", rule), name=name, function=function))
        return found

    def _shown(self, rule: Rule, module: ModuleType) -> bool:
        return rule.kind != "sometimes" or not self.shows or module in self.shows
