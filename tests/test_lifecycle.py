"""The life cycle: every state and trigger, final states, diagrams."""

from __future__ import annotations

import itertools

import pytest

from hicache_spec import lifecycle
from hicache_spec.lifecycle import EDGES, FINAL, STATES, TABLE, TRIGGERS, MachineError, Operation
from hicache_spec.state import AFTER, PHASE


def operation_in(state: str) -> Operation:
    operation = Operation()
    operation.state = state
    return operation


@pytest.mark.parametrize(("state", "trigger"), list(itertools.product(STATES, TRIGGERS)))
def test_every_state_and_trigger(state: str, trigger: str) -> None:
    operation = operation_in(state)
    if (trigger, state) in EDGES:
        assert operation.fire(trigger) == EDGES[trigger, state]
    else:
        with pytest.raises(MachineError):
            operation.fire(trigger)
        assert operation.state == state, "an illegal trigger leaves the state unchanged"


def test_the_table_is_the_one_of_the_design() -> None:
    assert {(t, s, n) for (t, s), n in EDGES.items()} == {
        ("query", "queued", "queried"),
        ("allocate", "queried", "allocated"),
        ("fetch", "allocated", "fetched"),
        ("terminate", "queued", "terminated"),
        ("terminate", "queried", "terminated"),
        ("terminate", "allocated", "terminated"),
        ("revoke", "queried", "revoked"),
        ("revoke", "terminated", "revoked"),
        ("fetch", "terminated", "fetched"),
    }


def test_final_states_have_no_way_out() -> None:
    assert {s for s in STATES if not any(source == s for _, source in EDGES)} == set(FINAL)


def test_every_state_is_reachable() -> None:
    reached = {lifecycle.INITIAL}
    for _ in STATES:
        reached |= {target for (_, source), target in EDGES.items() if source in reached}
    assert reached == set(STATES)


def test_an_operation_starts_queued_and_knows_no_other_way_to_move() -> None:
    operation = Operation()
    assert operation.state == "queued"
    assert not any(name.startswith("to_") for name in dir(operation))
    with pytest.raises(ValueError, match="unknown trigger 'vanish'"):
        operation.fire("vanish")


def test_the_machine_forgets_its_operations() -> None:
    before = len(lifecycle.MACHINE.models)
    Operation()
    assert len(lifecycle.MACHINE.models) == before


def test_the_pipeline_moves_operations_by_this_table() -> None:
    for (number, trigger), (phase, name) in itertools.product(enumerate(TRIGGERS), enumerate(PHASE.members)):
        assert PHASE.members[AFTER[number][phase]] == EDGES.get((trigger, name), "illegal")


def test_diagrams_show_every_edge_once() -> None:
    mermaid, dot = lifecycle.mermaid(), lifecycle.dot()
    for edge in TABLE:
        for source in edge.sources:
            assert mermaid.count(f"    {source} --> {edge.target}: {edge.trigger}\n") == 1
            assert dot.count(f'    {source} -> {edge.target} [label="{edge.trigger}"];\n') == 1
    assert mermaid.startswith("stateDiagram-v2\n    [*] --> queued\n")
    assert mermaid.endswith("    revoked --> [*]\n    fetched --> [*]\n")
    assert dot.startswith("digraph life_cycle {")
