"""Random expressions of the specification language, as text, over given state variables and names.

What would crash plain Python is avoided by construction: an index is always within its set (or negative, as Python
allows), and an element of a queue is asked for only where there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from hypothesis import strategies as st

T = TypeVar("T")
Forms = list[Callable[[], str]]


@dataclass(frozen=True)
class Variable:
    """A state variable. `over`: the set whose elements it holds; `high`: the largest value of an `upto`; `dims`: the
    sets that index it; `capacity`: of a queue, 0 for as many as there are elements."""

    name: str
    kind: str
    over: str
    high: int
    dims: tuple[str, ...]
    capacity: int

    @property
    def declaration(self) -> str:
        """The line of the state's class."""
        inside = {"flag": "", "upto": str(self.high), "member": "COLOUR"}.get(self.kind, self.over)
        inside += f", {self.capacity}" if self.capacity else ""
        return f"    {self.name} = field({', '.join((f'{self.kind}({inside})', *self.dims))})"


@dataclass(frozen=True)
class Scope:
    """What an expression may name: states, elements of sets (name, set), and other numbers."""

    states: tuple[str, ...] = ("s",)
    elements: tuple[tuple[str, str], ...] = ()
    numbers: tuple[str, ...] = ()

    def with_element(self, name: str, over: str) -> Scope:
        """The scope in which a name is an element of a set."""
        return replace(self, elements=(*self.elements, (name, over)))

    def with_number(self, name: str) -> Scope:
        """The scope in which a name is a number."""
        return replace(self, numbers=self.numbers if name in self.numbers else (*self.numbers, name))


