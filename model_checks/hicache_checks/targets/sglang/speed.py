"""How fast a release is: its own controller on its own file backend, with real threads, in a process of its own."""

from __future__ import annotations

import multiprocessing
import tempfile
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

ANSWER_S_MAX = 600.0
WAIT_S = 120.0
POLL_S = 0.0005
"""A scheduler looks after its requests about so often."""
DEVICE_PAGES = 2
NAMED = "prefetch_io"
"""In the name of the function that a release's reading thread runs."""


class SpeedError(Exception):
    """A release cannot be measured; the message says why."""


@dataclass(frozen=True)
class Moved:
    """What a round moves: `operations` prefixes without a common page, each of so many pages of so many bytes."""

    page_bytes: int
    page_tokens: int
    operation_pages: int
    operations: int

    @property
    def pages(self) -> int:
        """Of all operations together."""
        return self.operations * self.operation_pages


@dataclass(frozen=True)
class Took:
    """Seconds, seconds of processors, and those that the reading thread had (None: it is not known by name)."""

    seconds: float
    cpu_seconds: float
    reader_seconds: float | None


class ReleaseProcess:
    """The process of a release that is measured. A context manager; every call raises SpeedError if it fails there."""

    def __init__(self, tree: Path, kind: str | None) -> None:
        context = multiprocessing.get_context("spawn")
        with tempfile.NamedTemporaryFile(prefix="hicheck-ranks-", delete=False) as meeting:
            self._connection, theirs = context.Pipe()
            arguments = (tree, kind, meeting.name, theirs)
            self._process = context.Process(target=_serve, args=arguments, daemon=True)
            self._process.start()
            theirs.close()

    def __enter__(self) -> ReleaseProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.join()

    def ask(self, name: str, *args: Any) -> Any:
        """Have a function of this module called there, on what was built before."""
        self._connection.send((name, args))
        try:
            if not self._connection.poll(ANSWER_S_MAX):
                raise SpeedError(f"{name} does not return")
            is_done, answer = self._connection.recv()
        except (EOFError, ConnectionError):
            raise SpeedError("its process died") from None
        if not is_done:
            raise SpeedError(answer)
        return answer

    def open_fetch(self, moved: Moved) -> None:
        """A new rank, with the pages of a round in the files of its store."""
        self.ask("open_fetch", moved)

    def fetch(self) -> Took:
        """A round: all of it comes from the files to the host, which is empty again afterwards."""
        took: Took = self.ask("fetch")
        return took

    def check_fetch(self) -> None:
        """A round that is not measured. SpeedError: it brought other bytes than are stored."""
        self.ask("check_fetch")


def _serve(tree: Path, kind: str | None, meeting: str, connection: Connection) -> None:
    """Answer calls, until nobody makes any more."""
    import torch.distributed as dist

    from hicache_checks.targets.sglang.loading import loaded
    from hicache_checks.targets.sglang.rank_process import next_job

    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=0, world_size=1)
    with loaded(tree, kind) as release:
        from hicache_checks.targets.sglang.speed_rank import SpeedRank

        rank = SpeedRank(release)
        while (job := next_job(connection)) is not None:
            name, args = job
            try:
                answer = (True, getattr(rank, name)(*args))
            except Exception as error:
                answer = (False, f"{type(error).__name__}: {error}".partition("\n")[0])
            connection.send(answer)
