"""Servers that stores need, for tests and commands: started on a free loopback port, ended by their process id."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

START_S = 20.0
STOP_S = 5.0
_POLL_S = 0.02
LOOPBACK = "127.0.0.1"


class Unavailable(Exception):
    """A server cannot be had here; why, one line."""


def free_port() -> int:
    """A port of the loopback address that nobody listens on now."""
    with socket.socket() as sock:
        sock.bind((LOOPBACK, 0))
        return int(sock.getsockname()[1])


class ServerProcess:
    """A program that runs until `close`. `is_up`: whether it answers; `folder`: where it lies and logs; `sign`: a file
    by which it says that it is up.

    Unavailable: it cannot be started, or does not answer within `START_S` seconds.
    """

    def __init__(
        self, name: str, command: list[str], folder: Path, is_up: Callable[[], bool], sign: Path | None = None
    ) -> None:
        self._name = name
        self._command = command
        self._folder = folder
        self._is_up = is_up
        self._sign = sign
        self._process: subprocess.Popen[bytes] | None = None
        self.restart()

    @property
    def pid(self) -> int:
        """Of the process that runs, or ran last."""
        assert self._process is not None
        return self._process.pid

    def restart(self) -> None:
        """Start it, on the same port; what ran before is ended."""
        self.kill()
        if self._sign is not None:
            self._sign.unlink(missing_ok=True)
        log = self._folder / f"{self._name}.log"
        with log.open("ab") as out:
            try:
                self._process = subprocess.Popen(
                    self._command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=self._folder
                )
            except OSError as error:
                raise Unavailable(f"{self._name} cannot be started: {error.strerror or error}") from None
        until_s = time.monotonic() + START_S
        while not self._is_up():
            if self._process.poll() is not None:
                raise Unavailable(f"{self._name} ended with {self._process.returncode}: {_last_line(log)}")
            if time.monotonic() > until_s:
                self.kill()
                raise Unavailable(f"{self._name} does not answer within {START_S:g} s: {_last_line(log)}")
            time.sleep(_POLL_S)

    def stop(self) -> None:
        """It stands still when this returns: connections stay, and nobody answers."""
        self._signal(signal.SIGSTOP)
        # The signal is on its way for a moment, and some thread may still answer.
        until_s = time.monotonic() + STOP_S
        while self._is_running() and not os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG):
            if time.monotonic() > until_s:
                return
            time.sleep(_POLL_S / 10)

    def go_on(self) -> None:
        """After `stop`."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """At once, and wait for its end; nothing, if it does not run."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    close = kill

    def _signal(self, number: int) -> None:
        if self._is_running():
            os.kill(self.pid, number)

    def _is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None


class RedisServer(ServerProcess):
    """`redis-server` without persistence: what it holds is gone when it is killed. `room_bytes`: then it is full."""

    def __init__(self, room_bytes: int | None = None) -> None:
        program = shutil.which("redis-server")
        if program is None:
            raise Unavailable("there is no program redis-server; Debian has it in a package of that name")
        self._folder_made = tempfile.mkdtemp(prefix="hicheck-redis-")
        self.port = free_port()
        command = [
            *(program, "--port", str(self.port), "--bind", LOOPBACK, "--dir", self._folder_made),
            *("--save", "", "--appendonly", "no", "--daemonize", "no"),
        ]
        if room_bytes is not None:
            command += ["--maxmemory", str(room_bytes), "--maxmemory-policy", "noeviction"]
        super().__init__("redis-server", command, Path(self._folder_made), lambda: _pongs(self.port))

    @property
    def spec(self) -> str:
        """What `open_storage` takes."""
        return f"redis://{LOOPBACK}:{self.port}/0"

    def close(self) -> None:
        """End it, and remove its folder."""
        self.kill()
        shutil.rmtree(self._folder_made, ignore_errors=True)


class MooncakeServers:
    """A master, and an owner of a segment of `segment_bytes`, from Mooncake's wheel. `close` ends both.

    What the owner holds is gone when it is killed, and what the master knows, when that is.
    """

    def __init__(self, segment_bytes: int = 256 << 20) -> None:
        wheel = importlib.util.find_spec("mooncake")
        if wheel is None or wheel.origin is None:
            raise Unavailable("the package mooncake-transfer-engine-non-cuda is not installed")
        self._folder = Path(tempfile.mkdtemp(prefix="hicheck-mooncake-"))
        self.port = free_port()
        command = [
            *(str(Path(wheel.origin).parent / "mooncake_master"), f"--rpc_port={self.port}"),
            *(f"--rpc_address={LOOPBACK}", f"--metrics_host={LOOPBACK}", f"--metrics_port={free_port()}"),
            *("--client_ttl=5", "--enable_metric_reporting=false", "--put_start_discard_timeout_sec=5"),
        ]
        self.master = ServerProcess("mooncake-master", command, self._folder, lambda: _listens(self.port))
        ready = self._folder / "ready"
        owner = Path(__file__).parent / "programs" / "mooncake_owner.py"
        command = [sys.executable, "-P", str(owner), f"{LOOPBACK}:{self.port}", str(segment_bytes), str(ready)]
        try:
            self.owner = ServerProcess("mooncake-owner", command, self._folder, ready.exists, ready)
        except Unavailable:
            self.close()
            raise

    @property
    def spec(self) -> str:
        """What `open_storage` takes."""
        return f"mooncake://{LOOPBACK}:{self.port}"

    def close(self) -> None:
        """End both, and remove their folder."""
        for server in (getattr(self, "owner", None), self.master):
            if server is not None:
                server.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), timeout=1.0):
        return True
    return False


def _pongs(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), timeout=1.0) as connection:
        connection.sendall(b"PING\r\n")
        return connection.recv(16).startswith(b"+PONG")
    return False


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else "it says nothing"
