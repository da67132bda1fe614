"""What is measured is done: the right bytes come, every lane and every row is there. How long it takes is nobody's
business here; how many calls are made for it, is.
"""

from __future__ import annotations

import json
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import torch

from hicache_checks.implementations import load
from hicache_impl.config import POOL_LAYOUTS, PoolLayout
from hicache_impl.host_pool import HostPool
from hicache_impl.keys import PrefixKey, chain_hashes
from hicache_impl.page_pool import ForeignPage
from hicache_impl.speed import fetch, scheduler, steps, trace
from hicache_impl.speed.fetch import COPY, Fetch, Lane, WrongBytes, open_fetch
from hicache_impl.speed.shape import shape_for
from hicache_impl.speed.stores import EXTRA_COPIES, STORES, StoreFor, opened
from hicache_impl.storage import Storage, storage_key, storage_keys
from hicache_impl.storage.faults import FaultyStorage
from hicache_impl.storage.memory import MemoryStorage
from hicache_impl.storage.pages import KnownPages

MIB = 1 << 20
LOCAL = ("memory", "lmdb", "file")


READS = ("get_into, checksums off", "get_into, checksums on")
OF_THE_CALLER = (
    *("the limit: copy_, page by page", "hash chain, by the query thread", "names", "names are checked", "views"),
    "write marks",
)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("fetch", open_fetch),
        ("fetch_steps", steps.measure_steps),
        ("scheduler_cost", scheduler.measure_scheduler),
        ("trace_speed", trace.measure_trace),
    ],
)
def test_what_is_registered(name: str, function: Callable[..., Any]) -> None:
    assert load("hicheck.benchmarks", name) is function


# --- from storage to the host --------------------------------------------------------------------------------------


def test_a_round_of_each_lane_brings_all_pages() -> None:
    with Fetch(LOCAL, 64 << 10, 2 * MIB) as measured:
        assert measured.lanes == [
            Lane(COPY, None),
            *(Lane(store, checksums) for store in LOCAL for checksums in (False, True)),
        ]
        assert not measured.unavailable
        for lane in measured.lanes:
            measured.check(lane)
            took = measured.round(lane)
            assert took.seconds > 0
            assert took.reader_seconds > 0
            assert took.cpu_seconds > 0
            assert measured._cache.host.allocator.available == measured.shape.pages == 32


def test_measuring_leaves_the_threads_of_torch_as_they_were() -> None:
    before = torch.get_num_threads()
    with Fetch((), 64 << 10, MIB):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("fault", ["wrong_bytes", "miss"])
def test_a_lane_with_other_bytes_or_less_is_not_measured(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    class Faulty(StoreFor):
        def open(self, checksums: bool) -> Storage:
            store = FaultyStorage(MemoryStorage(checksums))
            getattr(store, fault)(times=1)
            return store

    monkeypatch.setattr(fetch, "opened", lambda *_: Faulty("", is_shared=False))
    with Fetch(("any",), 64 << 10, MIB) as measured:
        measured.check(Lane(COPY, None))
        with pytest.raises(WrongBytes):
            measured.check(Lane("any", False))


@pytest.mark.parametrize("fault", [None, "wrong_bytes", "miss"])
def test_the_steps_of_reading(monkeypatch: pytest.MonkeyPatch, fault: str | None) -> None:
    """Each is timed, and only of stores that bring what they were given."""

    class Faulty(StoreFor):
        def open(self, checksums: bool) -> Storage:
            store = FaultyStorage(MemoryStorage(checksums))
            if fault is not None:
                getattr(store, fault)(times=1)
            return store

    monkeypatch.setattr(steps, "opened", lambda name, size_bytes, stack: Faulty(name, is_shared=False))
    if fault is not None:
        with pytest.raises(WrongBytes):
            steps.measure_steps(4096, 1 << 16, rounds=1)
        return
    rows = steps.measure_steps(4096, 1 << 16, rounds=1)
    of_stores = [f"{store}: {call}" for store in steps.STORES for call in ("exists", *READS)]
    assert [row["step"] for row in rows] == [*OF_THE_CALLER, *of_stores]
    assert all(row["us"] > 0 for row in rows)


def test_a_store_that_cannot_be_had_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with Fetch(("redis", "memory"), 64 << 10, MIB) as measured:
        assert [lane.store for lane in measured.lanes] == [COPY, "memory", "memory"]
        assert "no program redis-server" in measured.unavailable["redis"]


def test_names_and_sizes_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match="memory, lmdb, file, redis, mooncake, not 'disk'"):
        Fetch(("disk",), 64 << 10, MIB)
    for page_bytes in (4, 12, 2 * MIB):
        with pytest.raises(ValueError, match="has no pages of"):
            shape_for(page_bytes, MIB)


def test_a_shape_has_no_two_pages_alike() -> None:
    shape = shape_for(64 << 10, 256 * MIB)
    assert (shape.operations, shape.operation_pages) == (4, 1024)
    small = shape_for(1 << 10, MIB)
    assert len({page.numpy().tobytes() for page in small.contents()}) == small.pages == len(set(small.hashes()))
    assert torch.equal(small.contents(), small.contents())


