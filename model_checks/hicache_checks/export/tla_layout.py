"""The layout of TLA+ text: LET, IF and conjunctions on as many lines as they need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

WIDTH = 110


@dataclass
class Leaf:
    """An expression on one line, or on lines that were laid out already."""

    lines: list[str]


@dataclass
class If:
    """A choice."""

    test: str
    then: Block
    otherwise: Block


@dataclass
class Let:
    """Definitions, each a head such as `s1` or `Step(s, r)` and its block, and what they are for."""

    definitions: list[tuple[str, Block]]
    inside: Block


Block = Leaf | If | Let


@dataclass
class Definitions:
    """Definitions in the making."""

    made: list[tuple[str, Block]] = field(default_factory=list)

    def add(self, head: str, block: Block) -> None:
        """One more."""
        self.made.append((head, block))

    def around(self, block: Block) -> Block:
        """The block with these definitions before it."""
        if not self.made:
            return block
        if isinstance(block, Let):
            return Let([*self.made, *block.definitions], block.inside)
        return Let(list(self.made), block)


def leaf(text: str) -> Leaf:
    """An expression on one line."""
    return Leaf([text])


def lines_of(block: Block) -> list[str]:
    """The lines of a block, from column zero."""
    if isinstance(block, Leaf):
        is_one = len(block.lines) == 1 and not block.lines[0].startswith("/\\ ")
        return folded(block.lines[0]) if is_one else block.lines
    if isinstance(block, If):
        then, otherwise = lines_of(block.then), lines_of(block.otherwise)
        flat = f"IF {block.test} THEN {then[0]} ELSE {otherwise[0]}"
        if len(then) == len(otherwise) == 1 and len(flat) <= WIDTH - 30:
            return [flat]
        return [*after("IF ", folded(block.test)), *after("THEN ", then), *after("ELSE ", otherwise)]
    lines: list[str] = []
    for i, (head, inner) in enumerate(block.definitions):
        lines += after("LET " if i == 0 else "    ", defined(head, inner))
    return [*lines, *after("IN  ", lines_of(block.inside))]


def defined(head: str, block: Block) -> list[str]:
    """A definition: on one line if it fits."""
    lines = lines_of(block)
    if len(lines) == 1 and not lines[0].startswith("/\\ ") and len(head) + len(lines[0]) + 4 <= WIDTH:
        return [f"{head} == {lines[0]}"]
    return [f"{head} ==", *(f"    {line}" for line in lines)]


def after(prefix: str, lines: Sequence[str]) -> list[str]:
    """The lines behind a word: the first one beside it, the others below the first."""
    return [f"{prefix}{lines[0]}", *(f"{' ' * len(prefix)}{line}" for line in lines[1:])]


def folded(text: str) -> list[str]:
    """An expression, on several lines if it is long: a quantifier above what it is about, a junction as a list."""
    if len(text) <= WIDTH:
        return [text]
    if text.startswith(("\\A ", "\\E ")):
        head, colon, body = _cut(text, " : ")[0]
        return [f"{head} {colon.strip()}", *(f"    {line}" for line in folded(body))]
    for sign in ("/\\", "\\/"):
        cuts = _cut(text, f" {sign} ")
        if cuts:
            starts = [0, *(len(head) + len(sign) + 2 for head, _, _ in cuts)]
            ends = [*(len(head) for head, _, _ in cuts), len(text)]
            parts = [text[start:end] for start, end in zip(starts, ends, strict=True)]
            return [line for part in parts for line in after(f"{sign} ", folded(_bare(part)))]
    cuts = _cut(text, ", ", inside=True) or _cut(text, " = ") or _cut(text, " + ")
    fitting = [c for c in cuts if len(c[0]) <= WIDTH - 10]
    if not fitting:
        return [text]
    head, sign, rest = fitting[-1]
    return [f"{head}{sign.rstrip()}", *(f"    {line}" for line in folded(rest))]


def _cut(text: str, sign: str, inside: bool = False) -> list[tuple[str, str, str]]:
    """The text cut in two at each `sign` that stands in no bracket (or anywhere)."""
    found = []
    depth = 0
    for i, letter in enumerate(text):
        if (inside or depth == 0) and text.startswith(sign, i):
            found.append((text[:i], sign, text[i + len(sign) :]))
        depth += (letter in "([{") - (letter in ")]}")
    return found


def _bare(text: str) -> str:
    """The text without brackets around the whole of it."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for i, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and i < len(text) - 1:
            return text
    return text[1:-1]
