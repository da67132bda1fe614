"""A grid of real processes over gloo: one order of collectives on every rank, and an end for all when one dies."""

from __future__ import annotations

import multiprocessing
import os
import queue
import time
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from hicache_impl.cache import HiCache, open_rank
from hicache_impl.config import CacheConfig
from hicache_impl.content import page_keys, page_on_rank
from hicache_impl.events import EventLog
from hicache_impl.grid import process_groups
from hicache_impl.keys import PrefixKey, chain_hashes
from hicache_impl.layout import Layout
from hicache_impl.ranks import Groups
from hicache_impl.runtime import ThreadRuntime
from hicache_impl.storage import open_storage

pytestmark = pytest.mark.heavy

SECONDS = 60.0
GRIDS = [Layout(tp=2, cp=2), Layout(tp=2, pp=2)]


def join(layout: Layout, rank: int, store: str, device: str = "cpu") -> tuple[Groups, EventLog]:
    """This process's groups."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=layout.world)
    log = EventLog(rank)
    return process_groups(layout, log, timeout_s=SECONDS, device=device), log


def start(
    target: Callable[..., None], layout: Layout, store: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[BaseProcess], Any]:
    """A process for each rank of a layout, and the queue of what they answer."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    processes: list[BaseProcess] = [
        context.Process(target=target, args=(layout, rank, store, answers), daemon=True) for rank in range(layout.world)
    ]
    for process in processes:
        process.start()
    return processes, answers


def collect(answers: Any, count: int) -> dict[int, Any]:
    """The answers of so many ranks. queue.Empty after a minute without one."""
    return dict(answers.get(timeout=SECONDS) for _ in range(count))


# ---- a cache on each rank


def serve(layout: Layout, rank: int, store: str, answers: Any) -> None:
    """Two requests, of which one is aborted while it is fetched or before; then rest."""
    groups, log = join(layout, rank, store)
    storage = open_storage("memory")
    config = CacheConfig(host_pages=8, device_pages=8, page_bytes=64, threshold_pages=1, layout=layout)
    cache = open_rank(config, storage, groups, ThreadRuntime(), log)
    first, second = (PrefixKey.from_tokens([name * 100 + page for page in range(3)], 1) for name in (1, 2))
    # The last rank lacks the last page.
    for key, held in ((first, 3 if rank < 3 else 2), (second, 3)):
        hashes = chain_hashes(key)[:held]
        pages = [page_on_rank(config, rank, page_hash) for page_hash in hashes]
        storage.put_from(page_keys(config, rank, hashes), pages)
    assert cache.submit("a", first).op is not None
    assert cache.submit("b", second).op is not None
    cache.tick()
    cache.abort("b")
    fetched = list(turns(cache, "a"))[-1]
    cache.quiesce(SECONDS)
    cache.close()
    calls = [
        (e.data["number"], e.data["call"])
        for e in log.take_since(0)
        if e.kind == "joined" and e.data["group"] == "sched"
    ]
    answers.put(
        (rank, {"state": fetched.state, "pages": fetched.pages, "calls": calls, "free": cache.host.allocator.available})
    )
    time.sleep(1)


def turns(cache: HiCache, rid: str) -> Iterator[Any]:
    """Drain and poll until the request is ready."""
    while True:
        cache.tick()
        polled = cache.poll([rid])[rid]
        yield polled
        if polled.ready:
            return


@pytest.mark.parametrize("layout", GRIDS, ids=str)
def test_every_rank_makes_the_same_calls_in_the_same_order(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes, answers = start(serve, layout, str(tmp_path / "store"), monkeypatch)
    found = collect(answers, layout.world)
    for process in processes:
        process.join(SECONDS)
    calls = [found[rank].pop("calls") for rank in range(layout.world)]
    assert found == {rank: {"state": "fetched", "pages": 2, "free": 6} for rank in range(layout.world)}
    assert len(calls[0]) > 3
    assert calls == [calls[0]] * layout.world


# ---- on devices


def agree_on_a_device(layout: Layout, rank: int, store: str, answers: Any) -> None:
    """One call of each kind, over nccl."""
    import torch

    torch.cuda.set_device(rank)
    groups, _ = join(layout, rank, store, f"cuda:{rank}")
    agreed = [groups.sched.all_min([rank + 1]), groups.query.all_max([rank]), groups.sched.first_min([rank + 5])]
    groups.sched.barrier()
    answers.put((rank, agreed))
    time.sleep(1)


def devices() -> int:
    """CUDA devices of this machine."""
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


@pytest.mark.skipif(devices() < 2, reason="nccl wants a device for each rank: there are not two")
@pytest.mark.parametrize("layout", [Layout(tp=2), Layout(pp=2)], ids=str)
def test_groups_over_nccl(layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, answers = start(agree_on_a_device, layout, str(tmp_path / "store"), monkeypatch)
    assert collect(answers, 2) == {rank: [[1], [1], [5]] for rank in range(2)}


# ---- death


def walk(layout: Layout, rank: int, store: str, answers: Any) -> None:
    """Turns of a scheduler for ever; the last rank dies in its fourth."""
    groups, _ = join(layout, rank, store)
    turn = 0
    try:
        while True:
            groups.sched.first_min([turn])
            if rank == layout.world - 1 and turn == 3:
                os._exit(1)
            groups.sched.all_max([turn])
            turn += 1
    except RuntimeError as error:
        answers.put((rank, (turn, str(error))))
        answers.close()
        answers.join_thread()
        os._exit(0)


@pytest.mark.parametrize("layout", GRIDS, ids=str)
def test_when_one_rank_dies_the_others_end(layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them waits for its time-out: the end travels through the groups."""
    started_s = time.monotonic()
    processes, answers = start(walk, layout, str(tmp_path / "store"), monkeypatch)
    try:
        found = collect(answers, layout.world - 1)
    except queue.Empty:
        pytest.fail(f"alive: {[process.is_alive() for process in processes]}")
    for process in processes:
        process.join(SECONDS)
    assert sorted(found) == list(range(layout.world - 1))
    assert {turn for turn, _ in found.values()} <= {3, 4}
    assert [process.exitcode for process in processes] == [0, 0, 0, 1]
    assert time.monotonic() - started_s < SECONDS
