"""Symbolic execution of rules: what an action does to each slot, as an expression over the state before it.

A rule is run once, on expressions instead of numbers. Index sets and loops are unrolled; a branch that depends on the
state is run both ways and the results are merged by `select`; an index that depends on the state becomes a choice among
the places it may name. The subset of Python that rules may use (SPEC.md §A.2) is what makes this possible.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import FunctionType
from typing import Any

from hicache_checks.engine.compile.expressions import Builder, Node
from hicache_checks.engine.compile.layout import DoesNotFit
from hicache_checks.engine.compile.symbolic_state import Part, SymbolicState, Values, from_the_end, member_of
from hicache_spec import language
from hicache_spec.language import EventKind
from hicache_spec.rule_source import place, source

ITERATIONS_MAX = 256


@dataclass(frozen=True)
class Emitted:
    """An event that the action shows when `condition` holds."""

    condition: Node
    kind: EventKind
    values: tuple[Node, ...]


@dataclass
class Traced:
    """What an action does: when it is enabled, the slots after it, its events, and when it leaves the bounds."""

    guard: Node
    values: Values
    events: list[Emitted]
    leaves: Node


@dataclass(frozen=True)
class _Rows:
    """A row of a constant table, chosen by an index that depends on the state."""

    rows: Sequence[Any]
    index: Node


@dataclass
class _Frame:
    """A call: its local names, and whether and what it has returned."""

    function: Callable[..., Any]
    names: dict[str, Any]
    returned: Node
    result: Any = None


@dataclass
class Tracer:
    """Runs one rule. `states` are `s` and, for a property of steps, `t`; `shown` are the events of the step to t."""

    builder: Builder
    states: list[SymbolicState]
    shown: Sequence[Emitted] = ()
    path: Node = field(init=False)
    guard: Node = field(init=False)
    leaves: Node = field(init=False)
    events: list[Emitted] = field(default_factory=list)
    writes: int = 0

    def __post_init__(self) -> None:
        self.path = self.guard = self.builder.true
        self.leaves = self.builder.false

    # -- entry points

    def run_action(self, function: Callable[..., Any], arguments: Sequence[Node]) -> Traced:
        """Trace an action on the first state. Raises DoesNotFit, naming file and line."""
        (state,) = self.states
        self.call(function, [state, *arguments])
        leaves = self.builder.either(self.leaves, state.leaves_its_types())
        return Traced(self.guard, state.values, self.events, leaves)

    def decide(self, function: Callable[..., Any], arguments: Sequence[Node] = ()) -> Node:
        """The truth of a property over the states. Raises DoesNotFit, naming file and line."""
        return self.builder.truth(self.call(function, [*self.states, *arguments]))

    # -- calls and statements

    def call(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        """Run a rule or a helper function; its result."""
        tree = source(function)
        names = dict(zip([a.arg for a in tree.args.args], arguments, strict=True))
        frame = _Frame(function, names, self.builder.false)
        self.block(frame, tree.body)
        if frame.result is not None and frame.returned is not self.builder.true:
            raise self.refuse(frame, tree, "a function that returns a value only sometimes")
        return frame.result

    def refuse(self, frame: _Frame, node: ast.AST, why: str) -> DoesNotFit:
        """The error that names the rule and the line."""
        return DoesNotFit(f"{frame.function.__name__} ({place(frame.function, node)}): {why}")

    def block(self, frame: _Frame, body: Sequence[ast.stmt]) -> None:
        """Run statements; those after a `return` that depends on the state run only where it was not taken."""
        for number, statement in enumerate(body):
            self.statement(frame, statement)
            if frame.returned.is_constant:
                if frame.returned.value:
                    return
                continue
            self.unless_returned(frame, partial(self.block, frame, body[number + 1 :]))
            return

    def unless_returned(self, frame: _Frame, go_on: Callable[[], None]) -> None:
        """Go on where the call has not returned; where it has, nothing more happens."""

        def stay() -> None:
            frame.returned = self.builder.true

        def resume() -> None:
            frame.returned = self.builder.false
            go_on()

        self.branch(frame, frame.returned, stay, resume)

    def branch(
        self, frame: _Frame, condition: Node, yes: Callable[[], object], no: Callable[[], object]
    ) -> tuple[Any, Any]:
        """Run one of two continuations, or both and merge what they leave behind; their results."""
        if condition.is_constant:
            return (yes(), None) if condition.value else (None, no())
        b, path = self.builder, self.path
        before, names = [dict(s.values) for s in self.states], dict(frame.names)
        returned, result = frame.returned, frame.result
        self.path = b.both(path, condition)
        first = yes()
        after = ([s.values for s in self.states], frame.names, frame.returned, frame.result)
        for state, values in zip(self.states, before, strict=True):
            state.values = values
        frame.names, frame.returned, frame.result = names, returned, result
        self.path = b.both(path, b.negate(condition))
        second = no()
        self.path = path
        for state, other in zip(self.states, after[0], strict=True):
            for number, value in other.items():
                state.values[number] = b.select(condition, value, state.values[number])
        for name, value in after[1].items():
            frame.names[name] = self._merged(condition, value, frame.names.get(name, value))
        for name in frame.names.keys() - after[1].keys():
            frame.names[name] = self._merged(condition, after[1].get(name), frame.names[name])
        frame.returned = b.select(condition, after[2], frame.returned)
        frame.result = self._merged(condition, after[3], frame.result)
        return first, second

    def _merged(self, condition: Node, a: Any, b: Any) -> Any:
        if isinstance(a, Node) and isinstance(b, Node):
            return self.builder.select(condition, a, b)
        return b if a is None else a

    def statement(self, frame: _Frame, node: ast.stmt) -> None:
        """Run one statement."""
        try:
            self._run(frame, node)
        except OverflowError:
            raise self.refuse(frame, node, "numbers that do not fit 63 bits") from None

    def _run(self, frame: _Frame, node: ast.stmt) -> None:
        if isinstance(node, ast.Assign):
            self.assign(frame, node.targets[0], self.number(frame, node.value))
        elif isinstance(node, ast.AugAssign):
            written = self.writes
            old = self.number(frame, node.target)
            self.must_not_write(frame, node.target, written)  # the target is looked at twice here
            change = self.number(frame, node.value)
            combine = self.builder.add if isinstance(node.op, ast.Add) else self.builder.sub
            self.assign(frame, node.target, combine(old, change))
        elif isinstance(node, ast.If):
            test = self.truth(frame, node.test)
            self.branch(frame, test, lambda: self.block(frame, node.body), lambda: self.block(frame, node.orelse))
        elif isinstance(node, ast.For):
            self.rounds(frame, node, list(self.domain(frame, node.iter)))
        elif isinstance(node, ast.Return):
            frame.result = None if node.value is None else self.number(frame, node.value)
            frame.returned = self.builder.true
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            self.called(frame, node.value)

    def rounds(self, frame: _Frame, node: ast.For, left: Sequence[tuple[Node, Node]]) -> None:
        """The rounds of a loop, up to a `return`."""
        assert isinstance(node.target, ast.Name)
        for number, (condition, value) in enumerate(left):

            def once(name: str = node.target.id, value: Node = value) -> None:
                frame.names[name] = value
                self.block(frame, node.body)

            self.branch(frame, condition, once, lambda: None)
            if not frame.returned.is_constant:
                self.unless_returned(frame, partial(self.rounds, frame, node, left[number + 1 :]))
                return
            if frame.returned.value:
                return

    def domain(self, frame: _Frame, node: ast.expr) -> Iterator[tuple[Node, Node]]:
        """The values of a loop, each with the condition that the loop comes to it."""
        b = self.builder
        if isinstance(node, ast.Call):
            bounds = [self.number(frame, a) for a in node.args]
            start, stop = (b.false, bounds[0]) if len(bounds) == 1 else (bounds[0], bounds[1])
            if len(bounds) > 2 or not start.is_constant or stop.high - start.value > ITERATIONS_MAX:
                raise self.refuse(frame, node, "a range that is not bounded by the types")
            values = range(start.value, stop.high)
            yield from ((b.less(b.const(v), stop), b.const(v)) for v in values)
            return
        members = self.named(frame, node)
        if not isinstance(members, range):
            raise self.refuse(frame, node, "a loop over something that is not an index set")
        yield from ((b.true, b.const(v)) for v in members)

    # -- writing

    def assign(self, frame: _Frame, target: ast.expr, value: Node) -> None:
        """A new value for a local name or a place of the state."""
        if isinstance(target, ast.Name):
            frame.names[target.id] = value
            return
        part: Part = self.expression(frame, target, whole=True)
        self.writes += 1
        part.store(value)

    # -- expressions

    def number(self, frame: _Frame, node: ast.expr) -> Node:
        """The value of an expression that is one number."""
        value = self.expression(frame, node)
        if not isinstance(value, Node):
            raise self.refuse(frame, node, "an expression that is not a number")
        return value

    def truth(self, frame: _Frame, node: ast.expr) -> Node:
        """The value of an expression as a condition."""
        if isinstance(node, ast.BoolOp):
            return self.logical(frame, node)
        return self.builder.truth(self.number(frame, node))

    def named(self, frame: _Frame, node: ast.expr) -> Any:
        """What a name stands for: a local value, or a bound global."""
        assert isinstance(node, ast.Name)
        if node.id in frame.names:
            return frame.names[node.id]
        return frame.function.__globals__[node.id]

    def expression(self, frame: _Frame, node: ast.expr, whole: bool = False) -> Any:
        """The value of an expression; with `whole`, a part of the state stays a `Part`."""
        b = self.builder
        if isinstance(node, ast.Constant):
            return None if node.value is None else b.const(int(node.value))  # type: ignore[arg-type]
        if isinstance(node, ast.Name):
            value = self.named(frame, node)
            return b.const(value) if isinstance(value, int) else value
        if isinstance(node, ast.Attribute):
            return _read(self.named(frame, node.value).part(node.attr), whole)
        if isinstance(node, ast.Subscript):
            return self.subscript(frame, node, whole)
        if isinstance(node, ast.BinOp):
            left, right = self.number(frame, node.left), self.number(frame, node.right)
            return {ast.Add: b.add, ast.Sub: b.sub, ast.Mult: b.mul}[type(node.op)](left, right)
        if isinstance(node, ast.UnaryOp):
            if isinstance(node.op, ast.Not):
                return b.negate(self.truth(frame, node.operand))
            return b.sub(b.false, self.number(frame, node.operand))
        if isinstance(node, ast.BoolOp):
            return self.logical(frame, node, is_value=True)
        if isinstance(node, ast.Compare):
            return self.comparison(frame, node)
        if isinstance(node, ast.IfExp):
            test = self.truth(frame, node.test)
            first, second = self.branch(
                frame, test, lambda: self.number(frame, node.body), lambda: self.number(frame, node.orelse)
            )
            return b.select(test, first or second, second or first)
        if isinstance(node, ast.Tuple):
            return [self.number(frame, e) for e in node.elts]
        if isinstance(node, ast.Call):
            return self.called(frame, node)
        raise self.refuse(frame, node, f"'{type(node).__name__.lower()}' has no compiled form")

    def logical(self, frame: _Frame, node: ast.BoolOp, is_value: bool = False) -> Node:
        """`and` and `or`: what is decided without looking at the rest is not looked at.

        Where the value counts and not only its truth, the parts must be truth values: Python gives one of them.
        """
        b = self.builder
        stops = isinstance(node.op, ast.Or)
        result = b.const(not stops)
        for part in node.values:
            written = self.writes
            value = self.number(frame, part) if is_value else self.truth(frame, part)
            if not value.is_truth:
                raise self.refuse(frame, part, "a number in 'and' or 'or' whose value is used")
            if not result.is_constant:
                self.must_not_write(frame, part, written)
            result = b.either(result, value) if stops else b.both(result, value)
            if result.is_constant and bool(result.value) is stops:
                return result
        return result

    def must_not_write(self, frame: _Frame, node: ast.expr, written: int) -> None:
        """Refuse an expression that Python might not come to, if it wrote or showed something."""
        if self.writes != written:
            raise self.refuse(frame, node, "a condition that writes the state")

    def comparison(self, frame: _Frame, node: ast.Compare) -> Node:
        """A chain of comparisons, or membership."""
        b = self.builder
        result = b.true
        left = self.expression(frame, node.left)
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            written = self.writes
            right = self.expression(frame, right_node, whole=isinstance(op, (ast.In, ast.NotIn)))
            if right_node is not node.comparators[0]:
                self.must_not_write(frame, right_node, written)
            if isinstance(right, _Rows):
                raise self.refuse(frame, right_node, "membership in a row of a table that the state chooses")
            if isinstance(op, (ast.In, ast.NotIn)):
                inside = right.contains(left) if isinstance(right, Part) else member_of(b, right, left)
                result = b.both(result, inside if isinstance(op, ast.In) else b.negate(inside))
            else:
                result = b.both(result, self._compared(op, left, right))
            left = right
        return result

    def _compared(self, op: ast.cmpop, left: Node, right: Node) -> Node:
        b = self.builder
        if isinstance(op, ast.Eq):
            return b.equal(left, right)
        if isinstance(op, ast.NotEq):
            return b.negate(b.equal(left, right))
        if isinstance(op, (ast.Lt, ast.GtE)):
            less = b.less(left, right)
            return less if isinstance(op, ast.Lt) else b.negate(less)
        less = b.less(right, left)
        return less if isinstance(op, ast.Gt) else b.negate(less)

    def subscript(self, frame: _Frame, node: ast.Subscript, whole: bool) -> Any:
        """An element of a variable, of a queue, or of a constant table."""
        holder = self.expression(frame, node.value, whole=True)
        index = self.number(frame, node.slice)
        if isinstance(holder, Part):
            return holder.element(index) if holder.is_one else _read(holder.at(index), whole)
        return self._table(frame, node, holder, index)

    def _table(self, frame: _Frame, node: ast.Subscript, holder: Any, index: Node) -> Any:
        """A cell of a table of one or two dimensions, or a row of it."""
        b = self.builder
        if not isinstance(holder, _Rows):
            if index.is_constant:
                inside = -len(holder) <= index.value < len(holder)
                cell = holder[index.value if inside else 0]  # what is outside is never used
                return b.const(cell) if isinstance(cell, int) else cell
            if not isinstance(holder[0], int):
                return _Rows(holder, index)
            cells = [int(cell) for cell in holder]
        elif isinstance(holder.rows[0][0], int):
            width = b.const(len(holder.rows[0]))
            if any(len(row) != width.value for row in holder.rows):
                raise self.refuse(frame, node, "a table whose rows differ in length")
            cells = [int(cell) for row in holder.rows for cell in row]
            index = b.add(b.mul(holder.index, width), from_the_end(b, index, width))
        else:
            raise self.refuse(frame, node, "a table of more than two dimensions")
        if index.low < 0:  # as in Python, -1 is the last; what is below the first is never used
            cells = [cells[i] if i >= -len(cells) else 0 for i in range(index.low, 0)] + cells
            index = b.add(index, b.const(-index.low))
        return b.lookup(cells, index)

    # -- calls

    def called(self, frame: _Frame, node: ast.Call) -> Any:
        """A call: of a method of a queue, of a word of the language, of a built-in, or of a helper function."""
        if isinstance(node.func, ast.Attribute):
            return self.queue_method(frame, node, node.func)
        assert isinstance(node.func, ast.Name)
        name = node.func.id
        known = frame.function.__globals__.get(name)
        if isinstance(known, FunctionType) and known.__module__ == language.__name__:
            return self.word(frame, node, name)
        if isinstance(known, FunctionType):
            return self.call(known, [self.expression(frame, a) for a in node.args])
        return self.built_in(frame, node, name)

    def word(self, frame: _Frame, node: ast.Call, name: str) -> Any:
        """`require`, `emit`, `emitted`, `insert`, `discard`."""
        b = self.builder
        if name == "require":
            holds = self.truth(frame, node.args[0])
            self.guard = b.both(self.guard, b.either(b.negate(self.path), holds))
        elif name == "emit":
            kind = self.named(frame, node.args[1])
            values = tuple(self.number(frame, a) for a in node.args[2:])
            self.events.append(Emitted(self.path, kind, values))
            self.writes += 1
        elif name == "emitted":
            return self.emitted(frame, node)
        elif name in ("insert", "discard"):
            part, value = self.expression(frame, node.args[0], whole=True), self.number(frame, node.args[1])
            self.writes += 1
            if name == "insert":
                self._must_fit(part, value)
                part.insert(value)
            else:
                part.discard(value)
        return None

    def emitted(self, frame: _Frame, node: ast.Call) -> Node:
        """Did the step show such an event?"""
        b = self.builder
        kind: EventKind = self.named(frame, node.args[1])
        wanted = {k.arg: self.number(frame, k.value) for k in node.keywords}
        return b.some(
            b.both(
                event.condition,
                b.every(b.equal(event.values[kind.fields.index(str(name))], value) for name, value in wanted.items()),
            )
            for event in self.shown
            if event.kind.name == kind.name
        )

    def queue_method(self, frame: _Frame, node: ast.Call, method: ast.Attribute) -> Node | None:
        """`append` and `pop(0)`."""
        part: Part = self.expression(frame, method.value, whole=True)
        if method.attr == "pop":
            self.writes += 1
            return part.pop()
        value = self.number(frame, node.args[0])
        self.writes += 1
        self._must_fit(part, value)
        part.append(value)
        return None

    def _must_fit(self, part: Part, value: Node) -> None:
        b = self.builder
        self.leaves = b.either(self.leaves, b.both(self.path, b.negate(part.admits(value))))

    def built_in(self, frame: _Frame, node: ast.Call, name: str) -> Node:
        """`len`, `abs`, and `any all sum min max` over one generator or several arguments."""
        b = self.builder
        if name == "len":
            whole = self.expression(frame, node.args[0], whole=True)
            if isinstance(whole, Part):
                return whole.length()
            return b.const(len(whole.rows[0]) if isinstance(whole, _Rows) else len(whole))
        if name == "abs":
            value = self.number(frame, node.args[0])
            return b.maximum(value, b.sub(b.false, value))
        if len(node.args) == 1 and isinstance(node.args[0], ast.GeneratorExp):
            values = self.generated(frame, node.args[0], name)
        else:
            values = [self.number(frame, a) for a in node.args]
        if name in ("any", "all"):
            return b.some(values) if name == "any" else b.every(values)
        if not values:
            if name == "sum":
                return b.false
            raise self.refuse(frame, node, f"'{name}' of nothing")
        combine = {"sum": b.add, "min": b.minimum, "max": b.maximum}[name]
        result = values[0]
        for value in values[1:]:
            result = combine(result, value)
        return result

    def generated(self, frame: _Frame, node: ast.GeneratorExp, name: str) -> list[Node]:
        """The elements of a generator, as truth values for `any` and `all`."""
        b, clause = self.builder, node.generators[0]
        assert isinstance(clause.target, ast.Name)
        hidden = frame.names.get(clause.target.id)
        found = []
        for reached, value in self.domain(frame, clause.iter):
            frame.names[clause.target.id] = value
            written = self.writes
            wanted = b.both(reached, b.every(self.truth(frame, c) for c in clause.ifs))
            if wanted is b.false:
                continue
            decides = name in ("any", "all")
            element = self.truth(frame, node.elt) if decides else self.number(frame, node.elt)
            if decides or not wanted.is_constant:
                self.must_not_write(frame, node, written)
            if name == "any":
                element = b.both(wanted, element)
            elif name == "all":
                element = b.either(b.negate(wanted), element)
            elif name == "sum":
                element = b.select(wanted, element, b.false)
            elif not wanted.is_constant:
                raise self.refuse(frame, node, f"'{name}' over a choice that depends on the state")
            found.append(element)
            if element.is_constant and (name, element.value) in (("any", 1), ("all", 0)):
                break
        frame.names.pop(clause.target.id, None)
        if hidden is not None:
            frame.names[clause.target.id] = hidden
        return found


def _read(part: Part, whole: bool) -> Node | Part:
    return part.load() if part.is_number and not whole else part
