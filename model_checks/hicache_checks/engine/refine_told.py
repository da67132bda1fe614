"""A difference between two designs told step by step: LEFT's run, and beside it the nearest that RIGHT can do.

If RIGHT cannot show the word, that is its longest matching run, and what it can show next that is most like what it
cannot; if it can show the word but not the outcome, a run to its nearest outcome after the same word.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np

from hicache_checks.engine.graph import edges_from, shortest_paths
from hicache_checks.engine.refine import Comparison, Difference
from hicache_checks.engine.refine_observer import HIDDEN, NOTHING, Wide
from hicache_spec import BoundSpec
from hicache_spec.observations import TOLD, Letter, say_event, say_letter

Outcome = tuple[tuple[str, int], ...]


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
    left_outcome: Outcome | None
    right_outcome: Outcome | None

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
    letters = comparison.left.word(difference.edges)
    matched = _matched(comparison, letters)
    other = None if matched == len(letters) else _most_alike(comparison, letters[: matched + 1])
    shown = letters[:matched] + ([] if other is None else [other])
    right, outcome = _nearest(comparison, shown, difference.outcome)
    left_moves = _moves(comparison.left.graph.spec, [int(comparison.left.graph.steps[e]) for e in difference.edges])
    right_graph = comparison.observer.seen.graph
    right_moves = _moves(right_graph.spec, [int(right_graph.steps[e]) for e in right])
    left_words = [
        [say_letter(a) for a in comparison.alphabet.read(comparison.left.word([e]))] for e in difference.edges
    ]
    right_words = [[say_letter(a) for a in comparison.alphabet.read(comparison.observer.seen.word([e]))] for e in right]
    rows = _aligned(_seen(left_moves, left_words), _seen(right_moves, right_words))
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


def _matched(comparison: Comparison, letters: Sequence[int]) -> int:
    return len(_sets(comparison, letters)) - 1


def _most_alike(comparison: Comparison, letters: Sequence[int]) -> int | None:
    """The letter that RIGHT can show in place of the last one: of the same kind, with most in common; None for none."""
    observer = comparison.observer
    (wanted,) = comparison.alphabet.read(letters[-1:])
    possible = []
    for number in observer.next_letters(_sets(comparison, letters)[-1]):
        (letter,) = comparison.alphabet.read([number])
        if letter[0] == wanted[0]:
            possible.append((-_in_common(letter, wanted), say_letter(letter), number))
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


def _with_nearest_outcome(comparison: Comparison, ends: Wide, layer: int, outcome: Outcome) -> tuple[Wide, Any]:
    """Those of the ends that are at rest with the outcome that differs least; all of them if none is at rest."""
    observer = comparison.observer
    known: list[Any] = list(comparison.alphabet.outcomes)
    numbers = observer.outcomes[ends - layer * observer.size]
    possible = sorted(set(numbers.tolist()) - {NOTHING}, key=lambda n: (_distance(known[n], outcome), known[n]))
    if not possible:
        return ends, None
    return ends[numbers == possible[0]], known[possible[0]]


def _distance(one: Outcome, other: Outcome) -> tuple[int, int]:
    """How many operations end differently, and by how many pages in all."""
    return sum(a != b for a, b in zip(one, other, strict=True)), sum(
        abs(a[1] - b[1]) for a, b in zip(one, other, strict=True)
    )


def _moves(spec: BoundSpec, run: Sequence[int]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Replays a run: for each step its text and its events'."""
    s = spec.initial()
    for number in run:
        s.events = []
        spec.steps[number].run(s)
        yield spec.steps[number].label, tuple(say_event(e) for e in s.events if e[0] in TOLD)


def _seen(moves: Iterator[tuple[str, tuple[str, ...]]], words: Sequence[list[str]]) -> list[tuple[int, int, Move]]:
    """Each move with the numbers of letters shown before and after it."""
    found = []
    shown = 0
    for number, ((label, events), word) in enumerate(zip(moves, words, strict=True), 1):
        found.append((shown, shown + len(word), Move(number, label, events, " ".join(word))))
        shown += len(word)
    return found


def _aligned(
    left: Sequence[tuple[int, int, Move]], right: Sequence[tuple[int, int, Move]]
) -> Iterator[tuple[Move | None, Move | None]]:
    """Moves side by side: hidden ones between the same letters, and those that show the same letters."""
    cuts = sorted({0} | ({after for _, after, _ in left} & {after for _, after, _ in right}))
    ends = {after for _, after, _ in (*left, *right)}
    cuts += [max(ends)] if ends and max(ends) not in cuts else []
    start = 0
    for cut in cuts:
        for hidden in (False, True):
            sides = [
                [
                    move
                    for before, after, move in side
                    if ((start <= before and before < after <= cut) if not hidden else before == after == cut)
                    or (not hidden and start < before == after < cut)
                ]
                for side in (left, right)
            ]
            yield from zip_longest(*sides)
        start = cut
