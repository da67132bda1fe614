"""Sessions in processes of their own: one for each rank, over gloo, or a new one that comes after a restart."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import torch
import torch.distributed as dist
from torch import Tensor

from decoding.model import Shard
from decoding.session import Place, Row, Session, run
from hicache_impl import Layout
from hicache_impl.events import NullLog
from hicache_impl.process_world import World, WorldOptions

PROCESS_S = 240.0


class Processes:
    """`python PROGRAM --process FOLDER RANK` for each rank of a session, begun at once. `folder` must be empty."""

    def __init__(self, program: Path, session: Session, folder: Path) -> None:
        self._session, self._folder = session, folder
        folder.mkdir(parents=True)
        (folder / "session.json").write_bytes(msgspec.json.encode(session))
        self._processes = [self._start(program, rank) for rank in range(session.ranks)]

    def rows(self) -> list[Row]:
        """What came of it. A process that does not answer, and ranks that do not agree, are something wrong."""
        end_s = time.monotonic() + PROCESS_S
        try:
            for process in self._processes:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, end_s - time.monotonic()))
        finally:
            self.kill()
        answers = [self._answer(rank) for rank in range(self._session.ranks)]
        silent = [rank for rank, answer in enumerate(answers) if answer is None]
        if silent:
            why = [f"rank {rank} did not answer: {self._last_words(rank)}" for rank in silent]
            return [
                self._nothing(tree, store, why) for tree in self._session.trees for store, _ in self._session.stores
            ]
        return [_merged(rows) for rows in zip(*(answer for answer in answers if answer is not None), strict=True)]

    def kill(self) -> None:
        """End those that still run."""
        for process in self._processes:
            process.kill()
            process.wait()

    def _start(self, program: Path, rank: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(program), "--process", str(self._folder), str(rank)]
        with (self._folder / f"rank-{rank}.stderr").open("wb") as stderr:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr)

    def _answer(self, rank: int) -> list[Row] | None:
        path = self._folder / f"rank-{rank}.json"
        return msgspec.json.decode(path.read_bytes(), type=list[Row]) if path.exists() else None

    def _last_words(self, rank: int) -> str:
        said = (self._folder / f"rank-{rank}.stderr").read_text(encoding="utf-8", errors="replace").split("\n")
        return next((line for line in reversed(said) if line.strip()), "it is silent")

    def _nothing(self, tree: str, store: str, why: list[str]) -> Row:
        return Row(tree=tree, store=store, ranks=self._session.ranks, again=self._session.again, wrong=why)


def _merged(rows: Sequence[Row]) -> Row:
    """What is the same on every rank, and what is wrong on any."""
    first = rows[0]
    wrong = [f"rank {rank}: {line}" for rank, row in enumerate(rows) for line in row.wrong]
    for name in ("requests", "aborted", "tokens", "dropped_pages"):
        values = [getattr(row, name) for row in rows]
        wrong += [f"the ranks differ in {name}: {values}"] if values != values[:1] * len(values) else []
    return msgspec.structs.replace(first, wrong=wrong)


def work(folder: Path, rank: int) -> None:
    """The rank of a session that this process is; its rows are left in the folder."""
    session = msgspec.json.decode((folder / "session.json").read_bytes(), type=Session)
    world = World(WorldOptions(layout=Layout(tp=session.ranks)), folder, rank) if session.ranks > 1 else None
    place = Place(Shard()) if world is None else _place(world)
    unfinished = folder / f"rank-{rank}.unfinished"
    unfinished.write_bytes(msgspec.json.encode(run(session, place)))
    unfinished.rename(folder / f"rank-{rank}.json")
    if world is not None:
        world.leave()
    # After a finding, peers may hang in a collective and worker threads in a store; nobody waits for them.
    os._exit(0)


def _place(world: World) -> Place:
    def add(summand: Tensor) -> Tensor:
        total = summand.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total

    return Place(Shard(world.rank, world.layout.ranks, add), lambda: world.groups(NullLog()))
