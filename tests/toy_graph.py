"""Graphs made of numbers, without a specification behind them: for tests of what is decided on graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from hicache_checks.engine.graph import Graph, Mask, Predicate

Edge = tuple[int, int, int]
"""Source, target, step."""


@dataclass(frozen=True)
class Numbers:
    """States that are their numbers; `resting` are at rest."""

    size: int
    resting: frozenset[int]

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, number: int) -> Any:
        return number

    def where(self, predicates: Sequence[Predicate]) -> Mask:
        return np.array([[n in self.resting for n in range(self.size)] for _ in predicates], bool)


def graph_of(
    size: int, edges: Sequence[Edge], fair_steps: Sequence[int] = (), resting: Sequence[int] = (), steps: int = 5
) -> Graph:
    """A graph with these edges; a step is its number below `steps`, and a promise of its own if it is fair."""
    rules = [
        SimpleNamespace(
            rule=SimpleNamespace(name=f"step{n}", fairness="weak" if n in fair_steps else "", chosen=()), arguments={}
        )
        for n in range(steps)
    ]
    spec: Any = SimpleNamespace(steps=rules, quiescence=[None])
    columns = np.array(sorted((s, step, t) for s, t, step in edges), np.int32).reshape(-1, 3).T.copy()
    vocabulary = tuple((n, ()) for n in range(steps))
    return Graph(spec, Numbers(size, frozenset(resting)), columns[0], columns[2], columns[1], vocabulary, True)


@dataclass(frozen=True)
class Letters:
    """An observation by which each step shows a word of its own."""

    words: Sequence[tuple[str, ...]]

    def bind(self, spec: Any) -> Callable[[int, Any], tuple[tuple[str, ...], ...]]:
        return lambda step, events: tuple((letter,) for letter in self.words[step])
