"""A set of packed states as columns: open addressing, a whole batch at a time.

Full states are compared, never only their hashes. An entry is the number of a state; states are numbered in the order
in which they were added.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

FACTORS = (-7046029254386353131, -4658895280553007687, -7723592293110705685)
FIRST_SLOTS = 1 << 14
FIRST_CAPACITY = 1 << 16
FREE = -1


class StateTable:
    """All states found so far. `words` are their columns, `count` is how many there are."""

    def __init__(self, columns: Any, words: int) -> None:
        self.columns = columns
        self.count = 0
        self.words = [columns.empty(FIRST_CAPACITY, "i8") for _ in range(words)]
        self.slots = columns.full(FIRST_SLOTS, FREE, "i4")

    @property
    def bytes(self) -> int:
        """Memory of states and slots."""
        return self.count * 8 * len(self.words) + len(self.slots) * 4

    def add(self, words: Sequence[Any]) -> Any:
        """Add a batch of states; those that are new get the next numbers. The number of each state, shape (n,)."""
        columns = self.columns
        numbers = columns.empty(len(words[0]), "i4")
        self._make_room(len(words[0]))
        rows = columns.count_up(0, len(words[0]), "i8")
        place = hashes(words) & (len(self.slots) - 1)
        while len(rows):
            here = columns.where_true(self.slots[place] == FREE)
            # All who want a free place write their names into it; who then finds his own there has it.
            names = columns.narrow(FREE - 1 - here)
            self.slots[place[here]] = names
            won = here[self.slots[place[here]] == names]
            self._append([w[rows[won]] for w in words])
            new = columns.count_up(self.count - len(won), len(won), "i4")
            self.slots[place[won]], numbers[rows[won]] = new, new
            waits = columns.full(len(rows), 1, "truth")
            waits[won] = False
            left = columns.where_true(waits)
            rows, place = rows[left], place[left]
            numbers[rows] = self.slots[place]  # the last one written is the right one
            known = columns.index(numbers[rows])
            differs = columns.full(len(rows), 0, "truth")
            for mine, theirs in zip(self.words, words, strict=True):
                differs |= mine[known] != theirs[rows]
            other = columns.where_true(differs)
            rows, place = rows[other], (place[other] + 1) & (len(self.slots) - 1)
        return numbers

    def _append(self, words: Sequence[Any]) -> None:
        end = self.count + len(words[0])
        for mine, theirs in zip(self.words, words, strict=True):
            mine[self.count : end] = theirs
        self.count = end

    def _make_room(self, more: int) -> None:
        columns = self.columns
        needed = self.count + more
        if needed > len(self.words[0]):
            for i, mine in enumerate(self.words):
                grown = columns.empty(max(needed, 2 * len(mine)), "i8")
                grown[: self.count] = mine[: self.count]
                self.words[i] = grown
        if needed * 2 > len(self.slots):
            size = len(self.slots)
            while needed * 2 > size:
                size *= 2
            known = [mine[: self.count] for mine in self.words]
            self.slots = columns.full(size, FREE, "i4")
            self._place_again(hashes(known) & (size - 1))

    def _place_again(self, place: Any) -> None:
        """Put the numbers of all states, which differ, into an empty table."""
        columns = self.columns
        rows = columns.count_up(0, self.count, "i4")
        while len(rows):
            here = columns.where_true(self.slots[place] == FREE)
            self.slots[place[here]] = rows[here]
            left = columns.where_true(self.slots[place] != rows)
            rows, place = rows[left], (place[left] + 1) & (len(self.slots) - 1)


def hashes(words: Sequence[Any]) -> Any:
    """A well mixed number a state; the arithmetic wraps around."""
    mixed = words[0] * FACTORS[0]
    for word in words[1:]:
        mixed = (mixed ^ (mixed >> 29) ^ word) * FACTORS[1]
    mixed = (mixed ^ (mixed >> 31)) * FACTORS[2]
    return mixed ^ (mixed >> 30)
