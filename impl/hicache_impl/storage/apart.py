"""Stores in a process of their own, for engines that cannot promise to end, or to let go of memory.

Pages go through memory that both processes have mapped, one copy more than in place. A call that is not answered in
time is a miss, and the process is killed: then nothing of it can write anywhere any more, and its memory is used again.
After a pause, a new one is started, and until it is ready, everything is a miss.
"""

from __future__ import annotations

import json
import mmap
import os
import queue
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hicache_impl.storage.checksum import ABSENT, HEADER_BYTES, SHORT
from hicache_impl.storage.pages import Run, Runs, copy_to_runs
from hicache_impl.storage.patience import Patience
from hicache_impl.storage.store import PageStore

ANSWER_S = 3.0
START_S = 30.0
PAUSE_S, PAUSE_S_MAX = 0.25, 4.0
SLOTS = 4
SLOT_BYTES = 32 << 20
PAGES_MAX = 256
_MESSAGE_BYTES_MAX = 1 << 18
_PROGRAMS = Path(__file__).parent / "programs"
_UNREACHABLE = "unreachable"
# What `programs/serve.py` says of a read that may still write to its place.
MAY_BE_ALIVE = -2
READY, UNUSABLE = "ready", "unusable"


class ApartStore(PageStore):
    """A store whose medium is used by `backend`, a program of `programs/`, with `options`.

    `answer_s`: how long a call may take. A page may have up to `SLOT_BYTES`, less a header; a larger one is refused.
    Stats, besides: `unreachable`, pages that were asked for or given in vain; `errors`, calls that raised there;
    `restarts`, processes that were started because one was killed or had ended. ValueError: it can never be used.
    """

    def __init__(
        self, backend: str, options: Mapping[str, Any], *, checksums: bool, answer_s: float = ANSWER_S
    ) -> None:
        super().__init__(checksums, _UNREACHABLE, "errors", "restarts")
        self._answer_s = answer_s
        self._memory = _Memory()
        self._job = {"backend": str(_PROGRAMS / backend), "options": options, "path": sys.path}
        self._lock = threading.Lock()
        self._is_closed = False
        self._patience = Patience(PAUSE_S, PAUSE_S_MAX)
        self._helper: _Helper | None = _Helper(self._job, self._memory)
        if why := self._helper.wait_until_ready(START_S):
            self.close()
            raise ValueError(why)

    @property
    def pid(self) -> int:
        """Of the process that is used now; 0: there is none."""
        with self._lock:
            return 0 if self._helper is None else self._helper.process.pid

    def clear(self) -> None:
        """What the backend takes for its pages."""
        with suppress(_NoAnswer):
            self._ask(partial(_Slot.ask, request=["clear"], answer_s=self._answer_s))

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._is_closed = True
            if self._helper is not None:
                self._helper.kill()
            self._helper = None
            self._memory.close()

    def _present(self, keys: Sequence[str]) -> int:
        for first in range(0, len(keys), PAGES_MAX):
            batch = list(keys[first : first + PAGES_MAX])
            try:
                present = self._ask(partial(_Slot.ask, request=["exists", batch], answer_s=self._answer_s))
            except _NoAnswer:
                return first
            if not _is_list_of(bool, present, len(batch)):
                return first
            if False in present:
                return first + int(present.index(False))
        return len(keys)

    def _get(self, keys: Sequence[str], destinations: Sequence[Runs]) -> list[str]:
        outcomes: list[str] = []
        for part in _parts(destinations):
            try:
                outcomes += self._ask(partial(self._read, keys[part], destinations[part]))
            except _NoAnswer:
                return outcomes + [_UNREACHABLE] * (len(keys) - len(outcomes))
        return outcomes

    def _read(self, keys: Sequence[str], destinations: Sequence[Runs], slot: _Slot) -> list[str]:
        places = slot.places(destinations)
        if places is None:
            return [SHORT] * len(keys)
        sizes = slot.ask(["get", list(keys), places], self._answer_s)
        if not _is_list_of(int, sizes, len(keys)):
            return [_UNREACHABLE] * len(keys)
        if MAY_BE_ALIVE in sizes:
            raise _NoAnswer
        return [self._take(slot, *of_page) for of_page in zip(keys, places, sizes, destinations, strict=True)]

    def _take(self, slot: _Slot, key: str, place: tuple[int, int], size_bytes: int, runs: Runs) -> str:
        if size_bytes < 0:
            return ABSENT
        if size_bytes != place[1]:
            return SHORT
        record = slot.record(place)
        copy_to_runs(record[HEADER_BYTES:], runs)
        return self.records.judge(key, record[:HEADER_BYTES].data, size_bytes - HEADER_BYTES, runs)

    def _put(self, keys: Sequence[str], sources: Sequence[Runs]) -> list[bool]:
        stored: list[bool] = []
        for part in _parts(sources):
            try:
                stored += self._ask(partial(self._write, keys[part], sources[part]))
            except _NoAnswer:
                self.counts.note(_UNREACHABLE, len(keys) - len(stored))
                return stored + [False] * (len(keys) - len(stored))
        return stored

    def _write(self, keys: Sequence[str], sources: Sequence[Runs], slot: _Slot) -> list[bool]:
        places = slot.places(sources)
        if places is None:
            return [False] * len(keys)
        for key, place, runs in zip(keys, places, sources, strict=True):
            record = slot.record(place)
            at = HEADER_BYTES
            for run in runs:
                np.copyto(record[at : at + run.size], run.reshape(-1))
                at += run.size
            record[:HEADER_BYTES] = np.frombuffer(self.records.header(key, Runs([record[HEADER_BYTES:]])), np.uint8)
        answer: Any = slot.ask(["put", list(keys), places], self._answer_s)
        return answer if _is_list_of(bool, answer, len(keys)) else [False] * len(keys)

    def _ask(self, use: Callable[[_Slot], Any]) -> Any:
        """What `use` makes of a slot. Raises _NoAnswer where nobody answers; then the process is a new one."""
        helper = self._running()
        slot = helper.take_slot(self._answer_s)
        try:
            answer = use(slot)
        except _NoAnswer:
            self._replace(helper)
            raise
        except _Raised:
            self.counts.note("errors")
            helper.give_back(slot)
            raise _NoAnswer from None
        helper.give_back(slot)
        self._patience.worked()
        return answer

    def _running(self) -> _Helper:
        with self._lock:
            helper = self._helper
            if helper is None and not self._is_closed and not self._patience.is_pausing():
                self.counts.note("restarts")
                helper = self._helper = _Helper(self._job, self._memory)
        if helper is None:
            raise _NoAnswer
        if not helper.is_ready():
            if helper.has_ended or time.monotonic() > helper.begun_s + START_S:
                self._replace(helper)
            raise _NoAnswer
        return helper

    def _replace(self, helper: _Helper) -> None:
        """Kill it; the next call but a little later starts another one."""
        with self._lock:
            if self._helper is helper:
                helper.kill()
                self._helper = None
                self._patience.failed()


