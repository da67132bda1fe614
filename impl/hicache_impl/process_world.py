"""The processes of a run, one a rank: how one joins the others, whom it agrees with there, and how it leaves."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec
import torch

from hicache_impl.events import Log
from hicache_impl.grid import process_group, process_groups
from hicache_impl.layout import ONE_RANK, Layout, checked_layout
from hicache_impl.ranks import GlooGroup, Group, Groups

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

BACKENDS = ("gloo", "nccl")
COLLECTIVE_TIMEOUT_S = 60.0


class WorldOptions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """Who takes part in a run. `device`: where device pages are. `backend`: by what ranks agree, gloo on their
    processors, or nccl on a CUDA device of each one's own, where its device pages are then, too."""

    layout: Layout = ONE_RANK
    backend: str = "gloo"
    device: str = "cpu"

    def check_world(self) -> None:
        """ValueError: there is no such backend, or not what it needs."""
        if self.backend not in BACKENDS:
            raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, not {self.backend!r}")
        devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if self.backend == "nccl" and devices < self.layout.world:
            raise ValueError(
                f"nccl wants a CUDA device for each rank: there are {devices} of them and {self.layout.world} ranks"
            )
        if torch.device(self.device).type == "cuda" and not devices:
            raise ValueError(f"the device {self.device} wants CUDA, which is not available here")

    def device_of(self, rank: int) -> str:
        """Where a world rank has its device pages."""
        return f"cuda:{rank}" if self.backend == "nccl" else self.device


Options = TypeVar("Options", bound=WorldOptions)


def checked_options(kind: type[Options], given: Mapping[str, Any]) -> Options:
    """Options of this kind from their fields. ValueError, in one line: one of them cannot be used here."""
    layout = checked_layout(given.get("layout", ONE_RANK))
    checked = msgspec.convert({**given, "layout": layout}, kind)
    checked.check_world()
    return checked


class World:
    """This process among those of a run. `everyone`: one group of all ranks; `rank` is of the world."""

    def __init__(self, options: WorldOptions, folder: Path, rank: int) -> None:
        """Join; collective. The processes meet by a file in `folder`."""
        import torch.distributed as dist

        torch.set_num_threads(1)
        if sys.platform == "linux":
            # All ranks are on this machine; the host's name need not resolve.
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        dist.init_process_group(
            "gloo",
            init_method=f"file://{folder.absolute() / 'rendezvous'}",
            rank=rank,
            world_size=options.layout.world,
            timeout=timedelta(seconds=COLLECTIVE_TIMEOUT_S),
        )
        self.rank = rank
        self.layout = options.layout
        self.everyone: Group = GlooGroup(cast("ProcessGroup", dist.group.WORLD), "world")
        self._device = "cpu"
        if options.backend == "nccl":
            self._device = options.device_of(rank)
            torch.cuda.set_device(self._device)

    def groups(self, log: Log) -> Groups:
        """Those of a cache on this rank; collective."""
        return process_groups(self.layout, log, COLLECTIVE_TIMEOUT_S, self._device)

    def group(self, name: str) -> Group:
        """One more of this rank's replica, always over gloo; collective."""
        return process_group(self.layout, name, timeout_s=COLLECTIVE_TIMEOUT_S)

    def leave(self) -> None:
        """When all have come to it: nobody leaves while a peer may still be in a collective with this rank."""
        with contextlib.suppress(RuntimeError):
            self.everyone.barrier()
