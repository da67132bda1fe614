"""A compiled specification: one kernel an action instance, and the properties, as expressions over the packed state."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from hicache_checks.engine.compile.expressions import Builder, Node, in_order
from hicache_checks.engine.compile.layout import WORD_BITS, DoesNotFit, Layout
from hicache_checks.engine.compile.symbolic_state import SymbolicState, Values
from hicache_checks.engine.compile.tracer import Emitted, Tracer
from hicache_spec import BoundSpec
from hicache_spec.binding import Property, Step


@dataclass(frozen=True)
class Kernel:
    """One action instance. `changes` are the slots that it may change; `leaves` says that a value left its type.

    `broken` are the step properties that the step may violate, `reached` the outcomes that it may reach, by number,
    each with the condition that it does. What cannot happen here is not listed.
    """

    number: int
    step: Step
    guard: Node
    changes: Values
    leaves: Node
    broken: tuple[tuple[int, Node], ...]
    reached: tuple[tuple[int, Node], ...]
    events: tuple[Emitted, ...]


class Compiled:
    """The expressions of a bound specification."""

    def __init__(self, spec: BoundSpec, only: Collection[str] | None = None) -> None:
        """`only`: these properties and no outcomes; by default all. Raises DoesNotFit, naming the rule."""
        self.spec, self.only = spec, only
        for what in ("invariants", "step_properties", "sometimes"):
            if (count := len(getattr(spec, what))) > WORD_BITS:
                raise DoesNotFit(f"{count} {what.replace('_', ' ')}, more than {WORD_BITS}")
        self.layout = Layout(spec)
        self.builder = Builder()
        self.before: Values = {
            slot.number: self.builder.slot(slot.number, slot.offset, slot.high) for slot in self.layout.slots
        }
        self.initial = self.layout.pack(spec.initial())
        self.kernels = [self._kernel(number, step) for number, step in enumerate(spec.steps)]
        self.violated = [
            self.builder.negate(self.predicate(p.holds)) if self.is_wanted(p) else self.builder.false
            for p in spec.invariants
        ]
        self.read_by = [{n.value for n in in_order([v]) if n.op == "slot"} for v in self.violated]
        """The slots that each invariant speaks of."""
        self.at_rest = self.builder.every(self.predicate(holds) for holds in spec.quiescence)
        self.goes_on = self.builder.some(k.guard for k in self.kernels if k.step.rule.fairness)

    def is_wanted(self, p: Property) -> bool:
        """Is this property among those to be decided?"""
        return self.only is None or p.rule.name in self.only

    def predicate(self, holds: Callable[..., Any], *arguments: int) -> Node:
        """A condition on one state, such as an invariant or `p` of a liveness property, as an expression."""
        tracer = Tracer(self.builder, [self.symbolic(self.before)])
        return tracer.decide(holds, [self.builder.const(a) for a in arguments])

    def symbolic(self, values: Values) -> SymbolicState:
        """A state with these values, to be read and written by a rule."""
        return SymbolicState(self.builder, self.layout, dict(values))

    def _kernel(self, number: int, step: Step) -> Kernel:
        b = self.builder
        tracer = Tracer(b, [self.symbolic(self.before)])
        arguments = [b.const(value) for value in step.arguments.values()]
        done = tracer.run_action(step.function, arguments)
        if not done.guard.is_truth:
            raise DoesNotFit(f"{step.rule.name}: its guard is not a condition")
        changes = {n: value for n, value in done.values.items() if value is not self.before[n]}

        def decided(properties: list[Property], when: Callable[[Node], Node]) -> tuple[tuple[int, Node], ...]:
            found = []
            for i, p in enumerate(properties):
                if not self.is_wanted(p):
                    continue
                judge = Tracer(b, [self.symbolic(self.before), self.symbolic(done.values)], done.events)
                condition = when(judge.decide(p.holds))
                if condition is not b.false:
                    found.append((i, condition))
            return tuple(found)

        broken = decided(self.spec.step_properties, b.negate)
        reached = decided(self.spec.sometimes, lambda holds: holds)
        return Kernel(number, step, done.guard, changes, done.leaves, broken, reached, tuple(done.events))
