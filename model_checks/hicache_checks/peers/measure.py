"""What a peer's run came to, and a process measured as a whole: its time and its memory at the peak."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

KIB = 1024
STEADY_SECONDS = 60.0
"""A tool that is stopped sooner has hardly begun: its speed so far means nothing, and it is given none."""


class PeerMissing(Exception):
    """A tool that is not installed. The message says which, and how to get it."""


class PeerFailed(Exception):
    """A tool that did not do what it was asked to; the message is its own last line."""


@dataclass(frozen=True)
class PeerResult:
    """One run of one tool.

    `seconds` and `peak_bytes` are of the whole process; compiling the model is apart, in `compile_seconds`. `complete`
    is False if a limit ended the run: then `states` is how far it came, and `seconds` the time that this took. If the
    tool was killed, `stopped_after` says after how many seconds. `violated` is the property that the tool reports, and
    `depth` the number of steps to it, or else the greatest depth, where the tool gives one.
    """

    name: str
    cores: int
    states: int
    transitions: int | None
    seconds: float
    compile_seconds: float
    peak_bytes: int
    version: str
    note: str = ""
    complete: bool = True
    stopped_after: float | None = None
    violated: str | None = None
    depth: int | None = None

    @property
    def is_comparable(self) -> bool:
        """May its speed be compared with that of other tools: did it finish, or at least go on for long enough?"""
        return self.complete or self.seconds >= STEADY_SECONDS

    @property
    def bytes_per_state(self) -> float | None:
        """Bytes of the whole process for each distinct state; None if it was killed too soon."""
        return self.peak_bytes / max(1, self.states) if self._is_steady else None

    @property
    def states_per_second(self) -> float | None:
        """Distinct states a second; None if it was killed too soon."""
        return self.states / max(self.seconds, 1e-6) if self._is_steady else None

    @property
    def _is_steady(self) -> bool:
        return self.stopped_after is None or self.is_comparable


@dataclass(frozen=True)
class Measured:
    """A process that has ended, or was ended by its time limit."""

    code: int
    stdout: str
    stderr: str
    seconds: float
    peak_bytes: int
    timed_out: bool


def measure(
    command: Sequence[str],
    directory: Path,
    seconds_max: float | None = None,
    environment: Mapping[str, str] | None = None,
) -> Measured:
    """Run a command to its end and measure it; after `seconds_max` it is killed. Raises PeerMissing if there is none.

    The peak is that of the process and of those it has waited for, whichever is the highest. `environment`: variables
    beside those of this process.
    """
    variables = {**os.environ, **(environment or {})}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start = time.perf_counter()
        try:
            process = subprocess.Popen(
                command, cwd=directory, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=variables
            )
        except FileNotFoundError:
            raise PeerMissing(f"{command[0]} is not installed") from None
        expired = threading.Event()

        def expire() -> None:
            expired.set()
            process.kill()

        timer = threading.Timer(seconds_max, expire) if seconds_max is not None else None
        if timer is not None:
            timer.start()
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            process.wait()
            raise
        finally:
            if timer is not None:
                timer.cancel()
        process.returncode = code = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - start
        texts = []
        for stream in (out, err):
            stream.seek(0)
            texts.append(stream.read().decode(errors="replace"))
    return Measured(code, texts[0], texts[1], seconds, usage.ru_maxrss * KIB, expired.is_set())


def not_finished(tool: str, measured: Measured) -> PeerFailed:
    """The failure of a tool that was killed before it said how far it was."""
    return PeerFailed(f"{tool}: not finished after {measured.seconds:.0f} s; by then it had said nothing")


def last_line(measured: Measured) -> str:
    """The last thing that a process said."""
    lines = [line for line in (measured.stdout + "\n" + measured.stderr).splitlines() if line.strip()]
    return lines[-1].strip() if lines else f"exit code {measured.code}, no output"