class _NoAnswer(Exception):
    """There is nobody who answers now."""


class _Raised(Exception):
    """The call raised in the other process, which goes on."""


class _Memory:
    """What both processes have mapped: `SLOTS` pieces of `SLOT_BYTES`. What is not used takes no memory."""

    def __init__(self) -> None:
        if hasattr(os, "memfd_create"):
            self.file = os.memfd_create("hicheck-store")
        else:
            with tempfile.TemporaryFile() as file:
                self.file = os.dup(file.fileno())
        os.ftruncate(self.file, SLOTS * SLOT_BYTES)
        self.bytes = np.frombuffer(mmap.mmap(self.file, SLOTS * SLOT_BYTES), np.uint8)
        self.is_closed = False

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            os.close(self.file)


class _Slot:
    """A channel, and the memory that belongs to it."""

    def __init__(self, channel: socket.socket, memory: _Memory, number: int) -> None:
        self.channel = channel
        self._memory = memory
        self._first = number * SLOT_BYTES

    def places(self, pages: Sequence[Runs]) -> list[tuple[int, int]] | None:
        """Where the records of these pages go, and their sizes; None: they do not fit."""
        places: list[tuple[int, int]] = []
        at = self._first
        for runs in pages:
            size_bytes = HEADER_BYTES + runs.size_bytes
            places.append((at, size_bytes))
            # At a multiple of 64, as copies are quickest.
            at += -(-size_bytes // 64) * 64
        return places if at <= self._first + SLOT_BYTES else None

    def record(self, place: tuple[int, int]) -> Run:
        """The memory of one record."""
        return self._memory.bytes[place[0] : place[0] + place[1]]

    def ask(self, request: list[Any], answer_s: float) -> Any:
        """The answer. Raises _NoAnswer when none comes in time, _Raised when the call raised."""
        try:
            self.channel.settimeout(answer_s)
            self.channel.send(json.dumps(request).encode())
            message = self.channel.recv(_MESSAGE_BYTES_MAX)
            answer = json.loads(message)
        except (OSError, ValueError):
            raise _NoAnswer from None
        if isinstance(answer, dict):
            raise _Raised
        return answer


class _Helper:
    """The other process, as long as it lives."""

    def __init__(self, job: Mapping[str, Any], memory: _Memory) -> None:
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(SLOTS + 1)]
        (self._control, its_control), *channels = pairs
        theirs = [theirs for _, theirs in pairs]
        whole = {
            **job,
            "memory": memory.file,
            "slots": SLOTS,
            "slot_bytes": SLOT_BYTES,
            "control": its_control.fileno(),
            "channels": [channel.fileno() for _, channel in channels],
        }
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(_PROGRAMS / "serve.py"), json.dumps(whole)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[memory.file, *(socket_.fileno() for socket_ in theirs)],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        for socket_ in theirs:
            socket_.close()
        self._slots = [_Slot(channel, memory, number) for number, (channel, _) in enumerate(channels)]
        self._idle: queue.LifoQueue[_Slot] = queue.LifoQueue()
        for slot in self._slots:
            self._idle.put(slot)
        self._lock = threading.Lock()
        self._is_ready = False
        self.begun_s = time.monotonic()
        self.has_ended = False

    def wait_until_ready(self, wait_s: float) -> str:
        """Why it can never be used; empty, if it can, or could not yet."""
        said = self._said(wait_s)
        return str(said[1]) if said[0] == UNUSABLE else ""

    def is_ready(self) -> bool:
        """Has it said so by now?"""
        return self._is_ready or self._said(0.0)[0] == READY

    def take_slot(self, wait_s: float) -> _Slot:
        """A slot that nobody uses. Raises _NoAnswer when there is none for so long."""
        try:
            return self._idle.get(timeout=wait_s)
        except queue.Empty:
            raise _NoAnswer from None

    def give_back(self, slot: _Slot) -> None:
        """It may be used by others."""
        self._idle.put(slot)

    def kill(self) -> None:
        """End it, and whoever waits for an answer. When this returns, nothing of it is left."""
        self.has_ended = True
        self.process.kill()
        self.process.wait()
        for socket_ in (self._control, *(slot.channel for slot in self._slots)):
            with suppress(OSError):
                socket_.shutdown(socket.SHUT_RDWR)
            socket_.close()

    def _said(self, wait_s: float) -> list[Any]:
        with self._lock:
            if self._is_ready:
                return [READY]
            try:
                self._control.settimeout(wait_s)
                message = self._control.recv(_MESSAGE_BYTES_MAX)
                said: list[Any] = json.loads(message) if message else ["ended"]
            except (TimeoutError, BlockingIOError):
                return [""]
            except OSError:
                said = ["ended"]
            self._is_ready = said[0] == READY
            self.has_ended |= not self._is_ready
            return said


def _parts(pages: Sequence[Runs]) -> list[slice]:
    """Slices of a batch that fit into a slot; what does not fit alone is one by itself."""
    parts: list[slice] = []
    first = used_bytes = 0
    for index, runs in enumerate(pages):
        size_bytes = runs.size_bytes + HEADER_BYTES + 64
        if index > first and (used_bytes + size_bytes > SLOT_BYTES or index - first == PAGES_MAX):
            parts.append(slice(first, index))
            first, used_bytes = index, 0
        used_bytes += size_bytes
    return [*parts, slice(first, len(pages))] if pages else []


def _is_list_of(kind: type, answer: Any, count: int) -> bool:
    return isinstance(answer, list) and len(answer) == count and all(type(each) is kind for each in answer)