# --- what is done for a page ---------------------------------------------------------------------------------------


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened_:
        yield opened_


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in LOCAL else pytest.mark.heavy) for name in STORES]
)
@pytest.mark.parametrize("is_known", [False, True])
def test_a_get_makes_no_more_copies_than_are_told(name: str, is_known: bool, stack: ExitStack) -> None:
    """By the memory that Python and numpy take meanwhile; what torch takes for itself is not seen, and not used."""
    found = opened(name, 64 * MIB, stack)
    if isinstance(found, str):
        pytest.skip(found)
    page_bytes = 4 * MIB
    pool = HostPool(1, 2, page_bytes)
    pages = pool.views([0]) if is_known else [pool.view(0)]
    with closing(found.open(checksums=False)) as store:
        assert store.put_from(["abc_0_1"], [torch.arange(page_bytes // 8).view(torch.uint8)]) == [True]
        assert store.get_into(["abc_0_1"], pages) == [True]
        tracemalloc.start()
        try:
            assert store.get_into(["abc_0_1"], pages) == [True]
            peak_bytes = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak_bytes < (EXTRA_COPIES[name] + 0.5) * page_bytes


@pytest.mark.parametrize("layout", POOL_LAYOUTS)
def test_a_pool_knows_where_its_pages_are(layout: PoolLayout) -> None:
    pool = HostPool(3, 2, 64, layout=layout)
    pages = pool.views([2, 0, 2])
    assert isinstance(pages, KnownPages)
    assert pages[0] is pages[2]
    for page, runs, number in zip(pages, pages.runs, (2, 0, 2), strict=True):
        assert page.data_ptr() == pool.view(number).data_ptr()
        page.copy_(torch.arange(64).view(2, 32) + number)
        assert [byte for run in runs for byte in run] == page.flatten().tolist()
        assert len(runs) == (1 if layout == "page_first" else 2)
        assert runs.size_bytes == 64
        assert (runs.flat is not None) == (layout == "page_first")
    with pytest.raises(ForeignPage):
        pool.views([0, 3])


@pytest.mark.parametrize("checksums", [False, True])
@pytest.mark.parametrize("layout", POOL_LAYOUTS)
@pytest.mark.parametrize("name", LOCAL)
def test_pages_that_are_known_are_read_like_others(
    name: str, layout: PoolLayout, checksums: bool, stack: ExitStack
) -> None:
    """With one that is missing and one of another size among them."""
    found = opened(name, MIB, stack)
    assert isinstance(found, StoreFor)
    pool = HostPool(4, 2, 4096, layout=layout)
    keys = storage_keys([bytes([number]) * 32 for number in range(4)], "0_1")
    stored = [torch.randint(256, (2, 2048), dtype=torch.uint8) for _ in range(4)]
    stored[2] = stored[2][:, :1000]
    with closing(found.open(checksums)) as store:
        assert store.put_from([*keys[:1], *keys[2:]], [stored[0], *stored[2:]]) == [True] * 3
        assert store.get_into(keys, pool.views([3, 1, 0, 2])) == [True, False, False, True]
    assert torch.equal(pool.view(3), stored[0])
    assert torch.equal(pool.view(2), stored[3])


def test_names_together_are_those_one_by_one() -> None:
    hashes = chain_hashes(PrefixKey.from_tokens(range(6), 2))
    assert storage_keys(hashes, "b_10") == [storage_key(page_hash, "b_10") for page_hash in hashes]


def calls_during(work: Callable[[], object]) -> int:
    """Functions called by this thread, Python's and built-in ones."""
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def busy_tick(pending: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """The least calls of a tick that has FINISHED operations to look at, while so many others are in flight."""
    counts: list[int] = []

    def counted(call: Callable[[], object]) -> float:
        counts.append(calls_during(call))
        return 0.0

    monkeypatch.setattr(scheduler, "_timed", counted)
    monkeypatch.setattr(scheduler, "TICKS", 3)
    scheduler._ticks(pending, 4)
    return min(counts[scheduler.TICKS :])


def test_a_tick_does_as_much_as_has_finished_whatever_is_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = busy_tick(5, monkeypatch), busy_tick(200, monkeypatch)
    assert few <= many <= few + scheduler.FINISHED


# --- rows ----------------------------------------------------------------------------------------------------------


def test_the_scheduler_s_rows() -> None:
    said: list[str] = []
    rows = scheduler.measure_scheduler((3,), (40,), 640, 4, said.append)
    assert [(row["work"], row["size"]) for row in rows] == [
        ("tick, nothing finished", 3),
        ("tick, 8 finished", 3),
        ("match a conversation", 40),
        ("insert a turn", 40),
        ("evict a node", 40),
        ("allocate a page", 640),
        ("allocate a page of 64", 640),
    ]
    assert all(row["us"] > 0 for row in rows)
    assert len(said) == 3


@pytest.mark.heavy
def test_a_trace_is_replayed_and_found_again(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    lines = [
        {"timestamp": number, "input_length": 3 * 512, "output_length": 1, "hash_ids": [0, number, number + 100]}
        for number in range(1, 31)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    measured = trace.measure_trace(str(path), 20, "lmdb", 3, lambda line: None)
    assert measured["requests"] == 20
    first, *later = measured["hit_tokens"]
    assert first["device"] == 19 * 512
    assert measured["computed_tokens"][0] == 41 * 512
    assert [sum(hits.values()) for hits in later] == [60 * 512] * 2
    assert measured["computed_tokens"][1:] == [0, 0]
    assert 0 < min(measured["resident_bytes"]) <= measured["peak_bytes"]
