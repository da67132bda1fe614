"""A difference between two designs told step by step: LEFT's run, and beside it the nearest that RIGHT can do.

If RIGHT cannot show the word, that is its longest matching run, and what it can show next that is most like what it
cannot; if it can show the word but not the outcome, a run to its nearest outcome after the same word.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np

from hicache_checks.engine.graph import edges_from, shortest_paths
from hicache_checks.engine.refine import Comparison, Difference
from hicache_checks.engine.refine_observer import HIDDEN, NOTHING, Seen, Wide
from hicache_spec.observations import TOLD, Letter, say_event, say_letter

Ended = tuple[tuple[str, int], ...]
"""How each operation ended: its final state, and the pages that it published."""


@dataclass(frozen=True)
class Move:
    """A step of one side: its number in the run, what it is, and the events that it emits; `seen` by the observer."""

    number: int
    label: str
    events: tuple[str, ...]
    seen: str


@dataclass(frozen=True)
class TwoSides:
    """Both runs, aligned by what is seen. `matched`: the letters that RIGHT can show, out of all.

    The outcomes are those at rest; None where the word itself is the difference. There, `instead` is the letter of
    RIGHT's that is most like the first that it cannot show; empty if it can show none of that kind.
    """

    rows: tuple[tuple[Move | None, Move | None], ...]
    word: tuple[str, ...]
    matched: int
    instead: str
    left_outcome: Ended | None
    right_outcome: Ended | None

    @property
    def left(self) -> tuple[Move, ...]:
        """LEFT's run alone."""
        return tuple(move for move, _ in self.rows if move is not None)

    @property
    def right(self) -> tuple[Move, ...]:
        """RIGHT's run alone."""
        return tuple(move for _, move in self.rows if move is not None)


def both_sides(comparison: Comparison, difference: Difference) -> TwoSides:
    """Tell a difference."""
    left, right = comparison.left, comparison.observer.seen
    letters = left.word(difference.edges)
    sets = _sets(comparison, letters)
    matched = len(sets) - 1
    other = None if matched == len(letters) else _most_alike(comparison, sets[-1], letters[matched])
    shown = letters[:matched] + ([] if other is None else [other])
    nearest, outcome = _nearest(comparison, shown, difference.outcome)
    rows = _aligned(_moves(comparison, left, difference.edges), _moves(comparison, right, nearest))
    told: Any = difference.outcome
    word = tuple(map(say_letter, difference.word))
    instead = "" if other is None else say_letter(*comparison.alphabet.read([other]))
    return TwoSides(tuple(rows), word, matched, instead, told, outcome)


def _sets(comparison: Comparison, letters: Sequence[int]) -> list[int]:
    """The observer's sets after each prefix of the letters, as far as RIGHT can show them."""
    sets = [comparison.observer.start]
    for letter in letters:
        following = comparison.observer.after(sets[-1], [letter])
        if following == NOTHING:
            break
        sets.append(following)
    return sets


def _most_alike(comparison: Comparison, number: int, letter: int) -> int | None:
    """Of the letters that this set of RIGHT's can show, the one of the same kind with most in common; None for none."""
    (wanted,) = comparison.alphabet.read([letter])
    possible = []
    for next_letter in comparison.observer.next_letters(number):
        (found,) = comparison.alphabet.read([next_letter])
        if found[0] == wanted[0]:
            possible.append((-_in_common(found, wanted), say_letter(found), next_letter))
    return min(possible)[2] if possible else None


def _in_common(one: Letter, other: Letter) -> int:
    """How much two letters share: equal values in equal places; of a tick's decisions, what each shares."""
    return sum(
        2 * _in_common(a, b) + 1 if isinstance(a, tuple) and isinstance(b, tuple) and a[:2] == b[:2] else int(a == b)
        for a, b in zip(one[1:], other[1:], strict=False)
    )


