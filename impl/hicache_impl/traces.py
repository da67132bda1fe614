"""Request traces: the public Mooncake JSONL format, and a synthetic conversation with the same shape.

A line of the format is a JSON object: `timestamp` (ms), `input_length` and `output_length` (tokens), and `hash_ids`,
one id for each block of 512 input tokens, where equal ids stand for equal tokens. Only whole blocks are cached, so the
last, partial block of a request is dropped.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np

BLOCK_TOKENS = 512
BLOCK_ID_MAX = 2**62 - 1
# Of the rejected lines only the first few are kept; a wrong file would otherwise fill the memory with complaints.
KEPT_BAD_LINES = 20


class TraceError(ValueError):
    """A trace cannot be used at all. The message is one line for the user."""


@dataclass(frozen=True)
class Request:
    """One request of a trace: `blocks` are the ids of its whole blocks of 512 tokens, `input_length` is in tokens."""

    index: int
    timestamp_ms: int
    blocks: tuple[int, ...]
    input_length: int


@dataclass(frozen=True)
class BadLine:
    """A line that was skipped: its number, counted from 1, and why."""

    number: int
    reason: str


@dataclass(frozen=True)
class Trace:
    """Requests in file order, how many lines were rejected, and the first of those."""

    requests: tuple[Request, ...]
    bad_line_count: int = 0
    bad_lines: tuple[BadLine, ...] = ()


class _Line(msgspec.Struct):
    timestamp: Annotated[int, msgspec.Meta(ge=0)]
    input_length: Annotated[int, msgspec.Meta(ge=1)]
    output_length: Annotated[int, msgspec.Meta(ge=0)]
    hash_ids: list[Annotated[int, msgspec.Meta(ge=0, le=BLOCK_ID_MAX)]]


def read_trace(path: str | Path, limit: int | None = None) -> Trace:
    """Read the first `limit` usable requests (all of them for None) of a Mooncake JSONL file.

    A line that is no request is skipped and counted, with its number and the reason; blank lines are ignored.
    Raises TraceError when the file cannot be read or holds no usable request.
    """
    path = Path(path)
    if path.is_dir():
        raise TraceError(f"{path}: is a directory, expected a JSONL trace")
    try:
        with path.open("rb") as lines:
            trace = _read_lines(lines, limit)
    except FileNotFoundError as error:
        raise TraceError(f"{path}: no such file") from error
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from error
    if not trace.requests:
        first = trace.bad_lines[0] if trace.bad_lines else None
        why = "it is empty" if first is None else f"line {first.number}: {first.reason}"
        raise TraceError(f"{path}: no usable request ({why})")
    return trace


def _read_lines(lines: Iterable[bytes], limit: int | None) -> Trace:
    decoder = msgspec.json.Decoder(_Line)
    requests: list[Request] = []
    bad: list[BadLine] = []
    bad_count = 0
    for number, raw in enumerate(lines, start=1):
        if limit is not None and len(requests) >= limit:
            break
        if not raw.strip():
            continue
        try:
            request = _request_of(decoder.decode(raw), len(requests))
        except ValueError as error:
            bad_count += 1
            if len(bad) < KEPT_BAD_LINES:
                bad.append(BadLine(number, str(error)))
        else:
            requests.append(request)
    return Trace(tuple(requests), bad_count, tuple(bad))


def _request_of(line: _Line, index: int) -> Request:
    whole = line.input_length // BLOCK_TOKENS
    expected = -(-line.input_length // BLOCK_TOKENS)
    if len(line.hash_ids) not in (whole, expected):
        raise ValueError(f"{len(line.hash_ids)} hash_ids for {line.input_length} tokens, expected {expected}")
    return Request(index, line.timestamp, tuple(line.hash_ids[:whole]), line.input_length)


@functools.lru_cache(maxsize=8192)
def tokens_of_block(block_id: int) -> bytes:
    """The 512 token ids of a block as little-endian int32 (2,048 bytes): a pure function, different for every id.

    The first two tokens carry the id itself, so that ids beyond 2**31 / 512 stay different although the running
    numbers after them wrap. Raises ValueError for an id outside 0..2**62-1.
    """
    if not 0 <= block_id <= BLOCK_ID_MAX:
        raise ValueError(f"block id {block_id} is outside 0..2**62-1")
    start = block_id * BLOCK_TOKENS % 2**31
    tokens = (np.arange(BLOCK_TOKENS, dtype=np.int64) + start) % 2**31
    tokens[0] = block_id % 2**31
    tokens[1] = block_id // 2**31
    return tokens.astype("<i4").tobytes()


def synthetic_trace(requests: int, seed: int) -> Trace:
    """A conversation-like trace, the same for the same arguments.

    Sessions share one of a few system prompts, extend their own history turn by turn, and are interleaved; a request is
    the history so far, a new question of random length, and a partial last block. Raises ValueError for a negative
    count.
    """
    if requests < 0:
        raise ValueError(f"cannot make {requests} requests")
    return Trace(tuple(_Conversation(seed).requests(requests)))


class _Conversation:
    """Generates the synthetic trace; block ids are handed out in order, so that no two texts share one by chance."""

    SYSTEM_PROMPTS = 3
    OPEN_SESSIONS = 24
    NEW_SESSION_SHARE = 0.25
    LEAVE_SHARE = 0.12
    HISTORY_BLOCKS_MAX = 96
    MEAN_GAP_MS = 300.0

    def __init__(self, seed: int) -> None:
        self._random = random.Random(f"conversation {seed}")
        self._next_block = 0
        self._systems = [self._new_blocks(1, 4) for _ in range(self.SYSTEM_PROMPTS)]
        self._sessions: list[list[int]] = []

    def requests(self, count: int) -> Iterable[Request]:
        now_ms = 0
        for index in range(count):
            now_ms += round(self._random.expovariate(1.0 / self.MEAN_GAP_MS))
            history = self._session()
            history.extend(self._new_blocks(1, 12))
            tail = self._random.randrange(BLOCK_TOKENS)
            yield Request(index, now_ms, tuple(history), len(history) * BLOCK_TOKENS + tail)
            # The answer is part of what the next turn repeats.
            history.extend(self._new_blocks(0, 2))
            if len(history) > self.HISTORY_BLOCKS_MAX or self._random.random() < self.LEAVE_SHARE:
                self._sessions.remove(history)

    def _session(self) -> list[int]:
        full = len(self._sessions) >= self.OPEN_SESSIONS
        if not self._sessions or (not full and self._random.random() < self.NEW_SESSION_SHARE):
            self._sessions.append(list(self._random.choice(self._systems)))
            return self._sessions[-1]
        return self._random.choice(self._sessions)

    def _new_blocks(self, least: int, most: int) -> list[int]:
        count = self._random.randint(least, most)
        first = self._next_block
        self._next_block += count
        return list(range(first, first + count))
