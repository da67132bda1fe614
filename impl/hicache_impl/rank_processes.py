"""A process for each rank of a run: started, listened to, and ended whatever happens."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hicache_impl.runtime import ThreadRuntime

# How long the other ranks may go on once one of them has ended with a finding or has died.
GRACE_S = 5.0
# How long it may take until rank 0 says something for the first time.
START_S = 60.0
POLL_S = 0.1
STACKS_S = 1.0
# A process that gets it writes where its threads are to its standard error, if it knows how to.
STACKS_SIGNAL = getattr(signal, "SIGUSR1", None)


class RankDied(RuntimeError):
    """The process of a rank ended without a result."""


class RankProcesses:
    """Runs `python -m MODULE FOLDER RANK` for each rank, passes rank 0's lines on, and ends all whatever happens.

    Each leaves `rank-RANK.json` in the folder: an object with `findings`, a list of lines, and `broken`, whether its
    peers cannot go on. `silence_s`: rank 0 says something at least that often, or all hang.
    """

    def __init__(
        self,
        module: str,
        folder: str | Path,
        ranks: int,
        progress: Callable[[str], None],
        silence_s: float = math.inf,
    ) -> None:
        self._module = module
        self._folder = Path(folder)
        self._ranks = ranks
        self._progress = progress
        self._silence_s = silence_s
        self._runtime = ThreadRuntime()
        self._processes: list[subprocess.Popen[str]] = []
        self._first_spoilt: int | None = None
        self._deadline_s = math.inf
        self.hung = False

    def run(self, options: bytes) -> list[dict[str, Any]]:
        """The results of the ranks that have one, in rank order; `options` lie in the folder as `options.json`.

        RankDied: one has none, and none has a finding, and `hung` is not set.
        """
        (self._folder / "options.json").write_bytes(options)
        try:
            for rank in range(self._ranks):
                self._processes.append(self._start(rank))
            self._deadline_s = self._runtime.now() + max(START_S, self._silence_s)
            reader = self._runtime.thread("progress", self._pass_progress_on)
            reader.start()
            self._wait()
        finally:
            for process in self._processes:
                process.kill()
                process.wait()
        reader.join(GRACE_S)
        return self._results()

    def last_words(self, rank: int) -> str:
        """What it wrote last to its standard error, or its exit code."""
        lines = [line for line in self._stderr(rank).read_text(encoding="utf-8").splitlines() if line.strip()]
        return lines[-1].strip() if lines else f"exit code {self._processes[rank].returncode}"

    def stacks(self, rank: int) -> str:
        """All that it wrote to its standard error: after `hung`, where its threads are."""
        return self._stderr(rank).read_text(encoding="utf-8")

    def _start(self, rank: int) -> subprocess.Popen[str]:
        with self._stderr(rank).open("w", encoding="utf-8") as stderr:
            return subprocess.Popen(
                [sys.executable, "-m", self._module, str(self._folder), str(rank)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                stderr=stderr,
                text=True,
            )

    def _pass_progress_on(self) -> None:
        lines = self._processes[0].stdout
        assert lines is not None
        for line in lines:
            self._deadline_s = self._runtime.now() + self._silence_s
            self._progress(line.rstrip("\n"))

    def _wait(self) -> None:
        """Until all have ended, or the grace has passed since one ended in a way that the others cannot survive."""
        pause = self._runtime.event()
        deadline_s = math.inf
        while any(process.poll() is None for process in self._processes) and self._runtime.now() < deadline_s:
            spoilt = [rank for rank in range(self._ranks) if self._spoils(rank)]
            if spoilt and self._first_spoilt is None:
                # A rank that a signal ended comes first: the others only lost their connection to it.
                self._first_spoilt = min(spoilt, key=lambda rank: self._processes[rank].returncode)
                deadline_s = self._runtime.now() + GRACE_S
            if self._runtime.now() > self._deadline_s:
                self._ask_for_stacks()
                self.hung = True
                return
            pause.wait(POLL_S)

    def _ask_for_stacks(self) -> None:
        for process in self._processes:
            if STACKS_SIGNAL is not None and process.poll() is None:
                process.send_signal(STACKS_SIGNAL)
        self._runtime.event().wait(STACKS_S)

    def _spoils(self, rank: int) -> bool:
        if self._processes[rank].poll() is None:
            return False
        result = self._result(rank)
        return result is None or bool(result["broken"])

    def _results(self) -> list[dict[str, Any]]:
        results = {rank: result for rank in range(self._ranks) if (result := self._result(rank)) is not None}
        missing = sorted(set(range(self._ranks)) - results.keys(), key=lambda rank: (rank != self._first_spoilt, rank))
        if self.hung:
            return [results[rank] for rank in sorted(results)]
        if missing and not any(result["findings"] for result in results.values()):
            raise RankDied(f"rank {missing[0]} ended without a result: {self.last_words(missing[0])}")
        for rank in missing:
            some = next(iter(results.values()))
            some["findings"].append(f"rank {rank}: ended without a result: {self.last_words(rank)}")
        return [results[rank] for rank in sorted(results)]

    def _result(self, rank: int) -> dict[str, Any] | None:
        path = self._folder / f"rank-{rank}.json"
        try:
            result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None
        return result

    def _stderr(self, rank: int) -> Path:
        return self._folder / f"rank-{rank}.stderr"
