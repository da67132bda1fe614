"""The suite in a process of its own: `store_job`, which a worker does."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hicache_checks.conformance.workers import UNNUMBERED
from hicache_checks.implementations import STORES, load
from hicache_checks.reporting import InputError
from hicache_checks.stores.suite import CHECKS, make_checks
from hicache_checks.stores.under_check import Wrong

Say = Callable[[Mapping[str, Any]], None]

UNAVAILABLE = "Unavailable"


def store_job(job: Mapping[str, Any], say: Say) -> None:
    """Make the checks that the job names, and say what came of each.

    Raises InputError when there is no such store, or it cannot be had: an exception of its that is called
    `Unavailable` says why.
    """
    factory = load(STORES, job["target"])
    names = list(CHECKS)
    running = Path(job["running"])
    _note(running, UNNUMBERED)
    say({"loaded": True})
    try:
        for checked in make_checks(factory, job["checks"], lambda name: _note(running, names.index(name))):
            say(asdict(checked))
    except Wrong as wrong:
        raise InputError(f"{job['target']} is no store: {wrong}") from wrong
    except Exception as error:
        if type(error).__name__ == UNAVAILABLE:
            raise InputError(f"{job['target']} cannot be had here: {error}") from error
        raise


def _note(running: Path, number: int) -> None:
    """Where the parent sees it even when this process is dead."""
    with running.open("r+b") as file:
        os.pwrite(file.fileno(), struct.pack("<q", number), 0)
