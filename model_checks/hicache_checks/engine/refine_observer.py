"""One side of a comparison as an observer sees it, and RIGHT made deterministic by sets of its states."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from hicache_checks.engine.graph import Graph, Ids, closure, edges_from, offsets_of
from hicache_spec.language import State
from hicache_spec.observations import Letter, Observation

Wide = NDArray[np.int64]
NOTHING = -1
"""The number of the empty set, and of the outcome of a state that is not at rest."""
HIDDEN = 0
"""The number of the empty word, and of no letter."""


class Alphabet:
    """Numbers for the letters and the outcomes of two graphs; letter 0 is no letter."""

    def __init__(self) -> None:
        self.letters: dict[Letter, int] = {}
        self.outcomes: dict[Hashable, int] = {}

    def spell(self, word: Sequence[Letter]) -> tuple[int, ...]:
        """The numbers of a word's letters."""
        return tuple(self.letters.setdefault(letter, len(self.letters) + 1) for letter in word)

    def read(self, numbers: Sequence[int]) -> tuple[Letter, ...]:
        """The letters of these numbers."""
        letters = list(self.letters)
        return tuple(letters[number - 1] for number in numbers)

    def outcomes_of(self, graph: Graph, outcome: Callable[[State], Hashable]) -> Wide:
        """For each state the number of its outcome, NOTHING where the system is not at rest."""
        found = np.full(graph.size, NOTHING, np.int64)
        for number in np.flatnonzero(graph.at_rest):
            value = outcome(graph.states[int(number)])
            found[number] = self.outcomes.setdefault(value, len(self.outcomes))
        return found


class Seen:
    """A graph under an observation: for each edge the number of the word that it shows, HIDDEN for none."""

    def __init__(self, graph: Graph, observation: Observation, alphabet: Alphabet) -> None:
        self.graph = graph
        watch = observation.bind(graph.spec)
        numbers: dict[tuple[int, ...], int] = {(): HIDDEN}
        of_label = []
        for step, events in graph.vocabulary:
            spelled = alphabet.spell(watch(step, events))
            of_label.append(numbers.setdefault(spelled, len(numbers)))
        self.words: list[tuple[int, ...]] = list(numbers)
        self.shown: Ids = np.array(of_label, np.int32)[graph.labels]

    def word(self, edges: Sequence[int]) -> list[int]:
        """The letters that these edges show, in order."""
        return [letter for e in edges for letter in self.words[self.shown[e]]]


class Observer:
    """RIGHT as a deterministic machine: its states are sets of states of RIGHT, closed under hidden steps.

    An edge that shows several letters passes through states of its own between them, numbered from `graph.size` on.
    """

    def __init__(self, seen: Seen, outcomes: Wide) -> None:
        self.seen, graph = seen, seen.graph
        sources, targets, letters, origins = _one_letter_each(seen)
        order = np.lexsort((letters, sources))
        self.size = int(max(graph.size, sources.max(initial=0) + 1))
        self.sources, self.targets = sources[order], targets[order]
        self.letters, self.origins = letters[order], origins[order]
        self.offsets = offsets_of(self.sources, self.size)
        hidden = np.flatnonzero(self.letters == HIDDEN)
        self.hidden_offsets = offsets_of(self.sources[hidden], self.size)
        self.hidden_targets = self.targets[hidden]
        self.outcomes = np.concatenate([outcomes, np.full(self.size - graph.size, NOTHING, np.int64)])
        self.sets: list[Wide] = []
        self.final: list[frozenset[int]] = []
        self._number_of: dict[bytes, int] = {}
        self._closed_from: dict[bytes, int] = {}
        self._moves: dict[int, dict[int, Wide]] = {}
        self.start = self._close(np.zeros(1, np.int64))

    def after(self, number: int, letters: Sequence[int]) -> int:
        """The set after these letters; NOTHING if RIGHT cannot show them."""
        for letter in letters:
            if number not in self._moves:
                self._moves[number] = self._moves_from(number)
            if letter not in self._moves[number]:
                return NOTHING
            number = self._close(self._moves[number][letter])
        return number

    def next_letters(self, number: int) -> list[int]:
        """The letters that some member of the set can show next."""
        if number not in self._moves:
            self._moves[number] = self._moves_from(number)
        return list(self._moves[number])

    def _moves_from(self, number: int) -> dict[int, Wide]:
        """For each letter that some member of the set can show next, the states that it leads to."""
        edges = edges_from(self.offsets, self.sets[number])
        edges = edges[self.letters[edges] != HIDDEN]
        keys = np.unique(self.letters[edges].astype(np.int64) * self.size + self.targets[edges])
        letters, targets = keys // self.size, keys % self.size
        starts = np.flatnonzero(np.diff(letters, prepend=-1))
        parts = np.split(targets, starts[1:])
        return {int(letters[start]): part for start, part in zip(starts, parts, strict=True)} if len(starts) else {}

    def _close(self, seeds: Wide) -> int:
        """The number of the set of all that these reach by hidden steps."""
        key = seeds.astype(np.int32).tobytes()
        if key not in self._closed_from:
            members = closure(self.hidden_offsets, self.hidden_targets, seeds, self.size)
            whole = members.astype(np.int32).tobytes()
            if whole not in self._number_of:
                self._number_of[whole] = len(self.sets)
                self.sets.append(members)
                self.final.append(frozenset(np.unique(self.outcomes[members]).tolist()) - {NOTHING})
            self._closed_from[key] = self._number_of[whole]
        return self._closed_from[key]


def _one_letter_each(seen: Seen) -> tuple[Ids, Ids, Ids, Wide]:
    """Sources, targets, letters of RIGHT's edges, and the edge of the graph that each begins (NOTHING: it goes on)."""
    graph = seen.graph
    lengths = np.array([len(word) for word in seen.words])[seen.shown]
    short = np.flatnonzero(lengths <= 1)
    first = np.array([word[0] if word else HIDDEN for word in seen.words], np.int32)
    columns = [(graph.sources[short], graph.targets[short], first[seen.shown[short]], short)]
    fresh = graph.size
    for number, word in enumerate(seen.words):
        if len(word) > 1:
            edges = np.flatnonzero(seen.shown == number)
            here, origins = graph.sources[edges], edges
            for letter in word[:-1]:
                between = np.arange(fresh, fresh + len(edges), dtype=np.int32)
                fresh += len(edges)
                columns.append((here, between, np.full(len(edges), letter, np.int32), origins))
                here, origins = between, np.full(len(edges), NOTHING)
            columns.append((here, graph.targets[edges], np.full(len(edges), word[-1], np.int32), origins))
    sources, targets, letters, begun = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    return sources, targets, letters, begun
