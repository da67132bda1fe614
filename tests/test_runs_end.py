"""Why every run comes to rest (SPEC.md §7): three facts about the graph of reachable states, and how each can fail."""

from __future__ import annotations

import pytest

from hicache_spec import Bounds, BoundSpec, Design, Refused
from hicache_spec.bounds import SOLO_CHURN, TINY
from hicache_spec.language import State, action, require
from hicache_spec.pipeline import reclaim
from hicache_spec.state import RANKS, is_terminated
from test_explore import CANONICAL, COUNTS, all_configurations

Edges = list[list[int]]


def graph(spec: BoundSpec) -> tuple[Edges, list[str], list[int]]:
    """The steps that change something, the fair ones that do not, and the states where no fair step is possible and
    the system is not at rest."""
    first = spec.encode(spec.initial())
    ids, order = {first: 0}, [first]
    edges: Edges = []
    fair_stutters: list[str] = []
    stuck: list[int] = []
    for number, key in enumerate(order):  # `order` grows
        edges.append([])
        some_fair = False
        s = spec.decode(key)
        for step in spec.steps:
            try:
                step.run(s)
            except Refused:
                continue
            fair = step.rule.fairness == "weak"
            some_fair = some_fair or fair
            target = spec.encode(s)
            if target not in ids:
                ids[target] = len(order)
                order.append(target)
            if ids[target] != number:
                edges[number].append(ids[target])
            elif fair:
                fair_stutters.append(step.label)
            s = spec.decode(key)
        if not some_fair and not spec.is_quiescent(s):
            stuck.append(number)
    return edges, fair_stutters, stuck


def has_cycle(edges: Edges) -> bool:
    """Is some state reachable from itself? States without predecessors are taken away until none is left."""
    predecessors = [0] * len(edges)
    for targets in edges:
        for target in targets:
            predecessors[target] += 1
    free = [state for state, count in enumerate(predecessors) if count == 0]
    taken = 0
    while free:
        taken += 1
        for target in edges[free.pop()]:
            predecessors[target] -= 1
            if predecessors[target] == 0:
                free.append(target)
    return taken < len(edges)


def cost(bounds: Bounds) -> pytest.MarkDecorator:
    return pytest.mark.heavy if bounds in TINY else pytest.mark.slow


@pytest.mark.parametrize("bounds", [pytest.param(b, marks=cost(b), id=b.name) for b in all_configurations()])
def test_every_fair_run_comes_to_rest(bounds: Bounds) -> None:
    edges, fair_stutters, stuck = graph(BoundSpec(CANONICAL, bounds))
    assert len(edges) == COUNTS[bounds.name][0]
    assert not has_cycle(edges)
    assert not fair_stutters
    assert not stuck


def without_content(s: State, op: int) -> bool:
    """A policy that is never content, so that only a stop or a failure ends an operation."""
    return is_terminated(s, op)


@action(fairness="weak")
def env_do_nothing(s: State) -> None:
    """§3.12 A fair action that changes nothing."""
    require(len(RANKS) > 0, "there are ranks")


def take_back_and_lose(s: State, pages: int) -> None:
    """A page that is taken back is put on the release queue again."""
    reclaim(s, pages)
    for r in RANKS:
        s.free[r] -= pages
        s.releasing[r] += pages


def faulty(replaces: dict[str, object]) -> Design:
    return CANONICAL.variant("faulty", "", replaces)  # type: ignore[arg-type]


def test_an_operation_that_nothing_ends_is_seen() -> None:
    _, _, stuck = graph(BoundSpec(faulty({"may_end": without_content}), SOLO_CHURN))
    assert stuck


def test_a_fair_step_that_changes_nothing_is_seen() -> None:
    _, stutters, _ = graph(BoundSpec(faulty({"env_advance_clock": env_do_nothing}), SOLO_CHURN))
    assert set(stutters) == {"env_advance_clock()"}


def test_a_step_back_is_seen() -> None:
    _, stutters, _ = graph(BoundSpec(faulty({"reclaim": take_back_and_lose}), SOLO_CHURN))
    assert any(label.startswith("sched_drain") for label in stutters)


def test_a_cycle_is_seen() -> None:
    assert has_cycle([[1], [2], [1]])
    assert not has_cycle([[1, 2], [2], []])
