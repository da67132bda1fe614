"""What two ranks do with `torch.distributed`, and what each of them sees: with gloo processes, and with the stand-ins.

Run as a program, this is one gloo process: `collective_programs.py RANK STORE OUT`.
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

RANKS = 2


def error_of(call: Any) -> str:
    try:
        call()
    except Exception as error:
        return type(error).__name__
    return "none"


def both_ranks(rank: int) -> dict[str, Any]:
    """The same calls on every rank; what they leave on this one."""
    seen: dict[str, Any] = {}
    mine = torch.tensor([rank + 2, 10 - 3 * rank], dtype=torch.int64)
    for name in ("SUM", "MIN", "MAX", "PRODUCT"):
        tensor = mine.clone()
        seen[f"all_reduce {name}"] = [dist.all_reduce(tensor, op=getattr(dist.ReduceOp, name)), tensor.tolist()]
    for dtype in (torch.int32, torch.float32):
        tensor = mine.to(dtype)
        dist.all_reduce(tensor)
        seen[f"all_reduce {dtype}"] = [str(tensor.dtype), tensor.tolist()]
    gathered = [torch.zeros_like(mine) for _ in range(RANKS)]
    dist.all_gather(gathered, mine)
    seen["all_gather"] = [tensor.tolist() for tensor in gathered]
    sent = mine.clone()
    dist.broadcast(sent, src=1)
    seen["broadcast"] = sent.tolist()
    objects: list[Any] = [None] * RANKS
    dist.all_gather_object(objects, {"rank": rank, "pages": [rank] * 3})
    seen["all_gather_object"] = objects
    listed: list[Any] = [rank, {"from": rank}]
    dist.broadcast_object_list(listed, src=1)
    seen["broadcast_object_list"] = listed
    seen["barrier"] = dist.barrier()

    work = dist.all_reduce(late := mine.clone(), op=dist.ReduceOp.MAX, async_op=True)
    other = dist.broadcast(copied := mine.clone(), src=0, async_op=True)
    seen["async"] = [
        work is not None and work.wait(),
        late.tolist(),
        other is not None and other.wait(),
        copied.tolist(),
    ]
    seen["completed"] = work is not None and work.is_completed()

    whole, alone = dist.new_group(backend="gloo", timeout=timedelta(seconds=60)), dist.new_group([1])
    dist.all_reduce(tensor := mine.clone(), op=dist.ReduceOp.MIN, group=whole)
    seen["group"] = [
        tensor.tolist(),
        dist.get_rank(whole),
        dist.get_world_size(whole),
        dist.get_process_group_ranks(whole),
    ]
    seen["sub group"] = [dist.get_rank(alone), dist.get_world_size(alone)]
    if rank == 1:
        dist.all_reduce(tensor := mine.clone(), group=alone)
        seen["alone"] = [tensor.tolist(), dist.get_global_rank(alone, 0), dist.get_group_rank(alone, 1)]
    seen["world"] = [dist.get_rank(), dist.get_world_size(), dist.get_backend(), dist.is_initialized()]
    seen["too few"] = error_of(lambda: dist.all_gather(gathered[:1], mine))
    dist.barrier()
    dist.destroy_process_group(whole)
    dist.all_reduce(tensor := mine.clone(), group=whole)
    again = error_of(lambda: dist.destroy_process_group(whole))
    seen["destroyed group"] = [
        tensor.tolist(),
        error_of(lambda: dist.get_rank(whole)),
        dist.get_world_size(whole),
        again,
    ]
    dist.destroy_process_group()
    seen["destroyed"] = [dist.is_initialized(), error_of(lambda: dist.all_reduce(mine))]
    return seen


def main(rank: int, store: Path, out: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    out.write_text(json.dumps(both_ranks(rank)))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
