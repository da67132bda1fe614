"""What goes wrong in a workload on purpose: aborted and stopped requests, and a storage that breaks half-way."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from hicache_impl.storage import Storage
from hicache_impl.storage.faults import FaultyStorage

Kind = Literal["abort", "stop"]
# When a disruption strikes: right after the submission, after some more ticks, or once the operation holds host pages.
Point = Literal["submitted", "ticks", "allocated"]
POINTS: tuple[Point, ...] = get_args(Point)

FAULTS = ("delete", "corrupt", "raise")
CORRUPT_SHARE = 0.01


@dataclass(frozen=True)
class Disruption:
    """What happens to one request.

    `ticks` counts for the point `ticks` alone. `resubmit_ticks` is how many ticks after its abort the request comes
    back under the same id; None when it does not.
    """

    kind: Kind
    point: Point
    ticks: int
    resubmit_ticks: int | None


def plan_disruption(seed: int, index: int, abort_rate: float, stop_rate: float) -> Disruption | None:
    """The disruption of request `index`: a pure function, so that all ranks plan the same in any order."""
    draw = random.Random(f"disruption {seed} {index}")
    where = draw.random()
    if where >= abort_rate + stop_rate:
        return None
    kind: Kind = "abort" if where < abort_rate else "stop"
    point, ticks = draw.choice(POINTS), draw.randint(1, 4)
    comes_back, resubmit_ticks = draw.random() < 0.5, draw.randint(0, 3)
    return Disruption(kind, point, ticks, resubmit_ticks if kind == "abort" and comes_back else None)


def check_fault(fault: str | None, spec: str) -> None:
    """Raises ValueError when there is no such fault, or the storage `spec` cannot have it."""
    if fault is not None and fault not in FAULTS:
        raise ValueError(f"the faults are {', '.join(FAULTS)}, not {fault!r}")
    if fault == "corrupt" and not spec.startswith("file:"):
        raise ValueError("the fault 'corrupt' damages files: it needs the storage file:DIR")


class StorageBreaker:
    """Breaks the storage of one rank at fixed requests of a workload.

    `delete` removes the directory (memory: every page) half-way; `corrupt` damages one per cent of the files at a
    quarter, half and three quarters; `raise` makes every call raise from half-way on. Files are shared by the ranks, so
    rank 0 alone breaks them, while the others go on. ValueError: see check_fault.
    """

    def __init__(self, fault: str | None, spec: str, storage: Storage, rank: int, requests: int, seed: int) -> None:
        check_fault(fault, spec)
        kind, _, directory = spec.partition(":")
        self.damaged_files = 0
        self.storage: Storage = storage
        self._rank = rank
        self._directory = Path(directory) if kind == "file" else None
        self._random = random.Random(f"damage {seed}")
        self._due: list[tuple[int, Callable[[], None]]] = []
        half = requests // 2
        if fault == "delete":
            self._due = [(half, self._delete)]
        elif fault == "corrupt":
            self._due = [(requests * quarter // 4, self._corrupt) for quarter in (1, 2, 3)]
        elif fault == "raise":
            faulty = FaultyStorage(storage)
            self.storage = faulty
            self._due = [(half, lambda: _raise_always(faulty))]

    def started(self, requests: int) -> None:
        """`requests` requests were admitted so far; strike if it is time."""
        while self._due and self._due[0][0] <= requests:
            self._due.pop(0)[1]()

    def _delete(self) -> None:
        if self._directory is None:
            self.storage.clear()
        elif self._rank == 0:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _corrupt(self) -> None:
        if self._directory is None or self._rank != 0:
            return
        files = sorted(path for path in self._directory.glob("??/*") if not path.name.startswith("."))
        for path in self._random.sample(files, max(1, round(len(files) * CORRUPT_SHARE)) if files else 0):
            self.damaged_files += _damage(path, self._random)


def _raise_always(faulty: FaultyStorage) -> None:
    faulty.raise_on("exists")
    faulty.raise_on("get")
    faulty.raise_on("put")


def _damage(path: Path, draw: random.Random) -> bool:
    """Cut the file, or flip one of its bytes; False when it is gone or empty."""
    try:
        content = bytearray(path.read_bytes())
        if not content:
            return False
        at = draw.randrange(len(content))
        if draw.random() < 0.5:
            del content[at:]
        else:
            content[at] ^= 0xFF
        path.write_bytes(content)
    except OSError:
        return False
    return True