class Expressions:
    """Writes expressions, one choice after the other. The simplest choice comes first; `depth` bounds the nesting.

    `alike`: the elements of set A are mostly treated alike: seldom named, and not taken for numbers.
    """

    def __init__(self, draw: Callable[[st.SearchStrategy[int]], int], alike: bool = False) -> None:
        self.draw, self.alike = draw, alike
        self.sizes = {"A": self.between(2, 3), "B": self.between(1, 2)}
        self.variables: list[Variable] = []
        self.predicates: list[str] = []
        self.functions: list[str] = []
        self.names = 0

    # -- choices

    def between(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def one_of(self, options: Sequence[T]) -> T:
        return options[self.between(0, len(options) - 1)]

    def sometimes(self, percent: int) -> bool:
        return self.between(0, 99) >= 100 - percent

    def fresh(self) -> str:
        self.names += 1
        return f"v{self.names}"

    def of_kind(self, *kinds: str, over: str = "") -> list[Variable]:
        return [v for v in self.variables if v.kind in kinds and over in ("", v.over)]

    # -- places and elements

    def place(self, v: Variable, sc: Scope, depth: int, state: str = "") -> str:
        """A variable with its indices."""
        name = f"{state or self.one_of(sc.states)}.{v.name}"
        return name + "".join(f"[{self.index(sc, d, depth)}]" for d in v.dims)

    def index(self, sc: Scope, over: str, depth: int) -> str:
        """An index into a set; negative ones count from the end."""
        if depth > 0 and self.sometimes(25) and not (self.alike and over == "A"):
            forms: Forms = [lambda: f"{self.element(sc, over, 0)} - len({over})"]
            if read := self.of_kind("element", "optional", over=over):
                forms.append(lambda: self.place(self.one_of(read), sc, 0))
            return self.one_of(forms)()
        return self.element(sc, over, depth)

    def element(self, sc: Scope, over: str, depth: int) -> str:
        """An element of a set."""
        names = [name for name, known in sc.elements if known == over]
        forms: Forms = [lambda: self.one_of(names)] * 3 if names else []
        if self.alike and over == "A" and names:
            return self.one_of(names)
        forms.append(lambda: str(self.between(0, self.sizes[over] - 1)))
        if depth > 0:
            forms.append(lambda: f"min(max({self.number(sc, depth - 1)}, 0), {self.sizes[over] - 1})")
            if read := self.of_kind("element", over=over):
                forms.append(lambda: self.place(self.one_of(read), sc, 0))
            if queues := self.of_kind("fifo", over=over):
                forms.append(lambda: self.of_queue(self.one_of(queues), sc, self.element(sc, over, 0)))
        return self.one_of(forms)()

    def of_queue(self, v: Variable, sc: Scope, otherwise: str) -> str:
        """An element of a queue if it has one."""
        queue = self.place(v, sc, 0)
        at = self.one_of(("0", "-1", f"len({queue}) - 1", f"min(1, len({queue}) - 1)"))
        return f"({queue}[{at}] if len({queue}) > 0 else {otherwise})"

    # -- numbers

    def number(self, sc: Scope, depth: int) -> str:
        """An integer."""
        forms: Forms = [lambda: str(self.between(0, 3)), lambda: self.one_of(("NONE", "K", "BLUE"))]
        forms += [lambda: self.one_of(sc.numbers)] * 2 if sc.numbers else []
        elements = [name for name, over in sc.elements if not (self.alike and over == "A")]
        forms += [lambda: self.one_of(elements)] * 2 if elements else []
        numeric = self.of_kind("upto", "member")
        if numeric := numeric + self.of_kind("element", "optional", over="B" if self.alike else ""):
            forms += [lambda: self.place(self.one_of(numeric), sc, depth)] * 4
        if long := self.of_kind("fifo", "subset"):
            forms += [lambda: f"len({self.place(self.one_of(long), sc, depth)})"] * 2
        return self.one_of(forms + (self._compound_numbers(sc, depth - 1) if depth > 0 else []))()

    def _compound_numbers(self, sc: Scope, depth: int) -> Forms:
        number, condition = self.number, self.condition
        forms: Forms = [
            lambda: f"({number(sc, depth)} {self.one_of('+-')} {number(sc, depth)})",
            lambda: f"{self.one_of(('min', 'max'))}({number(sc, depth)}, {number(sc, depth)})",
            lambda: f"({number(sc, depth)} if {condition(sc, depth)} else {number(sc, depth)})",
            lambda: f"{self.one_of((str(self.between(2, 3)), number(sc, 0)))} * {number(sc, 0)}",
            lambda: f"{self.one_of(('abs', '-'))}({number(sc, depth)})",
            lambda: f"GRID[{self.index(sc, 'A', depth)}][{self.index(sc, 'B', depth)}]",
            lambda: self._cost(sc, depth),
            lambda: self._sum(sc, depth),
            lambda: self._least(sc, depth),
        ]
        if self.functions:
            forms += [lambda: f"{self.one_of(self.functions)}({self.one_of(sc.states)}, {number(sc, depth)})"] * 2
        if queues := self.of_kind("fifo"):
            forms.append(lambda: self.of_queue(self.one_of(queues), sc, number(sc, depth)))
        return forms

    def _cost(self, sc: Scope, depth: int) -> str:
        if self.sometimes(50):  # an index that may be beyond the table, where it is not used
            index = self.number(sc, depth)
            return f"(COSTS[{index}] if 0 <= {index} < len(COSTS) else 0)"
        return f"COSTS[{self.index(sc, 'A', depth)}]"

    def _sum(self, sc: Scope, depth: int) -> str:
        name, domain, inner = self._domain(sc)
        chosen = f" if {self.condition(inner, depth)}" if self.sometimes(40) else ""
        return f"sum({self.one_of((self.number, self.condition))(inner, depth)} for {name} in {domain}{chosen})"

    def _least(self, sc: Scope, depth: int) -> str:
        name, over = self.fresh(), self.one_of("AB")
        return f"{self.one_of(('min', 'max'))}({self.number(sc.with_element(name, over), depth)} for {name} in {over})"

    def _domain(self, sc: Scope) -> tuple[str, str, Scope]:
        """A name, what it runs over, and the scope with it."""
        name, over = self.fresh(), self.one_of("AB")
        if self.sometimes(25):
            return name, f"range({self.one_of(('', '1, '))}min({self.number(sc, 0)}, 3))", sc.with_number(name)
        return name, over, sc.with_element(name, over)

    # -- conditions

    def condition(self, sc: Scope, depth: int) -> str:
        """A truth value."""
        number, below = self.number, max(0, depth - 1)
        compared = ("==", "!=", "<", "<=", ">", ">=")
        forms: Forms = [lambda: f"{number(sc, below)} {self.one_of(compared)} {number(sc, below)}"] * 3
        if flags := self.of_kind("flag"):
            forms += [lambda: self.place(self.one_of(flags), sc, depth)] * 2
        if long := self.of_kind("fifo", "subset"):
            forms += [lambda: f"{number(sc, below)} {self._in()} {self.place(self.one_of(long), sc, 0)}"] * 2
        forms += [lambda: self._emitted(sc)] * 2 if "t" in sc.states else []
        return self.one_of(forms + (self._compound_conditions(sc, depth - 1) if depth > 0 else []))()

    def _compound_conditions(self, sc: Scope, depth: int) -> Forms:
        number, condition = self.number, self.condition
        forms: Forms = [
            lambda: f"({condition(sc, depth)} {self.one_of(('and', 'or'))} {condition(sc, depth)})",
            lambda: f"not ({condition(sc, depth)})",
            lambda: f"({condition(sc, depth)} if {condition(sc, depth)} else {condition(sc, depth)})",
            lambda: f"{number(sc, depth)} {self._in()} ({number(sc, 0)}, {number(sc, 0)})",
            lambda: f"{number(sc, depth)} {self._in()} {self.one_of(('A', 'COSTS'))}",
            lambda: "ON",
            lambda: f"({number(sc, depth)} {self.one_of(('<', '<=', '=='))} {number(sc, depth)} < {number(sc, depth)})",
            lambda: self._quantified(sc, depth),
            lambda: self._quantified(sc, depth),
        ]
        if self.predicates:
            name, state = self.one_of(self.predicates), self.one_of(sc.states)
            forms += [lambda: f"{name}({state}, {self.element(sc, 'A', depth)})"] * 2
        return forms

    def _in(self) -> str:
        return self.one_of(("in", "not in"))

    def _quantified(self, sc: Scope, depth: int) -> str:
        name, domain, inner = self._domain(sc)
        chosen = f" if {self.condition(inner, depth)}" if self.sometimes(40) else ""
        return f"{self.one_of(('any', 'all'))}({self.condition(inner, depth)} for {name} in {domain}{chosen})"

    def _emitted(self, sc: Scope) -> str:
        name, a, n = self.fresh(), self.index(sc, "A", 0), self.number(sc, 0)
        shown = ("ON_Y", f"ON_Y, n={n}", f"ON_X, a={a}", f"ON_X, a={a}, n={n}")
        forms = [f"emitted(t, {form})" for form in shown]
        return self.one_of((*forms, f"any(emitted(t, ON_X, a={name}) for {name} in A)"))
