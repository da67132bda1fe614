"""A rank of a release in a process of its own, with real threads, real time and real collectives."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch.distributed as dist

from hicache_checks.targets.sglang.device import COPIES
from hicache_checks.targets.sglang.shelf import SHELVES

LATENCY_S_MAX = 0.02
"""What a call of a real store takes, at most."""


@dataclass(frozen=True)
class Answer:
    """What a call answered, or the exception that it raised, and which threads have died so far, and why."""

    value: Any
    died: tuple[str, ...]


def serve(tree: Path, kind: str, number: int, ranks: int, meeting: str, connection: Connection) -> None:
    """Make the calls that come, until nobody sends any more."""
    from hicache_checks.targets.sglang.loading import loaded
    from hicache_checks.targets.sglang.rank import Rank

    died: dict[threading.Thread | None, str] = {}

    def note(death: threading.ExceptHookArgs) -> None:
        died.setdefault(death.thread, f"{_function(death.thread)}: {_said(death.exc_value)}")

    threading.excepthook = note
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=number, world_size=ranks)
    with loaded(tree, kind) as release:
        rank: Rank | None = None
        while (job := next_job(connection)) is not None:
            name, args = job
            value: Any = None
            try:
                if name == "begin":
                    if rank is not None:
                        rank.close()
                    SHELVES.clear()
                    COPIES.clear()
                    release.prepare(args[0])
                    rank = Rank(number, args[0], release, release.groups(number))
                    rank.shelf.latency_s = LATENCY_S_MAX
                else:
                    value = getattr(rank, name)(*args)
            except Exception as error:
                value = error if _can_travel(error) else RuntimeError(f"{type(error).__name__}: {error}")
            own = [] if rank is None else rank.threads()
            connection.send(Answer(value, tuple(said for thread, said in died.items() if thread in own)))


def next_job(connection: Connection) -> tuple[str, tuple[Any, ...]] | None:
    """A call by name, with its arguments; None: nobody makes any more."""
    try:
        job: tuple[str, tuple[Any, ...]] = connection.recv()
    except EOFError:
        return None
    return job


def _can_travel(error: Exception) -> bool:
    """Is it of a class that the other side knows?"""
    return type(error).__module__ == "builtins"


def _function(thread: threading.Thread | None) -> str:
    return "a thread" if thread is None else thread.name.partition("(")[2].rstrip(")") or thread.name


def _said(error: BaseException | None) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0]
