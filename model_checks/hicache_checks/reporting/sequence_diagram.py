"""A story as a sequence diagram: Mermaid text, and a drawing in SVG.

A lifeline is the caller or a thread of a rank. A step that hands something over is an arrow, on each of its ranks; any
other is a mark on the lifeline of whoever takes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from textwrap import wrap

from hicache_checks.reporting.story import CALL, CALLER, FINDING, Row, Story, printable

THREADS = ("scheduler", "query", "io", "backup")
LINE_PX = 16
COLUMN_PX = 84
CHARACTER_PX = 7.3
MARGIN_PX = 12
HEAD_PX = 48
SPACE_PX = 8
TEXT_MAX = 80


@dataclass(frozen=True, order=True)
class Lifeline:
    """`rank` -1: the caller. `place`: where among the threads of its rank it stands."""

    rank: int
    place: int
    thread: str

    @property
    def label(self) -> str:
        """What is written above it."""
        return CALLER if self.rank < 0 else f"rank {self.rank} {self.thread}"


@dataclass(frozen=True)
class Message:
    """From one lifeline to another, or a mark on one (`to` None)."""

    source: Lifeline
    to: Lifeline | None


def mermaid(story: Story) -> str:
    """The diagram as a text for Mermaid."""
    names = {line: f"p{number}" for number, line in enumerate(lifelines(story))}
    text = ["sequenceDiagram"]
    text += [f"    participant {name} as {_in_mermaid(line.label)}" for line, name in names.items()]
    for number, row in enumerate(story.rows, 1):
        said = "<br/>".join(_in_mermaid(what) for what in row.what)
        for message in _messages(row, _ranks_of(story)):
            if message.to is None:
                text.append(f"    Note over {names[message.source]}: {number}. {said}")
            else:
                text.append(f"    {names[message.source]}->>{names[message.to]}: {number}. {said}")
    return "\n".join(text) + "\n"


def svg(story: Story) -> str:
    """The diagram as an `svg` element: at the left what happens, at the right between whom."""
    lines = lifelines(story)
    longest = max((len(text) for number, row in enumerate(story.rows, 1) for text in _texts(number, row)), default=0)
    left = MARGIN_PX + round(CHARACTER_PX * longest) + MARGIN_PX
    at = {line: left + COLUMN_PX // 2 + COLUMN_PX * number for number, line in enumerate(lines)}
    width = left + COLUMN_PX * len(lines) + MARGIN_PX
    height = HEAD_PX + sum(_height(row) for row in story.rows) + MARGIN_PX
    body = [*_backs(story, width), *_heads(at, height), *_steps(story, at)]
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" class="sequence" {size}>', *body, "</svg>"])


def lifelines(story: Story) -> list[Lifeline]:
    """Everybody who does something, from left to right."""
    ranks = _ranks_of(story)
    seen = {line for row in story.rows for m in _messages(row, ranks) for line in (m.source, m.to) if line is not None}
    return sorted(seen | {_lifeline(None, CALLER)})


def _ranks_of(story: Story) -> list[int]:
    return sorted({rank for row in story.rows for rank in row.ranks}) or [0]


def _messages(row: Row, ranks: Sequence[int]) -> list[Message]:
    """A call is made on every rank."""
    if row.kind == CALL:
        to = [_lifeline(rank, row.to) for rank in ranks] if row.to else [None]
        return [Message(_lifeline(None, CALLER), line) for line in to]
    theirs: Sequence[int | None] = row.ranks or [None]
    return [Message(_lifeline(rank, row.thread), _lifeline(rank, row.to) if row.to else None) for rank in theirs]


def _lifeline(rank: int | None, thread: str) -> Lifeline:
    if rank is None or thread == CALLER:
        return Lifeline(-1, 0, CALLER)
    return Lifeline(rank, THREADS.index(thread) if thread in THREADS else len(THREADS), thread)


def _in_mermaid(text: str) -> str:
    """Characters with a meaning in Mermaid or HTML as its entity codes."""
    return "".join(
        c if c.isalnum() or not c.isascii() or c in " _-+=.,:()[]'/?!*" else f"#{ord(c)};" for c in printable(text)
    )


# ---- drawing


def _texts(number: int, row: Row) -> list[str]:
    """The lines at the left of a row."""
    lines = [line for what in row.what for line in wrap(printable(what), TEXT_MAX)]
    return [f"{number if place == 0 else '':>3}  {line}" for place, line in enumerate(lines)]


def _height(row: Row) -> int:
    return LINE_PX * len(_texts(0, row)) + SPACE_PX


def _heads(at: dict[Lifeline, int], height: int) -> Iterator[str]:
    for line, x in at.items():
        words = [CALLER] if line.rank < 0 else [f"rank {line.rank}", line.thread]
        for number, word in enumerate(words):
            y = MARGIN_PX + LINE_PX * (number + 2 - len(words)) - 2
            yield f'<text x="{x}" y="{y}" text-anchor="middle">{escape(printable(word))}</text>'
        yield f'<line class="life" x1="{x}" y1="{HEAD_PX - 10}" x2="{x}" y2="{height - MARGIN_PX}"/>'


def _backs(story: Story, width: int) -> Iterator[str]:
    for number, (top, row) in enumerate(_placed(story)):
        shade = FINDING if row.kind == FINDING else ("even", "odd")[number % 2]
        yield f'<rect class="back {shade}" x="0" y="{top}" width="{width}" height="{_height(row)}"/>'


def _steps(story: Story, at: dict[Lifeline, int]) -> Iterator[str]:
    for number, (top, row) in enumerate(_placed(story), 1):
        yield f'<g class="{row.kind}">'
        for place, text in enumerate(_texts(number, row), 1):
            y = top + LINE_PX * place
            yield f'<text x="{MARGIN_PX}" y="{y}" xml:space="preserve">{escape(text)}</text>'
        for message in _messages(row, _ranks_of(story)):
            yield from _drawn(message, at, top + _height(row) // 2)
        yield "</g>"


def _placed(story: Story) -> Iterator[tuple[int, Row]]:
    """Each row with its upper edge."""
    top = HEAD_PX
    for row in story.rows:
        yield top, row
        top += _height(row)


def _drawn(message: Message, at: dict[Lifeline, int], y: int) -> Iterator[str]:
    x = at[message.source]
    if message.to is None:
        yield f'<circle cx="{x}" cy="{y}" r="4"/>'
        return
    end = at[message.to]
    back = -6 if end > x else 6
    yield f'<line class="arrow" x1="{x}" y1="{y}" x2="{end}" y2="{y}"/>'
    yield f'<polygon points="{end},{y} {end + back},{y - 4} {end + back},{y + 4}"/>'
