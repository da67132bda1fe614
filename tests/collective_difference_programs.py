"""What three ranks do with `torch.distributed` where gloo and the stand-ins differ or might, with their answers.

Run as a program, this is one gloo process: `collective_difference_programs.py RANK STORE OUT`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import types
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

RANKS = 3
LATE_S = 1.5
SOON_S = 1.0
Modules = types.SimpleNamespace
Program = Callable[[Modules, int], Any]


@dataclass(frozen=True)
class Row:
    """`real`: the answers of the ranks, in their order; GONE: it gives none. `standin`: all answers that
    there are then, or how the simulated world ends."""

    program: Program
    real: list[Any]
    standin: tuple[list[Any] | str, ...]


ROWS: dict[str, Row] = {}
GONE = "gone"


def differs(real: list[Any], *standin: list[Any] | str) -> Callable[[Program], Program]:
    """The program is a row."""

    def keep(program: Program) -> Program:
        ROWS[program.__name__] = Row(program, real, standin)
        return program

    return keep


def same(answers: list[Any]) -> Callable[[Program], Program]:
    """The program is a row in which both give the same answers."""
    return differs(answers, answers)


def group(timeout_s: float | None = None) -> Any:
    return dist.new_group(timeout=None if timeout_s is None else timedelta(seconds=timeout_s))


def error_of(call: Callable[[], object]) -> str:
    try:
        call()
    except Exception as error:
        return type(error).__name__
    return "none"


def how_long(m: Modules, call: Callable[[], object]) -> str:
    before = m.time.monotonic()
    call()
    return "waits" if m.time.monotonic() - before >= SOON_S else "goes on"


def summed(tensor: torch.Tensor, into: Any, **named: Any) -> Any:
    dist.all_reduce(tensor, group=into, **named)
    return tensor.tolist()


# --- who waits for whom


@same(["waits", "waits", "late"])
def everybody_waits_in_an_all_reduce(m: Modules, rank: int) -> str:
    into = group()
    if rank == 2:
        m.time.sleep(LATE_S)
    waited = how_long(m, lambda: dist.all_reduce(torch.ones(1), group=into))
    return "late" if rank == 2 else waited


@differs(["waits", "late", "goes on"], ["waits", "late", "waits"])
def one_receiver_of_a_broadcast_is_late(m: Modules, rank: int) -> str:
    into = group()
    if rank == 1:
        m.time.sleep(LATE_S)
    waited = how_long(m, lambda: dist.broadcast(torch.ones(1), 0, group=into))
    return "late" if rank == 1 else waited


@differs(["waits", "late", "waits"], ["goes on", "late", "goes on"])
def one_rank_makes_a_group_late(m: Modules, rank: int) -> str:
    if rank == 1:
        m.time.sleep(LATE_S)
    waited = how_long(m, group)
    return "late" if rank == 1 else waited


@same(["goes on", "away", "away"])
def a_rank_reduces_an_empty_tensor_alone(m: Modules, rank: int) -> str:
    into = group()
    return "away" if rank else how_long(m, lambda: dist.all_reduce(torch.zeros(0), group=into))


@same(["waits", "late", "away"])
def a_message_is_taken_late(m: Modules, rank: int) -> str:
    into = group()
    if rank == 0:
        return how_long(m, lambda: dist.send(torch.ones(1), 1, group=into))
    if rank == 1:
        m.time.sleep(LATE_S)
        dist.recv(torch.zeros(1), 0, group=into)
    return "late" if rank == 1 else "away"


@same([[False, True], [], []])
def a_message_is_taken_and_nobody_has_waited_for_that(m: Modules, rank: int) -> list[bool]:
    into = group()
    if rank == 0:
        sent: Any = dist.isend(torch.ones(1), 1, group=into)
        m.time.sleep(SOON_S)
        seen = [sent.is_completed()]
        sent.wait()
        return [*seen, sent.is_completed()]
    if rank == 1:
        dist.recv(torch.zeros(1), 0, group=into)
    return []


# --- who meets whom


@same([[[3.0], [3.0]], [3.0, 3.0], [3.0, 3.0]])
def tensors_of_one_length_in_different_shapes(m: Modules, rank: int) -> Any:
    return summed(torch.ones(2, 1) if rank == 0 else torch.ones(2), group())


def right_or_wrong(answer: Any, right: Any) -> str:
    return "right" if answer == right else "wrong"


@differs(["right", "wrong", "wrong"], "desync")
def ranks_reduce_by_different_operations(m: Modules, rank: int) -> str:
    op, right = (dist.ReduceOp.MIN, [1]) if rank == 0 else (dist.ReduceOp.MAX, [3])
    return right_or_wrong(summed(torch.tensor([rank + 1]), group(), op=op), right)


@differs(["wrong", "wrong", "wrong"], "desync")
def ranks_reduce_different_types(m: Modules, rank: int) -> str:
    return right_or_wrong(summed(torch.ones(1, dtype=torch.float32 if rank else torch.int32), group()), [3])


@differs(["RuntimeError"] * 3, "desync")
def ranks_are_in_different_collectives(m: Modules, rank: int) -> str:
    into = group(1)
    return error_of(lambda: dist.all_reduce(torch.ones(2), group=into) if rank else dist.barrier(into))


@same([[30, 3], [3, 30], [3, 30]])
def two_threads_of_a_rank_are_in_another_order(m: Modules, rank: int) -> list[int]:
    into, works = group(), []
    tensors = [torch.tensor([rank]), torch.tensor([10 * rank])]
    for tensor in tensors if rank else reversed(tensors):
        reduce = partial(dist.all_reduce, tensor, group=into, async_op=True)
        thread = m.threading.Thread(target=lambda reduce=reduce: works.append(reduce()))
        thread.start()
        thread.join()
    for work in works:
        work.wait()
    return [int(tensor) for tensor in tensors]


@same([[3, 30]] * 3)
def a_thread_begins_while_what_another_began_is_under_way(m: Modules, rank: int) -> list[int]:
    into = group()
    tensors = [torch.tensor([rank]), torch.tensor([10 * rank])]
    work: Any = dist.all_reduce(tensors[0], group=into, async_op=True)
    thread = m.threading.Thread(target=lambda: dist.all_reduce(tensors[1], group=into))
    thread.start()
    thread.join()
    work.wait()
    return [int(tensor) for tensor in tensors]


# --- what goes in and comes out


@differs(["it is there"] * 3, ["it is not"] * 3)
def a_result_before_anybody_waits_for_it(m: Modules, rank: int) -> str:
    tensor = torch.tensor([rank])
    work: Any = dist.all_reduce(tensor, group=group(), async_op=True)
    for _ in range(500):
        if int(tensor) == 3:
            break
        m.time.sleep(0.01)
    seen = "it is there" if int(tensor) == 3 else "it is not"
    work.wait()
    return seen


@differs([[0, 3, 6, 3, 4, 5]] * 3, [[0, 1, 6, 3, 12, 5]] * 3)
def every_second_number_is_reduced(m: Modules, rank: int) -> list[int]:
    numbers = torch.arange(6)
    summed(numbers[::2], group())
    return numbers.tolist()


@differs(["RuntimeError"] * 3, ["none"] * 3)
def small_integers_are_reduced(m: Modules, rank: int) -> str:
    return error_of(lambda: summed(torch.ones(1, dtype=torch.int16), group()))


@same(["none"] * 3)
def a_rank_calls_for_a_group_that_it_is_not_in(m: Modules, rank: int) -> str:
    alone = dist.new_group([0])
    return error_of(lambda: dist.barrier(alone))


@differs([True] * 3, [False] * 3)
def a_group_is_a_process_group(m: Modules, rank: int) -> bool:
    return isinstance(group(), dist.ProcessGroup)


@differs(["none"] * 3, "not simulated")
def a_function_is_taken_from_the_module_inside(m: Modules, rank: int) -> str:
    from torch.distributed import distributed_c10d

    return error_of(lambda: distributed_c10d.barrier(group()))


# --- time-outs and the dead


@same([["RuntimeError", "RuntimeError"], ["RuntimeError"], ["RuntimeError"]])
def a_group_whose_time_ran_out_is_used_again(m: Modules, rank: int) -> list[str]:
    into = group(1)
    if rank:
        m.time.sleep(2)
    return [error_of(lambda: dist.barrier(into)) for _ in range(1 if rank else 2)]


@differs([1800.0] * 3, [None] * 3)
def the_time_out_that_a_group_has_by_itself(m: Modules, rank: int) -> float | None:
    seconds: float | None = m.timeout_s_of(group())
    return seconds


@same(["it waits", "away", "it waits"])
def a_thread_whose_peer_does_not_come(m: Modules, rank: int) -> str:
    into = group()
    return "away" if rank == 1 else _of_thread(m, lambda: dist.barrier(into), 0.5)


@differs(["RuntimeError", GONE, "RuntimeError"], ["it waits", GONE, "it waits"])
def a_thread_whose_peer_process_ends(m: Modules, rank: int) -> str:
    """The last row: afterwards there are no three ranks any more."""
    into = group()
    if rank == 1:
        m.leave()
    return _of_thread(m, lambda: dist.barrier(into), 30)


def _of_thread(m: Modules, call: Callable[[], object], seconds: float) -> str:
    seen = ["it waits"]
    thread = m.threading.Thread(target=lambda: seen.append(error_of(call)), daemon=True)
    thread.start()
    thread.join(seconds)
    return seen[-1]


def _timeout_s_of(gloo: Any) -> float:
    seconds: float = gloo._get_backend(torch.device("cpu")).options._timeout.total_seconds()
    return seconds


def main(rank: int, store: Path, out: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    modules = Modules(time=time, threading=threading, leave=lambda: os._exit(0), timeout_s_of=_timeout_s_of)
    answers: dict[str, Any] = {}
    for name, row in ROWS.items():
        dist.barrier()
        out.write_text(json.dumps({**answers, name: GONE}))
        answers[name] = row.program(modules, rank)
    out.write_text(json.dumps(answers))
    # Some threads are left in collectives that nobody will join.
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
