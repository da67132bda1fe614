"""How ranks agree, and how they notice that they do not."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from hicache_impl.events import EventLog
from hicache_impl.gated import GatedRuntime
from hicache_impl.grid import process_groups
from hicache_impl.layout import Layout
from hicache_impl.ranks import (
    Desync,
    Group,
    GroupAborted,
    LocalGroup,
    SoloGroup,
    local_groups,
)


class Threads:
    """Runs one call on each rank's own thread, and waits for rest."""

    def __init__(self, size: int) -> None:
        self.runtime = GatedRuntime()
        self.logs = [EventLog(rank) for rank in range(size)]
        self.groups: list[LocalGroup] = local_groups("sched", size, self.runtime, self.logs)

    def run(self, calls: Sequence[Callable[[Group], Any]]) -> list[Any]:
        """The answer or the exception of each rank; None where it still waits."""
        answers: list[Any] = [None] * len(calls)

        def target(rank: int) -> Callable[[], None]:
            def run() -> None:
                try:
                    answers[rank] = calls[rank](self.groups[rank])
                except Exception as error:
                    answers[rank] = error

            return run

        for rank in range(len(calls)):
            self.runtime.thread(f"rank-{rank}", target(rank)).start()
        self.runtime.wait_idle()
        return answers


def test_local_min_max_barrier() -> None:
    threads = Threads(3)
    assert threads.run([lambda g: g.all_min([g.rank, -g.rank, 5])] * 3) == [[0, -2, 5]] * 3
    assert threads.run([lambda g: g.all_max([g.rank, -g.rank, 5])] * 3) == [[2, 0, 5]] * 3
    assert threads.run([lambda g: g.barrier()] * 3) == [None] * 3
    assert [event.data["number"] for event in threads.logs[1].take_since(0)] == [0, 0, 1, 1, 2, 2]


def test_local_waits_for_the_last_rank() -> None:
    threads = Threads(2)
    assert threads.run([lambda g: g.all_min([7])]) == [None]
    assert [event.kind for event in threads.logs[0].take_since(0)] == ["joined"]
    assert threads.run([lambda g: None, lambda g: g.all_min([3])])[1] == [3]
    assert [event.kind for event in threads.logs[0].take_since(0)] == ["joined", "left"]


@pytest.mark.parametrize(
    "calls",
    [
        [lambda g: g.all_min([1]), lambda g: g.all_max([1])],
        [lambda g: g.all_min([1]), lambda g: g.all_min([1, 2])],
        [lambda g: g.barrier(), lambda g: g.all_max([])],
    ],
    ids=["kind", "length", "barrier"],
)
def test_local_desync_is_reported_to_all(calls: list[Callable[[Group], Any]]) -> None:
    threads = Threads(2)
    answers = threads.run(calls)
    assert [type(answer) for answer in answers] == [Desync, Desync]
    assert "rank 0" in str(answers[0])
    assert "rank 1" in str(answers[0])
    later = threads.run([lambda g: g.barrier()] * 2)
    assert [type(answer) for answer in later] == [GroupAborted, GroupAborted]


def test_local_abort_wakes_who_waits() -> None:
    threads = Threads(3)
    answers = threads.run([lambda g: g.barrier(), lambda g: g.barrier(), lambda g: g.abort("rank 2 is gone")])
    assert [str(answer) for answer in answers[:2]] == ["rank 2 is gone"] * 2


def test_solo_agrees_with_itself_and_logs() -> None:
    log = EventLog(0)
    group = SoloGroup("query", log=log)
    assert (group.all_min([3, 1]), group.all_max([])) == ([3, 1], [])
    group.barrier()
    assert [(e.kind, e.data["number"], e.data["call"]) for e in log.take_since(0)][::2] == [
        ("joined", 0, "min"),
        ("joined", 1, "max"),
        ("joined", 2, "barrier"),
    ]


def _gloo_rank(rank: int, store: str, answers: Any) -> None:
    import threading

    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    log = EventLog(rank)
    groups = process_groups(Layout(tp=2), log, timeout_s=30)
    found: dict[str, Any] = {
        "min": groups.sched.all_min([rank, 5 - rank, -rank]),
        "max": groups.sched.all_max([rank, 5 - rank, -rank]),
        "long": groups.sched.all_min([rank + i for i in range(200)]),
        "empty": groups.sched.all_max([]),
    }
    groups.sched.barrier()
    # Each group has its own transport: the query thread and the scheduler may be in different orders.
    query = threading.Thread(target=lambda: found.update(query=groups.query.all_min([rank + 10])))
    if rank == 0:
        query.start()
        found["both"] = groups.sched.all_max([rank])
    else:
        found["both"] = groups.sched.all_max([rank])
        query.start()
    query.join()
    try:
        groups.query.all_min([1] if rank else [1, 2])
    except Desync as error:
        found["desync"] = str(error)
    found["events"] = [event.data["number"] for event in log.take_since(0) if event.data["group"] == "sched"]
    answers.put((rank, found))
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.heavy
def test_gloo_over_two_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    processes = [
        context.Process(target=_gloo_rank, args=(rank, str(tmp_path / "store"), answers), daemon=True)
        for rank in range(2)
    ]
    for process in processes:
        process.start()
    found = dict(answers.get(timeout=60) for _ in processes)
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0]
    for rank in range(2):
        assert found[rank]["min"] == [0, 4, -1]
        assert found[rank]["max"] == [1, 5, 0]
        assert found[rank]["long"] == list(range(200))
        assert found[rank]["empty"] == []
        assert found[rank]["query"] == [10]
        assert found[rank]["both"] == [1]
        assert f"rank {rank} is in min" in found[rank]["desync"]
        assert found[rank]["events"] == [number for number in range(6) for _ in range(2)]
