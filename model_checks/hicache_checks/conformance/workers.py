"""Starting workers, listening to them, and saying what became of those that did not come to an end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from hicache_checks.conformance.last_words import LastWords, last_words
from hicache_checks.reporting import InputError, printable

LOADING = -1
UNNUMBERED = -2
"""What a worker runs, if it is no numbered schedule: it loads its target, or does something else with it."""
WORDS_KEPT_BYTES = 1 << 16
EXIT_USAGE = 2
LOADING_TIMES = 5
TO_SAY_WHERE_S = 1.0
_SIGNALS = {known.value: known.name for known in signal.Signals}


@dataclass(frozen=True)
class Allowed:
    """How long a worker may say nothing, and how much memory it may use. To load a target it may take longer."""

    silence_s: float = 60.0
    memory_bytes: int = 16 << 30

    @property
    def loading_s(self) -> float:
        """Until the first word: on a busy machine big libraries take their time."""
        return LOADING_TIMES * self.silence_s


ALLOWED = Allowed()


@dataclass(frozen=True)
class Crash:
    """A worker that died or hung: how, in which schedule (None: in none that has a number), the last that it said, and
    the function that it was in."""

    how: str
    number: int | None
    words: str = ""
    place: str = ""
    is_hung: bool = False


def work(job: Mapping[str, Any], hear: Callable[[Mapping[str, Any]], None], allowed: Allowed = ALLOWED) -> Crash | None:
    """Run a job in a process of its own and hand on what it says, line by line.

    A worker that says nothing for too long is asked where it is, and killed with its children. Raises InputError, one
    line, when the worker cannot use its target, or does not survive loading it.
    """
    with _running_file() as running:
        process = subprocess.Popen(
            [sys.executable, "-m", "hicache_checks.conformance.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"},
        )
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        said_besides = _Tail(process.stderr)
        watchdog = _Watchdog(process, allowed, running)
        around = {"running": str(running), "path": sys.path, **asdict(allowed)}
        error, is_done = None, False
        try:
            with contextlib.suppress(BrokenPipeError), process.stdin as stdin:
                stdin.write(json.dumps({**job, **around}).encode())
            for said in _said(process.stdout, watchdog):
                if "error" in said:
                    error = str(said["error"])
                elif "end" in said:
                    is_done = True
                elif "loaded" not in said:
                    hear(said)
            code = process.wait()
        finally:
            watchdog.stop()
            _kill(process)
        if code == EXIT_USAGE and error is not None:
            raise InputError(error)
        if code == 0 and is_done:
            return None
        last = said_besides.last_words()
        how = _how(code) if watchdog.hung is None else f"hung (it said nothing for {watchdog.hung.silence_s:g} s)"
        number = _number(running) if watchdog.hung is None else watchdog.hung.number
        if number == LOADING:
            place = f" in {last.place}" if last.place else ""
            words = f": {printable(last.words)}" if last.words else ""
            raise InputError(f"cannot load {job['target']}: the process {how}{place}{words}")
        return Crash(how, number if number >= 0 else None, last.words, last.place, watchdog.hung is not None)


@dataclass(frozen=True)
class _Hung:
    """What a process was running when it was killed, and for how long it had said nothing."""

    number: int
    silence_s: float


class _Watchdog:
    """Kills a process that says nothing for too long, after it was asked where it is: that may wake it up."""

    def __init__(self, process: subprocess.Popen[bytes], allowed: Allowed, running: Path) -> None:
        self.hung: _Hung | None = None
        self._process = process
        self._allowed = allowed
        self._running = running
        self._timer = self._started(allowed.loading_s)

    def heard(self) -> None:
        self._timer.cancel()
        self._timer = self._started(self._allowed.silence_s)

    def stop(self) -> None:
        self._timer.cancel()

    def _started(self, silence_s: float) -> threading.Timer:
        timer = threading.Timer(silence_s, self._end, (silence_s,))
        timer.start()
        return timer

    def _end(self, silence_s: float) -> None:
        self.hung = _Hung(_number(self._running), silence_s)
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            self._process.send_signal(signal.SIGUSR1)
            self._process.wait(TO_SAY_WHERE_S)
        _kill(self._process)


class _Tail:
    """Reads a stream to its end, and keeps the last of it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._kept = b""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def last_words(self) -> LastWords:
        # Somebody whom the process started may have survived it, and hold the stream.
        self._thread.join(TO_SAY_WHERE_S)
        return last_words(self._kept.decode(errors="replace"))

    def _read(self) -> None:
        with self._stream:
            while block := os.read(self._stream.fileno(), WORDS_KEPT_BYTES):
                self._kept = (self._kept + block)[-WORDS_KEPT_BYTES:]


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextlib.contextmanager
def _running_file() -> Iterator[Path]:
    with tempfile.NamedTemporaryFile(prefix="hicheck-running-") as file:
        file.write(struct.pack("<q", LOADING))
        file.flush()
        yield Path(file.name)


def _number(running: Path) -> int:
    return int(struct.unpack("<q", running.read_bytes()[:8])[0])


def _said(stdout: IO[bytes], watchdog: _Watchdog) -> Iterator[dict[str, Any]]:
    """What a worker says, line by line, as long as it is not taken for dead."""
    with stdout:
        for line in stdout:
            watchdog.heard()
            said = _parsed(line)
            if said is not None and watchdog.hung is None:
                yield said


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        said = json.loads(line)
    except ValueError:
        return None
    return said if isinstance(said, dict) else None


def _how(code: int) -> str:
    if code < 0:
        return f"was killed by {_SIGNALS.get(-code, f'signal {-code}')}"
    return f"ended with exit code {code}"
