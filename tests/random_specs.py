"""Random small specifications, as the text of a module in the specification language (SPEC.md §A.2).

What would crash plain Python is avoided by construction: an index is always within its set (or negative, as Python
allows), and an element of a queue is asked for only where there is one. Numbers may leave their types: `upto` variables
are assigned whatever comes, queues may become too long.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

from hypothesis import strategies as st

from hicache_spec import BoundSpec
from hicache_spec.language import Design

HEAD = """from __future__ import annotations

from hicache_spec.language import *
from hicache_spec.language import NONE, EventKind, State, StateShape

A = index("a", lambda b: {a})
B = index("b", lambda b: {b})
K = constant(lambda b: {k}, "k")
ON = switch(lambda b: {on}, "on")
COSTS = table("costs", lambda b: {costs})
GRID = table("grid", lambda b: {grid})
COLOUR = enumeration("colour", "red green blue")
RED, GREEN, BLUE = COLOUR
AFTER = (GREEN, BLUE, RED)
ON_X = EventKind("x", ("a", "n"))
ON_Y = EventKind("y", ("n",))
"""


@dataclass(frozen=True)
class Variable:
    """A state variable: `over` is the set whose elements it holds, `high` the largest value of an `upto`."""

    name: str
    kind: str
    over: str = ""
    high: int = 0
    dims: tuple[str, ...] = ()
    capacity: str = ""

    @property
    def declaration(self) -> str:
        inside = {"flag": "", "upto": str(self.high), "member": "COLOUR"}.get(self.kind, self.over + self.capacity)
        return f"    {self.name} = field({', '.join((f'{self.kind}({inside})', *self.dims))})"


@dataclass(frozen=True)
class Scope:
    """What an expression may name: states, elements of sets (name, set), numbers, and whether events can be asked for."""

    states: tuple[str, ...] = ("s",)
    elements: tuple[tuple[str, str], ...] = ()
    numbers: tuple[str, ...] = ()

    def with_element(self, name: str, over: str) -> Scope:
        """The scope of a loop over a set."""
        return replace(self, elements=(*self.elements, (name, over)))

    def with_number(self, name: str) -> Scope:
        """The scope behind an assignment to a local name."""
        return replace(self, numbers=self.numbers if name in self.numbers else (*self.numbers, name))


class Author:
    """Writes a specification, one choice after the other."""

    def __init__(self, draw: Callable[[st.SearchStrategy], object]) -> None:
        self.draw = draw
        self.variables: list[Variable] = []
        self.sizes = {"A": self.upto(2, 3), "B": self.upto(1, 2)}
        self.names = 0
        self.predicates: list[str] = []
        self.functions: list[str] = []
        self.changes: list[str] = []

    # -- choices

    def one_of(self, options):
        return options[self.draw(st.integers(0, len(options) - 1))]

    def upto(self, low, high):
        return self.draw(st.integers(low, high))

    def sometimes(self, percent: int) -> bool:
        return self.draw(st.integers(0, 99)) >= 100 - percent

    def fresh(self) -> str:
        self.names += 1
        return f"v{self.names}"

    def of_kind(self, *kinds: str) -> list[Variable]:
        return [v for v in self.variables if v.kind in kinds]

    # -- expressions

    def place(self, v: Variable, sc: Scope, depth: int, state: str = "") -> str:
        state = state or self.one_of(sc.states)
        return f"{state}.{v.name}" + "".join(f"[{self.element(sc, d, depth)}]" for d in v.dims)

    def element(self, sc: Scope, over: str, depth: int) -> str:
        """An index into a set; negative ones count from the end."""
        if depth > 0 and self.sometimes(25):
            read = [v for v in self.of_kind("element", "optional") if v.over == over]
            forms = [lambda: f"{self.member(sc, over, 0)} - len({over})"]
            if read:
                forms.append(lambda: self.place(self.one_of(read), sc, 0))
            return self.one_of(forms)()
        return self.member(sc, over, depth)

    def member(self, sc: Scope, over: str, depth: int) -> str:
        """A value that is an element of a set."""
        names = [name for name, known in sc.elements if known == over]
        forms: list[Callable[[], str]] = [lambda: self.one_of(names)] * 3 if names else []
        forms.append(lambda: str(self.upto(0, self.sizes[over] - 1)))
        read = [v for v in self.of_kind("element") if v.over == over]
        queues = [v for v in self.of_kind("fifo") if v.over == over]
        if depth > 0:
            forms.append(lambda: f"min(max({self.number(sc, depth - 1)}, 0), {self.sizes[over] - 1})")
            if read:
                forms.append(lambda: self.place(self.one_of(read), sc, 0))
            if queues:
                forms.append(lambda: self.of_queue(self.one_of(queues), sc, self.member(sc, over, 0)))
        return self.one_of(forms)()

    def of_queue(self, v: Variable, sc: Scope, otherwise: str) -> str:
        """An element of a queue, if there is one."""
        queue = self.place(v, sc, 0)
        at = self.one_of(("0", "-1", f"len({queue}) - 1", f"min(1, len({queue}) - 1)"))
        return f"({queue}[{at}] if len({queue}) > 0 else {otherwise})"

    def number(self, sc: Scope, depth: int) -> str:
        forms: list[Callable[[], str]] = [lambda: str(self.upto(0, 3)), lambda: self.one_of(("NONE", "K", "BLUE"))]
        if sc.numbers:
            forms += [lambda: self.one_of(sc.numbers)] * 2
        if sc.elements:
            forms += [lambda: self.one_of(sc.elements)[0]] * 2
        if numeric := self.of_kind("upto", "member", "element", "optional"):
            forms += [lambda: self.place(self.one_of(numeric), sc, depth)] * 4
        if long := self.of_kind("fifo", "subset"):
            forms += [lambda: f"len({self.place(self.one_of(long), sc, depth)})"] * 2
        if depth > 0:
            forms += [*self.compound_numbers(sc, depth - 1)]
        return self.one_of(forms)()

    def compound_numbers(self, sc: Scope, depth: int) -> list[Callable[[], str]]:
        number, condition = self.number, self.condition

        def generator(word: str) -> str:
            name, over = self.fresh(), self.one_of(("A", "B"))
            inner = sc.with_element(name, over)
            if word == "sum":
                chosen = f" if {condition(inner, depth)}" if self.sometimes(40) else ""
                what = self.one_of((number, condition))(inner, depth)
                return f"sum({what} for {name} in {over}{chosen})"
            return f"{word}({number(inner, depth)} for {name} in {over})"

        def counted() -> str:
            name = self.fresh()
            return f"sum({number(sc.with_number(name), depth)} for {name} in range(min({number(sc, depth)}, 3)))"

        def looked_up() -> str:
            row = self.element(sc, "A", depth)
            column = self.element(sc, "B", depth)
            index = number(sc, depth)
            return self.one_of(
                (
                    f"GRID[{row}][{column}]",
                    f"COSTS[{self.element(sc, 'A', depth)}]",
                    f"(COSTS[{index}] if 0 <= {index} < len(A) else 0)",
                )
            )

        forms: list[Callable[[], str]] = [
            lambda: f"({number(sc, depth)} {self.one_of('+-')} {number(sc, depth)})",
            lambda: f"{self.one_of(('min', 'max'))}({number(sc, depth)}, {number(sc, depth)})",
            lambda: f"({number(sc, depth)} if {condition(sc, depth)} else {number(sc, depth)})",
            lambda: f"{self.upto(2, 3)} * {number(sc, 0)}",
            lambda: f"{number(sc, 0)} * {number(sc, 0)}",
            lambda: f"abs({number(sc, depth)})",
            lambda: f"-{number(sc, 0)}",
            lambda: generator("sum"),
            lambda: generator(self.one_of(("min", "max"))),
            counted,
            looked_up,
        ]
        if self.functions:
            forms += [lambda: f"{self.one_of(self.functions)}({self.one_of(sc.states)}, {number(sc, depth)})"] * 2
        if queues := self.of_kind("fifo"):
            forms.append(lambda: self.of_queue(self.one_of(queues), sc, number(sc, depth)))
        return forms

    def condition(self, sc: Scope, depth: int) -> str:
        number = self.number
        below = max(0, depth - 1)
        forms: list[Callable[[], str]] = [
            lambda: f"{number(sc, below)} {self.one_of(('==', '!=', '<', '<=', '>', '>='))} {number(sc, below)}"
        ] * 3
        if flags := self.of_kind("flag"):
            forms += [lambda: self.place(self.one_of(flags), sc, depth)] * 2
        if long := self.of_kind("fifo", "subset"):
            forms += [
                lambda: f"{number(sc, below)} {self.one_of(('in', 'not in'))} {self.place(self.one_of(long), sc, 0)}"
            ] * 2
        if "t" in sc.states:
            forms += [lambda: self.emitted(sc)] * 2
        if depth > 0:
            forms += self.compound_conditions(sc, depth - 1)
        return self.one_of(forms)()

    def compound_conditions(self, sc: Scope, depth: int) -> list[Callable[[], str]]:
        number, condition = self.number, self.condition

        def quantified() -> str:
            name, over = self.fresh(), self.one_of(("A", "B"))
            domain, inner = over, sc.with_element(name, over)
            if self.sometimes(25):
                domain, inner = f"range({self.one_of(('', '1, '))}min({number(sc, 0)}, 2))", sc.with_number(name)
            chosen = f" if {condition(inner, depth)}" if self.sometimes(40) else ""
            return f"{self.one_of(('any', 'all'))}({condition(inner, depth)} for {name} in {domain}{chosen})"

        def chained() -> str:
            low, high = self.one_of(("<", "<=", ">=", "==")), self.one_of(("<", "<=", "!="))
            return f"({number(sc, depth)} {low} {number(sc, depth)} {high} {number(sc, depth)})"

        forms: list[Callable[[], str]] = [
            lambda: f"({condition(sc, depth)} {self.one_of(('and', 'or'))} {condition(sc, depth)})",
            lambda: f"not ({condition(sc, depth)})",
            lambda: f"({condition(sc, depth)} if {condition(sc, depth)} else {condition(sc, depth)})",
            lambda: f"{number(sc, depth)} in ({number(sc, 0)}, {number(sc, 0)})",
            lambda: f"{number(sc, depth)} not in {self.one_of(('A', 'COSTS'))}",
            lambda: "ON",
            chained,
            quantified,
            quantified,
        ]
        if self.predicates:
            forms += [
                lambda: f"{self.one_of(self.predicates)}({self.one_of(sc.states)}, {self.member(sc, 'A', depth)})"
            ] * 2
        return forms

    def emitted(self, sc: Scope) -> str:
        name = self.fresh()
        return self.one_of(
            (
                "emitted(t, ON_Y)",
                f"emitted(t, ON_Y, n={self.number(sc, 0)})",
                f"emitted(t, ON_X, a={self.element(sc, 'A', 0)})",
                f"emitted(t, ON_X, a={self.element(sc, 'A', 0)}, n={self.number(sc, 0)})",
                f"any(emitted(t, ON_X, a={name}) for {name} in A)",
            )
        )

    # -- statements

    def block(self, sc: Scope, depth: int, returns: Callable[[Scope], str] | None, writes: bool) -> list[str]:
        """One to three statements, indented. `returns` gives the value of a `return`; without it there is none."""
        lines: list[str] = []
        for _ in range(self.upto(1, 3)):
            found, sc = self.statement(sc, depth, returns, writes)
            lines += found
        return [f"    {line}" for line in lines]

    def statement(
        self, sc: Scope, depth: int, returns: Callable[[Scope], str] | None, writes: bool
    ) -> tuple[list[str], Scope]:
        if depth > 0 and self.sometimes(45):
            return self.compound(sc, depth - 1, returns, writes)
        if writes and self.sometimes(80):
            return self.write(sc)
        name = self.one_of(sc.numbers) if sc.numbers and self.sometimes(40) else self.fresh()
        if name in sc.numbers:
            return [f"{name} {self.one_of(('=', '+=', '-='))} {self.number(sc, 1)}"], sc
        return [f"{name} = {self.number(sc, 1)}"], sc.with_number(name)

    def compound(
        self, sc: Scope, depth: int, returns: Callable[[Scope], str] | None, writes: bool
    ) -> tuple[list[str], Scope]:
        def block(inner: Scope = sc) -> list[str]:
            return self.block(inner, depth, returns, writes)

        def branch() -> tuple[list[str], Scope]:
            lines = [f"if {self.condition(sc, 1)}:", *block()]
            if self.sometimes(30):
                lines += [f"elif {self.condition(sc, 1)}:", *block()]
            return lines + (["else:", *block()] if self.sometimes(50) else []), sc

        def early() -> tuple[list[str], Scope]:
            assert returns is not None
            return [f"if {self.condition(sc, 1)}:", f"    return {returns(sc)}".rstrip()], sc

        def loop() -> tuple[list[str], Scope]:
            name, over = self.fresh(), self.one_of(("A", "B"))
            return [f"for {name} in {over}:", *block(sc.with_element(name, over))], sc.with_element(name, over)

        def counted() -> tuple[list[str], Scope]:
            name, inner = self.fresh(), sc
            inner = sc.with_number(name)
            last = f"min({self.number(sc, 1)}, {self.upto(1, 3)})"
            return [f"{name} = 0", f"for {name} in range({last}):", *block(inner)], inner

        return self.one_of((branch, branch, loop, counted, *([early] if returns else [])))()

    def write(self, sc: Scope) -> tuple[list[str], Scope]:
        forms: list[Callable[[], str]] = [self._assignment(v, sc) for v in self.variables] * 2
        forms.append(self._emit(sc))
        if self.changes:
            forms.append(lambda: f"{self.one_of(self.changes)}(s, {self.member(sc, 'A', 1)})")
        lines = self.one_of(forms)().split("\n")
        return lines, sc

    def _emit(self, sc: Scope) -> Callable[[], str]:
        return lambda: self.one_of(
            (
                f"emit(s, ON_X, {self.member(sc, 'A', 1)}, {self.number(sc, 1)})",
                f"emit(s, ON_Y, {self.number(sc, 1)})",
            )
        )

    def _assignment(self, v: Variable, sc: Scope) -> Callable[[], str]:
        def text() -> str:
            place = self.place(v, sc, 1, "s")
            if v.kind == "flag":
                return f"{place} = {self.one_of((f'not {place}', self.condition(sc, 1)))}"
            if v.kind == "upto":
                if self.sometimes(10):
                    return f"{place} {self.one_of(('=', '+=', '-='))} {self.number(sc, 1)}"
                if self.sometimes(40):
                    return f"{place} = min(max({self.number(sc, 2)}, 0), {v.high})"
                return f"{place} = {place} + 1 if {place} < {v.high} else 0"
            if v.kind == "member":
                return f"{place} = {self.one_of((f'AFTER[{place}]', f'min(max({self.number(sc, 1)}, 0), 2)'))}"
            member = self.member(sc, v.over, 1)
            turned = f"({place} + 1 if {place} + 1 < len({v.over}) else 0)"
            if v.kind == "element":
                return f"{place} = {self.one_of((turned, member))}"
            if v.kind == "optional":
                unless = f"({member} if {self.condition(sc, 1)} else NONE)"
                return f"{place} = {self.one_of((turned, member, 'NONE', unless))}"
            if v.kind == "subset":
                away = self.one_of((member, self.number(sc, 1), f"{self.number(sc, 0)} + 32"))
                return self.one_of((f"insert({place}, {member})", f"discard({place}, {away})"))
            longer = f"{place}.append({member})"
            room = int(v.capacity[2:]) if v.capacity else self.sizes[v.over]
            held = f"if len({place}) < {self.one_of((room, room, 1, room + 1))}:\n    {longer}"
            shorter = f"if len({place}) > 0:\n    {self.one_of(('', 'gone = '))}{place}.pop(0)"
            return self.one_of((held, shorter, held, shorter, longer))

        return text

    # -- rules

    def declare(self) -> None:
        for number in range(self.upto(3, 5)):
            kind = self.one_of(("upto", "fifo", "flag", "subset", "optional", "member", "element"))
            over = self.one_of(("A", "B"))
            dims = self.one_of((("A",), ("B",), (), ("B", "B"), ("A", "B")))
            capacity = self.one_of(("", ", 1", ", 2")) if kind == "fifo" else ""
            self.variables.append(Variable(f"x{number}", kind, over, self.one_of((2, 1, 3, 0)), dims, capacity))

    def helpers(self) -> list[str]:
        """Helper functions: predicates, functions, and some that change the state; with early returns and loops."""
        lines: list[str] = []
        scope = Scope(elements=(("a", "A"),))
        for number in range(self.upto(0, 2)):
            if self.sometimes(50):
                body = self.block(scope, 2, lambda sc: self.condition(sc, 1), False)
                lines += ["", "", f"def holds{number}(s: State, a: int) -> bool:", *body]
                lines.append(f"    return {self.condition(scope, 1)}")
                self.predicates.append(f"holds{number}")
            else:
                inner = Scope(numbers=("n",))
                body = self.block(inner, 2, lambda sc: self.number(sc, 1), False)
                lines += ["", "", f"def number{number}(s: State, n: int) -> int:", *body]
                lines.append(f"    return {self.number(inner, 1)}")
                self.functions.append(f"number{number}")
        if self.sometimes(50):
            body = self.block(scope, 2, lambda sc: "", True)
            lines += ["", "", "def change(s: State, a: int) -> None:", *body]
            self.changes.append("change")
        return lines

    def initial(self) -> list[str]:
        chosen = [v for v in self.variables if v.kind in ("upto", "flag", "member", "fifo", "subset")]
        if not chosen:
            return []
        lines = ["", "", "@initial", "def start(s: State) -> None:", '    """§1 Start."""']
        for v in chosen[:2]:
            place = f"s.{v.name}" + "".join("[0]" for _ in v.dims)
            value = {"upto": f"{v.high}", "flag": "True", "member": "GREEN"}.get(v.kind)
            lines.append(
                f"    {place} = {value}"
                if value
                else (f"    insert({place}, 0)" if v.kind == "subset" else f"    {place}.append(0)")
            )
        return lines

    def action(self, number: int) -> list[str]:
        params = self.one_of(((("p", "A"),), (("p", "A"), ("q", "B")), (("q", "B"),), ()))
        sc = Scope(elements=params)
        fair = "'weak'" if self.sometimes(70) else "''"
        tag = ", ".join([f"fairness={fair}", *(f"{name}={over}" for name, over in params)])
        head = ", ".join(["s: State", *(f"{name}: int" for name, _ in params)])
        lines = ["", "", f"@action({tag})", f"def act{number}({head}) -> None:", f'    """§2.{number} Act."""']
        for _ in range(self.one_of((0, 1, 0, 2))):
            lines.append(f'    require({self.condition(sc, 2)}, "it is so")')
        lines += [f"    {line}" for line in self.write(sc)[0]]
        return lines + self.block(sc, 2, lambda sc: "", True)

    def judged(self, kind: str, name: str, section: str, states: tuple[str, ...]) -> list[str]:
        sc = Scope(states=states)
        head = ", ".join(f"{x}: State" for x in states)
        lines = ["", "", f"@{kind}", f"def {name}({head}) -> bool:", f'    """§{section} So it is."""']
        if self.sometimes(30):
            lines += self.block(sc, 1, lambda sc: self.condition(sc, 1), False)
        return [*lines, f"    return {self.condition(sc, 2)}"]

    def text(self) -> str:
        """The text of a module."""
        numbers = [self.upto(0, 3) for _ in range(3)]
        cells = tuple(tuple(self.upto(-1, 3) for _ in range(self.sizes["B"])) for _ in range(self.sizes["A"]))
        head = HEAD.format(
            a=self.sizes["A"], b=self.sizes["B"], k=self.upto(0, 4), on=self.sometimes(50), costs=tuple(numbers), grid=cells
        )
        self.declare()
        lines = ["", "", "class Shape(StateShape):", *(v.declaration for v in self.variables)]
        lines += self.initial() + self.helpers()
        for number in range(self.upto(3, 5)):
            lines += self.action(number)
        if self.sometimes(60):
            lines += self.judged("quiescent", "rests", "1", ("s",))
        for number in range(self.upto(1, 3)):
            lines += self.judged("invariant", f"inv_{number}", f"3.{number}", ("s",))
        for number in range(self.upto(0, 2)):
            lines += self.judged("step_property", f"step_{number}", f"4.{number}", ("s", "t"))
        for number in range(self.upto(0, 2)):
            lines += self.judged("sometimes", f"sometimes_{number}", f"5.{number}", ("s", "t"))
        return head + "\n".join(lines) + "\n"


@st.composite
def random_specs(draw: Callable[[st.SearchStrategy], object]) -> str:
    """The text of a random specification."""
    return Author(draw).text()


def load(text: str, folder: Path) -> BoundSpec:
    """The specification that a text says, bound. Rules are read from a file, so it is written to one."""
    number = sum(1 for _ in folder.iterdir())
    path = folder / f"random_{number}.py"
    path.write_text(text, encoding="utf-8")
    found = importlib.util.spec_from_file_location(f"random_{number}", path)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return BoundSpec(Design("random", "", module.Shape, (module,), {}), None)
