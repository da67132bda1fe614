"""Refinement: is every word that LEFT can show one of RIGHT's, and every outcome at rest after it one of RIGHT's too?

RIGHT is made deterministic by sets of its states (what it can be in after a word, hidden steps included), and LEFT is
run against that observer, breadth-first over pairs of a LEFT state and such a set. LEFT is *not* included in RIGHT if
and only if some pair is reached whose set is empty, or whose LEFT state is at rest with an outcome that no state of the
set has. The first such pair gives a run of LEFT with the fewest steps. Hidden choices of either side are no obstacle.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

import numpy as np

from hicache_checks.engine.graph import Graph, Ids, edges_from, first_occurrences
from hicache_checks.engine.refine_observer import HIDDEN, NOTHING, Alphabet, Observer, Seen, Wide
from hicache_spec.language import State
from hicache_spec.observations import Letter, Observation


class BudgetSpent(Exception):
    """The budget of pairs ran out before the question was decided."""


@dataclass(frozen=True)
class Difference:
    """What LEFT can do and RIGHT cannot: edges of LEFT's graph in order, and the word that they show.

    `outcome`: LEFT is at rest with it, and RIGHT cannot be after the same word; None if RIGHT cannot show the word.
    """

    edges: tuple[int, ...]
    word: tuple[Letter, ...]
    outcome: Hashable | None


@dataclass(frozen=True)
class Inclusion:
    """Whether LEFT is included in RIGHT, and the difference if it is not; `pairs` is the size of the product."""

    difference: Difference | None
    pairs: int

    @property
    def holds(self) -> bool:
        """Is every word of LEFT, and every outcome after it, one of RIGHT's?"""
        return self.difference is None


class Comparison:
    """LEFT and RIGHT under one observation. Raises ValueError for a graph that a budget cut."""

    def __init__(
        self, left: Graph, right: Graph, observation: Observation, outcome: Callable[[State], Hashable]
    ) -> None:
        if not (left.complete and right.complete):
            raise ValueError("refinement is decided on complete graphs only")
        self.alphabet = Alphabet()
        self.left = Seen(left, observation, self.alphabet)
        self.ends = self.alphabet.outcomes_of(left, outcome)
        right_ends = self.alphabet.outcomes_of(right, outcome)
        self.observer = Observer(Seen(right, observation, self.alphabet), right_ends)

    def decide(self, max_pairs: int | None = None, progress: Callable[[int], None] | None = None) -> Inclusion:
        """Is LEFT included in RIGHT? Raises BudgetSpent when more than `max_pairs` pairs would be needed."""
        return _Product(self).run(max_pairs, progress)


class _Product:
    """LEFT run against the observer, level by level. A node is a pair: `states[i]` of LEFT and set `sets[i]`."""

    def __init__(self, comparison: Comparison) -> None:
        self.seen_left, self.left = comparison.left, comparison.left.graph
        self.observer, self.ends, self.alphabet = comparison.observer, comparison.ends, comparison.alphabet
        self.outcomes = list(self.alphabet.outcomes)
        self.parents: list[Wide] = []
        self.edges: list[Wide] = []
        self.seen = np.zeros(0, np.int64)

    def run(self, max_pairs: int | None, progress: Callable[[int], None] | None) -> Inclusion:
        states, sets = np.zeros(1, np.int64), np.array([self.observer.start], np.int64)
        parents, edges = np.array([NOTHING]), np.array([NOTHING])
        total = 0
        while len(states):
            self.parents.append(parents)
            self.edges.append(edges)
            bad = self._cannot(states, sets)
            if len(bad):
                difference = self._difference(total + int(bad[0]), sets[bad[0]], states[bad[0]])
                return Inclusion(difference, total + len(states))
            keys = sets * self.left.size + states
            self.seen = np.sort(np.concatenate([self.seen, keys]), kind="stable")
            first = total
            total += len(states)
            if max_pairs is not None and total > max_pairs:
                raise BudgetSpent
            if progress is not None:
                progress(total)
            edges = edges_from(self.left.offsets, states)
            nodes = np.repeat(np.arange(len(states)), np.diff(self.left.offsets)[states])
            sets = self._moved(sets[nodes], self.seen_left.shown[edges])
            states = self.left.targets[edges].astype(np.int64)
            # The empty set is a node like any other: the next round finds it and stops.
            keys = sets * self.left.size + states
            places = np.searchsorted(self.seen, keys)
            fresh = self.seen[np.minimum(places, len(self.seen) - 1)] != keys
            kept = np.flatnonzero(fresh)
            kept = kept[first_occurrences(keys[kept])]
            states, sets, edges, parents = states[kept], sets[kept], edges[kept], nodes[kept] + first
        return Inclusion(None, total)

    def _moved(self, sets: Wide, shown: Ids) -> Wide:
        """The observer's sets after these words."""
        words = self.seen_left.words
        moved = sets.copy()
        visible = np.flatnonzero(shown != HIDDEN)
        keys, inverse = np.unique(sets[visible] * len(words) + shown[visible], return_inverse=True)
        numbers, chosen = np.divmod(keys, len(words))
        after = [
            self.observer.after(number, words[word])
            for number, word in zip(numbers.tolist(), chosen.tolist(), strict=True)
        ]
        moved[visible] = np.array(after, np.int64)[inverse]
        return moved

    def _cannot(self, states: Wide, sets: Wide) -> Wide:
        """The nodes at which RIGHT cannot show what LEFT has shown."""
        bad = sets == NOTHING
        resting = np.flatnonzero((self.ends[states] != NOTHING) & ~bad)
        keys, inverse = np.unique(sets[resting] * len(self.outcomes) + self.ends[states[resting]], return_inverse=True)
        numbers, ends = np.divmod(keys, max(1, len(self.outcomes)))
        missing = [end not in self.observer.final[n] for n, end in zip(numbers.tolist(), ends.tolist(), strict=True)]
        bad[resting] = np.array(missing, bool)[inverse]
        return np.flatnonzero(bad)

    def _difference(self, node: int, number: np.int64, state: np.int64) -> Difference:
        parents, edges = np.concatenate(self.parents), np.concatenate(self.edges)
        path: list[int] = []
        while parents[node] != NOTHING:
            path.append(int(edges[node]))
            node = int(parents[node])
        path.reverse()
        word = self.alphabet.read(self.seen_left.word(path))
        outcome = None if number == NOTHING else self.outcomes[int(self.ends[state])]
        return Difference(tuple(path), word, outcome)
