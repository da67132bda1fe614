"""Workload runners that lie: the real one, with something of one rank's log changed afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hicache_impl import workload


def run(options: Mapping[str, Any], progress: Callable[[str], None]) -> dict[str, Any]:
    """Run the workload, then let the first operation in the log have asked for a single page."""
    report = workload.run(options, progress)
    log = Path(report["logs"][0])
    lines = log.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines):
        event = json.loads(line)
        if event.get("kind") == "submitted":
            event["data"]["span"] = 1
            lines[number] = json.dumps(event)
            break
    else:
        raise AssertionError("nothing was submitted")
    log.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return report


def cut_short(options: Mapping[str, Any], progress: Callable[[str], None]) -> dict[str, Any]:
    """The log ends in the middle of its 101st line."""
    report = workload.run(options, progress)
    log = Path(report["logs"][0])
    lines = log.read_text(encoding="utf-8").splitlines(keepends=True)
    log.write_text("".join(lines[:100]) + lines[100][:20], encoding="utf-8")
    return report


def killed(options: Mapping[str, Any], progress: Callable[[str], None]) -> dict[str, Any]:
    """The same, and the report says why."""
    return {**cut_short(options, progress), "violations": ["rank 0: ended without a result"]}


def of_another(options: Mapping[str, Any], progress: Callable[[str], None]) -> dict[str, Any]:
    """The log is that of a larger system."""
    return workload.run({**options, "host_pages": 2 * options["host_pages"]}, progress)
