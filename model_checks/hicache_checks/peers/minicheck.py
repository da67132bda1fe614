"""The PyPI checker `minicheck` on our specification as it stands: both are plain Python.

Its states are our states as bytes, its transitions our steps. It runs in a process of its own, to be measured.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from hicache_checks.peers.measure import PeerFailed, PeerMissing, PeerResult, last_line, measure, not_finished
from hicache_spec import DESIGNS, Bounds, BoundSpec, Refused

STATES_MAX = 100_000_000


def is_installed() -> bool:
    """Is the package here?"""
    return bool(_version())


def run(design: str, bounds: Bounds, *, max_states: int = STATES_MAX, seconds_max: float | None = None) -> PeerResult:
    """Explore a design. Raises PeerMissing or PeerFailed; a run that is killed at `seconds_max` has failed."""
    if not is_installed():
        raise PeerMissing("minicheck is not installed (PyPI: minicheck)")
    task = json.dumps({"design": design, "bounds": asdict(bounds), "max_states": max_states})
    measured = measure([sys.executable, "-m", __name__, task], Path.cwd(), seconds_max)
    if measured.timed_out:
        raise not_finished("minicheck", measured)
    try:
        found = json.loads(measured.stdout)
    except ValueError:
        raise PeerFailed(f"minicheck: {last_line(measured)}") from None
    return PeerResult(
        name="minicheck",
        cores=1,
        states=found["states"],
        transitions=None,
        seconds=measured.seconds,
        compile_seconds=0.0,
        peak_bytes=measured.peak_bytes,
        version=_version(),
        note="our rules as plain Python, with invariants",
        complete=found["complete"] and found["violated"] is None,
        violated=found["violated"],
        depth=found["depth"],
    )


def _version() -> str:
    try:
        return version("minicheck")
    except PackageNotFoundError:
        return ""


def _explore(task: dict[str, Any]) -> dict[str, Any]:
    """What the measured process does."""
    checker = import_module("minicheck")
    bounds: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in task["bounds"].items()}
    spec = BoundSpec(DESIGNS[task["design"]], Bounds(**bounds))

    def transitions(state: tuple[bytes]) -> list[tuple[str, tuple[bytes]]]:
        found = []
        after = spec.decode(state[0])
        for step in spec.steps:
            try:
                step.run(after)
            except Refused:
                continue  # guards come first: `after` is still as it was
            found.append((step.label, (spec.encode(after),)))
            after = spec.decode(state[0])
        return found

    result = checker.check_safety(
        checker.Protocol(
            name=spec.design.name,
            candidate=False,
            fields=("state",),
            initial=(spec.encode(spec.initial()),),
            transitions=transitions,
            invariants={
                p.rule.name: lambda named, holds=p.holds: holds(spec.decode(named["state"])) for p in spec.invariants
            },
        ),
        max_states=task["max_states"],
    )
    broken = {
        name: len(found["counterexample"]) - 1
        for name, found in result["properties"].items()
        if found["holds"] is False
    }
    first = min(broken, key=lambda name: broken[name], default=None)
    return {
        "states": result["reachable_states"],
        "complete": result["exhaustive"],
        "violated": first,
        "depth": None if first is None else broken[first],
    }


if __name__ == "__main__":
    print(json.dumps(_explore(json.loads(sys.argv[1]))))  # noqa: T201
