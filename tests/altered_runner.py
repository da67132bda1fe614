"""A workload runner that lies: the real one, with one number of one rank's log changed afterwards."""

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
        if event["kind"] == "submitted":
            event["data"]["span"] = 1
            lines[number] = json.dumps(event)
            break
    else:
        raise AssertionError("nothing was submitted")
    log.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return report
