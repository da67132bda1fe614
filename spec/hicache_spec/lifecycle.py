"""§2 The life cycle of one prefetch operation, agreed over ranks: a table, and a `transitions` machine built from
it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from transitions import Machine, MachineError, State

STATES = ("queued", "queried", "terminated", "revoked", "allocated", "fetched")
TRIGGERS = ("query", "allocate", "fetch", "terminate", "revoke")
INITIAL = "queued"
FINAL = ("revoked", "fetched")


@dataclass(frozen=True)
class Edge:
    """One transition of the life cycle and when it happens."""

    trigger: str
    sources: tuple[str, ...]
    target: str
    when: str


TABLE = (
    Edge("query", ("queued",), "queried", "the hit count is known and MIN-agreed"),
    Edge("allocate", ("queried",), "allocated", "host pages reserved: the hit, or a shorter prefix >= threshold"),
    Edge("fetch", ("allocated",), "fetched", "all planned pages landed; the prefix is published"),
    Edge("terminate", ("queued", "queried", "allocated"), "terminated", "abort, stop, or a failed page on any rank"),
    Edge("revoke", ("queried",), "revoked", "hit < threshold, or no memory"),
    Edge("revoke", ("terminated",), "revoked", "nothing is published; all pages are returned"),
    Edge("fetch", ("terminated",), "fetched", "it held memory and its request lives: the agreed prefix is published"),
)

EDGES = {(e.trigger, source): e.target for e in TABLE for source in e.sources}
"""(trigger, state) -> next state; what is not here is illegal."""


class Operation:
    """One operation's life cycle as a `transitions` machine: `state`, and a method a trigger.

    An illegal trigger raises `MachineError` and leaves the state unchanged.
    """

    state: str

    def __init__(self) -> None:
        MACHINE.add_model(self, initial=INITIAL)
        MACHINE.remove_model(self)  # the machine must not keep every operation alive

    def fire(self, trigger: str) -> str:
        """Fire a trigger by name; returns the new state. ValueError for an unknown trigger, MachineError for an
        illegal one."""
        if trigger not in TRIGGERS:
            raise ValueError(f"unknown trigger {trigger!r}; the triggers are {', '.join(TRIGGERS)}")
        getattr(self, trigger)()
        return self.state


def build_machine() -> Machine:
    """The machine of the table, without a model of its own. No `to_<state>()` methods: the table is all there is."""
    machine = Machine(
        model=None,
        states=[State(name, final=name in FINAL) for name in STATES],
        initial=INITIAL,
        auto_transitions=False,
    )
    for edge in TABLE:
        machine.add_transition(edge.trigger, list(edge.sources), edge.target)
    return machine


MACHINE: Any = build_machine()


def mermaid() -> str:
    """The life cycle as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {INITIAL}"]
    lines += [f"    {source} --> {e.target}: {e.trigger}" for e in TABLE for source in e.sources]
    lines += [f"    {name} --> [*]" for name in FINAL]
    return "\n".join(lines) + "\n"


def dot() -> str:
    """The life cycle as a Graphviz graph."""
    lines = ["digraph life_cycle {", "    rankdir=LR;", "    node [shape=box, style=rounded];"]
    lines += [f"    {name} [peripheries=2];" for name in FINAL]
    lines += [f'    {source} -> {e.target} [label="{e.trigger}"];' for e in TABLE for source in e.sources]
    return "\n".join([*lines, "}"]) + "\n"


__all__ = [
    "EDGES",
    "FINAL",
    "INITIAL",
    "STATES",
    "TABLE",
    "TRIGGERS",
    "Edge",
    "MachineError",
    "Operation",
    "dot",
    "mermaid",
]
