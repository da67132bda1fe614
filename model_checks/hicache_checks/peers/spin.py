"""Spin on an exported model: generate, compile, run, each in a process of its own.

Depth-first by default, because it is the faster of Spin's two searches here; breadth-first where the shortest run to a
violation is wanted. The search compares whole states (no bitstate, no hash compaction), without partial-order
reduction.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hicache_checks.export import Promela
from hicache_checks.peers.measure import (
    Measured,
    PeerFailed,
    PeerMissing,
    PeerResult,
    last_line,
    measure,
    not_finished,
)

SAFETY = ("-DSAFETY", "-DNOREDUCE")
TUNED = ("-DNOCOMP",)
"""States are stored as they are, not byte-masked: a third faster and a few bytes more a state on these models."""
DEPTH_MAX = 100_000


@dataclass(frozen=True)
class SpinOptions:
    """How Spin is run. `table_bits` is the size of its hash table; one that fits the states is the fastest."""

    checked: bool = True
    breadth_first: bool = False
    optimise: str = "-O3"
    tuned: bool = True
    table_bits: int = 22
    seconds_max: float | None = None
    memory_mib: int = 12_000


def is_installed() -> bool:
    """Are Spin and a C compiler here?"""
    return shutil.which("spin") is not None and shutil.which("cc") is not None


def run(model: Promela, options: SpinOptions | None = None) -> PeerResult:
    """Explore an exported model. Raises PeerMissing or PeerFailed."""
    return run_text(model.text(), model.extra_states, options)


def run_text(text: str, extra_states: int = 0, options: SpinOptions | None = None) -> PeerResult:
    """Explore a model in Promela, of which `extra_states` are no states of the specification."""
    options = options or SpinOptions()
    if not is_installed():
        raise PeerMissing("spin is not installed (Debian: spin, gcc)")
    with tempfile.TemporaryDirectory(prefix="hicheck-spin-") as name:
        directory = Path(name)
        (directory / "model.pml").write_text(text, encoding="utf-8")
        compile_seconds = _compile(directory, options)
        command = ["./pan", f"-m{DEPTH_MAX}", f"-w{options.table_bits}"]
        measured = measure(command, directory, options.seconds_max)
    return _result(measured, extra_states, compile_seconds, options)


def _compile(directory: Path, options: SpinOptions) -> float:
    macros = [] if options.checked else ["-DUNCHECKED"]
    flags = [options.optimise, "-w", *SAFETY, *(TUNED if options.tuned else ()), f"-DMEMLIM={options.memory_mib}"]
    if options.breadth_first:
        macros.append("-DNO_HIDDEN")
        flags.append("-DBFS")
    seconds = 0.0
    for command in (["spin", "-a", "-o2", *macros, "model.pml"], ["cc", *flags, "-o", "pan", "pan.c"]):
        measured = measure(command, directory)
        seconds += measured.seconds
        if measured.code != 0 or "Error" in measured.stdout:
            wrong = [line for line in measured.stdout.splitlines() if "Error" in line]
            raise PeerFailed(f"{command[0]}: {wrong[0] if wrong else last_line(measured)}")
    return seconds


def _result(measured: Measured, extra_states: int, compile_seconds: float, options: SpinOptions) -> PeerResult:
    text = measured.stdout
    states = _number(r"^\s*([\d.e+]+) states, stored", text)
    if states is None:
        raise not_finished("spin", measured) if measured.timed_out else PeerFailed(f"pan: {last_line(measured)}")
    vector = _number(r"State-vector (\d+) byte", text)
    depth = _number(r"depth reached (\d+)", text)
    wrong = re.search(r"assertion violated\s+!\((\w+)_is_violated\)", text)
    errors = _number(r"errors: (\d+)", text) or 0
    cut = "max search depth too small" in text or "out of memory" in text.lower() or "Search not completed" in text
    flags = " ".join((options.optimise, *SAFETY, *(TUNED if options.tuned else ())))
    search = "breadth-first" if options.breadth_first else "depth-first"
    if errors and wrong is None:
        raise PeerFailed(f"pan: {next((x for x in text.splitlines() if x.startswith('pan:')), last_line(measured))}")
    return PeerResult(
        name="spin" if options.tuned else "spin, standard flags",
        cores=1,
        states=states - extra_states,
        transitions=_transitions(text, extra_states),
        seconds=measured.seconds,
        compile_seconds=compile_seconds,
        peak_bytes=measured.peak_bytes,
        version=_version(text),
        note=f"{search}, {flags}, {'with' if options.checked else 'without'} properties, vector {vector} bytes",
        complete=not (cut or errors or measured.timed_out),
        stopped_after=measured.seconds if measured.timed_out else None,
        violated=None if wrong is None else wrong.group(1).removeprefix("no_"),
        depth=_violation_depth(text, extra_states) if wrong else depth,
    )


def _transitions(text: str, extra_states: int) -> int | None:
    """Spin counts the initial state as a transition, too, and a step that sets the initial values."""
    count = _number(r"^\s*([\d.e+]+) transitions", text)
    return None if count is None else count - 1 - extra_states


def _violation_depth(text: str, extra_states: int) -> int | None:
    """Steps to the state that violates the property; the option that finds out is one more, and not counted here."""
    depth = _number(r"assertion violated .*\(at depth (\d+)\)", text)
    return None if depth is None else depth - extra_states


def _version(text: str) -> str:
    found = re.search(r"Spin Version ([\d.]+)", text)
    return found.group(1) if found else ""


def _number(pattern: str, text: str) -> int | None:
    found = re.search(pattern, text, re.MULTILINE)
    return None if found is None else int(float(found.group(1)))
