"""`hicheck verify` as a user runs it: one command, one table, one exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hicache_spec import DESIGNS

PARTS = (
    *("specification", "specification", "liveness", "refinement", "designs", "mutants"),
    *("implementation", "workload"),
)
NOT_COVERED = ("simulation", "releases")


@pytest.mark.heavy
@pytest.mark.timeout(600)
def test_the_main_job(tmp_path: Path) -> None:
    file = tmp_path / "verify.json"
    done = subprocess.run(
        [sys.executable, "-m", "hicache_checks.cli", "verify", "--json", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    rows = len(PARTS) + len(NOT_COVERED)
    assert [line.split()[0] for line in lines[:rows]] == [*PARTS, *NOT_COVERED]
    assert all("not covered yet" in line for line in lines[len(PARTS) : rows])
    assert lines[rows].split() == ["property", *(name for name in DESIGNS if name != "decide_at_drain")]
    assert "step_drain_decides_its_own_attempt  11 steps " in lines[rows + 1]
    assert lines[-1] == "verdict: pass"
    document = json.loads(file.read_text(encoding="utf-8"))
    assert (document["command"], document["verdict"]) == ("verify", "pass")
    small, medium, live, *rest = document["parts"]
    assert small["states"] == 129_235
    assert medium["states"] == 4_191_833
    assert live["cases"] > 20
    parts = {part["part"]: part for part in rest}
    assert parts["refinement"]["refuted_in_steps"] == {"host_pressure": [21, 11], "no_host_pressure": [None, None]}
    assert parts["designs"]["violated"]["revoke_queue"] == {}
    assert parts["designs"]["violated"]["alloc_first"]["inv_no_memory_before_verdict"] == 1
    assert "live_submitted_operations_end" in parts["designs"]["violated"]["decide_at_drain_by_rid"]
    assert parts["mutants"]["caught"] == parts["mutants"]["total"] >= 57
    assert parts["implementation"]["outcomes"]["fetched: all"] > 0
    assert parts["workload"]["pages_left"] == 0
    assert parts["workload"]["events_explained"] > 1_000


def test_a_missing_trace_is_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hicache_checks.cli", "verify", "--workload", "no-such-file.jsonl"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "no-such-file.jsonl" in done.stderr
    assert "Traceback" not in done.stderr
