"""The trace reader: what it accepts, what it says about what it skips, and the synthetic conversation."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache_impl.traces import BLOCK_ID_MAX, BLOCK_TOKENS, TraceError, read_trace, synthetic_trace, tokens_of_block

REAL_TRACE = Path(__file__).resolve().parents[2] / "shared" / "data" / "mooncake_conversation_trace.jsonl"


def line(**changes: object) -> str:
    record = {"timestamp": 7, "input_length": 1100, "output_length": 3, "hash_ids": [4, 5, 6]}
    return json.dumps(record | changes)


def write(folder: Path, *lines: str) -> Path:
    path = folder / "trace.jsonl"
    path.write_text("".join(text + "\n" for text in lines))
    return path


def test_a_request_keeps_its_whole_blocks_and_drops_the_partial_one(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, line(), line(input_length=1536), line(input_length=1025, hash_ids=[9, 9])))
    assert [request.blocks for request in trace.requests] == [(4, 5), (4, 5, 6), (9, 9)]
    assert [request.index for request in trace.requests] == [0, 1, 2]
    assert trace.requests[0].timestamp_ms == 7
    assert trace.requests[0].input_length == 1100
    assert trace.bad_line_count == 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "truncated"),
        ("[1]", "Expected `object`"),
        (line(timestamp="7"), "Expected `int`, got `str` - at `$.timestamp`"),
        (line(timestamp=-1), "Expected `int` >= 0 - at `$.timestamp`"),
        (line(input_length=0), "Expected `int` >= 1 - at `$.input_length`"),
        (line(input_length=True), "Expected `int`, got `bool` - at `$.input_length`"),
        (line(hash_ids=[4, -5, 6]), "Expected `int` >= 0 - at `$.hash_ids[1]`"),
        (line(hash_ids=[4]), "1 hash_ids for 1100 tokens, expected 3"),
        (line(hash_ids=[4, 5, 6, 7]), "4 hash_ids for 1100 tokens, expected 3"),
        (json.dumps({"timestamp": 1, "input_length": 5, "output_length": 1}), "missing required field `hash_ids`"),
    ],
)
def test_a_bad_line_is_skipped_with_its_number_and_reason(tmp_path: Path, text: str, reason: str) -> None:
    trace = read_trace(write(tmp_path, line(), text, "", line(timestamp=8)))
    assert [request.timestamp_ms for request in trace.requests] == [7, 8]
    assert trace.bad_line_count == 1
    assert trace.bad_lines[0].number == 2
    assert reason in trace.bad_lines[0].reason


def test_bytes_that_are_no_text_are_a_bad_line(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(b"\xff\xfe\x00\n" + line().encode() + b"\n")
    trace = read_trace(path)
    assert (len(trace.requests), trace.bad_line_count) == (1, 1)


def test_every_bad_line_is_counted_but_few_are_kept(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, *["nonsense"] * 500, line()))
    assert trace.bad_line_count == 500
    assert len(trace.bad_lines) == 20


def test_the_limit_counts_usable_requests_and_stops_the_reading(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, "nonsense", line(), line(), "nonsense"), limit=2)
    assert (len(trace.requests), trace.bad_line_count) == (2, 1)


def test_what_cannot_be_read_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"missing\.jsonl: no such file$"):
        read_trace(tmp_path / "missing.jsonl")
    with pytest.raises(TraceError, match=r"is a directory, expected a JSONL trace$"):
        read_trace(tmp_path)
    with pytest.raises(TraceError, match=r"no usable request \(it is empty\)$"):
        read_trace(write(tmp_path))
    with pytest.raises(TraceError, match=r"no usable request \(line 1: "):
        read_trace(write(tmp_path, "nonsense"))


@given(st.integers(0, BLOCK_ID_MAX), st.integers(0, BLOCK_ID_MAX))
def test_the_tokens_of_different_blocks_differ(one: int, other: int) -> None:
    assert (tokens_of_block(one) == tokens_of_block(other)) == (one == other)


@pytest.mark.parametrize("block", [0, 1, 2**22 - 1, 2**22, 2**31, BLOCK_ID_MAX])
def test_tokens_are_non_negative_int32(block: int) -> None:
    tokens = np.frombuffer(tokens_of_block(block), dtype="<i4")
    assert tokens.shape == (BLOCK_TOKENS,)
    assert tokens.min() >= 0


@pytest.mark.parametrize("block", [-1, BLOCK_ID_MAX + 1])
def test_a_block_id_out_of_range_is_refused(block: int) -> None:
    with pytest.raises(ValueError, match="outside"):
        tokens_of_block(block)


def test_the_synthetic_trace_is_a_function_of_its_seed() -> None:
    assert synthetic_trace(50, seed=3) == synthetic_trace(50, seed=3)
    assert synthetic_trace(50, seed=3) != synthetic_trace(50, seed=4)
    assert synthetic_trace(60, seed=3).requests[:50] == synthetic_trace(50, seed=3).requests


def test_the_synthetic_trace_reads_like_a_conversation() -> None:
    requests = synthetic_trace(400, seed=0).requests
    assert all(request.input_length // BLOCK_TOKENS == len(request.blocks) for request in requests)
    assert all(one.timestamp_ms <= two.timestamp_ms for one, two in itertools.pairwise(requests))
    seen: set[tuple[int, ...]] = set()
    repeated = 0
    for request in requests:
        prefixes = [request.blocks[:length] for length in range(1, len(request.blocks) + 1)]
        repeated += sum(prefix in seen for prefix in prefixes)
        seen.update(prefixes)
    share = repeated / sum(len(request.blocks) for request in requests)
    assert 0.5 < share < 0.95, "most of a turn repeats its history, and every turn adds something new"


@pytest.mark.skipif(not REAL_TRACE.exists(), reason="the real trace is not committed")
def test_the_real_trace_reads_without_a_complaint() -> None:
    trace = read_trace(REAL_TRACE)
    assert len(trace.requests) == 12031
    assert trace.bad_line_count == 0
    assert max(len(request.blocks) for request in trace.requests) == 246
