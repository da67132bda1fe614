"""Our own engines, measured like the peers: a process of their own, by the command that a user would type.

A design of the specification is explored by `hicheck explore`; the small protocol, which is none, by this module.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hicache_checks import __version__
from hicache_checks.engine.engines import EngineOptions, explore
from hicache_checks.engine.explore import STATE_IN_BOUNDS
from hicache_checks.peers.measure import Measured, PeerFailed, PeerResult, last_line, measure, not_finished
from hicache_checks.peers.small_protocol import SMALL_PROTOCOL, SmallBounds
from hicache_spec import BoundSpec

FOUND_SOMETHING = (0, 1, 3)


@dataclass(frozen=True)
class OursOptions:
    """Which engine, with how many threads; `max_states` cuts the run. Unchecked: no property but the types."""

    engine: str
    threads: int = 1
    symmetry: bool = False
    max_states: int | None = None
    seconds_max: float | None = None
    checked: bool = True

    @property
    def name(self) -> str:
        """The name of the row."""
        how = " with symmetry" if self.symmetry else "" if self.checked else ", without properties"
        return f"hicheck {self.engine}{how}"


def run_command(sizes: Sequence[str], options: OursOptions) -> PeerResult:
    """`hicheck explore` with these sizes. Raises PeerFailed."""
    command = [sys.executable, "-m", "hicache_checks.cli", "explore", *sizes, "--engine", options.engine]
    command += ["--threads", str(options.threads), "--jobs", "1", "--json", "-"]
    command += ["--symmetry"] if options.symmetry else []
    command += [] if options.checked else ["--only", STATE_IN_BOUNDS]
    command += ["--max-states", str(options.max_states)] if options.max_states else []
    return _measured(command, options)


def run_small(bounds: SmallBounds, options: OursOptions) -> PeerResult:
    """The small protocol. Raises PeerFailed."""
    task = {"bounds": asdict(bounds), "engine": options.engine, "threads": options.threads}
    return _measured([sys.executable, "-m", __name__, json.dumps(task)], options)


def _measured(command: Sequence[str], options: OursOptions) -> PeerResult:
    with tempfile.TemporaryDirectory(prefix="hicheck-cache-") as cache:  # nothing is compiled yet
        measured = measure(command, Path.cwd(), options.seconds_max, {"XDG_CACHE_HOME": cache})
    if measured.timed_out:
        raise not_finished(options.name, measured)
    try:
        document = json.loads(measured.stdout)
        found = document.get("configurations", [document])[0]
    except (ValueError, IndexError):
        raise PeerFailed(f"{options.name}: {last_line(measured)}") from None
    if measured.code not in FOUND_SOMETHING:
        raise PeerFailed(f"{options.name}: {document.get('error', last_line(measured))}")
    return _result(found, document, measured, options)


def _result(found: dict[str, Any], document: dict[str, Any], measured: Measured, options: OursOptions) -> PeerResult:
    build = float(found.get("build_seconds", 0.0))
    own = int(found.get("bytes_peak") or 0)
    notes = [f"exploration alone {found['seconds']:.2f} s"]
    if own:
        notes.append(f"states and tables {own / max(1, found['states']):.0f} bytes a state")
    notes.append("all properties" if options.checked else "types only")
    violations = document.get("violations", [])
    return PeerResult(
        name=options.name,
        cores=options.threads,
        states=found["states"],
        transitions=found["transitions"],
        seconds=measured.seconds - build,
        compile_seconds=build,
        peak_bytes=measured.peak_bytes,
        version=__version__,
        note=", ".join(notes),
        complete=found["complete"],
        violated=violations[0]["property"] if violations else None,
        depth=found["depth"],
    )


def _explore_small(task: dict[str, Any]) -> dict[str, Any]:
    """What the measured process does for the small protocol."""
    spec = BoundSpec(SMALL_PROTOCOL, SmallBounds(**task["bounds"]))
    result = explore(spec, EngineOptions(engine=task["engine"], threads=task["threads"]))
    names = ("states", "transitions", "depth", "seconds", "complete", "build_seconds", "bytes_peak")
    found = {name: getattr(result, name) for name in names}
    return {**found, "violations": [{"property": result.violation.property}] if result.violation else []}


if __name__ == "__main__":
    print(json.dumps(_explore_small(json.loads(sys.argv[1]))))  # noqa: T201