def _nearest(comparison: Comparison, letters: Sequence[int], outcome: Any) -> tuple[list[int], Any]:
    """Edges of RIGHT's shortest run that shows the letters, if need be to the outcome nearest to this, and that one."""
    observer = comparison.observer
    sets = _sets(comparison, letters)
    matched = len(letters)
    # One layer of nodes for each number of letters shown.
    sources, targets, edges = [], [], []
    for layer, number in enumerate(sets):
        found = edges_from(observer.offsets, observer.sets[number])
        wanted = letters[layer] if layer < matched else NOTHING
        found = found[(observer.letters[found] == HIDDEN) | (observer.letters[found] == wanted)]
        shown = observer.letters[found] != HIDDEN
        order = np.lexsort((~shown, observer.sources[found]))  # what is seen as early as it can be
        found, shown = found[order], shown[order]
        sources.append(observer.sources[found].astype(np.int64) + layer * observer.size)
        targets.append(observer.targets[found].astype(np.int64) + (layer + shown) * observer.size)
        edges.append(found)
    joined = np.concatenate(edges)
    paths = shortest_paths(len(sets) * observer.size, np.concatenate(sources), np.concatenate(targets), [0])
    ends = paths.order[paths.order >= matched * observer.size]
    nearest = None
    if outcome is not None:
        ends, nearest = _with_nearest_outcome(comparison, ends, matched, outcome)
    origins = observer.origins[joined[np.array(paths.to(int(ends[0])), np.int64)]] if len(ends) else np.zeros(0, int)
    return [int(e) for e in origins if e != NOTHING], nearest


def _with_nearest_outcome(comparison: Comparison, ends: Wide, layer: int, outcome: Ended) -> tuple[Wide, Ended | None]:
    """Those of the ends that are at rest with the outcome that differs least; all of them if none is at rest."""
    observer = comparison.observer
    known: list[Any] = list(comparison.alphabet.outcomes)
    numbers = observer.outcomes[ends - layer * observer.size]
    possible = sorted(set(numbers.tolist()) - {NOTHING}, key=lambda n: (_distance(known[n], outcome), known[n]))
    if not possible:
        return ends, None
    return ends[numbers == possible[0]], known[possible[0]]


def _distance(one: Ended, other: Ended) -> tuple[int, int]:
    """How many operations end differently, and by how many pages in all."""
    return sum(a != b for a, b in zip(one, other, strict=True)), sum(
        abs(a[1] - b[1]) for a, b in zip(one, other, strict=True)
    )


def _moves(comparison: Comparison, seen: Seen, edges: Sequence[int]) -> list[tuple[int, int, Move]]:
    """A run of one side replayed: each move with the numbers of letters shown before and after it."""
    spec = seen.graph.spec
    s, moves, shown = spec.initial(), [], 0
    for number, edge in enumerate(edges, 1):
        step, word = spec.steps[seen.graph.steps[edge]], seen.word([edge])
        s.events = []
        step.run(s)
        events = tuple(say_event(e) for e in s.events if e[0] in TOLD)
        text = " ".join(map(say_letter, comparison.alphabet.read(word)))
        moves.append((shown, shown + len(word), Move(number, step.label, events, text)))
        shown += len(word)
    return moves


def _aligned(
    left: Sequence[tuple[int, int, Move]], right: Sequence[tuple[int, int, Move]]
) -> Iterator[tuple[Move | None, Move | None]]:
    """Moves side by side: those that show the same letters, and hidden ones between the same letters."""
    ends = [{0, *(after for _, after, _ in side)} for side in (left, right)]
    # Between two meetings, places at which both sides have shown as much, each goes its own way.
    meetings = ends[0] & ends[1] | {max(ends[0] | ends[1])}
    cuts = sorted(meetings)
    groups: dict[tuple[int, bool], tuple[list[Move], list[Move]]] = {}
    for side, moves in enumerate((left, right)):
        for before, after, move in moves:
            group = (bisect_left(cuts, after), before == after and after in meetings)
            groups.setdefault(group, ([], []))[side].append(move)
    for group in sorted(groups):
        yield from zip_longest(*groups[group])
