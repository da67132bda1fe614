"""Random small specifications, as the text of a module in the specification language (SPEC.md §A.2).

Numbers may leave their types: an `upto` variable is sometimes assigned whatever comes, a queue may become too long.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import partial
from pathlib import Path

from hypothesis import strategies as st

from hicache_spec import BoundSpec
from hicache_spec.language import Design
from random_expressions import Expressions, Forms, Scope, Variable

HEAD = """from __future__ import annotations

from hicache_spec.language import *

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


class Shape(StateShape):
"""

Lines = list[str]
Returns = Callable[[Scope], str] | None
"""What a `return` gives in a scope; None where there is no `return`."""


class Author(Expressions):
    """Writes a specification."""

    changes = ""
    """What a call of the helper that changes the state begins with; empty without one."""

    # -- statements

    def block(self, sc: Scope, depth: int, returns: Returns, writes: bool) -> Lines:
        """One to three statements, indented."""
        lines: Lines = []
        for _ in range(self.between(1, 3)):
            found, sc = self._statement(sc, depth, returns, writes)
            lines += found
        return [f"    {line}" for line in lines]

    def _statement(self, sc: Scope, depth: int, returns: Returns, writes: bool) -> tuple[Lines, Scope]:
        if depth > 0 and self.sometimes(45):
            return self._compound(sc, depth - 1, returns, writes)
        if writes and self.sometimes(80):
            return self.write(sc), sc
        if sc.numbers and self.sometimes(40):
            return [f"{self.one_of(sc.numbers)} {self.one_of(('=', '+=', '-='))} {self.number(sc, 1)}"], sc
        name = self.fresh()
        if writes and self.changes.startswith("="):
            return [f"{name} {self.changes}{self.element(sc, 'A', 1)})"], sc.with_number(name)
        return [f"{name} = {self.number(sc, 1)}"], sc.with_number(name)

    def _compound(self, sc: Scope, depth: int, returns: Returns, writes: bool) -> tuple[Lines, Scope]:
        """A branch, a loop or an early return; behind a loop its variable is still known."""

        def block(inner: Scope) -> Lines:
            return self.block(inner, depth, returns, writes)

        form = self.one_of(("branch", "branch", "loop", "count", *(["return"] if returns else [])))
        if form == "branch":
            lines = [f"if {self.condition(sc, 1)}:", *block(sc)]
            lines += [f"elif {self.condition(sc, 1)}:", *block(sc)] if self.sometimes(30) else []
            return lines + (["else:", *block(sc)] if self.sometimes(50) else []), sc
        if form == "return":
            assert returns is not None
            return [f"if {self.condition(sc, 1)}:", f"    return {returns(sc)}".rstrip()], sc
        name, over = self.fresh(), self.one_of("AB")
        if form == "loop":
            inner = sc.with_element(name, over)
            return [f"for {name} in {over}:", *block(inner)], inner
        inner = sc.with_number(name)
        last = f"min({self.number(sc, 1)}, {self.between(1, 3)})"
        return [f"{name} = 0", f"for {name} in range({last}):", *block(inner)], inner

    def write(self, sc: Scope) -> Lines:
        """A statement that changes the state or shows an event."""
        forms: Forms = [*(partial(self._changed, v, sc) for v in self.variables)] * 2
        forms.append(lambda: f"emit(s, ON_X, {self.element(sc, 'A', 1)}, {self.number(sc, 1)})")
        forms.append(lambda: f"emit(s, ON_Y, {self.number(sc, 1)})")
        if self.changes and not self.changes.startswith("="):
            forms.append(lambda: f"{self.changes}{self.element(sc, 'A', 1)})")
        return self.one_of(forms)().split("\n")

    def _changed(self, v: Variable, sc: Scope) -> str:
        place = self.place(v, sc, 1, "s")
        if v.kind == "flag":
            return f"{place} = {self.one_of((f'not {place}', self.condition(sc, 1)))}"
        if v.kind == "member":
            return f"{place} = {self.one_of((f'AFTER[{place}]', f'min(max({self.number(sc, 1)}, 0), 2)'))}"
        if v.kind == "upto":
            if self.sometimes(10):
                return f"{place} {self.one_of(('=', '+=', '-='))} {self.number(sc, 1)}"
            within = f"min(max({self.number(sc, 2)}, 0), {v.high})"
            return f"{place} = {self.one_of((f'{place} + 1 if {place} < {v.high} else 0', within))}"
        element = self.element(sc, v.over, 1)
        if v.kind in ("element", "optional"):
            turned = f"({place} + 1 if {place} + 1 < len({v.over}) else 0)" if not self.alike else element
            nowhere = ("NONE", f"({element} if {self.condition(sc, 1)} else NONE)") if v.kind == "optional" else ()
            return f"{place} = {self.one_of((turned, element, *nowhere))}"
        if v.kind == "subset":
            away = self.one_of((element, self.number(sc, 1), f"{self.number(sc, 0)} + 32"))
            return self.one_of((f"insert({place}, {element})", f"discard({place}, {away})"))
        longer, room = f"{place}.append({element})", v.capacity or self.sizes[v.over]
        held = f"if len({place}) < {self.one_of((room, 1, room + 1))}:\n    {longer}"
        shorter = f"if len({place}) > 0:\n    {self.one_of(('', 'gone = '))}{place}.pop(0)"
        return self.one_of((held, shorter, held, shorter, longer))

    # -- declarations

    def declare(self) -> Lines:
        """Three to five state variables."""
        for number in range(self.between(3, 5)):
            kind = self.one_of(("upto", "fifo", "flag", "subset", "optional", "member", "element"))
            dims = self.one_of((("A",), ("B",), (), ("B", "B"), ("A", "B")))
            capacity = self.one_of((0, 1, 2)) if kind == "fifo" else 0
            self.variables.append(
                Variable(f"x{number}", kind, self.one_of("AB"), self.one_of((2, 1, 3, 0)), dims, capacity)
            )
        return [v.declaration for v in self.variables]

    def helpers(self) -> Lines:
        """Helper functions with early returns and loops: up to two that ask, and maybe one that changes the state."""
        lines: Lines = []
        of_element = Scope(elements=(("a", "A"),))
        for number in range(self.between(0, 2)):
            if self.sometimes(50):
                lines += ["", "", f"def holds{number}(s: State, a: int) -> bool:"]
                lines += self.block(of_element, 2, lambda sc: self.condition(sc, 1), False)
                lines.append(f"    return {self.condition(of_element, 1)}")
                self.predicates.append(f"holds{number}")
            else:
                lines += ["", "", f"def number{number}(s: State, n: int) -> int:"]
                lines += self.block(Scope(numbers=("n",)), 2, lambda sc: self.number(sc, 1), False)
                lines.append(f"    return {self.number(Scope(numbers=('n',)), 1)}")
                self.functions.append(f"number{number}")
        if self.sometimes(50):
            gives = self.sometimes(50)
            lines += ["", "", f"def change(s: State, a: int) -> {'int' if gives else 'None'}:"]
            lines += self.block(of_element, 2, lambda sc: self.number(sc, 1) if gives else "", True)
            lines += [f"    return {self.number(of_element, 1)}"] if gives else []
            self.changes = "= change(s, " if gives else "change(s, "
        return lines

    def initial(self) -> Lines:
        """An initial rule that sets two variables."""
        lines = ["", "", "@initial", "def start(s: State) -> None:", '    """§1 Start."""']
        if self.alike:
            return []
        for v in self.variables[:2]:
            place = f"s.{v.name}" + "[0]" * len(v.dims)
            value = {"upto": v.high, "flag": "True", "member": "GREEN"}.get(v.kind, 0)
            queued = {"subset": f"insert({place}, 0)", "fifo": f"{place}.append(0)"}
            lines.append("    " + queued.get(v.kind, f"{place} = {value}"))
        return lines

    def action(self, number: int) -> Lines:
        """An action: guards, maybe a queue whose head is taken, changes."""
        parameters = self.one_of(((("p", "A"),), (("p", "A"), ("q", "B")), (("q", "B"),), ()))
        sc = Scope(elements=parameters)
        tag = ", ".join([f"fairness={self.one_of(('weak', ''))!r}", *(f"{name}={over}" for name, over in parameters)])
        head = ", ".join(["s: State", *(f"{name}: int" for name, _ in parameters)])
        lines = ["", "", f"@action({tag})", f"def act{number}({head}) -> None:", f'    """§2.{number} Act."""']
        guards = self.one_of((0, 1, 0, 2))
        lines += [f'    require({self.condition(sc, 2)}, "it is so")' for _ in range(guards)]
        if (queues := self.of_kind("fifo")) and self.sometimes(30):
            v = self.one_of(queues)
            place = self.place(v, sc, 0, "s")
            lines += [f'    require(len({place}) > 0, "it holds something")', f"    head = {place}.pop(0)"]
            sc = sc.with_element("head", v.over)
        lines += [f"    {line}" for line in self.write(sc)]
        return lines + self.block(sc, 2, lambda sc: "", True)

    def judged(self, kind: str, name: str, section: str, *states: str) -> Lines:
        """A property of one state or two."""
        sc = Scope(states=states)
        lines = ["", "", f"@{kind}", f"def {name}({', '.join(f'{x}: State' for x in states)}) -> bool:"]
        lines.append(f'    """§{section} So it is."""')
        lines += self.block(sc, 1, lambda sc: self.condition(sc, 1), False) if self.sometimes(30) else []
        return [*lines, f"    return {self.condition(sc, 2)}"]

    def text(self) -> str:
        """The text of a module."""
        costs = tuple(self.between(0, 3) for _ in range(3))
        grid = tuple(tuple(self.between(-1, 3) for _ in range(self.sizes["B"])) for _ in range(self.sizes["A"]))
        a, b = self.sizes["A"], self.sizes["B"]
        head = HEAD.format(
            a=f"{a}, symmetric=True" if self.alike else a,
            b=b,
            k=self.between(0, 4),
            on=self.sometimes(50),
            costs=costs,
            grid=grid,
        )
        lines = self.declare() + self.initial() + self.helpers()
        for i in range(self.between(3, 5)):
            lines += self.action(i)
        lines += self.judged("quiescent", "rests", "1", "s") if self.sometimes(60) else []
        for i in range(self.between(1, 3)):
            lines += self.judged("invariant", f"inv_{i}", f"3.{i}", "s")
        for i in range(self.between(0, 2)):
            lines += self.judged("step_property", f"step_{i}", f"4.{i}", "s", "t")
        for i in range(self.between(0, 2)):
            lines += self.judged("sometimes", f"sometimes_{i}", f"5.{i}", "s", "t")
        return head + "\n".join(lines) + "\n"


@st.composite
def random_specs(draw: Callable[[st.SearchStrategy[int]], int], alike: bool = False) -> str:
    """The text of a random specification. `alike`: it declares set A symmetric, and often is."""
    return Author(draw, alike).text()


def load(text: str, folder: Path) -> BoundSpec:
    """The specification that a text says. Its rules are read from a file, so it is written to a new one."""
    path = folder / f"spec_{sum(1 for _ in folder.iterdir())}.py"
    path.write_text(text, encoding="utf-8")
    found = importlib.util.spec_from_file_location(path.stem, path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return BoundSpec(Design("random", "", module.Shape, (module,), {}), None)
